"""Measures by time: what happened in each slice of a grid that lies over the whole trace.

A time stamp is the word of one process's clock. It decides where a measure is shown and how long something took,
and nothing else. Each process is measured where it is replayed; what it hands on has the size of the grid, not of
its log, and the parts of all processes are added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import CRASH, EVICT, JOIN, LEAVE, NO_VALUE, RECOVER
from causalcast.audit.metrics import Histogram, value_of
from causalcast.audit.result import Timeline, Transport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from causalcast.audit.digests import LogIndex

    Ints = NDArray[np.int64]

SLICES: Final = 120
"""Slices that the grid may have, and has more than half of. Slice 0 and slice `SLICES + 1` hold what lies before and
behind them."""
ALL_SLICES: Final = SLICES + 2
_COARSE: Final = 96
"""Bins of a histogram that are one bin here, about 10 % wide: quantiles are right within 5 %."""
_BINS: Final = 512
_STRIDE: Final = 2 * _BINS


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal slices of time, in nanoseconds; a width of 0 says that the logs carry no times.

    The width is a power of two: when a trace grows, its slices stay, or two of them become one. `number` slices have
    something in them.
    """

    start: int = 0
    width: int = 0
    number: int = 0

    @classmethod
    def over(cls, logs: Iterable[LogIndex]) -> Grid:
        """Cover the times of `logs`. A clock far from the others' does not stretch the grid: it lies outside."""
        spans = sorted((*log.span, log.rows) for log in logs if log.span is not None)
        clusters: list[list[int]] = []
        for first, last, rows in spans:
            if clusters and first <= clusters[-1][1]:
                clusters[-1][1] = max(clusters[-1][1], last)
                clusters[-1][2] += rows
            else:
                clusters.append([first, last, rows])
        if not clusters:
            return cls()
        low = high = max(range(len(clusters)), key=lambda i: clusters[i][2])
        first, last = clusters[low][0], clusters[low][1]
        grown = True
        while grown:
            grown, reach = False, max(last - first, 10**6)
            if low > 0 and first - clusters[low - 1][1] <= reach:
                low, grown = low - 1, True
                first = clusters[low][0]
            if high + 1 < len(clusters) and clusters[high + 1][0] - last <= reach:
                high, grown = high + 1, True
                last = clusters[high][1]
        width = 1 << ((last - first) // SLICES).bit_length()
        return cls(first, width, (last - first) // width + 1)

    def places(self, other: Grid) -> Ints | None:
        """Return where each slice of an earlier grid lies in this one, `None` where that is in no slice, or in two."""
        shift = self.width.bit_length() - other.width.bit_length()
        if self.start != other.start or shift < 0 or not other.width:
            return None
        places: Ints = np.append(np.append(0, (np.arange(SLICES) >> shift) + 1), SLICES + 1)
        return places

    def strangers(self, logs: Iterable[LogIndex]) -> Iterator[str]:
        """Return the processes whose clocks lie wholly outside the grid."""
        end = self.start + self.number * self.width
        for log in logs:
            if log.span is not None and (log.span[1] < self.start or log.span[0] >= end):
                yield log.process

    def slices(self, times: Ints) -> Ints:
        """Return the slice of each time; absent ones must have been left out."""
        if self.width == 0:
            return np.zeros(times.size, dtype=np.int64)
        # Outside the grid differences may leave int64, so what lies there is moved to its edge first.
        inside = np.clip(times, self.start - self.width, self.start + SLICES * self.width)
        return (inside - self.start) // self.width + 1


def spread_keys(slices: Ints, bins: NDArray[np.int32]) -> Ints:
    """Return the key in `Spread` of each duration; `bins` are those of `metrics.logarithm`."""
    coarse = np.clip(np.rint(bins / _COARSE).astype(np.int64), -_BINS + 1, _BINS - 1)
    keys: Ints = slices * _STRIDE + coarse + _BINS
    return keys


@dataclass(slots=True)
class Spread:
    """Durations by the slice in which they began: how many fall into each bin of logarithmic width."""

    keys: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, slices: Ints, bins: NDArray[np.int32]) -> Spread:
        """Count durations; `bins` are those of `metrics.logarithm`."""
        if slices.size == 0:
            return cls()
        keys, numbers = np.unique(spread_keys(slices, bins), return_counts=True)
        return cls(keys, numbers.astype(np.int64))

    def add(self, other: Spread) -> None:
        """Add another's counts."""
        if other.keys.size == 0:
            return
        keys, inverse = np.unique(np.concatenate((self.keys, other.keys)), return_inverse=True)
        numbers = np.zeros(keys.size, dtype=np.int64)
        np.add.at(numbers, inverse, np.concatenate((self.numbers, other.numbers)))
        self.keys, self.numbers = keys, numbers

    def subtract(self, part: Spread) -> None:
        """Take the counts of a part away."""
        self.add(Spread(part.keys, -part.numbers))
        left = self.numbers != 0
        self.keys, self.numbers = self.keys[left], self.numbers[left]

    def moved(self, places: Ints) -> Spread:
        """Return the same in slices that lie elsewhere."""
        moved = Spread()
        moved.add(Spread(places[self.keys // _STRIDE] * _STRIDE + self.keys % _STRIDE, self.numbers))
        return moved

    def quantile(self, share: float) -> tuple[float | None, ...]:
        """Return a quantile of each slice of the grid, in milliseconds; `None` where nothing was measured."""
        found: list[float | None] = []
        slices = self.keys // _STRIDE
        for number in range(1, SLICES + 1):
            mine = slices == number
            if not mine.any():
                found.append(None)
                continue
            reached = np.cumsum(self.numbers[mine])
            at = int(np.searchsorted(reached, share * reached[-1]))
            coarse = int(self.keys[mine][at] % _STRIDE) - _BINS
            found.append(value_of(coarse * _COARSE) / 1e6)
        return tuple(found)


COUNTED: Final = ("sent", "arrived", "held", "stable", "received", "released", "redundant", "sends")
BROADCASTS: Final = ("messages", "with payload", "payload", "with overhead", "overhead")
"""Of the broadcasts in a slice: how many; how many say their payload, and its sum; the same of their overhead."""


@dataclass(slots=True)
class ProcessTimeline:
    """What one process, or all so far, add to the grid.

    `counts` has a row for each of `COUNTED`: deliveries by the time of their broadcast and by their own; the
    beginning and the end of waiting for stability; messages received first and those of them delivered since;
    receptions of what was there already; sends.
    """

    counts: Ints = field(default_factory=lambda: np.zeros((len(COUNTED), ALL_SLICES), dtype=np.int64))
    latency: Spread = field(default_factory=Spread)
    stability: Spread = field(default_factory=Spread)
    buffered: Spread = field(default_factory=Spread)
    wait: Histogram = field(default_factory=Histogram)

    def merge(self, other: ProcessTimeline) -> None:
        """Add what another process measured."""
        self.counts += other.counts
        self.latency.add(other.latency)
        self.stability.add(other.stability)
        self.buffered.add(other.buffered)
        self.wait.merge(other.wait)

    def subtract(self, part: ProcessTimeline) -> None:
        """Take away what a part measured; the longest wait stays that of the whole."""
        self.counts -= part.counts
        self.latency.subtract(part.latency)
        self.stability.subtract(part.stability)
        self.buffered.subtract(part.buffered)
        self.wait.subtract(part.wait)

    def moved(self, places: Ints) -> ProcessTimeline:
        """Return the same in slices that lie elsewhere."""
        return ProcessTimeline(
            counts=moved(self.counts, places),
            latency=self.latency.moved(places),
            stability=self.stability.moved(places),
            buffered=self.buffered.moved(places),
            wait=self.wait,
        )

    def add_deliveries(self, grid: Grid, sent: Ints, arrived: Ints, bins: NDArray[np.int32]) -> None:
        """Add messages of others, by the broadcaster's time and this process's."""
        self._count("sent", grid.slices(sent))
        self._count("arrived", grid.slices(arrived))
        self.latency.add(Spread.of(grid.slices(sent), bins))

    def add_stability(self, grid: Grid, since: Ints, until: Ints, bins: NDArray[np.int32]) -> None:
        """Add messages by the time of their delivery here and of their report as stable here."""
        self._count("held", grid.slices(since))
        self._count("stable", grid.slices(until))
        self.stability.add(Spread.of(grid.slices(since), bins))

    def _count(self, what: str, slices: Ints) -> None:
        self.counts[COUNTED.index(what)] += np.bincount(slices, minlength=ALL_SLICES)


def moved(counts: Ints, places: Ints) -> Ints:
    """Return the columns of counts by slice, added up where the slices lie now."""
    found = np.zeros_like(counts)
    np.add.at(found.T, places, counts.T)
    return found


def summarise(whole: ProcessTimeline, broadcasts: Ints, grid: Grid, logs: Mapping[str, LogIndex]) -> Timeline | None:
    """Return the measures of all processes by time, `None` where the logs carry no times.

    `broadcasts` has a row for each of `BROADCASTS`.
    """
    if grid.width == 0:
        return None
    counts = dict(zip(COUNTED, whole.counts, strict=True))
    messages, with_payload, payload, with_overhead, overhead = broadcasts
    fresh = counts["received"]
    columns: dict[str, tuple[float | None, ...]] = {
        "messages": _inside(messages),
        "payload_bytes": _ratios(payload, with_payload),
        "overhead_bytes": _ratios(overhead, with_overhead),
        "deliveries": _inside(counts["arrived"]),
        "latency_p50_ms": whole.latency.quantile(0.5),
        "latency_p99_ms": whole.latency.quantile(0.99),
        "under_way": _standing(counts["sent"], counts["arrived"]),
        "stability_p50_ms": whole.stability.quantile(0.5),
        "stability_p99_ms": whole.stability.quantile(0.99),
        "not_yet_stable": _standing(counts["held"], counts["stable"]),
        "redundancy": _ratios(counts["redundant"], fresh),
        "buffered": _standing(fresh, counts["released"]),
        "buffer_p99_ms": whole.buffered.quantile(0.99),
        "members": members_over_time(grid, logs),
    }
    columns = {name: column[: grid.number] for name, column in columns.items()}
    measured = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    return Timeline(grid.start, grid.width, measured, tuple(grid.strangers(logs.values())))


def transport(whole: ProcessTimeline, logs: Iterable[LogIndex], deliveries: int) -> Transport | None:
    """Return what the logs say of single links, `None` where they say nothing.

    The redundancy is the relative message redundancy of document 000, m / (n - 1) - 1, over all messages:
    receptions for each first one, or sends for each of the `deliveries` where no log has receptions, less one.
    """
    sends = receives = redundant = 0
    for log in logs:
        sends += log.traffic.sends
        receives += log.traffic.receives
        redundant += log.traffic.redundant
    if sends + receives == 0:
        return None
    fresh = receives - redundant
    needed = fresh or deliveries
    redundancy = (receives or sends) / needed - 1 if needed else None
    return Transport(sends, receives, redundant, redundancy, whole.wait.milliseconds())


def members_over_time(grid: Grid, logs: Mapping[str, LogIndex]) -> tuple[float | None, ...]:
    """Return how many processes are members at the end of each slice.

    Who logs no `join` first is a member from the start. An eviction counts at the time of whoever evicts.
    """
    change = np.zeros(ALL_SLICES, dtype=np.int64)
    evicted = _evictions(logs)
    for process, log in logs.items():
        own = [m for m in log.turns if m.event in _TURNS and (m.event != EVICT or m.peer == process)]
        first = next((m for m in own if m.event in (JOIN, LEAVE)), None)
        member = not (first is not None and first.event == JOIN)
        change[0] += member
        moments = [(m.time, m.event in (JOIN, RECOVER)) for m in own if m.time != NO_VALUE]
        moments += [(time, False) for time in evicted.get(process, ())]
        for time, after in sorted(moments):
            if after != member:
                change[int(grid.slices(np.array([time], dtype=np.int64))[0])] += 1 if after else -1
                member = after
    return tuple(float(number) for number in np.cumsum(change)[1:-1])


_TURNS: Final = frozenset({JOIN, LEAVE, EVICT, CRASH, RECOVER})


def _evictions(logs: Mapping[str, LogIndex]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for process, log in logs.items():
        for mark in log.turns:
            if mark.event == EVICT and mark.peer is not None and mark.peer != process and mark.time != NO_VALUE:
                found.setdefault(mark.peer, []).append(mark.time)
    return found


def _inside(counts: Ints) -> tuple[float | None, ...]:
    return tuple(float(value) for value in counts[1:-1])


def _ratios(parts: Ints, wholes: Ints) -> tuple[float | None, ...]:
    pairs = zip(parts[1:-1].tolist(), wholes[1:-1].tolist(), strict=True)
    return tuple(part / whole if whole else None for part, whole in pairs)


def _standing(began: Ints, ended: Ints) -> tuple[float | None, ...]:
    """Return how many have begun and not ended by the end of each slice; skewed clocks may end before they begin."""
    if not began.any():
        return (None,) * SLICES
    return tuple(float(value) for value in np.maximum(np.cumsum(began - ended), 0)[1:-1])
