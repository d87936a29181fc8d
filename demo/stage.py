"""Runs the workload once: starts the processes, pauses one, resets a connection, waits until all have seen all."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from causalcast.protocols import stack
from demo.member import Orders, Report
from demo.processes import DemoError, end, free_ports, line_of, started
from demo.proxy import Network
from demo.workload import MEMBERS, Plan, Score

LEAD_SECONDS: Final = 2.0
"""From starting the members to the first message: interpreters start slowly."""
PAUSED: Final = "monica"
PAUSE_AFTER: Final = 4.0
PAUSE_SECONDS: Final = 2.0
RESET: Final = ("rachel", "phoebe")
RESET_AFTER: Final = 7.0
TIME_LIMIT: Final = 40.0


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
    listen = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
    stability = "P6" in stack(stack_name).promises
    async with contextlib.AsyncExitStack() as processes:
        network = Network(listen, plan.seed)
        proxy = await processes.enter_async_context(started(folder, "proxy", network))
        dials = msgspec.json.decode(await line_of(proxy, "proxy", folder), type=dict[str, dict[str, int]])
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
            members[name] = await processes.enter_async_context(started(folder, "member", orders, name))
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
        await asyncio.gather(*(end(process, name, folder) for name, process in members.items()))
    return Outcome(stack_name, traces, {name: task.result() for name, task in scores.items()}, seconds)


async def _follow(process: asyncio.subprocess.Process, name: str, folder: Path, watcher: Watcher) -> Score:
    while True:
        report = msgspec.json.decode(await line_of(process, name, folder), type=Report)
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
