"""The host of members that come and go over durable links: a `Host` whose links begin and end with them.

What it adds: it joins; it keeps links to those who are, or may become, members; it carries messages that are longer
than a frame, for what a joiner takes over has no bound of its own; and it may suspect who is silent. Every link is
read, however many messages of its peer wait for causes: these may come with an eviction, over any link. What a member
can have waiting elsewhere is bounded by `UNSTABLE_MESSAGES`.
"""

from __future__ import annotations

import asyncio
import logging
from operator import length_hint
from typing import TYPE_CHECKING, cast

from causalcast.model import (
    MembershipChanged,
    NotAMemberError,
    ProtocolViolationError,
    Roster,
    StateTransferError,
)
from causalcast.protocols.wire import UNDECODABLE
from causalcast.runtime.dynamic_mesh import DynamicMesh
from causalcast.runtime.dynamics import NO_DYNAMICS
from causalcast.runtime.frames import EARLY, EVICTED, LEAVING, LinkError, data_frame
from causalcast.runtime.host import Host
from causalcast.runtime.joining import join_through
from causalcast.runtime.limits import DETECTIONS, LET_GO_S, LONG_MESSAGE_BYTES
from causalcast.runtime.pieces import is_piece, join, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols import Stack, WireMessage
    from causalcast.protocols.membership.dots import DotMembership
    from causalcast.runtime.address import Address
    from causalcast.runtime.dynamic_mesh import MemberLink
    from causalcast.runtime.dynamics import Dynamics
    from causalcast.runtime.endpoint import LinkState
    from causalcast.runtime.journal import Journal
    from causalcast.runtime.link import Identity, Link
    from causalcast.runtime.mesh import BaseMesh
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


