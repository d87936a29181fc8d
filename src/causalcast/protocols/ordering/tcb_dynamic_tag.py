"""Tags and rosters of a group whose members come and go.

A process numbers its rosters as they change. A tag keeps the roster of the moment when it was made here, and compares
with tags of any other. Where one roster lacks the origin of the other tag, the numbers say why: an origin that joined
after a tag was made is not in its past; of one that was forgotten before, all is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import IncomparableTagsError, Roster, Tag

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.model import ProcessId


class View(Roster):
    """The members known to a process at a time, those that are gone and not forgotten included."""

    __slots__ = ("columns", "version")

    def __init__(self, names: Iterable[ProcessId], topic: str, version: int) -> None:
        super().__init__(names, topic)
        self.version = version
        size = len(self.names)
        self.columns = {name: slot for slot, name in enumerate(self.names)}
        """By column, its place in a vector: messages first, then all other dots, of `NAME/`."""
        self.columns.update((f"{name}/", size + slot) for slot, name in enumerate(self.names))


class DottedTag(Tag, frozen=True, gc=False, eq=False):
    """A tag that compares with those of the same process, whoever was a member when they were made.

    Equality and hash go by topic and dot: names are used once in the life of a group.
    """

    def __lt__(self, other: Tag) -> bool:
        if not isinstance(other, Tag):
            return NotImplemented
        if self.roster is not other.roster:
            self._require_same_group(other)
        slot = other.roster.slots.get(self.origin)
        if slot is None:
            return _version(self) < _version(other)
        return other.counts[slot] >= self.counter and (self.counter != other.counter or self.origin != other.origin)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tag):
            return NotImplemented
        return (self.counter, self.origin, self.roster.topic) == (other.counter, other.origin, other.roster.topic)

    def __hash__(self) -> int:
        return hash((self.origin, self.counter))

    def _require_same_group(self, other: Tag) -> None:
        if self.roster.topic != other.roster.topic or not isinstance(other.roster, View):
            raise IncomparableTagsError(
                f"{self} and {other} belong to different groups or topics; compare tags within one of them"
            )


def _version(tag: Tag) -> int:
    assert isinstance(tag.roster, View)
    return tag.roster.version
