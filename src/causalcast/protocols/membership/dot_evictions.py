"""Evictions: the members agree on what a crashed one has sent, then go on without it (see `docs/membership.md`).

Each member says once, by an `EvictDot`, that it accepts nothing more from the evicted one, and what it has of it. What
is carried counts as received when the dot arrives, the dot itself when it is delivered: then all that its sender knew,
joins included, is known here. Why all decide the same: whatever any member delivers of x it had when it made its
`EvictDot`, or got by another's, and those of all who are asked are delivered where x is decided. A member that is being
evicted itself is asked too, unless it is decided at the same time: then what it had said, as far as anybody got it, is
carried as its own messages are.

Source: ours; document 004 has no evictions, and stops being stable when a member crashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from causalcast.model import MembershipChanged
from causalcast.protocols.membership.dot_snapshot import EvictionsState
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    Carried,
    EvictDot,
    TransferredEviction,
    column_of,
    member_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.membership.dots import DotMembership
    from causalcast.protocols.ordering.tcb_dynamic_messages import Dotted, Transfer


class Eviction(msgspec.Struct, eq=False):
    """One that is not decided here."""

    reporters: set[str]
    """Whose `EvictDot` is delivered."""
    excused: set[str]
    """Who joined through a reporter, or another who is excused, after its report."""


class Evictions:
    """The evictions under way, as one process sees them."""

    __slots__ = ("_carried", "_membership", "met", "open")

    def __init__(self, membership: DotMembership) -> None:
        self._membership = membership
        self.open: dict[ProcessId, Eviction] = {}
        """Those that are not decided. A name may be here before its join is delivered."""
        self._carried: set[RawDot] = set()
        """Dots that some `EvictDot` here carries."""
        self.met = False
        """Whether one has begun here while this process was leaving."""

    def closed_to(self, name: ProcessId) -> bool:
        """Whether nothing is accepted from `name` any more, and its eviction is not decided."""
        return name in self.open

    def begin(self, name: ProcessId) -> None:
        """Accept no more of `name`, and tell the others what is here of it; once for each."""
        membership = self._membership
        if name in self.open:
            return
        self.open[name] = Eviction(set(), set())
        membership.is_calm = False
        membership.joins.awaited.discard(name)
        if membership.leaving:
            self.met = True
            self.carry(membership.neighbours)
        else:
            dots = membership.ordering.graph.held(self.open.keys() | membership.evicted(), self._carried)
            self._note(dots)
            node = membership.ordering.emit(
                lambda counter, context: EvictDot(membership.name, counter, context, name, dots)
            )
            leavers = [other for other in membership.left_and_taken() if other != name]
            if leavers and node.message is not None:
                # They still deliver what came before, some of which may depend on what is carried.
                membership.port.send(leavers, node.message)
        if name in membership.others:
            membership.close(name)

    def carry(self, names: Sequence[ProcessId]) -> None:
        """Send `names` what this process, which makes no dots any more, has of the evicted in the past of its leave."""
        membership = self._membership
        dots = membership.ordering.before_last(membership.ordering.graph.held(self.open.keys(), ()))
        if dots:
            membership.port.send(names, Carried(dots))

    def hear(self, message: EvictDot) -> None:
        """An `EvictDot` has come, and may not be delivered for long."""
        membership = self._membership
        name = message.member
        if name == membership.name:
            if membership.accepts(message.origin):
                membership.put_out()
            return
        self._note(message.carried)
        if not membership.is_evicted(name):
            # Before anything else: what is carried may let `message` itself be delivered.
            self.begin(name)
        for dot in message.carried:
            if dot.origin != membership.name:
                membership.ordering.accept(dot)

    def _note(self, dots: Iterable[Dotted]) -> None:
        self._carried.update((column_of(dot), dot.counter) for dot in dots)

    def delivered(self, message: EvictDot) -> None:
        """An `EvictDot` is delivered: all that its sender knew when it made it is known here."""
        eviction = self.open.get(message.member)
        if eviction is not None:
            eviction.reporters.add(message.origin)

    def joined(self, name: ProcessId, contact: ProcessId) -> None:
        """`name` has joined through `contact`, and has what that one had."""
        for eviction in self.open.values():
            if contact in eviction.reporters or contact in eviction.excused:
                eviction.excused.add(name)

    def advance(self) -> None:
        """Decide what can be decided."""
        while any(self._decide(self._together(name)) for name in list(self.open)):
            pass

    def _together(self, name: ProcessId) -> list[ProcessId]:
        """Those that `name` can only be decided together with, itself included; none: not yet."""
        membership = self._membership
        present = membership.present()
        found = [name]
        for each in found:
            if each not in membership.others:
                return []
            eviction = self.open[each]
            for other in present:
                if other == each or other in eviction.reporters or other in eviction.excused or other in found:
                    continue
                if other not in self.open:
                    return []
                found.append(other)
        return found

    def _decide(self, names: list[ProcessId]) -> bool:
        """Whether nothing more of these is to be delivered here, so that they are gone."""
        membership, ordering = self._membership, self._membership.ordering
        if not names or names[0] not in self.open:
            return False
        hopeless = ordering.graph.hopeless(names)
        lost = set(map(id, hopeless))
        if any(id(node) not in lost for node in ordering.graph.waiting(names)):
            return False
        ordering.graph.drop(hopeless)
        evicted = []
        for name in names:
            del self.open[name]
            if membership.leave_behind(name):
                evicted.append(name)
        if evicted:
            membership.news.announce(MembershipChanged(evicted=tuple(sorted(evicted))))
        membership.recount()
        return True

    def forget(self, names: Collection[ProcessId]) -> None:
        """These are gone, and nothing names them any more."""
        self._carried = {dot for dot in self._carried if member_of(dot[0]) not in names}

    def transfer(self) -> tuple[tuple[TransferredEviction, ...], tuple[RawDot, ...]]:
        """The fields `evictions` and `carried` of a `Transfer`."""
        evictions = tuple(
            TransferredEviction(name, tuple(sorted(each.reporters)), tuple(sorted(each.excused)))
            for name, each in self.open.items()
        )
        return evictions, tuple(sorted(self._carried))

    def install(self, state: Transfer) -> None:
        """Take up from there."""
        self._take_up(state.evictions, state.carried)

    def _take_up(self, evictions: Iterable[TransferredEviction], carried: Iterable[RawDot]) -> None:
        self.open = {each.member: Eviction(set(each.reporters), set(each.excused)) for each in evictions}
        self._carried = set(carried)

    def snapshot(self) -> EvictionsState:
        """To be written down."""
        return EvictionsState(*self.transfer(), self.met)

    def restore(self, state: EvictionsState) -> None:
        """Take up from there."""
        self._take_up(state.evictions, state.carried)
        self.met = state.met

    def tables(self) -> dict[str, int]:
        """See `Membership.tables`."""
        return {"evictions": len(self.open), "carried": len(self._carried)}
