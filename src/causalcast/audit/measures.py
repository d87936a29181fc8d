"""What an audit measures, as sums: those of two parts of a trace add up to those of the whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import NO_VALUE
from causalcast.audit.metrics import Histogram, exact_sum
from causalcast.audit.result import Distribution
from causalcast.audit.timeline import ALL_SLICES, BROADCASTS, ProcessTimeline, Spread, moved

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.replay import Replays
    from causalcast.audit.timeline import Grid
    from causalcast.audit.violations import Replay

    Ints = NDArray[np.int64]

_SHARES: Final = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class Measures:
    """The measures of a trace, or of a part of it.

    `messages` are those of all topics, `payload` and `overhead` how many of them have each size, `broadcasts` what
    `timeline.BROADCASTS` says of each slice. `excused` and `unproven` are as in `Replay`, over all processes.
    """

    messages: int = 0
    excused: int = 0
    unproven: int = 0
    latency: Histogram = field(default_factory=Histogram)
    stability_delay: Histogram = field(default_factory=Histogram)
    timeline: ProcessTimeline = field(default_factory=ProcessTimeline)
    payload: Spread = field(default_factory=Spread)
    overhead: Spread = field(default_factory=Spread)
    broadcasts: Ints = field(default_factory=lambda: np.zeros((len(BROADCASTS), ALL_SLICES), dtype=np.int64))

    @classmethod
    def of(cls, clock: Clock) -> Measures:
        """Return what the broadcasts alone say."""
        found = cls(messages=clock.messages)
        for time, payload, overhead in clock.topics.measures():
            found.payload.add(_sizes(payload))
            found.overhead.add(_sizes(overhead))
            _add_broadcasts(found.broadcasts, clock.grid, time, payload, overhead)
        return found

    def add_replays(self, some: Replays, places: list[int]) -> None:
        """Add what the replays of some logs measured, but for those that were judged closely."""
        some.tally.add_to(self.latency, self.timeline, np.array(places, dtype=np.int64))
        self.excused += self.messages * len(places) + int(some.excused[places].sum())

    def add_replay(self, replay: Replay) -> None:
        """Add what a process was found to do that was judged closely."""
        self.latency.merge(replay.latency)
        self.stability_delay.merge(replay.stability_delay)
        self.timeline.merge(replay.timeline)
        self.excused += replay.excused
        self.unproven += replay.unproven

    def add(self, other: Measures) -> None:
        """Add the measures of another part of the trace, on the same grid."""
        self.messages += other.messages
        self.excused += other.excused
        self.unproven += other.unproven
        self.latency.merge(other.latency)
        self.stability_delay.merge(other.stability_delay)
        self.timeline.merge(other.timeline)
        self.payload.add(other.payload)
        self.overhead.add(other.overhead)
        self.broadcasts += other.broadcasts

    def moved(self, places: Ints) -> Measures | None:
        """Return the same in slices that lie elsewhere, see `Grid.places`; `None` where anything lies in none."""
        outside = [0, ALL_SLICES - 1]
        if self.timeline.counts[:, outside].any() or self.broadcasts[:, outside].any():
            return None
        return replace(self, timeline=self.timeline.moved(places), broadcasts=moved(self.broadcasts, places))

    def subtract(self, part: Measures) -> None:
        """Leave out the measures of a part; the longest durations stay those of the whole."""
        self.messages -= part.messages
        self.excused -= part.excused
        self.unproven -= part.unproven
        self.latency.subtract(part.latency)
        self.stability_delay.subtract(part.stability_delay)
        self.timeline.subtract(part.timeline)
        self.payload.subtract(part.payload)
        self.overhead.subtract(part.overhead)
        self.broadcasts -= part.broadcasts


def _sizes(values: Ints) -> Spread:
    keys, numbers = np.unique(values[values != NO_VALUE], return_counts=True)
    return Spread(keys, numbers.astype(np.int64))


def _add_broadcasts(to: Ints, grid: Grid, time: Ints, payload: Ints, overhead: Ints) -> None:
    timed = time != NO_VALUE
    slices = grid.slices(time[timed])
    to[0] += np.bincount(slices, minlength=ALL_SLICES)
    for at, values in ((1, payload[timed]), (3, overhead[timed])):
        known = values != NO_VALUE
        np.add.at(to[at], slices[known], 1)
        np.add.at(to[at + 1], slices[known], values[known])


def summary(sizes: Spread) -> Distribution:
    """Summarise sizes in bytes exactly."""
    if sizes.keys.size == 0:
        return Distribution("B")
    reached = np.cumsum(sizes.numbers)
    count = int(reached[-1])
    at = [int(np.searchsorted(reached, int((count - 1) * share), side="right")) for share in _SHARES]
    p50, p90, p99 = (float(sizes.keys[i]) for i in at)
    return Distribution("B", count, _total(sizes) / count, p50, p90, p99, float(sizes.keys[-1]))


def _total(sizes: Spread) -> int:
    """Return the sum of all sizes, however large."""
    if float(sizes.keys[-1]) * float(sizes.numbers.sum()) < 2**62:
        return exact_sum(sizes.keys * sizes.numbers)
    return sum(size * number for size, number in zip(sizes.keys.tolist(), sizes.numbers.tolist(), strict=True))


def measured(clock: Clock, replays: Iterable[tuple[Replays, list[int]]]) -> tuple[Measures, list[Replay]]:
    """Return the measures of replays (some, and which of them count), and those that were judged closely, by name."""
    found = Measures.of(clock)
    closely: list[Replay] = []
    for some, places in replays:
        found.add_replays(some, places)
        closely += [some.found[place] for place in places if place in some.found]
    closely.sort(key=lambda replay: replay.process)
    for replay in closely:
        found.add_replay(replay)
    return found, closely
