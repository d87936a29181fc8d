"""The members of a run: real `causalcast node` processes."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

BACKLOG_BYTES: Final = 1 << 14
"""Of lines that a member has not read: who is stopped is not told more."""
LAST_SECONDS: Final = 20.0


class ChaosError(Exception):
    """The run could not be made, or a member did what it must not."""


class Member:
    """One member over all its lives."""

    def __init__(self, name: str, port: int, folder: Path, options: Sequence[str]) -> None:
        """`folder` gets its trace and its log; `options` are those of `causalcast node` beyond name, port and trace."""
        self.name = name
        self.lives = 0
        self._port = port
        self._folder = folder
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        """Held while a life ends or begins."""
        self._stopped = 0
        self._down = 0
        self._lines = 0

    async def start(self) -> None:
        """Begin a life, or go on with the last one from the journal."""
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("causalcast")),
                *("node", self.name, "--listen", f"127.0.0.1:{self._port}", "--trace", str(self._folder / "trace")),
                *self._options,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        self.lives += 1
        assert self._process.stdout is not None
        self._reading = asyncio.create_task(_drain(self._process.stdout))

    @property
    def running(self) -> bool:
        """Whether it has a process that is not stopped."""
        return self._process is not None and self._process.returncode is None and not self._stopped

    @property
    def opened(self) -> bool:
        """Whether its group is open: whoever joins is a member by then."""
        return (self._folder / "trace" / f"{self.name}.jsonl").exists()

    @property
    def status(self) -> int | None:
        """With which its process has ended, if it has."""
        return None if self._process is None else self._process.returncode

    @property
    def last_word(self) -> str:
        """The last line on its standard error, in any life."""
        said = (self._folder / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
        return said[-1] if said else "no word"

    def check(self) -> None:
        """Raises `ChaosError` if it has ended and nobody has killed it."""
        expected = self._down or self._changing.locked()
        if not expected and self.status is not None:
            raise ChaosError(f"{self.name} ended with {self.status}: {self.last_word}")

    def say(self) -> None:
        """Have it broadcast a line of its own, unless it is down or has not read the last ones."""
        if self.running and self._process is not None and self._process.stdin is not None:
            pipe = self._process.stdin
            if not pipe.is_closing() and pipe.transport.get_write_buffer_size() < BACKLOG_BYTES:
                self._lines += 1
                pipe.write(f"{self.name}/{self._lines}\n".encode())

    async def kill(self) -> None:
        """`kill -9`, for good."""
        self._down += 1
        async with self._changing:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    async def restart(self, seconds: float) -> None:
        """`kill -9`, and another life after `seconds`. Several at once last as long as the last of them."""
        await self.kill()
        await asyncio.sleep(seconds)
        async with self._changing:
            self._down -= 1
            if not self._down:
                await self.start()

    async def stop(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT after `seconds`."""
        self._stopped += 1
        self._signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self._stopped -= 1
        if not self._stopped:
            self._signal(signal.SIGCONT)

    async def end(self) -> None:
        """SIGTERM; raises `ChaosError` if it does not end well."""
        self._signal(signal.SIGTERM)
        status = await self.ended(LAST_SECONDS)
        if status:
            raise ChaosError(f"{self.name} ended with {status}: {self.last_word}")

    async def ended(self, seconds: float) -> int:
        """The status of its process, which ends within so many seconds; raises `ChaosError` if it does not."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            raise ChaosError(f"{self.name} did not end within {seconds:.0f} s") from None

    def destroy(self) -> None:
        """Leave nothing of it behind, whatever has happened."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def _drain(lines: asyncio.StreamReader) -> None:
    while await lines.read(1 << 16):
        pass


async def workload(members: Callable[[], Sequence[Member]], per_second: float, seed: int) -> None:
    """All `members` together broadcast so many lines a second, at random moments, until cancelled."""
    draw = random.Random(f"{seed}/workload")
    while True:
        await asyncio.sleep(draw.expovariate(per_second))
        member = draw.choice(members())
        member.check()
        member.say()


class Setting(NamedTuple):
    """How a group is run."""

    seconds: float
    seed: int
    rate: float
    folder: Path
    heal_seconds: float
    console: Console

    def say(self, line: str) -> None:
        """Tell how far it is."""
        self.console.print(line, markup=False, highlight=False)


class Report(NamedTuple):
    """What a group went through."""

    faults: Counter[str]
    """By kind."""
    members: int
    """That were there at some time."""
    lives: int
    """Of all of them together."""


async def watched(speaking: asyncio.Task[None], setting: Setting) -> None:
    """Wait for the end of the faults, or for what the workload raises."""
    with setting.console.status("Things go wrong"):
        await asyncio.wait([speaking], timeout=setting.seconds)
    if speaking.done():
        await speaking


def rows(path: Path) -> Counter[str]:
    """Rows of a trace by kind of event; the last line may be under way."""
    found: Counter[str] = Counter()
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                found[msgspec.json.decode(line)["event"]] += 1
    return found
