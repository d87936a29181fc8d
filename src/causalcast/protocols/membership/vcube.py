"""VCube: a static membership organised as a virtual hypercube, of any number of members.

Source: document 002, section 2.4. A member's place is its slot in the roster; see `hypercube` for the arithmetic. The
neighbours of a process are the first correct member of each of its clusters, log2(N) of them.

Who is suspected is skipped where a tree is built. Suspicions come from outside (`suspect`), or from the processes' own
diagnosis (`Diagnosis`, where a stack has it). Per process: the set of the correct, and the first members of its
clusters as last computed; no table over all members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import NotAMemberError, ProtocolViolationError
from causalcast.protocols.layers import Membership
from causalcast.protocols.membership.hypercube import dimension, everyone, first_child, height

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port


class VCube(Membership):
    """Clusters, first members and trees as one process sees them."""

    __slots__ = (
        "_children",
        "_destinations",
        "_port",
        "correct",
        "dimension",
        "name",
        "roster",
        "slot",
        "slots",
        "suspects",
    )

    def __init__(self, port: Port, roster: Roster) -> None:
        self._port = port
        self.name = port.name
        self.roster = roster
        self.slots = roster.slots
        """Of all members, for reading only."""
        self.slot = roster.slot(port.name)
        self.dimension = dimension(len(roster))
        self.correct = everyone(len(roster))
        """The set of those not suspected."""
        self.suspects = 0
        """How many are."""
        self._children: tuple[int, ...] | None = None
        self._destinations: dict[int, tuple[ProcessId, ...]] = {}

    @property
    def neighbours(self) -> Sequence[ProcessId]:
        return self.destinations(self.dimension)

    def slot_of(self, peer: ProcessId) -> int:
        """The slot of a process that sent something; raises `ProtocolViolationError` for a stranger and for itself."""
        slot = self.slots.get(peer, self.slot)
        if slot == self.slot:
            raise ProtocolViolationError(f"{peer!r} is no other member of this group")
        return slot

    def cluster(self, slot: int) -> int:
        """The cluster of this process that holds `slot`."""
        return (self.slot ^ slot).bit_length()

    def block(self, s: int) -> int:
        """The set of all members of cluster `s`."""
        half = 1 << s - 1
        return ((1 << half) - 1) << ((self.slot ^ half) & -half)

    def children(self) -> tuple[int, ...]:
        """For each cluster, its first correct member, -1 where there is none."""
        if self._children is None:
            self._children = self.firsts(-1)
        return self._children

    def firsts(self, members: int) -> tuple[int, ...]:
        """For each cluster, its first correct member of the set `members`, -1 where there is none."""
        present = self.correct & members
        found = (first_child(self.slot, s, present) for s in range(1, self.dimension + 1))
        return tuple(-1 if child is None else child for child in found)

    def destinations(self, span: int) -> tuple[ProcessId, ...]:
        """The children of this process where its sub-tree spans its first `span` clusters."""
        found = self._destinations.get(span)
        if found is None:
            names = self.roster.names
            found = tuple(names[child] for child in self.children()[:span] if child >= 0)
            self._destinations[span] = found
        return found

    def height(self, root: int) -> int:
        """How many clusters its sub-tree spans in the tree of `root`, if both are correct."""
        if self.correct & self.correct + 1 == 0 and self.correct.bit_length() == 1 << self.dimension:
            away = self.slot ^ root
            return (away & -away).bit_length() - 1 if away else self.dimension
        return height(self.slot, root, self.dimension, self.correct | 1 << self.slot)

    def suspect(self, peer: ProcessId) -> None:
        """Skip `peer` in trees from now on; what that costs where it is wrong, the dissemination says."""
        self._mark(self._other(peer), correct=False)

    def trust(self, peer: ProcessId) -> None:
        """The suspicion was wrong: `peer` has its place in trees again."""
        self._mark(self._other(peer), correct=True)

    def _other(self, peer: ProcessId) -> int:
        slot = self.roster.slot(peer)
        if slot == self.slot:
            raise NotAMemberError(f"{peer!r} cannot suspect itself: name another member")
        return slot

    def _mark(self, slot: int, *, correct: bool) -> None:
        bit = 1 << slot
        if bool(self.correct & bit) == correct:
            return
        self.correct ^= bit
        self.suspects += -1 if correct else 1
        self._children = None
        self._destinations.clear()
        peer = self.roster.names[slot]
        if correct:
            self.above.neighbour_up(peer)
        else:
            self.above.neighbour_down(peer)
