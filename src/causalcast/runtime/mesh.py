"""The mesh: the links of one process to all others, and the connections they use.

For each pair, the process whose name is smaller dials. The other learns from the hello who has come.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Protocol, TypeVar

from causalcast.runtime.endpoint import Endpoint, LinkState
from causalcast.runtime.frames import LEAVING, REFUSED, LinkError, PeerClosedError
from causalcast.runtime.limits import ACK_DELAY_S, REDIAL_FIRST_S, REDIAL_MOST_S
from causalcast.runtime.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.address import Address
    from causalcast.runtime.connection import Connection
    from causalcast.runtime.frames import Hello
    from causalcast.runtime.link import Identity
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


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


AnyLink = TypeVar("AnyLink", bound=Link)


class BaseMesh(Endpoint[AnyLink]):
    """One connection per durable link, whoever the links are to."""

    def __init__(self, host: MeshHost, me: Identity, listen: Address, tls: Tls | None) -> None:
        super().__init__(me.name, listen, tls)
        self.links: dict[ProcessId, AnyLink] = {}
        self._host = host
        self._me = me
        self._reasons: dict[AnyLink, str] = {}
        self._acknowledging: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ what the host does

    def states(self) -> tuple[LinkState, ...]:
        """The state of every link, in order of name."""
        return tuple(
            LinkState(link.peer, link.connected, link.unacknowledged, link.resend_bytes, self._reasons.get(link))
            for _, link in sorted(self.links.items())
        )

    async def close(self, code: int = LEAVING) -> None:
        if self._acknowledging is not None:
            self._acknowledging.cancel()
        await super().close(code)

    # ------------------------------------------------------------------ what connections tell (`Owner`)

    def opened(self, link: AnyLink) -> None:
        logger.info("%s: link to %s is up", self._me.name, link.peer)
        self._met(link, self._connections[link])
        self._connections[link].flush()
        if not self._host.may_read(link):
            self._connections[link].pause_reading()

    def received(self, link: AnyLink, bodies: Sequence[bytes]) -> None:
        self._host.received(link, bodies)
        if link.owes_acknowledgement and self._acknowledging is None:
            self._acknowledging = asyncio.get_running_loop().call_later(ACK_DELAY_S, self._acknowledge)

    def may_write(self) -> bool:
        return self._host.may_write()

    # ------------------------------------------------------------------ inside

    def _may_read(self, link: AnyLink) -> bool:
        return self._host.may_read(link)

    def _accept(self, connection: Connection[AnyLink], link: AnyLink, hello: Hello) -> None:
        """The peer of `link` has come on `connection`, which takes the place of an older one."""
        link.accept(hello)
        del self._strangers[connection]
        older = self._connections.pop(link, None)
        self._connections[link] = connection
        self._met(link, connection)
        if older is not None:
            older.drop(LinkError("a newer connection took its place"))
        connection.link = link
        connection.flush()

    def _met(self, link: AnyLink, connection: Connection[AnyLink]) -> None:
        """The peer has said who it is."""
        self._host.met(link)

    def _depart(self, link: AnyLink, reason: str) -> None:
        """The peer of `link` has left for good."""
        link.depart()
        self._host.departed(link)
        self._reasons[link] = reason
        logger.info("%s: %s has left: %s", self._me.name, link.peer, reason)

    def _report(self, link: AnyLink, reason: str) -> None:
        level = logging.DEBUG if self._closed or self._reasons.get(link) == reason else logging.WARNING
        self._reasons[link] = reason
        logger.log(level, "%s: link to %s is down: %s", self._me.name, link.peer, reason)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        for link, connection in self._connections.items():
            if link.owes_acknowledgement:
                connection.flush()


class Mesh(BaseMesh[Link]):
    """The links to members that are known from the start: listens, and dials those of larger names."""

    def __init__(
        self,
        host: MeshHost,
        me: Identity,
        listen: Address,
        peers: Mapping[ProcessId, Address],
        tls: Tls | None = None,
    ) -> None:
        super().__init__(host, me, listen, tls)
        self.links = {peer: Link(me, peer) for peer in sorted(peers)}
        self._peers = peers
        self._last_heard: dict[Link, float] = {}
        """Loop time of the last bytes on the connections that have ended."""

    async def start(self) -> None:
        """Listen and dial; raises `OSError` if the address cannot be had."""
        await super().start()
        for peer, link in self.links.items():
            if self._me.name < peer:
                self._dialling.add(asyncio.create_task(self._dial(link), name=f"causalcast dials {peer}"))

    def heard(self) -> Iterator[tuple[ProcessId, float]]:
        """For each peer that was there once, and has not left for good: loop time of its last bytes."""
        for peer, link in self.links.items():
            connection = self._connections.get(link)
            if connection is not None and link.connected:
                yield peer, connection.heard
            elif link in self._last_heard and not link.departed:
                yield peer, self._last_heard[link]

    def give_up(self, link: Link) -> None:
        """The peer of `link` is not waited for any more, and cannot come back."""
        connection = self._connections.get(link)
        reason = f"it is given up: it was silent, and {link.unacknowledged:,} frames waited for it"
        self._depart(link, reason)
        if connection is not None:
            connection.drop(LinkError(reason))

    def introduced(self, connection: Connection[Link], hello: Hello) -> Link:
        link = self.links.get(hello.sender)
        if link is None:
            raise LinkError(f"{hello.sender!r} is not a member of this group", REFUSED)
        if self._me.name < link.peer:
            raise LinkError(f"{self._me.name} dials {link.peer}, not the other way round", REFUSED)
        if link.departed:
            raise LinkError(f"{link.peer} has left this group, or was given up", REFUSED)
        self._accept(connection, link, hello)
        return link

    def ended(self, connection: Connection[Link], error: LinkError) -> None:
        link = connection.link
        if link is None:
            self._stranger_ended(connection, error)
            return
        if self._connections.get(link) is not connection:
            return
        del self._connections[link]
        if link.connected:
            self._last_heard[link] = connection.heard
        if isinstance(error, PeerClosedError) and error.code == LEAVING:
            self._depart(link, error.reason)
        else:
            link.lost()
            self._report(link, error.reason)
        self._host.links_changed()

    async def _dial(self, link: Link) -> None:
        """Keep a connection to the peer of `link`, until it has left for good."""
        address = self._peers[link.peer]
        wait = REDIAL_FIRST_S
        while not link.departed:
            progress = link.progress
            connection = await self._open_connection(link, address)
            if connection is not None:
                await asyncio.wait([connection.closed])
                if link.progress > progress:
                    wait = REDIAL_FIRST_S
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, REDIAL_MOST_S)
