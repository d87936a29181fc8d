"""The network of the demonstration: one process through which every connection between members runs.

Each direction of each pair has its own random extra delay, keeps order, and may be many times slower than the others.
The delay of a direction depends on the seed and the time since the start alone, so two runs meet the same network.
A line `reset A B` on standard input resets the connections between A and B, as a broken network does.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec

Handler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

CHUNK_BYTES: Final = 1 << 16
IN_FLIGHT_CHUNKS: Final = 4_096
SLOT_SECONDS: Final = 0.02
"""How long the extra delay of a direction stays the same."""


LOW_SECONDS: Final = 0.002
HIGH_SECONDS: Final = 0.02
SLOW: Final = ("ross", "joey")
SLOW_FACTOR: Final = 10.0


class Network(msgspec.Struct, frozen=True):
    """Where members listen, and the seed of the delays between them."""

    members: dict[str, int]
    """Name to port on the loopback interface."""
    seed: int


class Direction:
    """The delay from one member to another."""

    def __init__(self, network: Network, source: str, target: str, started: float) -> None:
        self._link = f"{network.seed}/{source}/{target}"
        self._factor = SLOW_FACTOR if (source, target) == SLOW else 1.0
        self._started = started
        self._slot = -1
        self._delay = 0.0

    def delay(self, now: float) -> float:
        """Seconds that what is sent at `now` takes."""
        slot = int((now - self._started) / SLOT_SECONDS)
        if slot != self._slot:
            self._slot = slot
            draw = random.Random(f"{self._link}/{slot}").uniform
            self._delay = self._factor * draw(LOW_SECONDS, HIGH_SECONDS)
        return self._delay


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
    """Bring bytes from one connection to the other, late and in order."""
    in_flight: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(IN_FLIGHT_CHUNKS)

    async def release() -> None:
        while True:
            due, chunk = await in_flight.get()
            await asyncio.sleep(due - time.monotonic())
            if not chunk:
                return
            writer.write(chunk)
            await writer.drain()

    async def accept() -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            now = time.monotonic()
            await in_flight.put((now + direction.delay(now), chunk))
        await in_flight.put((0.0, b""))

    await asyncio.gather(accept(), release())


class Proxy:
    """Listens once for each ordered pair of members: `(a, b)` is where a dials to reach b."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._started = time.monotonic()
        self._open: dict[frozenset[str], set[asyncio.StreamWriter]] = {}
        self._servers: list[asyncio.Server] = []

    async def start(self) -> dict[str, dict[str, int]]:
        """Member to the port at which it reaches each other member."""
        ports: dict[str, dict[str, int]] = {}
        for source in self._network.members:
            ports[source] = {}
            for target in self._network.members:
                if source != target:
                    server = await asyncio.start_server(self._handler(source, target), "127.0.0.1", 0)
                    self._servers.append(server)
                    ports[source][target] = server.sockets[0].getsockname()[1]
        return ports

    def reset(self, one: str, other: str) -> int:
        """Reset the connections between two members; returns how many there were."""
        writers = self._open.get(frozenset((one, other)), set())
        for writer in writers:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return len(writers)

    def _handler(self, source: str, target: str) -> Handler:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers = {writer}
            live = self._open.setdefault(frozenset((source, target)), set())
            try:
                there, back = await asyncio.open_connection("127.0.0.1", self._network.members[target])
                writers.add(back)
                live |= writers
                await asyncio.gather(
                    carry(reader, back, Direction(self._network, source, target, self._started)),
                    carry(there, writer, Direction(self._network, target, source, self._started)),
                )
            except OSError:
                # A member that is gone, or a reset: either way both sides end.
                return
            finally:
                live -= writers
                for each in writers:
                    each.transport.abort()

        return handle


async def _main() -> None:
    proxy = Proxy(msgspec.json.decode(sys.argv[1], type=Network))
    print(msgspec.json.encode(await proxy.start()).decode(), flush=True)
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        _, one, other = line.decode().split()
        print(proxy.reset(one, other), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
