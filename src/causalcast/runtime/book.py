"""The address book of a member that knows others by name only: who listens where, learnt on the way.

Theory of operation. Protocols send names of members to each other; a name is of no use to who does not know where it
listens. So whatever mentions names on a session is preceded by what the sender's book says of those that it has not
told this peer before. A member's own hello is first-hand and always counts. What others say counts where nothing better
is known, not instead of an address, unless that could not be reached.

A name is one life: a book remembers which start of a process it belongs to, as long as it has room, also when that
process is gone. Another one of the same name is refused, for its messages would be numbered from 1 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import ProcessId
from causalcast.model.roster import is_name
from causalcast.runtime.address import Address
from causalcast.runtime.frames import REFUSED, LinkError
from causalcast.runtime.limits import BOOK_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.protocols import WireMessage
    from causalcast.runtime.frames import Hello

EVERYWHERE: Final = ("", "0.0.0.0", "::")
"""Hosts to listen on, and none that can be dialled."""

MAX_HOST: Final = 255
MAX_PORT: Final = 65_535


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One member: its name, where it listens, and which start of it that was."""

    name: ProcessId
    host: str
    port: int
    incarnation: int

    def check(self) -> None:
        """Raise `LinkError` if no correct member writes this."""
        if not (is_name(self.name) and 0 < len(self.host) <= MAX_HOST and 0 < self.port <= MAX_PORT):
            raise LinkError(f"{self.name!r} at {self.host!r}:{self.port} is no entry of an address book")


class Known(msgspec.Struct, gc=False):
    """What is known of a name."""

    entry: Entry
    doubtful: bool = False
    """It could not be reached there."""


class Book:
    """Addresses by name, the least recently used of which are forgotten first."""

    def __init__(self, me: ProcessId) -> None:
        self._me = me
        self._known: dict[ProcessId, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def meet(self, name: ProcessId, incarnation: int) -> None:
        """Somebody calls itself `name`; raises `LinkError` if that is, or was, the name of another."""
        known = self._known.get(name)
        if known is not None and known.entry.incarnation != incarnation:
            raise LinkError(f"the name {name!r} is or was another member's: take one that is new to the group", REFUSED)

    def hear(self, hello: Hello, remote_host: str) -> Address:
        """Learn from its hello where a peer that connects from `remote_host` is reached. Raises `LinkError`."""
        host = remote_host if hello.host in EVERYWHERE else hello.host
        entry = Entry(hello.sender, host, hello.port, hello.incarnation)
        entry.check()
        self.write(entry, first_hand=True)
        return Address(host, hello.port)

    def write(self, entry: Entry, *, first_hand: bool = False) -> None:
        """Learn an address."""
        if entry.name == self._me:
            return
        known = self._known.pop(entry.name, None)
        if known is None or first_hand or (known.doubtful and known.entry.incarnation == entry.incarnation):
            known = Known(entry)
        self._known[entry.name] = known
        if len(self._known) > BOOK_ENTRIES:
            del self._known[next(iter(self._known))]

    def address(self, name: ProcessId) -> Address | None:
        """Where `name` listens, if that is known."""
        known = self._known.get(name)
        return None if known is None else Address(known.entry.host, known.entry.port)

    def all(self) -> list[Entry]:
        """Everything that is known, the least recently used first."""
        return [known.entry for known in self._known.values()]

    def doubt(self, name: ProcessId) -> None:
        """`name` could not be reached where the book says."""
        if name in self._known:
            self._known[name].doubtful = True

    def entries(self, names: Iterable[ProcessId]) -> list[Entry]:
        """What is known of these."""
        found = []
        for name in names:
            known = self._known.pop(name, None)
            if known is not None:
                self._known[name] = known
                found.append(known.entry)
        return found


_fields: Final[dict[type[WireMessage], tuple[tuple[str, ...], tuple[str, ...]]]] = {}


def names_in(message: WireMessage) -> list[str]:
    """All that can be a name in the fields of `message`: its strings, and those of its tuples of strings."""
    kind = type(message)
    fields = _fields.get(kind)
    if fields is None:
        types = {field.name: field.type for field in msgspec.structs.fields(kind)}
        fields = _fields[kind] = (
            tuple(name for name, type_ in types.items() if type_ is str),
            tuple(name for name, type_ in types.items() if type_ == tuple[str, ...]),
        )
    single, several = fields
    names = [getattr(message, field) for field in single]
    for field in several:
        names.extend(getattr(message, field))
    return names
