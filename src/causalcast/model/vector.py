"""Version vectors over a roster (document 004, section 2.4.1.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model.errors import IncomparableTagsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.model.dot import ProcessId
    from causalcast.model.roster import Roster


class VersionVector:
    """For each member, a number of its messages: a down-closed set of dots. Immutable; the order is partial."""

    __slots__ = ("counts", "roster")

    def __init__(self, roster: Roster, counts: tuple[int, ...] | None = None) -> None:
        self.roster = roster
        self.counts: tuple[int, ...] = counts if counts is not None else (0,) * len(roster)
        if len(self.counts) != len(roster):
            raise IncomparableTagsError(f"{len(self.counts)} counts do not fit the {len(roster)} members of {roster}")

    def __getitem__(self, name: ProcessId) -> int:
        return self.counts[self.roster.slot(name)]

    def advance(self, name: ProcessId) -> VersionVector:
        """This vector with one more message of `name`."""
        slot = self.roster.slot(name)
        return VersionVector(self.roster, (*self.counts[:slot], self.counts[slot] + 1, *self.counts[slot + 1 :]))

    def join(self, other: VersionVector) -> VersionVector:
        """The least vector that is at or above both."""
        self._require_same_group(other)
        return VersionVector(self.roster, tuple(map(max, self.counts, other.counts)))

    def __le__(self, other: VersionVector) -> bool:
        self._require_same_group(other)
        return all(mine <= theirs for mine, theirs in zip(self.counts, other.counts, strict=True))

    def __lt__(self, other: VersionVector) -> bool:
        return self <= other and self.counts != other.counts

    def __ge__(self, other: VersionVector) -> bool:
        return other <= self

    def __gt__(self, other: VersionVector) -> bool:
        return other < self

    def concurrent_with(self, other: VersionVector) -> bool:
        """Neither is at or below the other."""
        return not self <= other and not other <= self

    def items(self) -> Iterator[tuple[ProcessId, int]]:
        """Member and count, in roster order, zeros left out."""
        return ((name, count) for name, count in zip(self.roster.names, self.counts, strict=True) if count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VersionVector):
            return NotImplemented
        return self.counts == other.counts and self.roster == other.roster

    def __hash__(self) -> int:
        return hash(self.counts)

    def __repr__(self) -> str:
        return f"VersionVector({', '.join(f'{name}={count}' for name, count in self.items())})"

    def _require_same_group(self, other: VersionVector) -> None:
        if self.roster is not other.roster and self.roster != other.roster:
            raise IncomparableTagsError(f"{self.roster} and {other.roster} differ; vectors compare within one group")
