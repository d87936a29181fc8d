"""Which processes did nothing wrong in which topics: many sections judged by one set of array operations.

A section is *clean* when every message of the topic is in the process's log once, after its immediate predecessors,
with the size that it was broadcast with, and nothing else is. No check finds anything there, whoever was a member
when: what is entitled, absent or explained matters only where something is absent. Where no more is wrong than that
messages are absent or out of order, most sections are judged together, too (`absences`). All others are judged one by
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.absences import Present
from causalcast.audit.events import NO_VALUE
from causalcast.audit.ranges import places, starts_of
from causalcast.audit.spells import SEVERAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from causalcast.audit.absences import Absences
    from causalcast.audit.digests import Bodies
    from causalcast.audit.flat import FlatClock
    from causalcast.audit.tally import Tallying

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_TOGETHER: Final = 1_000_000
"""Messages and edges that are judged at once."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Sections to judge: their numbers, and of each the log and the topic, as a number of the flat clock."""

    sections: Ints
    log: Ints
    topic: Ints

    def part(self, rows: slice | Bools) -> Chosen:
        """Return some of them."""
        return Chosen(self.sections[rows], self.log[rows], self.topic[rows])


def screen(bodies: Bodies, flat: FlatClock, chosen: Chosen, tally: Tallying, absences: Absences) -> tuple[Bools, Bools]:
    """Return which of the sections are clean, and which `absences` judged; add what was measured in both."""
    codes = {name: code for code, name in enumerate(flat.messages.origins)}
    origins = np.array([*(codes.get(name, -1) for name in bodies.names), -1], dtype=np.int64)
    own = np.array([codes.get(process, -1) for process in bodies.processes], dtype=np.int64)
    clean, judged = (np.zeros(chosen.sections.size, dtype=bool) for _ in range(2))
    for rows in _slices(flat, chosen):
        clean[rows], judged[rows] = _Screening(bodies, flat, chosen.part(rows), origins, own, tally, absences).run()
    return clean, judged


def _slices(flat: FlatClock, chosen: Chosen) -> Iterator[slice]:
    work = np.diff(flat.messages.first)[chosen.topic] + np.diff(flat.edges)[chosen.topic]
    ends = np.flatnonzero(np.diff(np.cumsum(work) // _TOGETHER)) + 1
    for first, last in zip([0, *ends.tolist()], [*ends.tolist(), work.size], strict=True):
        if last > first:
            yield slice(first, last)


class _Screening:
    """Sections judged at once; `place` is where each section's messages begin among those of all sections."""

    def __init__(
        self,
        bodies: Bodies,
        flat: FlatClock,
        chosen: Chosen,
        origins: Ints,
        own: Ints,
        tally: Tallying,
        absences: Absences,
    ) -> None:
        self.bodies = bodies
        self.flat = flat
        self.chosen = chosen
        self.own = own[chosen.log]
        self.tally = tally
        self.absences = absences
        self.clean = np.ones(chosen.sections.size, dtype=bool)
        self.even = np.ones(chosen.sections.size, dtype=bool)
        """Where nothing is wrong but what is absent or out of order."""
        self.explicit = np.zeros(chosen.sections.size, dtype=bool)
        first = flat.messages.first
        self.place = starts_of(np.diff(first)[chosen.topic])
        self.shift = self.place[:-1] - first[chosen.topic]
        """From a row of the clock to a place."""
        self.delivery, sizes = bodies.of(chosen.sections)
        self.section = np.repeat(np.arange(chosen.sections.size), sizes)
        group = flat.messages.groups_of(chosen.topic[self.section], origins[bodies.origin[self.delivery]])
        self.row = flat.messages.rows_of(group, bodies.counter[self.delivery])

    def run(self) -> tuple[Bools, Bools]:
        known = self.row >= 0
        self._refuse(self.section[~known])
        if not known.all():
            self.delivery, self.section, self.row = self.delivery[known], self.section[known], self.row[known]
        position = np.zeros(int(self.place[-1]), dtype=np.int64)
        seq = self.bodies.seq[self.delivery].astype(np.int64)
        at = self.row + self.shift[self.section]
        position[at[::-1]] = seq[::-1]
        self._refuse(self.section[position[at] != seq])
        self._place_own(position)
        absent = np.flatnonzero(position == 0)
        self.clean[np.searchsorted(self.place, absent, side="right") - 1] = False
        self._check_order(position)
        self._check_payloads()
        judged = self._judge(position)
        self._measure(self.clean | judged)
        return self.clean, judged

    def _refuse(self, sections: Ints) -> None:
        self.clean[sections] = self.even[sections] = False

    def _judge(self, position: Ints) -> Bools:
        """Judge where messages are absent or out of order, if membership is plain there; return where."""
        chosen = self.chosen
        judged = self.even & ~self.clean
        some = np.flatnonzero(judged)
        since = self.absences.since(chosen.log[some], chosen.sections[some])
        judged[some[since == SEVERAL]] = False
        some, since = some[since != SEVERAL], since[since != SEVERAL]
        if some.size:
            mine = places(self.place[some], self.place[some + 1] - self.place[some])
            part = (chosen.log[some], chosen.topic[some], self.own[some], self.explicit[some])
            self.absences.judge(Present(*part, position[mine]), since)
        return judged

    def _place_own(self, position: Ints) -> None:
        flat, chosen = self.flat, self.chosen
        group = flat.messages.groups_of(chosen.topic, self.own)
        mine = np.flatnonzero(group >= 0)
        starts = flat.messages.starts
        sizes = starts[group[mine] + 1] - starts[group[mine]]
        rows, section = places(starts[group[mine]], sizes), np.repeat(mine, sizes)
        at = rows + self.shift[section]
        logged, sent = flat.logged[rows], flat.seq[rows]
        here = position[at] > 0
        explicit = self.bodies.explicit[chosen.sections].copy()
        explicit[section[here & logged]] = True
        self.explicit = explicit
        implied = logged & ~explicit[section]
        self._refuse(section[here & logged & (position[at] < sent)])
        position[at[implied]] = sent[implied]

    def _check_order(self, position: Ints) -> None:
        flat, chosen = self.flat, self.chosen
        sizes = np.diff(flat.edges)[chosen.topic]
        edge = places(flat.edges[chosen.topic], sizes)
        place = np.repeat(self.place[:-1], sizes)
        late = np.flatnonzero(position[flat.cause[edge] + place] > position[flat.effect[edge] + place])
        if late.size:
            self.clean[np.searchsorted(np.cumsum(sizes), late, side="right")] = False

    def _check_payloads(self) -> None:
        if self.bodies.payload is None:
            return
        here, sent = self.bodies.payload[self.delivery], self.flat.payload[self.row]
        self._refuse(self.section[(here != NO_VALUE) & (sent != NO_VALUE) & (here != sent)])

    def _measure(self, wanted: Bools) -> None:
        if self.bodies.time is None:
            return
        arrived, sent = self.bodies.time[self.delivery], self.flat.time[self.row]
        use = (arrived != NO_VALUE) & (sent != NO_VALUE) & wanted[self.section]
        group = np.searchsorted(self.flat.messages.starts, self.row, side="right") - 1
        use &= self.flat.messages.origin[group] != self.own[self.section]
        self.tally.add_deliveries(self.chosen.log[self.section[use]], sent[use], arrived[use])
