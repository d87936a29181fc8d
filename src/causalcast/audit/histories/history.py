"""A client history in memory: what each session wrote and read, as columns of small integers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

Model: TypeAlias = Literal["register", "list", "set"]
"""What a read of a key returns: its last value, the list of what was appended, or the set of what was added."""

OK: Final = 0
MAYBE: Final = 1
"""It may have taken effect, at any time after it began, or never."""
FAILED: Final = 2


@dataclass(frozen=True, slots=True)
class Write:
    """A value written to a key; the value is unique to the key if a verdict shall rest on it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Read:
    """What a read of a key returned: no value (the initial state), one, or the elements of a list or set."""

    key: str
    values: tuple[str, ...]


@dataclass(slots=True)
class History:
    """All transactions, in the order in which the file has them; a single operation is a transaction of its own.

    Per transaction: `session`, `status`, `line`. Per write: transaction, key, value. Per read: transaction, key,
    and the part of `seen` that it returned. `order` numbers writes and reads as they stand in a transaction.
    """

    model: Model
    sessions: dict[str, int] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    session: array[int] = field(default_factory=lambda: array("q"))
    status: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    write_txn: array[int] = field(default_factory=lambda: array("q"))
    write_key: array[int] = field(default_factory=lambda: array("q"))
    write_value: array[int] = field(default_factory=lambda: array("q"))
    write_order: array[int] = field(default_factory=lambda: array("q"))
    read_txn: array[int] = field(default_factory=lambda: array("q"))
    read_key: array[int] = field(default_factory=lambda: array("q"))
    read_order: array[int] = field(default_factory=lambda: array("q"))
    read_ends: array[int] = field(default_factory=lambda: array("q"))
    seen: array[int] = field(default_factory=lambda: array("q"))
    notes: list[str] = field(default_factory=list)
    snapshots: bool = False
    """Whether this is a workload for long forks: keys written once, and read in groups."""

    def add(self, session: str, status: int, line: int, operations: Sequence[Write | Read]) -> None:
        """Add a transaction, after those of its session that came before it."""
        number = len(self.session)
        self.session.append(self.sessions.setdefault(session, len(self.sessions)))
        self.status.append(status)
        self.line.append(line)
        for order, operation in enumerate(operations):
            key = self.keys.setdefault(operation.key, len(self.keys))
            if isinstance(operation, Write):
                self.write_txn.append(number)
                self.write_key.append(key)
                self.write_value.append(self._value(operation.value))
                self.write_order.append(order)
            elif status == OK:
                self.read_txn.append(number)
                self.read_key.append(key)
                self.read_order.append(order)
                self.seen.extend([self._value(value) for value in operation.values])
                self.read_ends.append(len(self.seen))

    def _value(self, text: str) -> int:
        return self.values.setdefault(text, len(self.values))

    @property
    def transactions(self) -> int:
        """How many there are."""
        return len(self.session)


def column(values: array[int]) -> Ints:
    """Return a column as an array."""
    return np.frombuffer(values, dtype=np.int64) if values else np.zeros(0, dtype=np.int64)
