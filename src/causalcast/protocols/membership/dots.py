"""Membership by dots in the graph: joins, leaves and forgettings; evictions are in `dot_evictions`.

Source: document 004, sections 6.1 and 6.2, algorithms 12 and 13. `docs/membership.md` is the specification. Its tables
hold the members, and in passing: requests that wait for the application, what arrives before a joiner has the state,
welcomes that came before the join of their sender, farewells. The links of their senders bound them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from causalcast.model import (
    Delivered,
    InvalidNameError,
    MembershipChanged,
    NotAMemberError,
    ProtocolViolationError,
    RawDot,
    Roster,
    Stable,
)
from causalcast.protocols.layers import Membership
from causalcast.protocols.membership.dot_evictions import Evictions
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    Carried,
    DotNode,
    Dotted,
    EvictDot,
    Farewell,
    ForgetDot,
    JoinDot,
    JoinRequest,
    LeaveDot,
    Refusal,
    Transfer,
    TransferredMember,
    Welcome,
    columns_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import Event, Message, ProcessId, Tag
    from causalcast.protocols.ordering.tcb_dynamic import DynamicTCB
    from causalcast.protocols.port import BroadcastMessage, Port, WireMessage

PRESENT, LEFT, EVICTED = range(3)

JOINING: Final = "joining"
INSTALLED: Final = "installed"
MEMBER: Final = "member"
LEAVING: Final = "leaving"
OUT: Final = "out"


class Other(msgspec.Struct, eq=False):
    """What this process knows of another one."""

    status: int = PRESENT
    by: str = ""
    """Through whom it joined; empty: it was there from the start."""
    open: bool = False
    """Whether it is sent what this process broadcasts: it knows this one, and has not left or been evicted."""
    left_taken: bool = False
    forgetting: bool = False
    """Whether a `ForgetDot` that names it is delivered."""


class DotMembership(Membership):
    """Who is there, at one process."""

    __slots__ = (
        "_contact",
        "_early",
        "_farewells",
        "_forgettable",
        "_gone",
        "_join",
        "_kept",
        "_neighbours",
        "_requests",
        "awaited",
        "evictions",
        "give_state",
        "name",
        "ordering",
        "others",
        "port",
        "roster",
        "state",
        "take_state",
    )

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (JoinRequest, Transfer, Welcome, Farewell, Carried, Refusal)

    ordering: DynamicTCB
    """Set by the ordering."""

    def __init__(self, port: Port, roster: Roster) -> None:
        self.port = port
        self.name = port.name
        self.roster = roster
        """The members of the start; of a joiner, itself."""
        self.others = {name: Other(open=True) for name in roster.others(port.name)}
        self.state = MEMBER
        self.evictions = Evictions(self)
        self.give_state: Callable[[], bytes] | None = None
        """The application's: its state after all that it has taken, for one who joins through this process."""
        self.take_state: Callable[[bytes], None] | None = None
        """The application's: begin with what another one gave. Called before its first event."""
        self._contact: ProcessId | None = None
        self._join: RawDot | None = None
        """The dot with which this process joined."""
        self.awaited: set[ProcessId] = set()
        """Whose welcome is missing until this process is a member."""
        self._early: list[tuple[ProcessId, WireMessage]] = []
        """What arrived before the state."""
        self._kept: list[Event] = []
        """What this process's application is told once it is a member."""
        self._requests: list[ProcessId] = []
        self._gone: set[ProcessId] = set()
        """Those of the others that have left or are evicted."""
        self._farewells: dict[ProcessId, Farewell] = {}
        self._forgettable: set[ProcessId] = set()
        """Whose forgetting is stable."""
        self._route()

    # ------------------------------------------------------------------ who is sent what, and heard

    @property
    def neighbours(self) -> Sequence[ProcessId]:
        return self._neighbours

    def _route(self) -> None:
        self._neighbours = tuple(sorted(name for name, other in self.others.items() if other.open))

    def close(self, name: ProcessId) -> None:
        """Send it no more."""
        self.others[name].open = False
        self._route()

    def leave_behind(self, name: ProcessId) -> bool:
        """The eviction of `name` is decided; returns whether it is evicted, not left."""
        other = self.others[name]
        if other.status != PRESENT:
            return False
        other.status = EVICTED
        self._gone.add(name)
        return True

    @property
    def leaving(self) -> bool:
        """Whether this process has made its last dot."""
        return self.state == LEAVING

    @property
    def speaks(self) -> bool:
        """Whether this process broadcasts, and says what it has taken when it does not."""
        return self.state == MEMBER

    def check_member(self) -> None:
        """Raises `NotAMemberError` unless the application may broadcast."""
        if self.state != MEMBER:
            raise NotAMemberError(f"{self.name!r} is {self.state}: it can broadcast while it is a member")

    def keeps(self, message: BroadcastMessage) -> bool:
        """Whether `message` is kept for later, or for nothing, because this process is not a member yet or any more."""
        if self.state == JOINING:
            self._early.append((message.origin, message))
        return self.state in {JOINING, OUT}

    def accepts(self, sender: ProcessId) -> bool:
        """Whether what comes from `sender` itself counts."""
        return sender in self.others and not self.is_evicted(sender) and not self.evictions.closed_to(sender)

    def is_evicted(self, name: ProcessId) -> bool:
        """Whether its eviction is decided."""
        other = self.others.get(name)
        return other is not None and other.status == EVICTED

    def present(self) -> list[ProcessId]:
        """The others that are there as far as their dots say, those under eviction included."""
        return [name for name, other in self.others.items() if other.status == PRESENT]

    def evicted(self) -> set[ProcessId]:
        """Those of the evicted whose messages are not known to be stable."""
        return {name for name, other in self.others.items() if other.status == EVICTED and not other.forgetting}

    def left_and_taken(self) -> list[ProcessId]:
        """Those that are sent nothing more, and may not be out yet."""
        return [name for name, other in self.others.items() if other.left_taken]

    def recount(self) -> None:
        """Who is present has changed."""
        self._route()
        self.ordering.count(self.present())

    # ------------------------------------------------------------------ what the application is told

    def announce(self, event: MembershipChanged) -> None:
        """Who came and who went; of a joiner, after its own join."""
        if self.state == INSTALLED:
            self._kept.append(event)
        else:
            self.port.announce(event)

    def deliver(self, message: Message) -> None:
        """A message for the application; of a joiner, after its own join."""
        if self.state == INSTALLED:
            self._kept.append(Delivered(message))
        else:
            self.port.deliver(message)

    def stable(self, tag: Tag) -> None:
        """A message is stable; of a joiner, after its own join."""
        if self.state == INSTALLED:
            self._kept.append(Stable(tag))
        else:
            self.port.stable(tag)

    def _complete(self) -> None:
        """This process is a member."""
        self.state = MEMBER
        self.port.announce(MembershipChanged(joined=(self.name,)))
        kept, self._kept = self._kept, []
        for event in kept:
            match event:
                case Delivered(message):
                    self.port.deliver(message)
                case Stable(tag):
                    self.port.stable(tag)
                case _:
                    self.port.announce(event)
        self.ordering.may_speak()

    # ------------------------------------------------------------------ what the host asks

    def join(self, contact: ProcessId) -> None:
        """See `Process.join`."""
        self._contact = contact
        self.state = JOINING
        self.port.send([contact], JoinRequest(self.name))

    def leave(self) -> None:
        """See `Process.leave`. Raises `NotAMemberError` once it has left, or is leaving."""
        if self.state in {LEAVING, OUT}:
            raise NotAMemberError(f"{self.name!r} is {self.state}: it cannot leave once more")
        if self.state == JOINING:
            self._end(MembershipChanged(left=(self.name,)))
            return
        requests, self._requests = self._requests, []
        self.ordering.take_all()
        self.state = LEAVING
        self.ordering.is_silent()
        self.ordering.emit(lambda counter, context: LeaveDot(self.name, counter, context))
        for member in requests:
            self._request(member)
        self.ordering.settle()

    def suspect(self, peer: ProcessId) -> None:
        """See `Process.suspect`. Of a joiner that has no state yet: it gives up if its contact is gone."""
        if self.state == JOINING:
            if peer == self._contact:
                self._end(MembershipChanged(evicted=(self.name,)))
        elif self.state != OUT and peer in self.others and self.others[peer].status == PRESENT:
            if self.state == INSTALLED and peer == self._contact and self._join is not None:
                join = self.ordering.message_of(self._join)
                if join is not None:
                    # The contact may have told nobody of the join: then it is time to know.
                    self.port.send(sorted(self.awaited), Carried((join,)))
            self.evictions.begin(peer)
            self.ordering.settle()

    def put_out(self) -> None:
        """The others evict this process."""
        leaving = self.state == LEAVING
        own = (self.name,)
        self._end(MembershipChanged(left=own) if leaving else MembershipChanged(evicted=own))

    def _end(self, event: MembershipChanged) -> None:
        self.state = OUT
        self._early.clear()
        self._kept.clear()
        self.ordering.is_silent()
        self.port.announce(event)
        self.port.retire()

    # ------------------------------------------------------------------ what arrives

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message of the membership; raises `ProtocolViolationError`."""
        if self.state == JOINING:
            if isinstance(message, Transfer):
                self._install(sender, message)
            elif isinstance(message, Refusal):
                self._end(MembershipChanged(evicted=(self.name,)))
            else:
                self._early.append((sender, message))
        elif self.state != OUT:
            self._receive(sender, message)
            self.ordering.settle()

    def _receive(self, sender: ProcessId, message: WireMessage) -> None:
        match message:
            case JoinRequest(member):
                self._request(member)
            case Welcome():
                self._welcomed(sender, message)
            case Farewell() if self.state == LEAVING:
                self._farewells[sender] = message
            case Carried(dots) if self.accepts(sender) and self.others[sender].status == PRESENT:
                for dot in dots:
                    if dot.origin != self.name:
                        self.ordering.accept(dot)
            case Carried((JoinDot(origin=contact, member=member) as join,)) if sender == member not in self.others:
                # A joiner whose contact seems to have crashed brings its own join.
                if self.accepts(contact):
                    self.ordering.accept(join)
                else:
                    self.port.send([sender], Refusal())
            case Refusal() if self.state == INSTALLED and not self.accepts(self._contact or ""):
                self._end(MembershipChanged(evicted=(self.name,)))

    def _request(self, member: ProcessId) -> None:
        try:
            Roster([member])
        except InvalidNameError as error:
            raise ProtocolViolationError(str(error)) from None
        if member == self.name:
            raise ProtocolViolationError(f"{member!r} asks to join through itself")
        known = self.others.get(member)
        if known is not None or self.evictions.closed_to(member):
            if known is None or known.by != self.name:
                self.port.send([member], Refusal())
        elif self.state == LEAVING:
            heirs = [name for name in self.present() if self.others[name].open]
            if heirs:
                self.port.send([min(heirs)], JoinRequest(member))
            else:
                self.port.send([member], Refusal())
        elif member not in self._requests:
            self._requests.append(member)

    def _welcomed(self, sender: ProcessId, welcome: Welcome) -> None:
        """`sender` counts this process among the members."""
        if self.accepts(sender):
            self._open(sender, self.others[sender])
            for dot in welcome.dots:
                if dot.origin != sender:
                    raise ProtocolViolationError(f"{sender!r} welcomes with a dot of {dot.origin!r}")
                self.ordering.accept(dot)
            self.awaited.discard(sender)

    def _open(self, name: ProcessId, other: Other) -> None:
        """`name` knows this process: send it what it lacks, and from now on all."""
        if not other.open and not other.left_taken:
            other.open = True
            self._route()
            self.port.send([name], Welcome(self.ordering.own_since(name)))
            if self.speaks:
                # It has missed the phantoms so far.
                self.ordering.may_speak()

    # ------------------------------------------------------------------ dots

    def delivered(self, message: Dotted, node: DotNode) -> None:
        """A dot that is no message is delivered here."""
        match message:
            case JoinDot(member=member):
                self._joined(member, message, node)
            case LeaveDot(origin=origin) if origin != self.name:
                self.others[origin].status = LEFT
                self._gone.add(origin)
                self.awaited.discard(origin)
                self.announce(MembershipChanged(left=(origin,)))
                self.recount()
            case EvictDot():
                self.evictions.delivered(message)
            case ForgetDot(members=members):
                for name in members:
                    if name in self.others:
                        self.others[name].forgetting = True

    def taken(self, message: Dotted) -> None:
        """A dot that is no message is in the past of the next broadcast."""
        if isinstance(message, LeaveDot) and message.origin != self.name:
            origin = message.origin
            self.others[origin].left_taken = True
            self.close(origin)
            if not self.evictions.closed_to(origin):
                self.port.send([origin], Farewell(*(self.ordering.taken[column] for column in columns_of(self.name))))

    def _joined(self, name: ProcessId, join: JoinDot, node: DotNode) -> None:
        if name == self.name or name in self.others:
            return
        self.ordering.add(name, node.past)
        other = self.others[name] = Other(by=join.origin)
        self.evictions.joined(name, join.origin)
        self.announce(MembershipChanged(joined=(name,)))
        self.recount()
        if join.origin == self.name or self.evictions.closed_to(name):
            return
        if self.leaving and self.ordering.follows_last(node):
            # It knows of the leave by its state.
            self._farewells[name] = Farewell(0, 0)
            return
        if self._join is None or self.ordering.is_in(node.past, self._join):
            # It knows this process, so that it may be sent all.
            other.open = True
            self._route()
            self.port.send([name], Welcome(self.ordering.own_since(name)))
            if self.leaving:
                self.evictions.carry([name])
        else:
            # If that one's welcome has come before its join, it comes again when it has this one.
            self.port.send([name], Welcome())

    def may_forget(self, names: Sequence[ProcessId]) -> None:
        """Nothing that is delivered here from now on has a dot of these in its context."""
        self._forgettable.update(names)

    # ------------------------------------------------------------------ what becomes possible

    def advance(self) -> None:
        """Do what has become possible."""
        if self.state == OUT:
            return
        self.evictions.advance()
        if self.state == INSTALLED and not self.awaited:
            self._complete()
        if self.state == LEAVING:
            if all(map(self._let_go, self.present())):
                self._end(MembershipChanged(left=(self.name,)))
            return
        self._forget()
        if self.state == MEMBER:
            while self._requests and self.ordering.is_level:
                self._admit(self._requests.pop(0))

    def _let_go(self, name: ProcessId) -> bool:
        """Whether this process, which leaves, need not wait for `name`."""
        if self.evictions.closed_to(name):
            return True
        farewell = self._farewells.get(name)
        if farewell is None:
            return False
        if self.evictions.met:
            # What came before may depend on what nobody sends to this process any more.
            return True
        messages, others = columns_of(name)
        delivered = self.ordering.delivered
        return delivered[messages] >= farewell.messages and delivered[others] >= farewell.others

    def _forget(self) -> None:
        """Forget who is gone, or have all do so, once all that came of it is stable, and taken here."""
        if not self._gone or self.ordering.has_hidden:
            return
        closed = [
            name for name in sorted(self._gone) if not self.evictions.closed_to(name) and not self.ordering.has_of(name)
        ]
        names = tuple(name for name in closed if not self.others[name].forgetting)
        if names and self.name < min(filter(self.accepts, self.present()), default=self.name + "/"):
            self.ordering.emit(lambda counter, context: ForgetDot(self.name, counter, context, names))
        forgotten = self._forgettable.intersection(closed)
        if forgotten:
            for name in forgotten:
                del self.others[name]
            self._gone -= forgotten
            self.evictions.forget(forgotten)
            self.ordering.forget(forgotten)
        self._forgettable &= self._gone

    # ------------------------------------------------------------------ joining

    def _admit(self, member: ProcessId) -> None:
        """Make `member` one, and give it the state."""
        node = self.ordering.emit(lambda counter, context: JoinDot(self.name, counter, context, member))
        self.others[member].open = True
        self._route()
        members = tuple(
            TransferredMember(
                name,
                other.status,
                other.by,
                other.left_taken,
                other.forgetting,
                name in self._forgettable,
                self.ordering.heard(name),
                self.ordering.spoken.get(name, 0),
            )
            for name, other in sorted(self.others.items())
            if name != member
        )
        state = None if self.give_state is None else self.give_state()
        self.port.send([member], self.ordering.transfer(node, members, *self.evictions.transfer(), state))

    def _install(self, contact: ProcessId, state: Transfer) -> None:
        """Take over what `contact` has."""
        self._contact = contact
        self._join = state.join
        self.others = {
            each.name: Other(each.status, each.by, left_taken=each.left_taken, forgetting=each.forgetting)
            for each in state.members
        }
        self.others[contact] = Other(open=True)
        heard = {each.name: each.heard for each in state.members if each.heard}
        heard[contact] = state.taken
        self._gone = {each.name for each in state.members if each.status != PRESENT}
        self._forgettable = {each.name for each in state.members if each.forgettable}
        self.evictions.install(state)
        self.state = INSTALLED
        self.awaited = {name for name in self.present() if name != contact and not self.evictions.closed_to(name)}
        self._route()
        has_state = state.state is not None and self.take_state is not None
        if state.state is not None and self.take_state is not None:
            self.take_state(state.state)
        self.ordering.install(state, heard, has_state=has_state)
        for dot in state.waiting:
            self.ordering.accept(dot)
        early, self._early = self._early, []
        for sender, message in early:
            if type(message) in self.wire_types:
                self.receive(sender, message)
            else:
                self.ordering.receive(message)  # type: ignore[arg-type]
        self.ordering.settle()

    def tables(self) -> dict[str, int]:
        """See `Membership.tables`."""
        return {
            "departed": len(self._gone),
            "joiners": len(self._requests) + len(self._early),
            "forgettings": len(self._forgettable),
            **self.evictions.tables(),
        }
