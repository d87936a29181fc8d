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

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import LogIndex

    Ints = NDArray[np.int64]

SLICES: Final = 60
"""Slices of the grid. Slice 0 and slice `SLICES + 1` hold what lies before and behind it."""
ALL_SLICES: Final = SLICES + 2
_COARSE: Final = 96
"""Bins of a histogram that are one bin here, about 10 % wide: quantiles are right within 5 %."""
_BINS: Final = 512
_STRIDE: Final = 2 * _BINS


def _round_up(width: int) -> int:
    """Return the next number of four binary digits and zeros, so that the grid of a trace that grows mostly stays."""
    zeros = max(0, width.bit_length() - 4)
    return -(-width >> zeros) << zeros


@dataclass(frozen=True, slots=True)
class Grid:
    """Equal slices of time, in nanoseconds; a width of 0 says that the logs carry no times."""

    start: int = 0
    width: int = 0

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
        return cls(first, _round_up((last - first) // SLICES + 1))

    def strangers(self, logs: Iterable[LogIndex]) -> Iterator[str]:
        """Return the processes whose clocks lie wholly outside the grid."""
        end = self.start + SLICES * self.width
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


def summarise(whole: ProcessTimeline, clock: Clock, logs: Mapping[str, LogIndex]) -> Timeline | None:
    """Return the measures of all processes by time, `None` where the logs carry no times."""
    grid = clock.grid
    if grid.width == 0:
        return None
    counts = dict(zip(COUNTED, whole.counts, strict=True))
    messages, payload, overhead = _broadcasts(grid, clock)
    fresh = counts["received"]
    columns: dict[str, tuple[float | None, ...]] = {
        "messages": _inside(messages),
        "payload_bytes": _means(payload),
        "overhead_bytes": _means(overhead),
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


def _broadcasts(grid: Grid, clock: Clock) -> tuple[Ints, tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Return per slice: messages; how many say their payload, and its sum; the same of their overhead."""
    messages = np.zeros(ALL_SLICES, dtype=np.int64)
    sums = [(np.zeros(ALL_SLICES, dtype=np.int64), np.zeros(ALL_SLICES, dtype=np.int64)) for _ in range(2)]
    for time, payload, overhead in clock.topics.measures():
        timed = time != NO_VALUE
        slices = grid.slices(time[timed])
        messages += np.bincount(slices, minlength=ALL_SLICES)
        for (number, total), values in zip(sums, (payload[timed], overhead[timed]), strict=True):
            known = values != NO_VALUE
            np.add.at(number, slices[known], 1)
            np.add.at(total, slices[known], values[known])
    return messages, sums[0], sums[1]


def _inside(counts: Ints) -> tuple[float | None, ...]:
    return tuple(float(value) for value in counts[1:-1])


def _means(sums: tuple[Ints, Ints]) -> tuple[float | None, ...]:
    number, total = sums
    return _ratios(total, number)


def _ratios(parts: Ints, wholes: Ints) -> tuple[float | None, ...]:
    pairs = zip(parts[1:-1].tolist(), wholes[1:-1].tolist(), strict=True)
    return tuple(part / whole if whole else None for part, whole in pairs)


def _standing(began: Ints, ended: Ints) -> tuple[float | None, ...]:
    """Return how many have begun and not ended by the end of each slice; skewed clocks may end before they begin."""
    if not began.any():
        return (None,) * SLICES
    return tuple(float(value) for value in np.maximum(np.cumsum(began - ended), 0)[1:-1])
