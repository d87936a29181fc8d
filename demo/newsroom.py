"""Runs `demo.pubsub` once: topics of different popularity, and subscribers that come and go while all publish."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from demo.processes import DemoError, end, free_ports, line_of, started
from demo.publisher import Orders, Report

if TYPE_CHECKING:
    from collections.abc import Callable

START_LIMIT: Final = 120.0
FINISH_LIMIT: Final = 90.0
QUIET_SECONDS: Final = 1.0
"""Nobody delivers anything for so long before the run counts as over."""


class Plan(msgspec.Struct, frozen=True):
    """Who is there, and what they do."""

    stack: str = "vcube-ps"
    members: int = 16
    topics: int = 6
    exponent: float = 0.825
    """Of Zipf's law for the topics, which document 002, section 5.6.5, takes from Twitter."""
    subscribers: int = 6
    """Of each topic, at every moment."""
    seconds: float = 15.0
    publications: int = 700
    changes: int = 40
    """How often a subscriber goes and another comes."""
    seed: int = 5

    @property
    def names(self) -> list[str]:
        """Of all members."""
        return [f"m{number:02}" for number in range(self.members)]


class Step(msgspec.Struct, frozen=True):
    """What a member is told, and when, in seconds since the start."""

    at: float
    member: str
    word: str
    topic: str
    instead_of: str = ""
    """Of a subscription: who goes once it is complete."""


def steps(plan: Plan) -> list[Step]:
    """The whole run, in order of time: the first subscriptions at 0, the rest drawn from the seed.

    Only subscribers publish, and whoever has been one for longest goes first.
    """
    source = random.Random(plan.seed)
    topics = [f"t{number}" for number in range(plan.topics)]
    weights = [(rank + 1) ** -plan.exponent for rank in range(plan.topics)]
    inside = {topic: source.sample(plan.names, plan.subscribers) for topic in topics}
    drawn = [Step(0.0, name, "sub", topic) for topic, names in inside.items() for name in names]
    happenings = ["pub"] * plan.publications + ["change"] * plan.changes
    source.shuffle(happenings)
    for number, what in enumerate(happenings):
        at = plan.seconds * (0.1 + 0.9 * number / len(happenings))
        topic = source.choices(topics, weights)[0]
        if what == "pub":
            drawn.append(Step(at, source.choice(inside[topic]), "pub", topic))
            continue
        goes = inside[topic].pop(0)
        comes = source.choice([name for name in plan.names if name not in inside[topic] and name != goes])
        inside[topic].append(comes)
        drawn.append(Step(at, comes, "sub", topic, instead_of=goes))
    return drawn


class Outcome(msgspec.Struct, frozen=True):
    """A run that ended."""

    traces: Path
    delivered: int
    start_seconds: float
    settle_seconds: float
    """From the last command until all that was published had been delivered."""


class Writer:
    """A process of the run, as its parent knows it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.report = Report(0, 0, 0)
        self.told = 0

    def tell(self, word: str, topic: str) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word} {topic}\n".encode())
        self.told += 1

    def has_done_all(self) -> bool:
        """Whether it has done all that it was told."""
        return self.report.done == self.told

    async def follow(self, folder: Path) -> None:
        """Keep its latest report; raises `DemoError` if it ends."""
        while True:
            self.report = msgspec.json.decode(await line_of(self.process, self.name, folder), type=Report)


async def perform(plan: Plan, folder: Path, news: Callable[[str], None]) -> Outcome:
    """Run `plan` with traces below `folder`, and tell the news; raises `DemoError`."""
    shutil.rmtree(folder, ignore_errors=True)
    traces = folder / "traces"
    traces.mkdir(parents=True)
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(plan.names, free_ports(plan.members), strict=True)}
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as processes:
        writers = {}
        for name, address in listen.items():
            peers = {peer: where for peer, where in listen.items() if peer != name}
            orders = Orders(name, plan.stack, address, peers, str(traces))
            writers[name] = Writer(
                name, await processes.enter_async_context(started(folder, "publisher", orders, name))
            )
        follows = [asyncio.create_task(writer.follow(folder)) for writer in writers.values()]
        try:
            acting = asyncio.create_task(_act(plan, writers, news))
            await asyncio.wait((acting, *follows), return_when=asyncio.FIRST_COMPLETED)
            for task in follows:
                if task.done():
                    task.result()
            started_at, settle_seconds = acting.result()
        finally:
            acting.cancel()
            for task in follows:
                task.cancel()
            await asyncio.gather(acting, *follows, return_exceptions=True)
        delivered = sum(writer.report.delivered for writer in writers.values())
        await asyncio.gather(*(end(writer.process, name, folder) for name, writer in writers.items()))
    return Outcome(traces, delivered, started_at - began, settle_seconds)


async def _act(plan: Plan, writers: dict[str, Writer], news: Callable[[str], None]) -> tuple[float, float]:
    """Returns when all were connected, and how long the end took."""
    await _until(
        lambda: all(writer.report.connected == plan.members - 1 for writer in writers.values()),
        START_LIMIT,
        "the members are not connected",
    )
    news(f"{plan.members} processes are connected")
    plan_steps = steps(plan)
    for step in plan_steps:
        if not step.at:
            writers[step.member].tell(step.word, step.topic)
    await _until(lambda: all(map(Writer.has_done_all, writers.values())), START_LIMIT, "not everyone has subscribed")
    news("the first subscriptions are complete")
    started_at = time.monotonic()
    changes = 0
    for step in plan_steps:
        await asyncio.sleep(started_at + step.at - time.monotonic())
        if step.word == "pub":
            writers[step.member].tell(step.word, step.topic)
        elif step.instead_of:
            await _change(writers[step.member], writers[step.instead_of], step.topic)
            changes += 1
            if changes % 10 == 0:
                news(f"{changes} subscribers have gone, and others have come in their place")
    ended_at = time.monotonic()
    before: list[Report] = []
    same_since = ended_at

    def quiet() -> bool:
        nonlocal before, same_since
        now = [writer.report for writer in writers.values()]
        if now != before:
            before, same_since = now, time.monotonic()
        return all(map(Writer.has_done_all, writers.values())) and time.monotonic() - same_since >= QUIET_SECONDS

    await _until(quiet, FINISH_LIMIT, "the members have not done all they were told")
    return started_at, same_since - ended_at


async def _change(comes: Writer, goes: Writer, topic: str) -> None:
    """One subscriber for another, who goes when that one is there."""
    comes.tell("sub", topic)
    told = comes.told
    await _until(lambda: comes.report.done >= told, FINISH_LIMIT, f"{comes.name} has not subscribed to {topic}")
    goes.tell("unsub", topic)


async def _until(condition: Callable[[], bool], limit: float, otherwise: str) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise DemoError(f"{otherwise} after {limit:.0f} s")
        await asyncio.sleep(0.1)
