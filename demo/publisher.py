"""One member of `demo.pubsub`, a process of its own: it subscribes, publishes and unsubscribes as it is told.

Standard input: `sub TOPIC`, `unsub TOPIC`, `pub TOPIC`; at its end the member goes. Tells on standard output, as JSON
lines, how much of that it has done and what it has heard.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import causalcast
from causalcast import Delivered, Subscribed, Unsubscribed
from demo.bystanders import PromptTrace, commands

if TYPE_CHECKING:
    from causalcast import Group

REPORT_SECONDS: Final = 0.25


class Orders(msgspec.Struct, frozen=True):
    """All that a member is told when it starts."""

    name: str
    stack: str
    listen: str
    peers: dict[str, str]
    traces: str


class Report(msgspec.Struct, frozen=True):
    """How far a member is."""

    connected: int
    """Links that are up."""
    done: int
    """Commands it has carried out; a subscription and its end count when they are complete."""
    delivered: int


class Publisher:
    """A member that does what it is told."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._done = 0
        self._delivered = 0
        self._news = asyncio.Event()
        """Set when the parent waits for what has just happened."""

    async def run(self) -> None:
        """Take part until the input ends."""
        tasks = [asyncio.create_task(task) for task in (self._listen(), self._report())]
        async for word, topic in commands():
            if word == "pub":
                await self._group.topic(topic).publish(b"something new")
                self._done += 1
            elif word == "sub":
                await self._group.topic(topic).subscribe()
            else:
                await self._group.topic(topic).unsubscribe()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        async for event in self._group:
            if isinstance(event, Delivered):
                self._delivered += 1
            elif isinstance(event, Subscribed | Unsubscribed):
                self._done += 1
                self._news.set()

    async def _report(self) -> None:
        while True:
            connected = sum(link.connected for link in self._group.links())
            print(msgspec.json.encode(Report(connected, self._done, self._delivered)).decode(), flush=True)
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), REPORT_SECONDS)


async def _main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    async with causalcast.open(
        orders.name,
        listen=orders.listen,
        peers=orders.peers,
        stack=orders.stack,
        group="pubsub",
        trace=PromptTrace(Path(orders.traces) / f"{orders.name}.jsonl"),
    ) as group:
        await Publisher(group).run()


if __name__ == "__main__":
    asyncio.run(_main())
