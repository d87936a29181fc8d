"""Membership by dots in the graph: joins, leaves and forgettings; evictions are in `dot_evictions`.

Source: document 004, sections 6.1 and 6.2, algorithms 12 and 13. `docs/membership.md` is the specification. Its tables
hold the members, and in passing: requests that wait for the application, what arrives before a joiner has the state,
welcomes that came before the join of their sender, farewells. The links of their senders bound them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.model import (
    MembershipChanged,
    NotAMemberError,
    Roster,
)
from causalcast.protocols.layers import Membership
from causalcast.protocols.membership.dot_evictions import Evictions
from causalcast.protocols.membership.dot_joins import Joins
from causalcast.protocols.membership.dot_news import News
from causalcast.protocols.membership.dot_records import (
    EVICTED,
    INSTALLED,
    JOINING,
    LEAVING,
    LEFT,
    MEMBER,
    OUT,
    PRESENT,
    Other,
)
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
    Welcome,
    columns_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.ordering.tcb_dynamic import DynamicTCB
    from causalcast.protocols.port import BroadcastMessage, Port, WireMessage


class DotMembership(Membership):
    """Who is there, at one process."""

    __slots__ = (
        "evictions",
        "farewells",
        "forgettable",
        "gone",
        "is_calm",
        "joins",
        "name",
        "neighbours",
        "news",
        "ordering",
        "others",
        "port",
        "roster",
        "state",
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
        self.is_calm = True
        """This process is a member, nobody goes or asks to be let in as far as it knows, and all that are counted are
        present: only messages give it something to do. Whatever ends that says so; `advance` finds that it is so again.
        """
        self.news = News(port)
        self.joins = Joins(self)
        self.evictions = Evictions(self)
        self.gone: set[ProcessId] = set()
        """Those of the others that have left or are evicted."""
        self.farewells: dict[ProcessId, Farewell] = {}
        self.forgettable: set[ProcessId] = set()
        """Whose forgetting is stable."""
        self.route()

    # ------------------------------------------------------------------ who is sent what, and heard

    def route(self) -> None:
        """Who is sent what this process broadcasts has changed."""
        self.neighbours: Sequence[ProcessId] = tuple(sorted(name for name, other in self.others.items() if other.open))

    def close(self, name: ProcessId) -> None:
        """Send it no more."""
        self.others[name].open = False
        self.route()

    def leave_behind(self, name: ProcessId) -> bool:
        """The eviction of `name` is decided; returns whether it is evicted, not left."""
        other = self.others[name]
        if other.status != PRESENT:
            return False
        other.status = EVICTED
        self._goes(name)
        return True

    def _goes(self, name: ProcessId) -> None:
        self.gone.add(name)
        self.is_calm = False

    @property
    def leaving(self) -> bool:
        """Whether this process has made its last dot."""
        return self.state == LEAVING

    @property
    def is_out(self) -> bool:
        """Whether it is no member any more."""
        return self.state == OUT

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
            self.joins.keep(message.origin, message)
        return self.state in {JOINING, OUT}

    def accepts(self, sender: ProcessId) -> bool:
        """Whether what comes from `sender` itself counts."""
        return sender in self.others and not self.is_evicted(sender) and not self.evictions.closed_to(sender)

    def is_evicted(self, name: ProcessId) -> bool:
        """Whether its eviction is decided."""
        other = self.others.get(name)
        return other is not None and other.status == EVICTED

    def has_left(self, name: ProcessId) -> bool:
        """Whether its leave is delivered."""
        other = self.others.get(name)
        return other is not None and other.status == LEFT

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
        self.route()
        self.ordering.count(self.present())

    # ------------------------------------------------------------------ what the host asks

    def join(self, contact: ProcessId) -> None:
        """See `Process.join`."""
        self.state = JOINING
        self.is_calm = False
        self.joins.ask(contact)

    def leave(self) -> None:
        """See `Process.leave`. Raises `NotAMemberError` once it has left, or is leaving."""
        if self.state in {LEAVING, OUT}:
            raise NotAMemberError(f"{self.name!r} is {self.state}: it cannot leave once more")
        if self.state == JOINING:
            self._end(MembershipChanged(left=(self.name,)))
            return
        self.ordering.take_all()
        self.state = LEAVING
        self.is_calm = False
        self.ordering.is_silent()
        self.ordering.emit(lambda counter, context: LeaveDot(self.name, counter, context))
        self.joins.pass_on()
        self.ordering.settle()

    def suspect(self, peer: ProcessId) -> None:
        """See `Process.suspect`. Of a joiner that has no state yet: it gives up if its contact is gone."""
        if self.state == JOINING:
            if peer == self.joins.contact:
                self._end(MembershipChanged(evicted=(self.name,)))
            return
        self.joins.withdraw(peer)
        if self.state != OUT and peer in self.others and self.others[peer].status == PRESENT:
            if self.state == INSTALLED and peer == self.joins.contact:
                self.joins.plead()
            self.evictions.begin(peer)
            self.ordering.settle()

    def expelled(self, by: ProcessId) -> None:
        """`by`, whose link says so, has evicted this process: as its `Evict` would, it counts from those heard."""
        if self.state == JOINING:
            if by == self.joins.contact:
                self._end(MembershipChanged(evicted=(self.name,)))
        elif self.state != OUT and self.accepts(by):
            self.put_out()

    def put_out(self) -> None:
        """The others evict this process."""
        leaving = self.state == LEAVING
        own = (self.name,)
        self._end(MembershipChanged(left=own) if leaving else MembershipChanged(evicted=own))

    def _end(self, event: MembershipChanged) -> None:
        self.state = OUT
        self.is_calm = False
        self.joins.drop()
        self.news.drop()
        self.ordering.is_silent()
        self.port.announce(event)
        self.port.retire()

    # ------------------------------------------------------------------ what arrives

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message of the membership; raises `ProtocolViolationError`."""
        if self.state == JOINING:
            if isinstance(message, Transfer):
                self.joins.install(sender, message)
            elif isinstance(message, Refusal):
                self._end(MembershipChanged(evicted=(self.name,)))
            else:
                self.joins.keep(sender, message)
        elif self.state != OUT:
            self._receive(sender, message)
            self.ordering.settle()

    def _receive(self, sender: ProcessId, message: WireMessage) -> None:
        match message:
            case JoinRequest(member, address):
                self.joins.request(member, address)
            case Welcome():
                self.joins.welcomed(sender, message)
            case Farewell() if self.state == LEAVING:
                self.farewells[sender] = message
            case Carried(dots) if self.accepts(sender) and self.others[sender].status == PRESENT:
                for dot in dots:
                    if dot.origin != self.name:
                        self.ordering.accept(dot)
            case Carried((JoinDot(origin=contact, member=member) as join,)) if sender == member not in self.others:
                # It brings its own join, see `Joins.plead`.
                if self.accepts(contact):
                    self.ordering.accept(join)
                else:
                    self.port.send([sender], Refusal())
            case Refusal() if self.state == INSTALLED and not self.accepts(self.joins.contact):
                self._end(MembershipChanged(evicted=(self.name,)))

    # ------------------------------------------------------------------ dots

    def delivered(self, message: Dotted, node: DotNode) -> None:
        """A dot that is no message is delivered here."""
        match message:
            case JoinDot(member=member):
                self._joined(member, message, node)
            case LeaveDot(origin=origin) if origin != self.name:
                self.others[origin].status = LEFT
                self._goes(origin)
                self.joins.awaited.discard(origin)
                self.news.announce(MembershipChanged(left=(origin,)))
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
        self.joins.note(name, join.address)
        self.ordering.add(name, node.past)
        self.others[name] = Other(by=join.origin)
        self.evictions.joined(name, join.origin)
        self.news.announce(MembershipChanged(joined=(name,)))
        self.recount()
        if join.origin == self.name or self.evictions.closed_to(name):
            return
        if self.leaving and self.ordering.follows_last(node):
            # It knows of the leave by its state.
            self.farewells[name] = Farewell(0, 0)
            return
        self.joins.welcome(name, node)

    def may_forget(self, names: Sequence[ProcessId]) -> None:
        """Nothing that is delivered here from now on has a dot of these in its context."""
        self.forgettable.update(names)

    # ------------------------------------------------------------------ what becomes possible

    def advance(self) -> None:
        """Do what has become possible."""
        if self.is_calm or self.state == OUT:
            return
        self.evictions.advance()
        if self.state == INSTALLED and not self.joins.awaited:
            self.state = MEMBER
            self.port.announce(MembershipChanged(joined=(self.name,)))
            self.news.release()
            self.ordering.may_speak()
        if self.state == LEAVING:
            if not self.holding():
                self._end(MembershipChanged(left=(self.name,)))
            return
        self._forget()
        if self.state == MEMBER:
            self.joins.admit()
            self.is_calm = not self.gone and not self.evictions.open and not self.joins.requests

    def holding(self) -> list[ProcessId]:
        """For whom this process, which leaves, waits."""
        return [name for name in self.present() if not self._let_go(name)]

    def _let_go(self, name: ProcessId) -> bool:
        """Whether this process, which leaves, need not wait for `name`."""
        if self.evictions.closed_to(name):
            return True
        farewell = self.farewells.get(name)
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
        if not self.gone or self.ordering.has_hidden:
            return
        closed = [
            name
            for name in sorted(self.gone)
            if not self.evictions.closed_to(name) and not self.ordering.graph.has_of(name)
        ]
        names = tuple(name for name in closed if not self.others[name].forgetting)
        if names and self.name < min(filter(self.accepts, self.present()), default=self.name + "/"):
            self.ordering.emit(lambda counter, context: ForgetDot(self.name, counter, context, names))
        forgotten = self.forgettable.intersection(closed)
        if forgotten:
            for name in forgotten:
                del self.others[name]
            self.gone -= forgotten
            self.evictions.forget(forgotten)
            self.ordering.forget(forgotten)
        self.forgettable &= self.gone

    def tables(self) -> dict[str, int]:
        """See `Membership.tables`."""
        return {
            "departed": len(self.gone),
            "joiners": self.joins.waiting,
            "forgettings": len(self.forgettable),
            **self.evictions.tables(),
        }
