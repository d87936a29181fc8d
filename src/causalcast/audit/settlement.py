"""What is made of it once it is known which messages are settled: the rows that are left, and sums of the others.

What is left is judged alone before anything is settled: that must find what the whole does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.conclusions import NOTHING_CONCLUDED, conclude
from causalcast.audit.cover import without_dots
from causalcast.audit.events import STABLE
from causalcast.audit.left_out import LeftOut
from causalcast.audit.measures import Measures
from causalcast.audit.naming import split
from causalcast.audit.parts import merge, select
from causalcast.audit.received import NOTHING_RECEIVED
from causalcast.audit.receptions import Receptions
from causalcast.audit.settled import Settled, limits_of, shortened
from causalcast.audit.settling import Settling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.cover import Reach
    from causalcast.audit.digests import Bodies
    from causalcast.audit.judgement import Judged
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.received import Received
    from causalcast.audit.settled import Limits

    Ints = NDArray[np.int64]

    Parts = Iterable[tuple[LogColumns, Ints]]
    """Rows, and whose each is."""

MOST_ROWS: Final = 2_000_000
"""Rows that are kept since they are not settled."""
MOST_CONCLUDED: Final = 100_000
"""Findings about settled messages that are kept."""


class Settlement:
    """Leaves out of a judged trace what is settled; `bodies` says where each log's body is."""

    def __init__(
        self, judged: Judged, bodies: Mapping[str, tuple[Bodies, int]], crashed: frozenset[str], earlier: Settled | None
    ) -> None:
        self.judged = judged
        self.crashed = crashed
        self.earlier = earlier
        self.clock = judged.known.clock
        self.found = Settling(judged, bodies, earlier)
        self.short = earlier.short if earlier is not None else frozenset()
        self.rest = judged.closely
        """What was found and is not concluded."""
        self.concluded = NOTHING_CONCLUDED

    def run(self, parts: Parts, covered: frozenset[str], last: Ints) -> Settled | None:
        """Return what is settled and what is left of `parts`; `None` where a later run is to look at the whole.

        Args:
            parts: all rows of the trace that were not left out before.
            covered: the keys of the pieces that they, and all before them, came from.
            last: the last row of each log, in the order of their names; it is looked at when `parts` has ended.
        """
        upto = self.found.run()
        if upto is None:
            return None
        concluded, self.rest = split(self.judged, upto)
        self.concluded = self.judged.concluded.with_others(conclude(self.judged, concluded))
        if self.concluded.rows is not None and self.concluded.rows.num_rows > MOST_CONCLUDED:
            return None
        left = self._left(parts, upto)
        total = sum(index.rows for index in self.judged.logs.values())
        if left is None or left[1].size > total // 2:
            return None
        return self._checked(self._settled(upto, covered, last, *left))

    def _left(self, parts: Parts, upto: Limits) -> tuple[LogColumns, Ints, Received] | None:
        """Return the rows that are not left out, and what was received by those that are; `None` where that is much."""
        receptions = Receptions(self.earlier.received if self.earlier is not None else NOTHING_RECEIVED)
        kept: list[tuple[LogColumns, Ints]] = []
        number = 0
        for rows, log in parts:
            self.short |= shortened(rows, upto, self.found.begun)
            limits = limits_of(rows.names, rows.topic, rows.origin, upto)
            kept.append(without_settled(*receptions.without(rows, log, limits), upto, self.found.reach))
            number += kept[-1][1].size
            if number > MOST_ROWS or receptions.many:
                return None
        received = receptions.done()
        if received is None:
            return None
        return merge([rows for rows, _ in kept]), np.concatenate([log for _, log in kept]), received

    def _settled(
        self,
        upto: dict[str, dict[str, int]],
        covered: frozenset[str],
        last: Ints,
        rows: LogColumns,
        log: Ints,
        received: Received,
    ) -> Settled:
        """Return what is settled, with sums of the whole trace."""
        judged, earlier = self.judged, self.earlier
        logs = [judged.logs[process] for process in sorted(judged.logs)]
        explicit = {(topic, process) for (process, topic), section in self.found.sections.items() if section.explicit}
        tagged = {topic for (_, topic), section in self.found.sections.items() if section.tags}
        stable = {topic for topic, clock in self.clock.topics.items() if clock.stability}
        if earlier is not None:
            explicit, tagged, stable = explicit | earlier.explicit, tagged | earlier.tagged, stable | earlier.stable
        return Settled(
            covered=covered,
            crashed=self.crashed,
            subscriptions=self.clock.subscriptions,
            grid=self.clock.grid,
            processes=tuple(index.process for index in logs),
            last=last,
            left_out=np.array([index.rows for index in logs], dtype=np.int64) - np.bincount(log, minlength=len(logs)),
            repeated=np.array([index.repeated for index in logs], dtype=np.int64),
            totals=np.array([index.source.totals[index.place] for index in logs], dtype=np.int64),
            traffic=np.array([index.source.traffic[index.place] for index in logs], dtype=np.int64),
            received=received,
            times=np.array([index.source.times[index.place] for index in logs], dtype=np.int64),
            upto=upto,
            concerned={topic: self.found.concerned[topic] for topic in upto},
            tagged=frozenset(tagged),
            stable=frozenset(stable),
            reach={topic: reach for topic, reach in self.found.reach.items() if topic in upto},
            silent=frozenset(self.found.silent),
            lost=self.found.lost,
            stays={topic: stays for topic, stays in self.found.stays.items() if topic in upto},
            standing=self._standing(upto),
            gone=np.array([index.process in self.found.turnover.gone for index in logs], dtype=bool),
            away=np.array([index.process in self.found.turnover.away for index in logs], dtype=bool),
            ended={topic: frozenset(those) for topic, those in self.found.turnover.ended.items() if topic in upto},
            steady={topic: self.found.concerned[topic] - self.found.turning[topic] for topic in upto},
            explicit=frozenset(explicit),
            restarts=frozenset(index.process for index in logs if self.found.restarts(index)),
            across=self.found.across,
            rows=rows,
            log=log,
            short=frozenset((t, o, n) for t, o, n in self.short if n > upto.get(t, {}).get(o, 0)),
            measures=judged.measures,
            concluded=self.concluded,
        )

    def _standing(self, upto: Limits) -> LeftOut:
        """Return what is to be known of what is left out, of topics in which that is anything."""
        return LeftOut(
            {topic: dues for topic, dues in self.found.dues.items() if dues and topic in upto},
            {topic: after for topic, after in self.found.after.items() if topic in upto},
            {topic: begun for topic, begun in self.found.begun.items() if begun and topic in upto},
            {topic: bonds for topic, bonds in self.found.bonds.items() if bonds and topic in upto},
        )

    def _checked(self, settled: Settled) -> Settled | None:
        """Judge what is left alone; return what is settled without it, `None` unless that finds the same."""
        nothing = {name: np.zeros_like(getattr(settled, name)) for name in ("totals", "traffic", "repeated")}
        alone = replace(settled, **nothing)
        found = alone.judge(settled.rows, settled.log)
        if found is None:
            return None
        part = replace(found[0], concluded=NOTHING_CONCLUDED)
        rest = replace(self.judged, closely=self.rest, concluded=NOTHING_CONCLUDED)
        here, there = rest.collect(), part.collect()
        if (here.counts, here.roots, here.suspects) != (there.counts, there.roots, there.suspects):
            return None
        codes: dict[str, int] = {}
        if not np.array_equal(_told(rest, codes), _told(part, codes)) or not self._same_past(part):
            return None
        if part.known.clock.grid != settled.grid:
            return None
        measures = Measures()
        measures.add(self.judged.measures)
        measures.subtract(part.measures)
        logs = [part.logs[process] for process in settled.processes]
        return replace(
            settled,
            left_out=settled.left_out + np.array([log.repeated for log in logs], dtype=np.int64),
            repeated=settled.repeated - np.array([log.repeated for log in logs], dtype=np.int64),
            totals=settled.totals - np.array([log.source.totals[log.place] for log in logs], dtype=np.int64),
            traffic=settled.traffic - np.array([log.source.traffic[log.place] for log in logs], dtype=np.int64),
            measures=measures,
        )

    def _same_past(self, part: Judged) -> bool:
        """Whether what is left alone shows what happens before what as the whole does, where that is in question."""
        for topic in self.found.bonds:
            clock, alone = self.clock.topics.get(topic), part.known.clock.topics.get(topic)
            if clock is None or alone is None:
                continue
            origin = np.array([clock.place[name] for name in alone.origins], dtype=np.int64)
            code = np.arange(len(alone.origins))
            rows = clock.locate(alone.origins, code[alone.owner], alone.counters)
            left_out = np.diff(clock.starts)[origin] - np.diff(alone.starts)
            past = np.maximum(clock.past[np.ix_(origin, rows)] - left_out[:, None], 0)
            if not np.array_equal(past, alone.past):
                return False
        return True


