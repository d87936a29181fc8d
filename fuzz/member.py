"""The member under test: a real host with its endpoint, which hears whatever bytes the fuzzer makes of a connection.

An input is a byte that says what the rest is, and the rest:

| low bits | the rest |
|---|---|
| 0 | all that comes on a connection |
| 1 | what comes behind a right hello |
| 2 | what data frames behind a right hello hold, each with its length in two bytes before it |

The next two bits say in pieces of which size it comes.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from causalcast.model import CausalcastError, Roster
from causalcast.protocols import stack
from causalcast.runtime.address import Address
from causalcast.runtime.dynamic_host import DynamicHost
from causalcast.runtime.frames import HEADER, data_frame
from causalcast.runtime.host import Host
from causalcast.runtime.link import Identity, roster_digest
from causalcast.runtime.session_host import SessionHost
from fuzz import TARGETS
from fuzz.memory_net import HOST, MemoryLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

FRAME_LIMIT: Final = 65_536
NAMES: Final = ("a", "b", "c")
ME: Final = "b"
PORTS: Final = {name: 7400 + place for place, name in enumerate(NAMES)}
PIECES: Final = (1 << 20, 1, 7, 64)
TABLE_ENTRIES: Final = 64
"""Entries in tables that a process may have at rest; beyond, it may have one for each byte that has come."""

AnyHost = Host | DynamicHost | SessionHost


class FaultError(AssertionError):
    """What no input may do to a member."""


def make_host(target: str, name: str) -> AnyHost:
    """One of the three members of a group; `a` and `c` join through `b` where members come and go."""
    made = stack(TARGETS[target])
    addresses = {each: Address(HOST, port) for each, port in PORTS.items()}
    listen = addresses[name]
    digest = "" if made.dynamic else roster_digest(Roster(NAMES))
    me = Identity("fuzz", name, digest, made.name, FRAME_LIMIT, ord(name))
    contacts = () if name == ME else (addresses[ME],)
    if made.session_links:
        return SessionHost(me, made, listen, contacts)
    if made.dynamic:
        return DynamicHost(me, made, listen, contacts)
    peers = {peer: address for peer, address in addresses.items() if peer != name}
    return Host(me, Roster(NAMES), made, listen, peers)


def in_memory(run: Callable[[MemoryLoop], Coroutine[None, None, None]]) -> None:
    """Call `run` with a loop of its own; raises `FaultError` for an exception that nobody has caught in it."""
    loop = MemoryLoop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run(loop))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(_turns())
        if loop.uncaught:
            raise FaultError(f"an exception was not caught: {loop.uncaught[0]!r}") from loop.uncaught[0]
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Target:
    """What is fuzzed: a stack, and the hello with which a peer of it begins."""

    name: str
    hello: bytes

    def run(self, data: bytes) -> None:
        """One input; raises `FaultError` for what it must not do, and whatever else a member lets through."""
        in_memory(lambda loop: self._run(loop, data))

    async def _run(self, loop: MemoryLoop, data: bytes) -> None:
        host = make_host(self.name, ME)
        await host.start()
        stranger = loop.accept(PORTS[ME])
        stream = self.stream(data)
        step = PIECES[data[0] >> 2 & 3] if data else 1
        for start in range(0, len(stream), step):
            stranger.arrive(stream[start : start + step])
        await _turns()
        entries = sum(host.process.tables().values())
        if entries > TABLE_ENTRIES + len(data):
            raise FaultError(f"{entries:,} entries in tables, of {len(data):,} bytes: {host.process.tables()}")
        # It still serves its application.
        while host.queue:
            host.take()
        try:
            host.broadcast(b"still there")
        except CausalcastError:
            if not host.over:
                raise
        await _turns()

    def stream(self, data: bytes) -> bytes:
        """The bytes of the connection that `data` stands for."""
        kind, rest = (data[0] & 3, data[1:]) if data else (0, b"")
        if kind == 0:
            return rest
        return self.hello + (rest if kind == 1 else b"".join(_frames(rest, numbered=self._numbered)))

    @property
    def _numbered(self) -> bool:
        return not stack(TARGETS[self.name]).session_links


def _frames(rest: bytes, *, numbered: bool) -> list[bytes]:
    frames: list[bytes] = []
    position = 0
    while position + 2 <= len(rest):
        (length,) = struct.unpack_from("!H", rest, position)
        body = rest[position + 2 : position + 2 + length]
        frames.append(data_frame(len(frames) + 1 if numbered else 0, body))
        position += 2 + length
    return frames


def seeds(target: str) -> tuple[bytes, list[bytes]]:
    """The hello of `a` to `b`, and inputs made of what three members say to `b` when all is well."""
    streams: list[bytes] = []

    async def talk(loop: MemoryLoop) -> None:
        hosts = {name: make_host(target, name) for name in (ME, "a", "c")}
        for host in hosts.values():
            await host.start()
        has_topics = stack(TARGETS[target]).topics
        for turn in range(12):
            for name, host in hosts.items():
                if has_topics and turn == 0:
                    host.subscribe("t")
                if not has_topics or turn > 3:
                    host.broadcast(f"{name}{turn}".encode(), "t" if has_topics else "")
            await asyncio.sleep(0.02)
            for host in hosts.values():
                while host.queue and turn % 3:
                    host.take()
        for host in hosts.values():
            await host.close()
        streams.extend(bytes(wire.seen) for wire in loop.wires if wire.seen)

    in_memory(talk)
    heard = [stream for stream in streams if _says(stream, b"\xa1a\xa1b") or _says(stream, b"\xa1a\xa0")]
    hello = heard[0][: HEADER.size + HEADER.unpack_from(heard[0])[0]]
    found = [bytes([0]) + stream for stream in streams]
    for stream in streams:
        bodies = list(_bodies(stream))
        found += [bytes([1]) + stream[HEADER.size + HEADER.unpack_from(stream)[0] :]]
        found += [bytes([2]) + b"".join(struct.pack("!H", len(body)) + body for body in bodies)]
        found += [bytes([2]) + struct.pack("!H", len(body)) + body for body in bodies]
    return hello, found


def _says(stream: bytes, names: bytes) -> bool:
    """Whether the hello at the start is from, and to, these, in MessagePack."""
    return names in stream[: HEADER.size + HEADER.unpack_from(stream)[0]]


def _bodies(stream: bytes) -> list[bytes]:
    bodies = []
    position = 0
    while position + HEADER.size <= len(stream):
        length, kind, _ = HEADER.unpack_from(stream, position)
        end = position + HEADER.size + length
        if kind == 2:
            bodies.append(stream[position + HEADER.size : end])
        position = end
    return bodies
