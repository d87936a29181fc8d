"""The measures of many processes at once: the same as in `Histogram` and `ProcessTimeline`, by process.

All numbers are integers, so what is counted together or apart adds up to the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import NO_VALUE
from causalcast.audit.metrics import exact_sum, logarithm
from causalcast.audit.ranges import keys_of
from causalcast.audit.timeline import ALL_SLICES, COUNTED, Spread, spread_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.links import Links
    from causalcast.audit.metrics import Histogram
    from causalcast.audit.timeline import Grid, ProcessTimeline

    Ints = NDArray[np.int64]

_LATENCY: Final = 0
_WAIT: Final = 1
_KINDS: Final = 2


@dataclass(frozen=True, slots=True)
class Counted:
    """How often each key of each log occurs."""

    log: Ints
    key: Ints
    number: Ints

    @classmethod
    def of(cls, log: Ints, key: Ints) -> Counted:
        """Count keys."""
        _, first, number = np.unique(keys_of(log, key), return_index=True, return_counts=True)
        return cls(log[first], key[first], number.astype(np.int64))

    def among(self, logs: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """Return the keys of those logs that are marked, and how often each occurs."""
        mine = logs[self.log]
        keys, place = np.unique(self.key[mine], return_inverse=True)
        numbers = np.zeros(keys.size, dtype=np.int64)
        np.add.at(numbers, place, self.number[mine])
        return keys, numbers


@dataclass(frozen=True, slots=True)
class Tally:
    """What the replay of many logs measured: durations in fine bins, the same by slice, and counts by slice.

    `high`, `low` and `maximum` are of the durations of each kind and log: the sums of their upper and lower halves.
    """

    fine: tuple[Counted, ...]
    by_slice: tuple[Counted, ...]
    counts: Counted
    high: Ints
    low: Ints
    maximum: Ints

    def add_to(self, latency: Histogram, timeline: ProcessTimeline, logs: Ints | None = None) -> None:
        """Add the measures of some logs, or all."""
        wanted = np.full(self.high.shape[1], logs is None)
        if logs is not None:
            wanted[logs] = True
        for kind, histogram, spread in (
            (_LATENCY, latency, timeline.latency),
            (_WAIT, timeline.wait, timeline.buffered),
        ):
            keys, numbers = self.fine[kind].among(wanted)
            if keys.size == 0:
                continue
            total = (exact_sum(self.high[kind][wanted]) << 32) + exact_sum(self.low[kind][wanted])
            histogram.add_counts(keys, numbers, total, int(self.maximum[kind][wanted].max()))
            spread.add(Spread(*self.by_slice[kind].among(wanted)))
        keys, numbers = self.counts.among(wanted)
        timeline.counts.reshape(-1)[keys] += numbers


class Tallying:
    """Makes the tally of a number of logs."""

    def __init__(self, logs: int, grid: Grid) -> None:
        self.grid = grid
        self._fine: list[list[Counted]] = [[] for _ in range(_KINDS)]
        self._by_slice: list[list[Counted]] = [[] for _ in range(_KINDS)]
        self._counts: list[Counted] = []
        self._high, self._low = (np.zeros((_KINDS, logs), dtype=np.int64) for _ in range(2))
        self._maximum = np.full((_KINDS, logs), NO_VALUE, dtype=np.int64)

    def add_deliveries(self, log: Ints, sent: Ints, arrived: Ints) -> None:
        """Add messages of others, by the broadcaster's time and that of the log."""
        self._took(_LATENCY, log, sent, arrived - sent)
        self._count("sent", log, sent)
        self._count("arrived", log, arrived)

    def add_links(self, links: Links) -> None:
        """Add what the processes sent and received."""
        for what, log, times in (
            ("received", links.received_log, links.received),
            ("released", links.received_log, links.released),
            ("redundant", links.redundant_log, links.redundant),
            ("sends", links.sent_log, links.sent),
        ):
            known = times != NO_VALUE
            self._count(what, log[known], times[known])
        both = (links.received != NO_VALUE) & (links.released != NO_VALUE)
        began = links.received[both]
        self._took(_WAIT, links.received_log[both], began, links.released[both] - began)

    def done(self) -> Tally:
        """Return the tally."""
        return Tally(
            tuple(_together(parts) for parts in self._fine),
            tuple(_together(parts) for parts in self._by_slice),
            _together(self._counts),
            self._high,
            self._low,
            self._maximum,
        )

    def _took(self, kind: int, log: Ints, began: Ints, took: Ints) -> None:
        bins = logarithm(took)
        self._fine[kind].append(Counted.of(log, bins.astype(np.int64)))
        self._by_slice[kind].append(Counted.of(log, spread_keys(self.grid.slices(began), bins)))
        np.add.at(self._high[kind], log, took >> 32)
        np.add.at(self._low[kind], log, took & 0xFFFFFFFF)
        np.maximum.at(self._maximum[kind], log, took)

    def _count(self, what: str, log: Ints, times: Ints) -> None:
        self._counts.append(Counted.of(log, COUNTED.index(what) * ALL_SLICES + self.grid.slices(times)))


def _together(parts: list[Counted]) -> Counted:
    nothing = np.zeros(0, dtype=np.int64)
    columns = ([nothing, *(getattr(part, name) for part in parts)] for name in ("log", "key", "number"))
    return Counted(*(np.concatenate(column) for column in columns))
