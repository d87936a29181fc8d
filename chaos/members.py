"""The members of a run: real `causalcast node` processes with journals."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from chaos.proxy import Network

BACKLOG_BYTES: Final = 1 << 14
"""Of lines that a member has not read: who is stopped is not told more."""
LAST_SECONDS: Final = 20.0


class ChaosError(Exception):
    """The run could not be made, or a member did what it must not."""


class Member:
    """One member over all its lives."""

    def __init__(self, name: str, port: int, network: Network, folder: Path, durability: str) -> None:
        self.name = name
        self.lives = 0
        self._network = network
        self._port = port
        self._folder = folder
        self._durability = durability
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        """Held while a life ends or begins."""
        self._stopped = 0
        self._down = 0
        self._lines = 0

    async def start(self) -> None:
        """Begin a life, or go on with the last one from the journal."""
        peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in self._network.ports[self.name].items())
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(Path(sys.executable).with_name("causalcast")),
                *("node", self.name, "--listen", f"127.0.0.1:{self._port}", "--peers", peers),
                *("--trace", str(self._folder / "trace"), "--journal", str(self._folder / f"{self.name}.journal")),
                *("--durability", self._durability),
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

    def check(self) -> None:
        """Raises `ChaosError` if it has ended and nobody has killed it."""
        expected = self._down or self._changing.locked()
        if not expected and self._process is not None and self._process.returncode is not None:
            said = (self._folder / f"{self.name}.log").read_text(errors="replace").strip().splitlines()
            raise ChaosError(f"{self.name} ended with {self._process.returncode}: {said[-1] if said else 'no word'}")

    def say(self) -> None:
        """Have it broadcast a line of its own, unless it is down or has not read the last ones."""
        if self.running and self._process is not None and self._process.stdin is not None:
            pipe = self._process.stdin
            if not pipe.is_closing() and pipe.transport.get_write_buffer_size() < BACKLOG_BYTES:
                self._lines += 1
                pipe.write(f"{self.name}/{self._lines}\n".encode())

    async def kill(self, seconds: float) -> None:
        """`kill -9`, and another life after `seconds`. Several at once last as long as the last of them."""
        self._down += 1
        async with self._changing:
            if self._process is not None and self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
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
        assert self._process is not None
        self._signal(signal.SIGTERM)
        try:
            status = await asyncio.wait_for(self._process.wait(), LAST_SECONDS)
        except TimeoutError:
            raise ChaosError(f"{self.name} did not end within {LAST_SECONDS:.0f} s") from None
        if status:
            raise ChaosError(f"{self.name} ended with {status}")

    def destroy(self) -> None:
        """Leave nothing of it behind, whatever has happened."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


async def _drain(lines: asyncio.StreamReader) -> None:
    while await lines.read(1 << 16):
        pass


async def workload(members: list[Member], per_second: float, seed: int) -> None:
    """All together broadcast so many lines a second, at random moments, until cancelled."""
    draw = random.Random(f"{seed}/workload")
    while True:
        await asyncio.sleep(draw.expovariate(per_second))
        member = draw.choice(members)
        member.check()
        member.say()
