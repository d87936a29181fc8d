"""The network of a run: every connection between two members goes through it, and it can break any of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from causalcast.runtime.frames import LinkError, read_hello

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Pair: TypeAlias = frozenset[str]

CHUNK_BYTES: Final = 1 << 16


class Network:
    """Listens once for each member, and learns from the first frame of a connection who dials. `ports[b]` is where
    others dial to reach b.
    """

    def __init__(self) -> None:
        self._open: dict[Pair, set[asyncio.StreamWriter]] = {}
        self._cuts: Counter[Pair] = Counter()
        self._whole: dict[Pair, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self.ports: dict[str, int] = {}

    async def add(self, name: str, port: int) -> int:
        """Carry what is for the member `name`, which listens on `port`; returns where others reach it."""
        server = await asyncio.start_server(self._handler(name, port), "127.0.0.1", 0)
        self._servers.append(server)
        self.ports[name] = int(server.sockets[0].getsockname()[1])
        return self.ports[name]

    async def __aenter__(self) -> Network:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for pair in tuple(self._open):
            self._abort(pair)

    def reset(self, pair: Pair) -> None:
        """Reset the connections between two members, as a router that has forgotten them does."""
        for writer in self._open.get(pair, ()):
            connection = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # the other half of it may be gone already
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._abort(pair)

    def cut(self, pairs: Iterable[Pair]) -> None:
        """Let nothing more through between two members: what is sent is held, new connections hang."""
        for pair in pairs:
            self._cuts[pair] += 1
            self._gate(pair).clear()

    def heal(self, pairs: Iterable[Pair]) -> None:
        """Let everything through again, what was held first, unless another cut lasts."""
        for pair in pairs:
            self._cuts[pair] -= 1
            if not self._cuts[pair]:
                self._gate(pair).set()

    def _gate(self, pair: Pair) -> asyncio.Event:
        if pair not in self._whole:
            self._whole[pair] = asyncio.Event()
            self._whole[pair].set()
        return self._whole[pair]

    def _abort(self, pair: Pair) -> None:
        for writer in tuple(self._open.get(pair, ())):
            writer.transport.abort()

    async def _carry(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._gate(pair).wait()
            writer.write(chunk)
            await writer.drain()

    def _handler(self, target: str, port: int) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers = {writer}
            live: set[asyncio.StreamWriter] = set()
            try:
                source, head = await _introduced(reader)
                pair = frozenset((source, target))
                live = self._open.setdefault(pair, set())
                live.add(writer)
                await self._gate(pair).wait()
                there, back = await asyncio.open_connection("127.0.0.1", port)
                writers.add(back)
                live.add(back)
                back.write(head)
                carried = {
                    asyncio.ensure_future(self._carry(pair, reader, back)),
                    asyncio.ensure_future(self._carry(pair, there, writer)),
                }
                _, rest = await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
                for task in rest:
                    task.cancel()
                await asyncio.gather(*carried, return_exceptions=True)
            except (OSError, LinkError):
                return  # a member that is down, or one that went before it had said who it is
            finally:
                live -= writers
                for each in writers:
                    each.transport.abort()

        return handle


async def _introduced(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Who has dialled, and all that it has said so far."""
    head = b""
    while (found := read_hello(head)) is None:
        chunk = await reader.read(CHUNK_BYTES)
        if not chunk:
            raise LinkError("it has gone")
        head += chunk
    return found[0].sender, head
