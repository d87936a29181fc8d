"""What a trace says of sends and receptions, once messages are left out of it (see `settled`).

Sends are counted and left out. So are receptions of messages that are left out, but that each log received these is
kept, as ranges of numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import RECEIVE, SEND
from causalcast.audit.parts import select
from causalcast.audit.ranges import heads_of, keys_of, union
from causalcast.audit.received import Received

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns

    Ints = NDArray[np.int64]

MOST_RANGES: Final = 1_000_000
"""Ranges of numbers that are kept, over all logs, topics and origins."""


class Receptions:
    """Puts together what logs received by rows that are left out, part by part, and what they received before."""

    def __init__(self, before: Received) -> None:
        self._codes = {name: code for code, name in enumerate(before.names)}
        self._columns = (before.log, before.topic, before.origin, before.first, before.last)
        self._parts: list[tuple[Ints, ...]] = []
        self._number = 0

    def without(self, rows: LogColumns, log: Ints, limits: Ints) -> tuple[LogColumns, Ints]:
        """Leave out sends, and receptions of messages up to number `limits` of each row, which are taken note of."""
        received = (rows.event == RECEIVE) & (rows.counter <= limits)
        keep = ~received & (rows.event != SEND)
        if keep.all():
            return rows, log
        self._note(rows, log, np.flatnonzero(received))
        return select(rows, keep, np.ones(rows.context_origin.size, dtype=bool)), log[keep]

    @property
    def many(self) -> bool:
        """Whether that is too much to be kept."""
        if self._number > MOST_RANGES:
            self._join()
        return self._columns[0].size > MOST_RANGES

    def done(self) -> Received | None:
        """Return all that was received, `None` where that is too much."""
        self._join()
        if self.many:
            return None
        log, topic, origin, first, last = self._columns
        used = np.unique(np.concatenate(([-1], topic, origin)))
        names = list(self._codes)
        topic, origin = (np.searchsorted(used, codes) - 1 for codes in (topic, origin))
        return Received([names[code] for code in used[1:].tolist()], log, topic, origin, first, last)

    def _note(self, rows: LogColumns, log: Ints, at: Ints) -> None:
        codes = np.array([*(self._codes.setdefault(name, len(self._codes)) for name in rows.names), -1], dtype=np.int64)
        number = rows.counter[at]
        self._parts.append(_joined(log[at], codes[rows.topic[at]], codes[rows.origin[at]], number, number))
        self._number += self._parts[-1][0].size

    def _join(self) -> None:
        every = zip(self._columns, *self._parts, strict=True)
        self._columns = _joined(*(np.concatenate(columns) for columns in every))
        self._parts, self._number = [], 0


def _joined(log: Ints, topic: Ints, origin: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Return ranges such that none of them touch."""
    order = np.argsort(keys_of(log, topic, origin), kind="stable")
    heads = np.flatnonzero(heads_of(log[order], topic[order], origin[order]))
    group = np.empty(order.size, dtype=np.int64)
    group[order] = np.repeat(np.arange(heads.size), np.diff(np.append(heads, order.size)))
    which, first, last = union(group, first, last)
    one = order[heads[which]]
    return log[one], topic[one], origin[one], first, last
