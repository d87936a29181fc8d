"""Runs `demo.gossip` once: members that join, leave and are killed while all talk, until those who are left agree."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from demo.gossiper import Orders, Report
from demo.processes import DemoError, free_ports, line_of, started

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

STARTING: Final = 6
"""Processes that start at the same time: interpreters take a processor each."""
START_LIMIT: Final = 120.0
CONVERGENCE_LIMIT: Final = 90.0
QUIET_SECONDS: Final = 1.5
"""Nobody hears anything new for so long before the run counts as over."""


class Plan(msgspec.Struct, frozen=True):
    """How large the crowd is, and what happens to it while it talks."""

    stack: str = "cptcast"
    members: int = 34
    """Who are there before anybody talks."""
    joins: int = 6
    leaves: int = 3
    kills: int = 5
    """The contact of the first members is killed first."""
    seconds: float = 20.0
    interval_seconds: float = 2.0
    seed: int = 11

    @property
    def names(self) -> list[str]:
        """Of everyone who is ever there."""
        return [f"m{number:02}" for number in range(self.members + self.joins)]

    def events(self) -> list[str]:
        """What happens, in order, at equal distances."""
        events = ["join"] * self.joins + ["leave"] * self.leaves + ["kill"] * self.kills
        random.Random(f"{self.seed}/events").shuffle(events)
        return events


class Outcome(msgspec.Struct, frozen=True):
    """A run that ended."""

    traces: Path
    killed: list[str]
    left: list[str]
    joined: list[str]
    messages: int
    start_seconds: float
    """Until all of the beginning had joined."""
    settle_seconds: float
    """From the last message until everyone had all."""


class Actor:
    """A process of the crowd, as its parent knows it."""

    def __init__(self, name: str, address: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.address = address
        self.process = process
        self.report = Report(0, talking=False, heard={})
        self.joined = asyncio.Event()
        self.gone = False
        self.follows: asyncio.Task[None] | None = None

    def tell(self, line: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def follow(self, folder: Path) -> None:
        """Keep its latest report; raises `DemoError` if it ends by itself."""
        while True:
            try:
                line = await line_of(self.process, self.name, folder)
            except DemoError:
                if self.gone:
                    return
                raise
            self.report = msgspec.json.decode(line, type=Report)
            self.joined.set()


class Crowd:
    """Everyone who is or was there."""

    def __init__(self, plan: Plan, folder: Path, news: Callable[[str], None]) -> None:
        self._plan = plan
        self._folder = folder
        self._news = news
        self._random = random.Random(f"{plan.seed}/crowd")
        self._processes = contextlib.AsyncExitStack()
        self._ports = dict(zip(plan.names, free_ports(len(plan.names)), strict=True))
        self._starting = asyncio.Semaphore(STARTING)
        self._follows: list[asyncio.Task[None]] = []
        self.actors: dict[str, Actor] = {}
        self.killed: list[str] = []
        self.left: list[str] = []
        self.joined: list[str] = []

    async def run(self) -> Outcome:
        """The whole of it; raises `DemoError`."""
        plan = self._plan
        first, *others = plan.names[: plan.members]
        async with self._processes, self._following():
            began = time.monotonic()
            contact = await self._start(first, "")
            await asyncio.gather(*(self._start(name, contact.address) for name in others))
            start_seconds = time.monotonic() - began
            self._news(f"{plan.members} processes have joined through {first} after {start_seconds:.1f} s")
            self._tell_all("go")
            events = plan.events()
            for event in events:
                await asyncio.sleep(plan.seconds / (len(events) + 1))
                await self._happen(event)
            await asyncio.sleep(plan.seconds / (len(events) + 1))
            self._tell_all("stop")
            stopped = time.monotonic()
            await self._converge()
            settle_seconds = time.monotonic() - stopped - QUIET_SECONDS
            messages = sum(actor.report.sent for actor in self.actors.values())
            # The end of the play: whoever left now would not be owed anything, and the audit has to judge what is.
            for actor in self._live():
                actor.gone = True
                actor.process.kill()
        return Outcome(
            self._folder / "traces", self.killed, self.left, self.joined, messages, start_seconds, settle_seconds
        )

    @contextlib.asynccontextmanager
    async def _following(self) -> AsyncIterator[None]:
        """Whoever is followed is so until the end of the block, however that comes about."""
        try:
            yield
        finally:
            for task in self._follows:
                task.cancel()
            await asyncio.gather(*self._follows, return_exceptions=True)

    def _live(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if not actor.gone]

    def _tell_all(self, line: str) -> None:
        for actor in self._live():
            actor.tell(line)

    async def _start(self, name: str, contact: str) -> Actor:
        plan = self._plan
        address = f"127.0.0.1:{self._ports[name]}"
        traces = str(self._folder / "traces")
        orders = Orders(name, plan.stack, address, contact, traces, plan.interval_seconds, plan.seed)
        async with self._starting:
            process = await self._processes.enter_async_context(started(self._folder, "gossiper", orders, name))
            actor = Actor(name, address, process)
            actor.follows = asyncio.create_task(actor.follow(self._folder))
            self._follows.append(actor.follows)
            joined = asyncio.create_task(actor.joined.wait())
            done, _ = await asyncio.wait(
                (actor.follows, joined), timeout=START_LIMIT, return_when=asyncio.FIRST_COMPLETED
            )
            joined.cancel()
            if actor.follows in done:
                actor.follows.result()
            if not done:
                raise DemoError(f"{name} has not joined within {START_LIMIT:.0f} s")
        self.actors[name] = actor
        return actor

    async def _happen(self, event: str) -> None:
        live = self._live()
        if event == "join":
            name = self._plan.names[self._plan.members + len(self.joined)]
            self.joined.append(name)
            contact = self._random.choice(live)
            (await self._start(name, contact.address)).tell("go")
            self._news(f"{name} joins through {contact.name}")
            return
        # Who was there from the start goes; the contact of all is killed first.
        staying = [actor for actor in live if actor.name not in self.joined]
        first = self._plan.names[0]
        if event == "kill":
            actor = staying[0] if not self.killed else self._random.choice(staying)
            self.killed.append(actor.name)
            actor.gone = True
            actor.process.kill()
            self._news(f"{actor.name} is killed")
        else:
            actor = self._random.choice([actor for actor in staying if actor.name != first])
            self.left.append(actor.name)
            actor.gone = True
            assert actor.process.stdin is not None
            actor.process.stdin.close()
            self._news(f"{actor.name} leaves")

    async def _converge(self) -> None:
        """Until everyone left has heard the same of everybody, and nothing new comes."""
        deadline = time.monotonic() + CONVERGENCE_LIMIT
        same_since, before = time.monotonic(), None
        while True:
            await asyncio.sleep(0.1)
            for actor in self._live():
                if actor.follows is not None and actor.follows.done():
                    actor.follows.result()
            now = [(actor.name, actor.report) for actor in self._live()]
            if now != before:
                same_since, before = time.monotonic(), now
            lacks = self._lacks()
            if not lacks and time.monotonic() - same_since >= QUIET_SECONDS:
                return
            if time.monotonic() > deadline:
                why = "; ".join(lacks[:3]) or "messages go on coming"
                raise DemoError(f"the members do not agree {CONVERGENCE_LIMIT:.0f} s after the last message: {why}")

    def _lacks(self) -> list[str]:
        """Who has not heard all that others have; who joined late need not have heard of who was silent since."""
        live = self._live()
        lacks = [f"{actor.name} still talks" for actor in live if actor.report.talking]
        for origin in self.actors.values():
            heard = {actor.name: actor.report.heard.get(origin.name) for actor in live if actor is not origin}
            numbers = [number for number in heard.values() if number is not None]
            most = max(numbers, default=0) if origin.gone else origin.report.sent
            lacks += [
                f"{name} has {number or 'none'} of {most} of {origin.name}"
                for name, number in heard.items()
                if (number is not None and number != most) or (number is None and most and name not in self.joined)
            ]
        return lacks


async def perform(plan: Plan, folder: Path, news: Callable[[str], None]) -> Outcome:
    """Run `plan` with traces below `folder`, and tell the news; raises `DemoError`."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "traces").mkdir(parents=True)
    return await Crowd(plan, folder, news).run()
