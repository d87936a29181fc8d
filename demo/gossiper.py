"""One member of `demo.gossip`, a process of its own: it joins through a contact, and talks from `go` to `stop`.

Tells on standard output, as JSON lines, what it has sent and heard, and leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import causalcast
from causalcast import Delivered
from demo.bystanders import PromptTrace, commands

if TYPE_CHECKING:
    from causalcast import Group

REPORT_SECONDS: Final = 0.5
REPLIES: Final = 0.01
"""Which part of what it hears a member answers; answers are not answered."""


class Orders(msgspec.Struct, frozen=True):
    """All that a member is told when it starts."""

    name: str
    stack: str
    listen: str
    join: str
    """Where a member listens; empty: nobody is there yet."""
    traces: str
    interval_seconds: float
    """Mean time between two of its messages."""
    seed: int


class Report(msgspec.Struct, frozen=True):
    """How far a member is."""

    sent: int
    talking: bool
    heard: dict[str, int]
    """The number of the latest message of each other member that it has delivered."""


class Gossiper:
    """A member that talks, listens and answers."""

    def __init__(self, orders: Orders, group: Group) -> None:
        self._orders = orders
        self._group = group
        self._random = random.Random(f"{orders.seed}/{orders.name}")
        self._sent = 0
        self._heard: dict[str, int] = {}
        self._talks = asyncio.Event()

    async def run(self) -> None:
        """Take part until the input ends."""
        tasks = [asyncio.create_task(task) for task in (self._listen(), self._talk(), self._report())]
        async for words in commands():
            if words == ["go"]:
                self._talks.set()
            elif words == ["stop"]:
                self._talks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        async for event in self._group:
            if isinstance(event, Delivered):
                message = event.message
                self._heard[message.tag.origin] = message.tag.counter
                if message.payload == b"news" and self._talks.is_set() and self._random.random() < REPLIES:
                    await self._say(b"answer")

    async def _talk(self) -> None:
        while True:
            await self._talks.wait()
            await self._say(b"news")
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self._orders.interval_seconds)

    async def _say(self, payload: bytes) -> None:
        self._sent += 1
        await self._group.broadcast(payload)

    async def _report(self) -> None:
        while True:
            report = Report(self._sent, self._talks.is_set(), self._heard)
            print(msgspec.json.encode(report).decode(), flush=True)
            await asyncio.sleep(REPORT_SECONDS)


async def _main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    async with causalcast.open(
        orders.name,
        listen=orders.listen,
        join=orders.join or (),
        stack=orders.stack,
        group="gossip",
        trace=PromptTrace(Path(orders.traces) / f"{orders.name}.jsonl"),
    ) as group:
        await Gossiper(orders, group).run()


if __name__ == "__main__":
    asyncio.run(_main())
