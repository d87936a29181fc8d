"""Runs the workload once: starts the processes, pauses one, resets a connection, waits until all have seen all."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.protocols import stack
from demo.member import Orders, Report
from demo.proxy import Network
from demo.workload import MEMBERS, Plan, Score

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT: Final = Path(__file__).resolve().parent.parent
LEAD_SECONDS: Final = 2.0
"""From starting the members to the first message: interpreters start slowly."""
PAUSED: Final = "monica"
PAUSE_AFTER: Final = 4.0
PAUSE_SECONDS: Final = 2.0
RESET: Final = ("rachel", "phoebe")
RESET_AFTER: Final = 7.0
TIME_LIMIT: Final = 40.0
LEAVE_SECONDS: Final = 10.0
LONGEST_LINE: Final = 1 << 20


class DemoError(Exception):
    """The run could not be made or did not end."""


class Outcome(msgspec.Struct, frozen=True):
    """A run that ended: what each member noticed, and how long it took from the first message to the last."""

    stack: str
    traces: Path
    scores: dict[str, Score]
    seconds: float


class Watcher(msgspec.Struct, frozen=True):
    """Who is told how the run goes."""

    progress: Callable[[str, Score], None]
    news: Callable[[str], None]


async def perform(stack_name: str, folder: Path, plan: Plan, watcher: Watcher) -> Outcome:
    """Run the workload on one stack; traces are written below `folder`.

    Raises:
        DemoError: a process failed, or the time limit passed.
    """
    traces = folder / "traces"
    shutil.rmtree(folder, ignore_errors=True)
    traces.mkdir(parents=True)
    listen = dict(zip(MEMBERS, _free_ports(len(MEMBERS)), strict=True))
    stability = "P6" in stack(stack_name).promises
    async with contextlib.AsyncExitStack() as processes:
        network = Network(listen, plan.seed)
        proxy = await processes.enter_async_context(_process(folder, "proxy", network))
        dials = msgspec.json.decode(await _line(proxy, "proxy", folder), type=dict[str, dict[str, int]])
        start_at = time.time() + LEAD_SECONDS
        members = {}
        for name in MEMBERS:
            orders = Orders(
                name=name,
                stack=stack_name,
                listen=f"127.0.0.1:{listen[name]}",
                peers={peer: f"127.0.0.1:{port}" for peer, port in dials[name].items()},
                trace=str(traces),
                stability=stability,
                start_at=start_at,
                plan=plan,
            )
            members[name] = await processes.enter_async_context(_process(folder, "member", orders, name))
        reading = {name: _follow(process, name, folder, watcher) for name, process in members.items()}
        try:
            async with asyncio.timeout(TIME_LIMIT), asyncio.TaskGroup() as tasks:
                tasks.create_task(_pause(members[PAUSED], start_at, watcher))
                tasks.create_task(_reset(proxy, start_at, watcher))
                scores = {name: tasks.create_task(follow) for name, follow in reading.items()}
            seconds = time.time() - start_at
        except TimeoutError:
            raise DemoError(f"the members were not done after {TIME_LIMIT:.0f} s") from None
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await asyncio.gather(*(_leave(process, name, folder) for name, process in members.items()))
    return Outcome(stack_name, traces, {name: task.result() for name, task in scores.items()}, seconds)


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(number)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


@contextlib.asynccontextmanager
async def _process(
    folder: Path, module: str, orders: msgspec.Struct, name: str | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the demonstration; nothing of it is left when the block ends."""
    with (folder / f"{name or module}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"demo.{module}",
            msgspec.json.encode(orders).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            limit=LONGEST_LINE,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            # Not SIGTERM: a paused process would not see it.
            process.kill()
        await process.wait()


async def _line(process: asyncio.subprocess.Process, name: str, folder: Path) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        await process.wait()
        said = (folder / f"{name}.log").read_text().strip().splitlines()
        raise DemoError(f"{name} ended with {process.returncode}: {said[-1] if said else 'no word'}")
    return line


async def _follow(process: asyncio.subprocess.Process, name: str, folder: Path, watcher: Watcher) -> Score:
    while True:
        report = msgspec.json.decode(await _line(process, name, folder), type=Report)
        watcher.progress(name, report.score)
        if report.done:
            return report.score


async def _pause(process: asyncio.subprocess.Process, start_at: float, watcher: Watcher) -> None:
    await asyncio.sleep(start_at + PAUSE_AFTER - time.time())
    process.send_signal(signal.SIGSTOP)
    watcher.news(f"{PAUSED} is paused for {PAUSE_SECONDS:.0f} s")
    try:
        await asyncio.sleep(PAUSE_SECONDS)
    finally:
        process.send_signal(signal.SIGCONT)
    watcher.news(f"{PAUSED} goes on")


async def _reset(proxy: asyncio.subprocess.Process, start_at: float, watcher: Watcher) -> None:
    await asyncio.sleep(start_at + RESET_AFTER - time.time())
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    proxy.stdin.write(f"reset {' '.join(RESET)}\n".encode())
    if not int(await proxy.stdout.readline()):
        raise DemoError(f"no connection between {' and '.join(RESET)} was there to reset")
    watcher.news(f"the connection between {' and '.join(RESET)} is reset")


async def _leave(process: asyncio.subprocess.Process, name: str, folder: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), LEAVE_SECONDS)
    except TimeoutError:
        raise DemoError(f"{name} did not leave within {LEAVE_SECONDS:.0f} s") from None
    if process.returncode:
        await _line(process, name, folder)
