"""The host of stacks for session links: runs one process between its sessions and its application.

Backpressure has two bounds. A session with too much to write makes `broadcast` wait, and ends if what others want
passed on makes it grow beyond all bounds. Events that the application does not take stop all reading, unless a
broadcast waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import MembershipChanged, ProtocolViolationError, Roster
from causalcast.protocols.port import BroadcastMessage
from causalcast.protocols.wire import FRAME_HEADER_BYTES, UNDECODABLE
from causalcast.runtime.base_host import BaseHost
from causalcast.runtime.book import names_in
from causalcast.runtime.frames import EARLY, LEAVING, LinkError, data_frame
from causalcast.runtime.joining import join_through
from causalcast.runtime.recovery import Sent
from causalcast.runtime.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols import Process, Stack, Timer, WireMessage
    from causalcast.runtime.address import Address
    from causalcast.runtime.link import Identity
    from causalcast.runtime.recovery import Past
    from causalcast.runtime.session import Session
    from causalcast.runtime.tls import Tls

OWED: Final = ("waiting", "buffered")
"""Tables of a process with messages that only it may have: it does not leave before they are empty."""


class SessionHost(BaseHost):
    """`Port` to a process, `SessionOwner` to its sessions, and the queue towards its application."""

    def __init__(
        self, me: Identity, stack: Stack, listen: Address, contacts: Sequence[Address], tls: Tls | None = None
    ) -> None:
        """`contacts` are tried in turn to become a member through; without them this process is the first."""
        super().__init__(me.name)
        self._contacts = contacts
        self._sessions = Sessions(self, me, listen, tls)
        self._frame_limit = me.frame_limit
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = stack.decoder().decode
        self._joined: asyncio.Future[None] | None = None
        """Done once this process, which joins, is a member."""
        self._member = True
        self._retired = False
        self._process: Process = stack.process(self, Roster((me.name,)))

    @property
    def mesh(self) -> Sessions:
        """The links."""
        return self._sessions

    def recover(self) -> Past | None:
        """Nothing is kept: every life is a first one."""
        return None

    async def start(self) -> None:
        """Listen, let the process begin, and join; raises `OSError` if the address cannot be had, and `JoinError`."""
        if self._contacts:
            # Before it joins, the process takes itself for the first member, and would let others in.
            self._sessions.door = LinkError(f"{self.name} is not a member yet", EARLY)
        await self._sessions.start()
        self._process.start()
        if self._contacts:
            self._member = False
            await join_through(self.name, self._contacts, self._sessions.introduce, self._ask)
            self._member = True

    def _ask(self, contact: ProcessId) -> asyncio.Future[None]:
        """Ask `contact` to be let in."""
        self._joined = joined = asyncio.get_running_loop().create_future()
        self._sessions.door = None
        self._process.join(contact)
        self._settle()
        return joined

    # ------------------------------------------------------------------ towards the application

    @property
    def has_room(self) -> bool:
        """Whether a broadcast may be sent now."""
        return not self._sessions.full

    @property
    def obstacle(self) -> str:
        """What a broadcast waits for."""
        return f"{', '.join(sorted(session.peer for session in self._sessions.full))} to read"

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """Broadcast now."""
        self.encoded_bytes = 0
        tag = self._process.broadcast(payload, topic)
        if self.queue:
            self._wake_application()
        return tag

    def sent(self, tag: Tag, topic: str, payload: bytes) -> Sent:
        # Who has no neighbour to send a payload to has no overhead.
        overhead = FRAME_HEADER_BYTES + self.encoded_bytes - len(payload) if self.encoded_bytes else 0
        return Sent(tag, topic, len(payload), overhead)

    def subscribe(self, topic: str) -> None:
        """Ask for a topic."""
        self._process.subscribe(topic)
        self._settle()

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more of a topic."""
        self._process.unsubscribe(topic)
        self._settle()

    async def finish(self) -> None:
        """Leave the group, and wait until the others have read all that was sent."""
        if self._member and not self._retired:
            while any(self._process.tables().get(table) for table in OWED):
                await self.change()
            self._member = False
            self._process.leave()
            self._settle()
        self._sessions.part()
        while not self._sessions.quiet:
            await self.change()

    def first_event(self) -> MembershipChanged | None:
        """That this process has joined, taken off the queue: its application knows."""
        event = self.queue[0] if self.queue else None
        if isinstance(event, MembershipChanged) and self.name in event.joined:
            self.take()
            return event
        return None

    def last_event(self) -> MembershipChanged | None:
        """That this process has left, if nobody has taken that."""
        event = self.queue[-1] if self.queue else None
        return event if isinstance(event, MembershipChanged) and self._retired else None

    async def close(self) -> None:
        """Close every session; the process is not called again."""
        self._retired = True
        self._cancel_timers()
        await self._sessions.close(LEAVING)

    # ------------------------------------------------------------------ `Port`

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        body = self._encode(message)
        if isinstance(message, BroadcastMessage):
            self.encoded_bytes = len(body)
        names = names_in(message)
        frame = data_frame(0, body)
        for destination in destinations:
            self._sessions.send(destination, frame, names)
        self._sessions.flush_soon()

    def announce(self, event: Event) -> None:
        super().announce(event)
        joined = self._joined
        if joined is not None and isinstance(event, MembershipChanged) and self.name in event.joined:
            self._joined = None
            if not joined.done():
                joined.set_result(None)

    def connect(self, peer: ProcessId) -> None:
        self._sessions.connect(peer)

    def disconnect(self, peer: ProcessId) -> None:
        self._sessions.disconnect(peer)

    def retire(self) -> None:
        self._retired = True
        self._cancel_timers()

    # ------------------------------------------------------------------ `SessionOwner`

    def received(self, session: Session, bodies: Sequence[bytes]) -> None:
        peer = session.peer
        try:
            for body in bodies:
                if self._retired:
                    return
                self._process.receive(peer, self._decode(body))
        except (*UNDECODABLE, ProtocolViolationError) as error:
            raise LinkError(f"{peer} sent what no correct member sends: {error}") from None
        finally:
            self._settle()

    def link_down(self, peer: ProcessId) -> None:
        if not self._retired:
            self._process.link_down(peer)
            self._settle()

    def links_changed(self) -> None:
        self._settle()

    def may_read(self) -> bool:
        return not self._choked

    # ------------------------------------------------------------------ inside

    def _fire(self, timer: Timer) -> None:
        super()._fire(timer)
        self._process.timer(timer)
        self._settle()

    def _settle(self) -> None:
        """Act on what the process or the sessions have just done."""
        if self.queue:
            self._wake_application()
        if self._watchers:
            self.notify()
        if self._overflows:
            self._update_reading()

    def _update_reading(self) -> None:
        super()._update_reading()
        self._sessions.update_reading()
