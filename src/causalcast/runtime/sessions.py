"""The session links of one process: whom it keeps one to, who keeps one to it, and the connections they use.

For each peer there is one session at most that is sent on. If both sides dial at the same time, the session of the one
whose name is smaller goes on. A session that this side ends, or one that is for once, is over when the other side has
read it to its end; what is sent to the same peer meanwhile waits, so that it arrives after.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Protocol

from causalcast.model import InvalidNameError, Roster
from causalcast.runtime.book import Book
from causalcast.runtime.endpoint import Endpoint, LinkState
from causalcast.runtime.frames import CROSSED, EARLY, LEAVING, REFUSED, LinkError, PeerClosedError
from causalcast.runtime.limits import (
    CONNECT_TRIES,
    HEARTBEAT_S,
    PARTING_S,
    REDIAL_FIRST_S,
    REDIAL_MOST_S,
    SESSION_BYTES,
    SESSIONS,
)
from causalcast.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.address import Address
    from causalcast.runtime.connection import Connection
    from causalcast.runtime.frames import Hello
    from causalcast.runtime.link import Identity
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


class SessionOwner(Protocol):
    """Who takes what the sessions bring."""

    def received(self, session: Session, bodies: Sequence[bytes]) -> None:
        """Process the bodies in order; raises `LinkError` to end the session."""

    def link_down(self, peer: ProcessId) -> None:
        """A session that was wanted is over, or did not come about."""

    def links_changed(self) -> None:
        """A session has ended, or one that was full has room again."""

    def may_read(self) -> bool:
        """Whether anything may be read now."""


class Peer:
    """What there is between this process and another one."""

    __slots__ = ("changed", "name", "older", "session", "wanted")

    def __init__(self, name: ProcessId) -> None:
        self.name = name
        self.wanted = False
        """Whether the process has said `connect`."""
        self.session: Session | None = None
        """What is sent goes here."""
        self.older: set[Session] = set()
        """Sessions that will end by themselves, behind what was sent on them."""
        self.changed = asyncio.Event()
        """Set when one of the older ones is over."""

    def ends_before(self, session: Session) -> bool:
        """Whether an older session than `session` is not over yet: nothing may overtake what was sent on it."""
        return any(older.number < session.number for older in self.older)


class Sessions(Endpoint[Session]):
    """Listens, dials, and keeps a session for each peer that wants or is wanted."""

    def __init__(self, host: SessionOwner, me: Identity, listen: Address, tls: Tls | None = None) -> None:
        super().__init__(me.name, listen, tls)
        self.book = Book(me.name)
        self.door: LinkError | None = None
        """Why nobody is let in now."""
        self.full: set[Session] = set()
        """Sessions with so much to write that `broadcast` waits."""
        self._host = host
        self._me = me
        self._has_twin = False
        self._begun = 0
        self._attempts = 0
        self._peers: dict[ProcessId, Peer] = {}
        self._dials: dict[Session, asyncio.Task[None]] = {}
        self._greetings: dict[Session, asyncio.Future[LinkError | None]] = {}
        """Of attempts to open a session, how they ended: `None` is well."""
        self._parting_ticks: dict[Session, int] = {}

    # ------------------------------------------------------------------ what the host does

    def states(self) -> tuple[LinkState, ...]:
        """The state of every session, in order of name."""
        return tuple(
            LinkState(peer.name, peer.session.connected, peer.session.unsent, peer.session.unsent_bytes, None)
            for peer in sorted(self._peers.values(), key=lambda peer: peer.name)
            if peer.session is not None
        )

    @property
    def quiet(self) -> bool:
        """No session is left, and none on its way."""
        return not self._connections and not self._dials

    async def introduce(self, address: Address) -> ProcessId:
        """Open a session to who listens there, and find out its name; raises `LinkError`."""
        session = self._new("")
        error = await self._attempt(session, address)
        if error is not None:
            raise error
        return session.peer

    def connect(self, name: ProcessId) -> None:
        """See `Port.connect`."""
        peer = self._peer(name)
        peer.wanted = True
        session = peer.session
        if session is not None and session.once:
            if session.idle:
                session.once = session.parting = False
            else:
                peer.older.add(session)
                session = None
        if session is None:
            self._begin(peer)

    def disconnect(self, name: ProcessId) -> None:
        """See `Port.disconnect`."""
        peer = self._peers.get(name)
        if peer is None:
            return
        peer.wanted = False
        session = peer.session
        if session is None or session.once:
            return
        peer.session = None
        session.parting = True
        if session.connected or session.unsent:
            session.once = session.once or session.idle
            peer.older.add(session)
            self.flush_soon()
        else:
            self._abandon(session)
            self._tidy(peer)

    def part(self) -> None:
        """End every session, behind what was sent on it, and take no more."""
        self.door = LinkError(f"{self._name} leaves the group", LEAVING)
        for name in list(self._peers):
            self.disconnect(name)

    def send(self, name: ProcessId, frame: bytes, names: Sequence[ProcessId]) -> None:
        """Send a frame that mentions `names`."""
        peer = self._peer(name)
        session = peer.session
        if session is not None and session.said_all:
            peer.older.add(session)
            session = None
        if session is None:
            session = self._begin(peer, once=True)
        unknown = session.untold(names)
        if unknown:
            session.tell(self.book.entries(unknown))
        session.push(frame)
        if session.full:
            self.full.add(session)
            if session.unsent_bytes > SESSION_BYTES:
                asyncio.get_running_loop().call_soon(self._cut, session)

    # ------------------------------------------------------------------ what connections tell (`Owner`)

    def introduced(self, connection: Connection[Session], hello: Hello) -> Session:
        name = hello.sender
        self._check(hello)
        if self.door is not None:
            raise self.door
        if len(self._connections) >= SESSIONS:
            raise LinkError(f"{self._name} has {SESSIONS} sessions and takes no more", REFUSED)
        session = self._new(name)
        if not hello.once:
            self._make_way(name, hello)
            peer = self._peer(name)
            self._replace(peer, session)
            session.held = peer.ends_before(session)
        del self._strangers[connection]
        self._connections[session] = connection
        connection.link = session
        session.attempt = self._attempts
        session.accept(hello)
        self._met(session, connection)
        connection.flush()
        return session

    def opened(self, link: Session) -> None:
        connection = self._connections[link]
        connection.flush()
        if not self._may_read(link):
            connection.pause_reading()

    def received(self, link: Session, bodies: Sequence[bytes]) -> None:
        greeting = self._greetings.get(link)
        if greeting is not None and link.connected:
            connection = self._connections[link]
            connection.require_name(link.peer)
            self._met(link, connection)
            del self._greetings[link]
            peer = self._peer(link.peer)
            if peer.session is None and link not in peer.older:
                peer.session = link
            greeting.set_result(None)
        for entry in link.entries:
            if entry.name == self._name and entry.incarnation != self._me.incarnation and not self._has_twin:
                self._has_twin = True
                logger.warning(
                    "%s: %s tells of another member of this name: close one of the two", self._name, link.peer
                )
            self.book.write(entry)
        link.entries.clear()
        if bodies:
            self._host.received(link, bodies)

    def ended(self, connection: Connection[Session], error: LinkError) -> None:
        session = connection.link
        if session is None:
            if error.code == REFUSED:
                self._stranger_ended(connection, error)
            else:
                # Such is life: it was given up there, or is not wanted here.
                self._strangers.pop(connection, None)
            return
        if self._connections.get(session) is not connection:
            return
        del self._connections[session]
        greeting = self._greetings.pop(session, None)
        if greeting is None:
            self._over(session, error)
        elif not greeting.done():
            session.lost()
            greeting.set_result(error)

    def _may_read(self, link: Session) -> bool:
        return link.parting or self._host.may_read()

    # ------------------------------------------------------------------ peers

    def _check(self, hello: Hello) -> None:
        """Raise `LinkError` unless a session can be had with who says `hello`."""
        me = self._me
        name = hello.sender
        try:
            Roster((name,))
        except InvalidNameError as error:
            raise LinkError(str(error), REFUSED) from None
        if hello.group != me.group:
            raise LinkError(f"{name} is in group {hello.group!r}, {me.name} in {me.group!r}", REFUSED)
        if hello.stack != me.stack:
            raise LinkError(f"{name} runs the stack {hello.stack!r}, {me.name} {me.stack!r}", REFUSED)
        if name == me.name:
            if hello.incarnation == me.incarnation:
                raise LinkError(f"{name} listens there itself", REFUSED)
            raise LinkError(f"the name {name!r} is another member's: take one that is new to the group", REFUSED)
        if hello.addressee not in ("", me.name):
            raise LinkError(f"{name} looks for {hello.addressee!r}, but here is {me.name!r}", REFUSED)
        if hello.frame_limit != me.frame_limit:
            raise LinkError(
                f"the frame limit is {hello.frame_limit} at {name} and {me.frame_limit} at {me.name}", REFUSED
            )
        self.book.meet(name, hello.incarnation)

    def _met(self, session: Session, connection: Connection[Session]) -> None:
        """The hello of the peer has come: it says where it listens."""
        hello = session.hello
        assert hello is not None
        self.book.hear(hello, connection.remote_host)

    def _make_way(self, name: ProcessId, hello: Hello) -> None:
        """Raise `LinkError` if the session there is goes on; else end it, for the peer's side of it is over."""
        peer = self._peers.get(name)
        session = peer.session if peer is not None else None
        if session is None or session.once:
            return
        if not session.connected:
            if session.greeting and self._name < name:
                raise LinkError(f"{self._name} is dialling {name}", CROSSED)
        elif session.hello is not None and hello.attempt <= session.hello.attempt:
            raise LinkError(f"a later session with {name} is there already", CROSSED)
        else:
            self._connections[session].drop(LinkError("a newer session took its place"))

    def _replace(self, peer: Peer, session: Session) -> None:
        """Send on `session` from now on, and first what waits on one that has not come about."""
        other = peer.session
        peer.session = session
        if other is None:
            return
        if other.idle or not other.once:
            session.adopt(other)
            self._abandon(other)
        else:
            peer.older.add(other)

    def _peer(self, name: ProcessId) -> Peer:
        peer = self._peers.get(name)
        if peer is None:
            peer = self._peers[name] = Peer(name)
        return peer

    def _tidy(self, peer: Peer) -> None:
        if not (peer.wanted or peer.session is not None or peer.older) and self._peers.get(peer.name) is peer:
            del self._peers[peer.name]

    # ------------------------------------------------------------------ sessions

    def _new(self, name: ProcessId) -> Session:
        self._begun += 1
        session = Session(self._me, name, self._begun, self._check, self._relieved)
        session.address = self.address
        return session

    def _begin(self, peer: Peer, *, once: bool = False) -> Session:
        session = peer.session = self._new(peer.name)
        session.once = session.parting = once
        task = asyncio.create_task(self._dial(peer, session), name=f"causalcast dials {peer.name}")
        self._dials[session] = task
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return session

    async def _dial(self, peer: Peer, session: Session) -> None:
        try:
            error = await self._try(peer, session)
        finally:
            self._dials.pop(session, None)
        if error is not None:
            self.book.doubt(peer.name)
            self._over(session, error)

    async def _try(self, peer: Peer, session: Session) -> LinkError | None:
        """Open a session; returns why it is given up, if it is."""
        while peer.ends_before(session):
            peer.changed.clear()
            await peer.changed.wait()
        error = LinkError(f"{self._name} has {SESSIONS} sessions and makes no more")
        wait = REDIAL_FIRST_S
        for _ in range(CONNECT_TRIES if len(self._connections) < SESSIONS else 0):
            address = self.book.address(peer.name)
            if address is None:
                error = LinkError(f"nobody has told where {peer.name} listens")
                break
            result = await self._attempt(session, address)
            if result is None:
                return None
            error = result
            if isinstance(error, PeerClosedError) and error.code not in (CROSSED, EARLY):
                if error.code == REFUSED:
                    logger.warning("%s: %s refuses a session: %s", self._name, peer.name, error.reason)
                break
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, REDIAL_MOST_S)
        return error

    async def _attempt(self, session: Session, address: Address) -> LinkError | None:
        """Dial once; returns what went wrong, if anything."""
        self._attempts += 1
        session.attempt = self._attempts
        greeting: asyncio.Future[LinkError | None] = asyncio.get_running_loop().create_future()
        self._greetings[session] = greeting
        try:
            await self._open_connection(session, address)
            return await greeting
        except asyncio.CancelledError:
            self._greetings.pop(session, None)
            connection = self._connections.pop(session, None)
            if connection is not None:
                connection.drop(LinkError("it is not wanted any more"))
            raise

    def _abandon(self, session: Session) -> None:
        """Give up a session that has not come about, without a word to anybody."""
        task = self._dials.pop(session, None)
        if task is not None:
            task.cancel()
        self._greetings.pop(session, None)
        connection = self._connections.pop(session, None)
        if connection is not None:
            connection.drop(LinkError("it is not wanted any more"))
        self.full.discard(session)

    def _cut(self, session: Session) -> None:
        error = LinkError(f"{session.peer} does not read: {SESSION_BYTES:,} bytes wait for it")
        connection = self._connections.get(session)
        if connection is not None and session.connected:
            connection.drop(error)
        elif session in self._dials:
            self._abandon(session)
            self._over(session, error)

    def _relieved(self, session: Session) -> None:
        self.full.discard(session)
        self._host.links_changed()

    def _over(self, session: Session, error: LinkError) -> None:
        """A session has ended, or did not come about."""
        self.full.discard(session)
        self._parting_ticks.pop(session, None)
        peer = self._peers.get(session.peer)
        if peer is not None:
            if session in peer.older:
                peer.older.discard(session)
                peer.changed.set()
                for later in (*peer.older, *filter(None, (peer.session,))):
                    later.held = later.held and peer.ends_before(later)
                self.flush_soon()
            elif session is peer.session:
                peer.session = None
                if peer.wanted:
                    peer.wanted = False
                    logger.info("%s: session link to %s is down: %s", self._name, peer.name, error.reason)
                    self._host.link_down(peer.name)
            self._tidy(peer)
        self._host.links_changed()

    def _tick(self) -> None:
        super()._tick()
        for session, connection in list(self._connections.items()):
            if session.parting and session.connected:
                ticks = self._parting_ticks[session] = self._parting_ticks.get(session, 0) + 1
                if ticks * HEARTBEAT_S > PARTING_S + HEARTBEAT_S:
                    connection.end(LinkError(f"{session.peer} has not read it to its end", LEAVING))
