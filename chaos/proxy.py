"""The network of a run: every connection between two members goes through it, and it can break any of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Pair: TypeAlias = frozenset[str]

CHUNK_BYTES: Final = 1 << 16


class Network:
    """Listens once for each ordered pair of members. `ports[a][b]` is where a dials to reach b."""

    def __init__(self, members: dict[str, int]) -> None:
        self._members = members
        self._open: dict[Pair, set[asyncio.StreamWriter]] = {}
        self._cuts: Counter[Pair] = Counter()
        self._whole: dict[Pair, asyncio.Event] = {}
        self._servers: list[asyncio.Server] = []
        self.ports: dict[str, dict[str, int]] = {}

    async def __aenter__(self) -> Network:
        for source in self._members:
            self.ports[source] = {}
            for target in self._members:
                if source != target:
                    self._whole.setdefault(frozenset((source, target)), asyncio.Event()).set()
                    server = await asyncio.start_server(self._handler(source, target), "127.0.0.1", 0)
                    self._servers.append(server)
                    self.ports[source][target] = server.sockets[0].getsockname()[1]
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

    def cut(self, pair: Pair) -> None:
        """Let nothing more through between two members: what is sent is held, new connections hang."""
        self._cuts[pair] += 1
        self._whole[pair].clear()

    def heal(self, pair: Pair) -> None:
        """Let everything through again, what was held first, unless another cut lasts."""
        self._cuts[pair] -= 1
        if not self._cuts[pair]:
            self._whole[pair].set()

    def _abort(self, pair: Pair) -> None:
        for writer in tuple(self._open.get(pair, ())):
            writer.transport.abort()

    async def _carry(self, pair: Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._whole[pair].wait()
            writer.write(chunk)
            await writer.drain()

    def _handler(self, source: str, target: str) -> Handler:
        pair = frozenset((source, target))

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            live = self._open.setdefault(pair, set())
            writers = {writer}
            live.add(writer)
            try:
                await self._whole[pair].wait()
                there, back = await asyncio.open_connection("127.0.0.1", self._members[target])
                writers.add(back)
                live.add(back)
                carried = {
                    asyncio.ensure_future(self._carry(pair, reader, back)),
                    asyncio.ensure_future(self._carry(pair, there, writer)),
                }
                _, rest = await asyncio.wait(carried, return_when=asyncio.FIRST_COMPLETED)
                for task in rest:
                    task.cancel()
                await asyncio.gather(*carried, return_exceptions=True)
            except OSError:
                return  # a member that is down
            finally:
                live -= writers
                for each in writers:
                    each.transport.abort()

        return handle
