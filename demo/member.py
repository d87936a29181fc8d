"""One member of the demonstration, a process of its own.

Tells on standard output, as JSON lines, how far it is and when it has seen all it expects; stays in the group, since
others may still need it, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

import causalcast
from causalcast import Delivered, Stable
from demo.workload import SCRIPT, Participant, Plan, Score

if TYPE_CHECKING:
    from causalcast import Group

REPORT_SECONDS: Final = 0.25


class Orders(msgspec.Struct, frozen=True):
    """All that a member is told when it starts."""

    name: str
    stack: str
    listen: str
    peers: dict[str, str]
    trace: str
    stability: bool
    """Whether the stack reports stability, so that the member waits for it."""
    start_at: float
    """When the workload begins, on the clock `time.time`, the same for all members."""
    plan: Plan


class Report(msgspec.Struct, frozen=True):
    """How far a member is."""

    done: bool
    score: Score


class Member:
    """The participant and its group."""

    def __init__(self, orders: Orders, group: Group) -> None:
        self._orders = orders
        self._group = group
        self._participant = Participant(orders.name, orders.plan)
        self._done = asyncio.Event()

    async def run(self) -> None:
        """Take part until the parent has heard from all that they are done."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(task) for task in (self._listen(), self._trade(), self._converse(), self._report())
            ]
            await _input_ends()
            for task in tasks:
                task.cancel()

    async def _listen(self) -> None:
        plan = self._orders.plan
        score = self._participant.score
        others = plan.messages - plan.broadcasts_of(self._orders.name)
        stable = plan.messages if self._orders.stability else 0
        async for event in self._group:
            match event:
                case Delivered(message):
                    answer = self._participant.receive(message.payload, message.tag)
                    if answer is not None:
                        await self._say(answer)
                case Stable():
                    score.stable += 1
            if score.delivered == others and score.stable >= stable:
                self._done.set()

    async def _say(self, payload: bytes) -> None:
        self._participant.sent(payload, await self._group.broadcast(payload))

    async def _trade(self) -> None:
        for number in range(self._orders.plan.ticks):
            await self._wait_until(number * self._orders.plan.tick_seconds)
            await self._say(self._participant.tick())

    async def _converse(self) -> None:
        if self._orders.name == SCRIPT[0][0]:
            for number in range(self._orders.plan.rounds):
                await self._wait_until(number * self._orders.plan.round_seconds)
                await self._say(self._participant.begin_round(number))

    async def _wait_until(self, seconds: float) -> None:
        await asyncio.sleep(self._orders.start_at + seconds - time.time())

    async def _report(self) -> None:
        while True:
            done = self._done.is_set()
            print(msgspec.json.encode(Report(done, self._participant.score)).decode(), flush=True)
            if done:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._done.wait(), REPORT_SECONDS)


async def _input_ends() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


async def _main() -> None:
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    async with causalcast.open(
        orders.name,
        listen=orders.listen,
        peers=orders.peers,
        stack=orders.stack,
        group="demo",
        trace=orders.trace,
    ) as group:
        await Member(orders, group).run()


if __name__ == "__main__":
    asyncio.run(_main())
