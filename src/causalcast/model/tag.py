"""Tags: what happened before a message, comparable in constant time (document 004, sections 3.3 and 3.7).

A message travels with its dot and its *context*, the dots of its immediate predecessors. The whole past follows
from them, and the receiver, which has delivered that past, writes it down once as a version vector. Comparing
two tags is then one look-up each way, and stays exact after the dots have left the graph.
"""

from __future__ import annotations

import msgspec

from causalcast.model.dot import Dot, ProcessId, RawDot
from causalcast.model.errors import IncomparableTagsError
from causalcast.model.roster import Roster
from causalcast.model.vector import VersionVector


class Tag(msgspec.Struct, frozen=True, gc=False, eq=False):
    """The place of one message in the happens-before order of its group.

    `a < b`: a happens before b. `a > b`: after. `a.concurrent_with(b)`: neither, and not the same message.
    The order is partial, so `not a < b` does not mean `a >= b`. Equality and hash go by group and dot.
    """

    origin: ProcessId
    counter: int
    context: tuple[RawDot, ...]
    """Dots of the immediate predecessors, as sent: at most one per member."""
    counts: tuple[int, ...]
    """For each slot of the roster, how many of that member's messages happened before this one or are this one."""
    roster: Roster

    @property
    def dot(self) -> Dot:
        """The identity of the message."""
        return Dot(self.origin, self.counter)

    @property
    def vector(self) -> VersionVector:
        """The message and its whole past."""
        return VersionVector(self.roster, self.counts)

    def __lt__(self, other: Tag) -> bool:
        if not isinstance(other, Tag):
            return NotImplemented
        if self.roster is not other.roster:
            self._require_same_group(other)
        origin = self.origin
        return other.counts[self.roster.slots[origin]] >= self.counter and (
            self.counter != other.counter or origin != other.origin
        )

    def __gt__(self, other: Tag) -> bool:
        if not isinstance(other, Tag):
            return NotImplemented
        return other < self

    def __le__(self, other: Tag) -> bool:
        return self == other or self < other

    def __ge__(self, other: Tag) -> bool:
        return self == other or other < self

    def concurrent_with(self, other: Tag) -> bool:
        """Neither message happened before the other, and they are two messages."""
        return not (self < other or other < self or self == other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tag):
            return NotImplemented
        return self.counter == other.counter and self.origin == other.origin and self.roster == other.roster

    def __hash__(self) -> int:
        return hash((self.origin, self.counter))

    def __str__(self) -> str:
        past = " ".join(f"{origin}:{counter}" for origin, counter in self.context)
        return f"{self.origin}:{self.counter}<[{past}]"

    def _require_same_group(self, other: Tag) -> None:
        if self.roster != other.roster:
            raise IncomparableTagsError(
                f"{self} and {other} belong to groups with different members or topics; compare tags within one of them"
            )
