"""The mesh: the links of one process to all others, and the connections they use.

For each pair, the process whose name is smaller dials. The other learns from the hello who has come.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Protocol

import msgspec

from causalcast.model import ProcessId
from causalcast.runtime.connection import Connection
from causalcast.runtime.frames import LEAVING, REFUSED, LinkError, PeerClosedError
from causalcast.runtime.limits import (
    ACK_DELAY_S,
    HANDSHAKE_S,
    HEARTBEAT_S,
    REDIAL_FIRST_S,
    REDIAL_MOST_S,
    SILENCE_S,
    STRANGERS,
)
from causalcast.runtime.link import Link

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.runtime.address import Address
    from causalcast.runtime.frames import Hello
    from causalcast.runtime.link import Identity
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


class LinkState(msgspec.Struct, frozen=True):
    """What is known of the link to one peer."""

    peer: ProcessId
    connected: bool
    unacknowledged: int
    """Frames that the peer has not acknowledged."""
    resend_bytes: int
    """Bytes of these frames."""
    reason: str | None
    """Why the last connection ended, or the last attempt failed; `None` if neither has happened."""


class MeshHost(Protocol):
    """Who takes what the links bring."""

    def received(self, link: Link, bodies: Sequence[bytes]) -> None:
        """Process the bodies in order; raises `LinkError`, after `link.unprocessed`, to end the connection."""

    def links_changed(self) -> None:
        """A connection has ended, or a peer has left."""

    def met(self, link: Link) -> None:
        """The peer has said who it is."""

    def departed(self, link: Link) -> None:
        """The peer has left for good."""

    def may_write(self) -> bool:
        """Whether anything may leave now: what led to it is written down."""

    def may_read(self, link: Link) -> bool:
        """Whether more may be read from `link` now."""


class Mesh:
    """Listens, dials, and keeps one connection per link."""

    def __init__(
        self,
        host: MeshHost,
        me: Identity,
        listen: Address,
        peers: Mapping[ProcessId, Address],
        tls: Tls | None = None,
    ) -> None:
        self.links = {peer: Link(me, peer) for peer in sorted(peers)}
        self.address = listen
        """Where this process listens; the real port once it does."""
        self._host = host
        self._me = me
        self._peers = peers
        self._server_tls = tls.context(server=True) if tls is not None else None
        self._client_tls = tls.context(server=False) if tls is not None else None
        self._connections: dict[Link, Connection] = {}
        self._reasons: dict[Link, str] = {}
        self._refusal = ""
        self._strangers: dict[Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._dialling: list[asyncio.Task[None]] = []
        self._flushing = False
        self._acknowledging: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._last_tick = 0.0
        self._closed = False

    # ------------------------------------------------------------------ what the host does

    async def start(self) -> None:
        """Listen and dial; raises `OSError` if the address cannot be had."""
        loop = asyncio.get_running_loop()
        host, port = self.address
        self._server = await loop.create_server(
            lambda: Connection(self),
            host or None,
            port,
            ssl=self._server_tls,
            ssl_handshake_timeout=HANDSHAKE_S if self._server_tls is not None else None,
        )
        self.address = self.address._replace(port=self._server.sockets[0].getsockname()[1])
        self._last_tick = loop.time()
        self._ticking = loop.call_later(HEARTBEAT_S, self._tick)
        for peer, link in self.links.items():
            if self._me.name < peer:
                self._dialling.append(asyncio.create_task(self._dial(link), name=f"causalcast dials {peer}"))

    def flush_soon(self) -> None:
        """Write what was pushed, once in this turn of the event loop."""
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def update_reading(self) -> None:
        """Ask the host again which links may be read."""
        for link, connection in list(self._connections.items()):
            if not self._host.may_read(link):
                if link.connected:  # a handshake goes on: it has a time limit
                    connection.pause_reading()
            elif not connection.reading:
                connection.resume_reading()

    def states(self) -> tuple[LinkState, ...]:
        """The state of every link, in order of name."""
        return tuple(
            LinkState(link.peer, link.connected, link.unacknowledged, link.resend_bytes, self._reasons.get(link))
            for link in self.links.values()
        )

    async def close(self, code: int = LEAVING) -> None:
        """Say goodbye on every connection, with this code, and close everything."""
        self._closed = True
        for handle in (self._ticking, self._acknowledging):
            if handle is not None:
                handle.cancel()
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        open_now = [*self._connections.values(), *self._strangers]
        for connection in open_now:
            connection.flush()
            connection.end(LinkError(f"{self._me.name} closes its group", code))
        if self._server is not None:
            self._server.close()
        if open_now:
            await asyncio.wait([connection.closed for connection in open_now], timeout=HANDSHAKE_S)

    # ------------------------------------------------------------------ what connections tell (`Owner`)

    def arrived(self, connection: Connection) -> None:
        self._strangers[connection] = None
        if len(self._strangers) > STRANGERS:
            next(iter(self._strangers)).end(LinkError("too many connections that do not say who they are", REFUSED))

    def introduced(self, connection: Connection, hello: Hello) -> Link:
        link = self.links.get(hello.sender)
        if link is None:
            raise LinkError(f"{hello.sender!r} is not a member of this group", REFUSED)
        if self._me.name < link.peer:
            raise LinkError(f"{self._me.name} dials {link.peer}, not the other way round", REFUSED)
        if link.departed:
            raise LinkError(f"{link.peer} has left this group", REFUSED)
        link.accept(hello)
        del self._strangers[connection]
        older = self._connections.pop(link, None)
        self._connections[link] = connection
        self._host.met(link)
        if older is not None:
            older.drop(LinkError("a newer connection took its place"))
        connection.link = link
        connection.flush()
        return link

    def opened(self, link: Link) -> None:
        logger.info("%s: link to %s is up", self._me.name, link.peer)
        self._host.met(link)
        self._connections[link].flush()
        self._host_reads(link)

    def received(self, link: Link, bodies: Sequence[bytes]) -> None:
        self._host.received(link, bodies)
        if link.owes_acknowledgement and self._acknowledging is None:
            self._acknowledging = asyncio.get_running_loop().call_later(ACK_DELAY_S, self._acknowledge)

    def may_write(self) -> bool:
        return self._host.may_write()

    def ended(self, connection: Connection, error: LinkError) -> None:
        link = connection.link
        if link is None:
            self._strangers.pop(connection, None)
            level = logging.DEBUG if self._refusal == error.reason else logging.WARNING
            self._refusal = error.reason
            logger.log(level, "%s: refused a connection: %s", self._me.name, error.reason)
            return
        if self._connections.get(link) is not connection:
            return
        del self._connections[link]
        if isinstance(error, PeerClosedError) and error.code == LEAVING:
            link.depart()
            self._host.departed(link)
            self._reasons[link] = error.reason
            logger.info("%s: %s has left: %s", self._me.name, link.peer, error.reason)
        else:
            link.lost()
            self._report(link, error.reason)
        self._host.links_changed()

    # ------------------------------------------------------------------ inside

    def _host_reads(self, link: Link) -> None:
        if not self._host.may_read(link):
            self._connections[link].pause_reading()

    def _report(self, link: Link, reason: str) -> None:
        level = logging.DEBUG if self._closed or self._reasons.get(link) == reason else logging.WARNING
        self._reasons[link] = reason
        logger.log(level, "%s: link to %s is down: %s", self._me.name, link.peer, reason)

    def _flush(self) -> None:
        self._flushing = False
        for connection in self._connections.values():
            connection.flush()

    def _acknowledge(self) -> None:
        self._acknowledging = None
        for link, connection in self._connections.items():
            if link.owes_acknowledgement:
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

    async def _dial(self, link: Link) -> None:
        """Keep a connection to the peer of `link`, until it has left for good."""
        loop = asyncio.get_running_loop()
        address = self._peers[link.peer]
        wait = REDIAL_FIRST_S
        while not link.departed:
            progress = link.progress
            connection = Connection(self, link)
            self._connections[link] = connection
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    await loop.create_connection(
                        lambda c=connection: c,
                        *address,
                        ssl=self._client_tls,
                        # asyncio wants a name to ask for; members are known by their own.
                        server_hostname="" if self._client_tls is not None else None,
                    )
            except (OSError, TimeoutError) as error:
                connection.drop(LinkError(f"{address} cannot be reached: {error or 'no answer'}"))
            else:
                await asyncio.wait([connection.closed])
                if link.progress > progress:
                    wait = REDIAL_FIRST_S
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, REDIAL_MOST_S)
