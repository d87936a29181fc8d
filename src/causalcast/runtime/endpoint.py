"""What owners of connections have in common: they listen, tell strangers from peers, and notice who is silent."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING, Generic

import msgspec

from causalcast.model import ProcessId
from causalcast.runtime.connection import Connection, L
from causalcast.runtime.frames import REFUSED, LinkError
from causalcast.runtime.limits import HANDSHAKE_S, HEARTBEAT_S, READ_CHUNK, SILENCE_S, STRANGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.runtime.address import Address
    from causalcast.runtime.frames import Hello
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


class LinkState(msgspec.Struct, frozen=True):
    """What is known of the link to one peer."""

    peer: ProcessId
    connected: bool
    unacknowledged: int
    """Frames that the peer has not acknowledged; over session links, frames that wait to be written."""
    resend_bytes: int
    """Bytes of these frames."""
    reason: str | None
    """Why the last connection ended, or the last attempt failed; `None` if neither has happened."""


class Endpoint(Generic[L]):
    """A server, and at most one connection for each of what `L` stands for. The `Owner` of the connections."""

    def __init__(self, name: ProcessId, listen: Address, tls: Tls | None) -> None:
        self.address = listen
        """Where this process listens; the real port once it does."""
        self.incoming = memoryview(bytearray(READ_CHUNK))
        """See `Owner`."""
        self._name = name
        self._server_tls = tls.context(server=True) if tls is not None else None
        self._client_tls = tls.context(server=False) if tls is not None else None
        self._connections: dict[L, Connection[L]] = {}
        self._strangers: dict[Connection[L], None] = {}
        self._refusal = ""
        self._server: asyncio.Server | None = None
        self._dialling: set[asyncio.Task[None]] = set()
        self._flushing = False
        self._ticking: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._closed = False

    async def start(self) -> None:
        """Listen; raises `OSError` if the address cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = self.address
        self._server = await loop.create_server(
            lambda: Connection(self),
            host or None,
            port,
            ssl=self._server_tls,
            ssl_handshake_timeout=HANDSHAKE_S if self._server_tls is not None else None,
        )
        # Any port may be one for IPv4 and another for IPv6.
        sockets = sorted(self._server.sockets, key=lambda each: each.family != socket.AF_INET)
        self.address = self.address._replace(port=sockets[0].getsockname()[1])
        self._last_tick = loop.time()
        self._ticking = loop.call_later(HEARTBEAT_S, self._tick)

    def flush_soon(self) -> None:
        """Write what was pushed, once in this turn of the event loop."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def update_reading(self) -> None:
        """Work out anew which connections may be read."""
        for link, connection in list(self._connections.items()):
            if not self._may_read(link):
                if link.connected:  # a handshake goes on: it has a time limit
                    connection.pause_reading()
            elif not connection.reading:
                connection.resume_reading()

    async def close(self, code: int) -> None:
        """Say goodbye on every connection, with this code, and close everything."""
        self._closed = True
        if self._ticking is not None:
            self._ticking.cancel()
        dialling = list(self._dialling)
        for task in dialling:
            task.cancel()
        await asyncio.gather(*dialling, return_exceptions=True)
        open_now = [*self._connections.values(), *self._strangers]
        for connection in open_now:
            connection.flush()
            connection.end(LinkError(f"{self._name} closes its group", code))
        if self._server is not None:
            self._server.close()
        if open_now:
            await asyncio.wait([connection.closed for connection in open_now], timeout=HANDSHAKE_S)

    # ------------------------------------------------------------------ what is different between kinds of links

    def introduced(self, connection: Connection[L], hello: Hello) -> L:
        """See `Owner`."""
        raise LinkError(f"nobody expects {hello.sender!r} here", REFUSED)

    def opened(self, link: L) -> None:
        """See `Owner`."""

    def received(self, link: L, bodies: Sequence[bytes]) -> None:
        """See `Owner`."""

    def may_write(self) -> bool:
        """See `Owner`."""
        return True

    def ended(self, connection: Connection[L], error: LinkError) -> None:
        """See `Owner`."""

    def _may_read(self, link: L) -> bool:
        """Whether more may be read from `link` now."""
        return True

    # ------------------------------------------------------------------ inside

    def arrived(self, connection: Connection[L]) -> None:
        """See `Owner`."""
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS:
            next(iter(self._strangers)).end(LinkError("too many connections that do not say who they are", REFUSED))

    def _stranger_ended(self, connection: Connection[L], error: LinkError) -> None:
        self._strangers.pop(connection, None)
        level = logging.DEBUG if self._refusal == error.reason else logging.WARNING
        self._refusal = error.reason
        logger.log(level, "%s: refused a connection: %s", self._name, error.reason)

    async def _open_connection(self, link: L, address: Address) -> Connection[L] | None:
        """Dial; a connection that comes about has the handshake before it. `None` if none does: `ended` said why."""
        connection: Connection[L] = Connection(self, link)
        self._connections[link] = connection
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    *address,
                    ssl=self._client_tls,
                    # asyncio wants a name to ask for; members are known by their own.
                    server_hostname="" if self._client_tls is not None else None,
                )
        except asyncio.CancelledError:
            connection.drop(LinkError("it is not wanted any more"))
            raise
        except (OSError, TimeoutError) as error:
            connection.drop(LinkError(f"{address} cannot be reached: {_reason(error)}"))
            return None
        return connection

    def _flush(self) -> None:
        self._flushing = False
        for connection in list(self._connections.values()):
            connection.flush()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._ticking = loop.call_later(HEARTBEAT_S, self._tick)
        # Whoever was stopped or busy itself has no ground to call others silent.
        was_away = now - self._last_tick > 2 * HEARTBEAT_S
        self._last_tick = now
        for link, connection in list(self._connections.items()):
            if was_away or not connection.reading:
                connection.heard = now
            elif now - connection.heard > SILENCE_S:
                connection.drop(LinkError(f"nothing was heard for {SILENCE_S:g} s"))
                continue
            if not connection.wrote:
                link.keep_alive()
                connection.flush()
            connection.wrote = False


def _reason(error: OSError | TimeoutError) -> str:
    """Without what asyncio puts around it."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or "no answer"