def _told(judged: Judged, codes: dict[str, int]) -> Ints:
    """Return all that is found of processes, as sorted rows; `codes` grows by the names that they have."""

    def coded(names: Sequence[str]) -> Ints:
        return np.array([*(codes.setdefault(name, len(codes)) for name in names), -1], dtype=np.int64)

    found: list[Ints] = []
    for replay in judged.closely:
        names = coded(replay.names)
        for part in replay.violations:
            clock = judged.known.clock.topics[part.topic]
            owner, counter = np.append(clock.owner, -1), np.append(clock.counters, 0)
            origins = coded(clock.origins)
            nothing = np.full(len(part), -1, dtype=np.int64)
            of = nothing if part.origin is None else names[part.origin]
            columns = [of, nothing if part.counter is None else part.counter, part.at, part.cause_at, part.root]
            for dots in (*part.named(), nothing)[:3]:
                columns += [origins[owner[dots]], counter[dots]]
            place = (*coded([replay.process, part.topic])[:2].tolist(), part.kind, part.reason)
            columns += [np.full(len(part), each, dtype=np.int64) for each in place]
            found.append(np.stack(columns).astype(np.int64))
    rows = np.concatenate([np.zeros((15, 0), dtype=np.int64), *found], axis=1)
    return rows[:, np.lexsort(rows)]


def without_settled(rows: LogColumns, log: Ints, upto: Limits, reach: Mapping[str, Reach]) -> tuple[LogColumns, Ints]:
    """Return the rows that are not about messages that are left out, and their tags without these."""
    keep = (rows.event > STABLE) | (rows.counter > limits_of(rows.names, rows.topic, rows.origin, upto))
    if not keep.all():
        rows, log = select(rows, keep, np.ones(rows.context_origin.size, dtype=bool)), log[keep]
    starts = np.concatenate((np.zeros(1, dtype=np.int64), rows.context_ends[:-1]))[: rows.context_ends.size]
    topic = rows.topic[np.repeat(rows.context_rows, rows.context_ends - starts)]
    gone = rows.context_counter <= limits_of(rows.names, topic, rows.context_origin, upto)
    return (without_dots(rows, gone, reach) if gone.any() else rows), log
