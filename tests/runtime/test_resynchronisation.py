"""One that was away for long gets what it lacks, in bounded batches, and nothing that it has: no copy of the state.

Away is down with a journal, or cut off. What the origin cannot send any more, because it was evicted meanwhile, comes
with its eviction from others.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from causalcast.protocols import stack
from causalcast.protocols.ordering.tcb_dynamic_messages import DottedMessage, EvictDot
from causalcast.runtime.connection import Connection
from causalcast.runtime.limits import WRITE_CHUNK
from causalcast.runtime.link import Link
from tests.runtime.cluster import Proxy, run
from tests.runtime.crowd import crowd, port
from tests.runtime.test_sessions import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from causalcast.protocols import WireMessage
    from tests.runtime.crowd import Crowd, Listener

KIB = 1024


class Wire:
    """What came over links, and how much was written at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.came: list[tuple[str, str, WireMessage]] = []
        """Sender, receiver and message of each frame."""
        self.bytes = 0
        """Received by anybody."""
        self.writes: list[int] = []
        """Sizes of what was handed to transports."""
        self.waiting = 0
        """The most that a transport had not sent."""
        decode = stack("tcb-dynamic").decoder().decode
        receive, output, flush = Link.receive, Link.output, Connection.flush

        def received(link: Link, data: bytes) -> list[bytes]:
            self.bytes += len(data)
            bodies = receive(link, data)
            self.came += [(link.peer, link._me.name, decode(body)) for body in bodies]
            return bodies

        def written(link: Link, limit: int) -> bytes | memoryview:
            data = output(link, limit)
            self.writes.append(len(data))
            return data

        def flushed(connection: Connection[Link]) -> None:
            flush(connection)
            transport = connection._transport
            if transport is not None:
                self.waiting = max(self.waiting, transport.get_write_buffer_size())

        patch.setattr(Link, "receive", received)
        patch.setattr(Link, "output", written)
        patch.setattr(Connection, "flush", flushed)

    def forget(self) -> None:
        self.came.clear()
        self.writes.clear()
        self.bytes = self.waiting = 0

    def counters(self, sender: str, receiver: str) -> list[int]:
        """The numbers of the messages that have come, in order."""
        return [
            message.counter
            for source, target, message in self.came
            if (source, target) == (sender, receiver) and isinstance(message, DottedMessage)
        ]


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


async def speak(app: Listener, messages: int, size: int) -> None:
    for _ in range(messages):
        await app.group.broadcast(bytes(size))
        await asyncio.sleep(0)


async def missed(
    members: Crowd, wire: Wire, away: Callable[[], object], back: Callable[[], object], messages: int, size: int
) -> None:
    """`a` sends 200 messages that all get, and then some while `b` is away."""
    sender = members.apps["a"]
    await speak(sender, 200, KIB)
    await members.at_rest()
    await away()  # type: ignore[misc] # a coroutine function
    await until(lambda: not any(link.connected for link in sender.group.links()))
    wire.forget()
    await speak(sender, messages, size)
    (link,) = sender.group.links()
    assert link.unacknowledged == messages
    await back()  # type: ignore[misc] # a coroutine function
    await members.apps["b"].until(lambda app: len(app.payloads("a")) % 200 == messages)
    await members.at_rest()
    assert wire.counters("a", "b") == list(range(201, 201 + messages))
    assert wire.bytes < messages * size + 40 * KIB


@pytest.mark.parametrize(("messages", "size"), [(40, KIB), (60, 64 * KIB)])
def test_one_that_was_down_gets_exactly_what_it_missed(tmp_path: Path, wire: Wire, messages: int, size: int) -> None:
    async def main() -> None:
        async with crowd("ab", journals=tmp_path, durability="interval") as members:
            app = members.apps["b"]

            async def away() -> None:
                await app.group.close()

            async def back() -> None:
                del members.apps["b"]
                await members.join("b")

            await missed(members, wire, away, back, messages, size)

    run(main())
    assert max(wire.writes) <= WRITE_CHUNK + KIB
    assert wire.waiting <= 2 * WRITE_CHUNK + KIB


@pytest.mark.parametrize(("messages", "size"), [(40, KIB), (60, 64 * KIB)])
def test_one_that_was_cut_off_gets_exactly_what_it_missed(wire: Wire, messages: int, size: int) -> None:
    async def main() -> None:
        listen = f"127.0.0.1:{await port()}"
        gates = [Proxy(listen)]
        async with crowd("") as members:
            await members.join("a")
            gates.append(Proxy(members.apps["a"].group.address))
            advertised, contact = [await gate.start() for gate in gates]
            await members.join("b", listen=listen, advertise=advertised, join=contact)

            async def away() -> None:
                for gate in gates:
                    gate.open.clear()
                    gate.cut()

            async def back() -> None:
                for gate in gates:
                    gate.open.set()
                    gate.cut()

            await missed(members, wire, away, back, messages, size)
        for gate in gates:
            await gate.stop()

    run(main())
    assert max(wire.writes) <= WRITE_CHUNK + KIB
    assert wire.waiting <= 2 * WRITE_CHUNK + KIB


def test_what_came_of_one_that_was_evicted_meanwhile_comes_from_the_others(tmp_path: Path, wire: Wire) -> None:
    async def main() -> None:
        async with crowd("abc", journals=tmp_path) as members:
            a, b, c = (members.apps[name] for name in "abc")
            await speak(b, 200, KIB)
            await members.at_rest()
            await members.apps.pop("c").group.close()
            wire.forget()
            await speak(b, 20, KIB)
            await a.until_delivered(220)
            await members.kill("b")
            a.group.evict("b")
            await speak(a, 10, KIB)
            back = await members.join("c")
            for app in (a, back):
                await app.until_evicted("b")
            await back.until_delivered(30)
            await members.at_rest()
            assert [len(back.payloads(name)) for name in "ab"] == [10, 20]
            assert len(c.payloads("b")) == 200

    run(main())
    assert wire.counters("b", "c") == []
    assert wire.counters("a", "c") == list(range(1, 11))
    (eviction,) = [
        message
        for source, target, message in wire.came
        if (source, target) == ("a", "c") and isinstance(message, EvictDot)
    ]
    assert [dot.counter for dot in eviction.carried] == list(range(201, 221))
    assert sum(len(msgspec.msgpack.encode(message)) for *link, message in wire.came if link == ["a", "c"]) < 40 * KIB