class DynamicHost(Host):
    """`Port` to a process whose membership is `DotMembership`, `DynamicMeshHost` to its links."""

    def __init__(
        self,
        me: Identity,
        stack: Stack,
        listen: Address,
        contacts: Sequence[Address],
        tls: Tls | None = None,
        dynamics: Dynamics = NO_DYNAMICS,
        journal: Journal | None = None,
    ) -> None:
        """`contacts` are tried in turn to become a member through; without them this process is the first."""
        self._dynamics = dynamics
        self._frame_limit = me.frame_limit
        self._pieces_received = 0
        super().__init__(me, Roster((me.name,)), stack, listen, {}, tls, journal)
        self._contacts = contacts
        self._adopt()
        self._joined: asyncio.Future[None] | None = None
        """Done once this process, which joins, is a member."""
        self._retired = False
        self._spoke = False
        """A message was sent since the trace was last brought to where it is kept."""
        self._loose: dict[ProcessId, tuple[int, asyncio.TimerHandle]] = {}
        """Whose links will be let go of, and the code that tells them."""
        self._since: dict[ProcessId, float] = {}
        """Loop time since which the silence of a member counts."""
        self._detecting: asyncio.TimerHandle | None = None
        self._last_look = 0.0

    def _make_mesh(
        self, me: Identity, listen: Address, peers: Mapping[ProcessId, Address], tls: Tls | None
    ) -> BaseMesh[MemberLink]:
        self._dynamic = DynamicMesh(self, me, listen, tls, self._dynamics.advertise)
        return self._dynamic

    @property
    def members(self) -> tuple[ProcessId, ...]:
        """Who is a member as far as this process knows, itself included."""
        own = () if self._retired else (self.name,)
        return tuple(sorted((*own, *self._membership.present())))

    def _adopt(self) -> None:
        """The process is there, with what its application can do for it."""
        self._membership: DotMembership = self._process.membership  # type: ignore[attr-defined] # so is the stack made
        self.joins = joins = self._membership.joins
        joins.directory = self._dynamic
        joins.give_state = self._state_to_give if self._dynamics.give_state is not None else None
        joins.take_state = self._state_to_take if self._dynamics.take_state is not None else None
        self._routed = self._membership.neighbours

    async def start(self) -> None:
        """Listen, and join; raises `OSError` if the address cannot be had, and `JoinError`."""
        await self._become_member()
        if self._dynamics.evict_after is not None:
            self._look(self._dynamics.evict_after)

    async def _become_member(self) -> None:
        mesh = self._dynamic
        if self._contacts:
            mesh.door = LinkError(f"{self.name} is not a member yet", EARLY)
        await mesh.start()
        if self._journal is None:
            self._process.start()
        if self._contacts:
            await join_through(self.name, self._contacts, mesh.introduce, self._ask, self._progress)

    def _ask(self, contact: ProcessId) -> asyncio.Future[None]:
        """Ask `contact` to be let in."""
        self._joined = joined = asyncio.get_running_loop().create_future()
        self._dynamic.door = None
        self._process.join(contact)
        self._settle(None)
        return joined

    def _progress(self) -> int:
        return self._pieces_received

    # ------------------------------------------------------------------ towards the application

    def take(self) -> Event:
        membership = self._membership
        calm = membership.is_calm
        if not calm and self.joins.requests:
            # Somebody who joins waits for the application to have done with what it took last.
            self.between_events()
        if self._journal is not None:
            self._note_take(self._journal)
        event = self.queue.popleft()
        self.joins.busy = True
        # Not by way of the process: there are no topics here.
        membership.ordering.take(event)
        if self._watchers or not calm:
            self._settle(None)
        return event

    def between_events(self) -> None:
        super().between_events()
        joins = self.joins
        joins.busy = False
        if joins.requests:
            self._membership.ordering.settle()
            self._settle(None)

    def evict(self, name: ProcessId) -> None:
        """Take `name` for crashed, and have all others do so. Raises `NotAMemberError`."""
        if name == self.name:
            raise NotAMemberError(f"{name} cannot evict itself: have it leave")
        if name not in self._membership.present():
            raise NotAMemberError(f"{name!r} is no member; {self.name} knows {', '.join(self.members)}")
        self._suspect(name)
        self._settle(None)

    def _suspect(self, name: ProcessId) -> None:
        self._process.suspect(name)

    def holders(self, tag: Tag) -> int:
        """How many members are known to have taken the message of `tag`."""
        return self._membership.ordering.holders(tag.dot)

    async def finish(self) -> None:
        """Leave the group, and wait until the others have let go and acknowledged all that was sent."""
        if self.over or not self.leaves:
            return
        if not self._retired and not self._membership.leaving:
            self._leave()
            self._settle(None)
        while not self._retired or any(link.unacknowledged for link in self._dynamic.links.values() if link.connected):
            await self.change()

    def _leave(self) -> None:
        self._process.leave()

    def unfinished(self, links: Sequence[LinkState]) -> str:
        if self._retired:
            return super().unfinished(links)
        return f"not all have taken its leave: {', '.join(self._membership.holding())}"

    def first_event(self) -> MembershipChanged | None:
        """That this process has joined, taken off the queue: its application knows."""
        event = self.queue[0] if self.queue else None
        if isinstance(event, MembershipChanged) and self.name in event.joined:
            self.take()
            self.between_events()
            return event
        return None

    def last_event(self) -> MembershipChanged | None:
        """That this process has left, if nobody has taken that; also if not all have let go of it in time."""
        if self._membership.leaving:
            return MembershipChanged(left=(self.name,))
        event = self.queue[-1] if self.queue else None
        return event if isinstance(event, MembershipChanged) and self._retired else None

    async def close(self) -> None:
        if self.leaves:
            self._retired = True
        for handle in (*(handle for _, handle in self._loose.values()), *filter(None, (self._detecting,))):
            handle.cancel()
        await super().close()

    def _state_to_give(self) -> bytes:
        assert self._dynamics.give_state is not None
        try:
            state = self._dynamics.give_state()
            if not isinstance(state, bytes):
                raise TypeError(f"give_state must return bytes, not {type(state).__name__}")
            if len(state) > LONG_MESSAGE_BYTES // 2:
                raise ValueError(f"a state of {len(state):,} bytes is too large to be transferred")
        except Exception as error:
            logger.exception("%s: cannot give its state to a new member, which is refused", self.name)
            raise StateTransferError(f"{self.name} cannot give its state: {error}") from error
        return state

    def _state_to_take(self, state: bytes) -> None:
        assert self._dynamics.take_state is not None
        try:
            self._dynamics.take_state(state)
        except Exception as error:
            logger.exception("%s: cannot take the state that it was given", self.name)
            self._not_joined(f"it cannot take the state that it was given: {error}")

    # ------------------------------------------------------------------ `Port`

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._spoke = True
        body = self._encode(message)
        self.encoded_bytes = len(body)
        first, last = split(body, self._frame_limit)
        mesh = self._dynamic
        links = mesh.links
        number, frame = 0, b""
        for destination in destinations:
            link = links.get(destination) or mesh.link_to(destination)
            if link is None:
                continue
            for piece in first:
                link.push(data_frame(link.next_number, piece))
            # Links that have carried the same number of frames share one.
            if link.next_number != number:
                number = link.next_number
                frame = data_frame(number, last)
            if link.push(frame) and destination in self._routed:
                self._full.add(link)
        mesh.flush_soon()

    def announce(self, event: Event) -> None:
        super().announce(event)
        if not isinstance(event, MembershipChanged):
            return
        if self.name in event.joined and self._joined is not None and not self._joined.done():
            self._joined.set_result(None)
        if self.name in event.evicted:
            self._not_joined("the group does not let it in: its name is in use, or its contact has left or failed")
            self.over = True
        if self.name in event.left:
            self.left = True
        for code, names in ((LEAVING, event.left), (EVICTED, event.evicted)):
            for name in names:
                self._let_go_soon(name, code)

    def _not_joined(self, why: str) -> None:
        if self._joined is not None and not self._joined.done():
            self._joined.set_exception(LinkError(why))

    def _let_go_soon(self, name: ProcessId, code: int) -> None:
        if name != self.name and name not in self._loose:
            handle = asyncio.get_running_loop().call_later(LET_GO_S, self._let_go, name, code)
            self._loose[name] = (code, handle)

    def _let_go(self, name: ProcessId, code: int) -> None:
        del self._loose[name]
        self._dynamic.let_go(name, code)
        self._settle(None)

    def retire(self) -> None:
        self._retired = True
        self._cancel_timers()

    # ------------------------------------------------------------------ `DynamicMeshHost`

    def received(self, link: Link, bodies: Sequence[bytes]) -> None:
        peer = link.peer
        # Who is no member any more reads what comes, and that is all.
        done = len(bodies) if self._retired else 0
        rest = iter(bodies[done:])
        messages = map(self._decode, rest)
        receive, follow = self._process.receive, self._membership.ordering.follow
        try:
            while done < len(bodies):
                try:
                    message = follow(peer, messages)
                except UNDECODABLE:
                    self._receive(cast("MemberLink", link), bodies[len(bodies) - length_hint(rest) - 1])
                else:
                    if message is not None:
                        receive(peer, message)
                done = len(bodies) - length_hint(rest)
        except (*UNDECODABLE, ProtocolViolationError) as error:
            why = f"{peer} sent what no correct member sends: {error}"
            if peer == self.joins.contact:
                self._not_joined(why)
            raise LinkError(why) from None
        finally:
            if done < len(bodies):
                # The one in hand was not taken.
                done = max(done, len(bodies) - length_hint(rest) - 1)
            if done and self._journal is not None:
                self._done_with(peer, bodies[:done])
            if done < len(bodies):
                link.unprocessed(len(bodies) - done)
            self._settle(None)

    def _done_with(self, peer: ProcessId, bodies: Sequence[bytes]) -> None:
        """These have come from `peer`, and the process has taken them."""

    def _receive(self, link: MemberLink, body: bytes) -> None:
        self._pieces_received += is_piece(body)
        whole = join(link.pieces, body)
        if whole is not None:
            self._process.receive(link.peer, self._decode(whole))

    def may_write(self) -> bool:
        # What others learn from this process must be in its trace, also when it is killed.
        if self._spoke:
            self._spoke = False
            self.rows()
        return super().may_write()

    def departed(self, link: Link) -> None:
        if not self._retired:
            self._process.suspect(link.peer)

    def expelled(self, link: MemberLink) -> None:
        """See `DynamicMeshHost`."""
        if not self._retired:
            self._membership.expelled(link.peer)
            self._settle(None)

    def is_wanted(self, name: ProcessId) -> bool:
        """See `DynamicMeshHost`."""
        membership = self._membership
        return not membership.speaks or name in membership.others or membership.joins.waits(name)

    # ------------------------------------------------------------------ inside

    def _settle(self, link: Link | None) -> None:
        routed = self._membership.neighbours
        if routed is not self._routed:
            self._routed = routed
            # Nobody waits for one that is sent nothing any more.
            self._full = {full for full in self._full if full.peer in routed}
        super()._settle(link)

    def _look(self, patience: float) -> None:
        """Suspect whom nothing was heard of for too long."""
        loop = asyncio.get_running_loop()
        now, step = loop.time(), patience / DETECTIONS
        self._detecting = loop.call_later(step, self._look, patience)
        present = self._membership.present()
        # Whoever was stopped or busy itself has no ground to call others silent.
        was_away = now - self._last_look > 2 * step
        self._last_look = now
        self._since = {name: now if was_away else self._since.get(name, now) for name in present}
        for name in present:
            silence = now - max(self._since[name], self._dynamic.heard(name))
            if silence > patience and not self._retired and not self._membership.evictions.closed_to(name):
                logger.warning("%s: nothing was heard of %s for %.1f s: it is evicted", self.name, name, silence)
                self._suspect(name)
        self._settle(None)
