"""An asyncio event loop whose connections never leave the process: what a member writes is handed to the other side."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

HOST: Final = "127.0.0.1"


class MemorySocket:
    """As much of a listening socket as a server is asked for."""

    family: Final = socket.AF_INET

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return HOST, self._port


class MemoryServer:
    """As much of a server as an endpoint uses."""

    def __init__(self, loop: MemoryLoop, port: int) -> None:
        self.sockets = (MemorySocket(port),)
        self._loop = loop
        self._port = port

    def close(self) -> None:
        """Accept nobody any more."""
        self._loop.listening.pop(self._port, None)


class Wire(asyncio.Transport):
    """One end of a connection. Without another end, what is written is dropped."""

    def __init__(self, loop: MemoryLoop, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": (HOST, 1)})
        self.other: Wire | None = None
        self.seen = bytearray()
        """All that was written here."""
        self._loop = loop
        self._protocol = protocol
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if self._closing:
            return
        self.seen += data
        if self.other is not None:
            self._loop.call_soon(self.other.arrive, bytes(data))

    def arrive(self, data: bytes) -> None:
        """The other side has written."""
        while data and not self._closing:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self._protocol.buffer_updated(size)
            data = data[size:]

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)
            if self.other is not None:
                self._loop.call_soon(self.other.hang_up)

    def abort(self) -> None:
        self.close()

    def hang_up(self) -> None:
        """The other side has closed."""
        if not self._closing:
            self._protocol.eof_received()
            self.close()

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def pause_reading(self) -> None:
        """What arrives is handed over all the same: a member must bear that."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


class MemoryLoop(asyncio.SelectorEventLoop):
    """Listens and connects in memory; collects what would be logged as an exception that nobody caught."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[int, Callable[[], asyncio.BufferedProtocol]] = {}
        self.uncaught: list[BaseException] = []
        self.wires: list[Wire] = []
        """The dialling ends, in order."""
        self.set_exception_handler(self._collect)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        self.listening[port] = protocol_factory
        return MemoryServer(self, port)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        if port not in self.listening:
            raise ConnectionRefusedError(111, "nobody listens there")
        dialling = protocol_factory()
        here, there = Wire(self, dialling), self.accept(port)
        here.other, there.other = there, here
        self.wires.append(here)
        dialling.connection_made(here)
        return here, dialling

    def accept(self, port: int) -> Wire:
        """Somebody has connected to who listens there; its end."""
        protocol = self.listening[port]()
        wire = Wire(self, protocol)
        protocol.connection_made(wire)
        return wire

    def _collect(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.uncaught.append(context.get("exception") or RuntimeError(context["message"]))
