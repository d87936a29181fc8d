"""Which messages that are left out (see `settled`) each log received: whether one more reception is its first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.ranges import keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Received:
    """Ranges of numbers, of logs by their place; `topic` and `origin` are indices into `names` (-1: none)."""

    names: Sequence[str] = ()
    log: Ints = field(default_factory=_none)
    topic: Ints = field(default_factory=_none)
    origin: Ints = field(default_factory=_none)
    first: Ints = field(default_factory=_none)
    last: Ints = field(default_factory=_none)

    def has(self, rows: LogColumns, log: Ints, at: Ints) -> Bools:
        """Return which of the messages that the rows `at` are about their logs received."""
        found = np.zeros(at.size, dtype=bool)
        places = {name: code for code, name in enumerate(rows.names)}
        codes = np.array([*(places.get(name, -2) for name in self.names), -1], dtype=np.int64)
        topic, origin = codes[self.topic], codes[self.origin]
        known = np.flatnonzero((topic > -2) & (origin > -2))
        if known.size == 0 or at.size == 0:
            return found
        whose, topic, origin = (
            np.concatenate((mine[known], theirs[at]))
            for mine, theirs in ((self.log, log), (topic, rows.topic), (origin, rows.origin))
        )
        key = keys_of(whose, topic, origin, np.concatenate((self.first[known], rows.counter[at])))
        order = np.argsort(key[: known.size])
        below = np.searchsorted(key[: known.size][order], key[known.size :], "right") - 1
        some = np.flatnonzero(below >= 0)
        near, asked = order[below[some]], some + known.size
        found[some] = rows.counter[at[some]] <= self.last[known[near]]
        for column in (whose, topic, origin):
            found[some] &= column[near] == column[asked]
        return found


NOTHING_RECEIVED: Final = Received()
