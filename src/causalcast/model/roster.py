"""The members of a group in their agreed order; a member's place in it is its slot in every vector."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model.errors import InvalidNameError, NotAMemberError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from causalcast.model.dot import ProcessId

MAX_NAME_BYTES = 128


def is_name(text: str) -> bool:
    """Whether `text` is 1 to `MAX_NAME_BYTES` bytes of UTF-8: an argument of a command need not be UTF-8."""
    return 1 <= len(text.encode(errors="surrogatepass")) <= MAX_NAME_BYTES and not any(
        "\ud800" <= character <= "\udfff" for character in text
    )


class Roster:
    """An immutable set of process names, sorted; `slot(name)` is a name's index.

    Equal names in the same topic, equal rosters: tags of different topics have no order in common.
    """

    __slots__ = ("_slots", "names", "topic")

    def __init__(self, names: Iterable[ProcessId], topic: str = "") -> None:
        self.topic = topic
        given = list(names)
        for name in given:
            if not is_name(name) or any(ch.isspace() or ch in ",=/" for ch in name):
                raise InvalidNameError(
                    f"{name!r} cannot name a process: use 1 to {MAX_NAME_BYTES} bytes of UTF-8 without spaces, "
                    "',', '=' or '/'"
                )
        self.names: tuple[ProcessId, ...] = tuple(sorted(given))
        self._slots = {name: slot for slot, name in enumerate(self.names)}
        if len(self._slots) != len(given):
            twice = sorted({name for name in given if given.count(name) > 1})
            raise InvalidNameError(f"each process needs a name of its own, but {', '.join(twice)} is given twice")

    def slot(self, name: ProcessId) -> int:
        """The index of `name`; raises `NotAMemberError` for a stranger."""
        try:
            return self._slots[name]
        except KeyError:
            raise NotAMemberError(f"{name!r} is not a member; members are {', '.join(self.names)}") from None

    @property
    def slots(self) -> dict[ProcessId, int]:
        """Name to slot, for reading only."""
        return self._slots

    def others(self, name: ProcessId) -> tuple[ProcessId, ...]:
        """All members but `name`, in order."""
        self.slot(name)
        return tuple(other for other in self.names if other != name)

    def of_topic(self, topic: str) -> Roster:
        """The same members in a topic."""
        return Roster(self.names, topic)

    def __contains__(self, name: object) -> bool:
        return name in self._slots

    def __iter__(self) -> Iterator[ProcessId]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Roster) and self.names == other.names and self.topic == other.topic)

    def __hash__(self) -> int:
        # Rosters that differ mostly do so here; all names of thousands take long.
        return hash((len(self.names), self.names[:1], self.names[-1:], self.topic))

    def __repr__(self) -> str:
        return f"Roster({', '.join(self.names)})"
