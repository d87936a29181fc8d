"""What processes lack or have out of order, in many topics at once: the checks of `order` by one set of operations.

Judged here are sections of members that were correct and stayed to the end, with nothing odd in what they have. For
these the rules of `members` come down to one row, that from which on a process was a member of the topic (`spells`).
All others are judged one by one.

The messages of all sections stand one behind the other; a *place* is one message in one section.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.order import first_per_cause
from causalcast.audit.ranges import heads_of, keys_of, places, starts_of
from causalcast.audit.spells import NEVER_MEMBER, Spells
from causalcast.audit.violations import CODE, NO_REASON, Violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import Bodies
    from causalcast.audit.flat import FlatClock
    from causalcast.audit.result import FindingKind

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_CELLS: Final = 4_000_000
"""Cells of the clock that are looked up at once."""


@dataclass(frozen=True, slots=True)
class Present:
    """What some sections have: each one's log, topic and own origin, and where its messages stand in its log.

    `topic` is a number of the flat clock, `own` an index into its origins, -1 where it has none. `position` has the
    messages of the topic of each section, one section behind the other. `explicit` says who logs its own deliveries.
    """

    log: Ints
    topic: Ints
    own: Ints
    explicit: Bools
    position: Ints


class Absences:
    """Judges sections of one flat clock; keeps what it finds, by log."""

    def __init__(self, bodies: Bodies, clock: Clock, flat: FlatClock, excused: Ints) -> None:
        """Count what is excused into `excused`, by log; see `Replays`."""
        self.bodies = bodies
        self.clock = clock
        self.flat = flat
        self.excused = excused
        self.found: dict[int, list[Violations]] = {}
        self._spells = Spells(bodies, clock)
        self._owed: dict[int, Bools] = {}

    @cached_property
    def _group(self) -> Ints:
        """The group of each message."""
        return np.repeat(np.arange(self.flat.messages.origin.size), np.diff(self.flat.messages.starts))

    def since(self, log: Ints, sections: Ints) -> Ints:
        """Return from which row on each is a member; see `Spells`."""
        return self._spells.since(log, self.bodies.topic[sections])

    def judge(self, present: Present, since: Ints) -> None:
        """Judge sections; those whose membership `since` does not tell must have been left out."""
        side_by_side = self.clock.topics.side_by_side(self.flat)
        if side_by_side is not None:
            self._judge(present, since, *side_by_side)
            return
        sizes = np.diff(self.flat.messages.first)[present.topic]
        starts = starts_of(sizes)
        for t in np.unique(present.topic).tolist():
            mine = present.topic == t
            topic = self.clock.topics[self.flat.topics[t]]
            owed = np.zeros(self.flat.seq.size, dtype=bool)
            owed[self.flat.messages.first[t] : self.flat.messages.first[t + 1]] = topic.owed
            some = Present(
                log=present.log[mine],
                topic=present.topic[mine],
                own=present.own[mine],
                explicit=present.explicit[mine],
                position=present.position[places(starts[:-1][mine], sizes[mine])],
            )
            pasts = np.zeros(len(self.flat.topics), dtype=np.int64)
            self._judge(some, since[mine], topic.past.reshape(-1), pasts, owed)

    def _judge(self, present: Present, since: Ints, past: NDArray[np.int32], pasts: Ints, owed: Bools) -> None:
        judging = _Judging(self.flat, self._group, present, since, past, pasts, owed)
        excused = np.bincount(judging.section, weights=judging.excused, minlength=present.log.size).astype(np.int64)
        np.add.at(self.excused, present.log, excused - np.diff(judging.starts))
        for section, violations in judging.run():
            self.found.setdefault(int(present.log[section]), []).append(violations)


class _Judging:
    def __init__(
        self,
        flat: FlatClock,
        group: Ints,
        present: Present,
        since: Ints,
        past: NDArray[np.int32],
        pasts: Ints,
        owed: Bools,
    ) -> None:
        messages = flat.messages
        topic = present.topic
        self.flat = flat
        self.topic = topic
        self._past = past
        self._size = np.diff(messages.first)[topic]
        self._pasts = pasts[topic]
        self.position = present.position
        self.starts = starts_of(self._size)
        self.section = np.repeat(np.arange(topic.size), self._size)
        self.row = places(messages.first[topic], self._size)
        self.local = np.arange(self.row.size) - self.starts[self.section]
        self.group = group[self.row]
        self.rank = self.row - messages.starts[self.group]
        """From 0."""
        self.first_group = messages.groups[topic]
        self.groups = np.diff(messages.groups)[topic]
        own = messages.groups_of(topic, present.own)
        self.mine = self.group == own[self.section]
        logged = flat.logged[self.row]
        implied = self.mine & logged & ~present.explicit[self.section]
        self.owed = np.ones(self.row.size, dtype=bool)
        """What each process is entitled to, and so owes, for it stays to the end."""
        if (since > 0).any():
            self.owed = self._entitled(since, own, logged, implied)
        self.owed &= ~self.mine | (logged & present.explicit[self.section])
        self.absent = self.position == 0
        self.excused = self.absent & ~self.owed
        self.agreed = owed[self.row]
        """Whether agreement is owed on the message; see `TopicClock.owed`."""

    def _entitled(self, since: Ints, own: Ints, logged: Bools, implied: Bools) -> Bools:
        """Apply the rules of `members` for an interval that begins with a row and does not end."""
        start = since[self.section]
        begun = np.flatnonzero(self.mine & logged & (self.flat.seq[self.row] > start))
        needed = np.zeros(since.size, dtype=np.int64)
        needed[self.section[begun[::-1]]] = self.rank[begun[::-1]] + 1
        use = np.flatnonzero((needed > 0)[self.section])
        section = self.section[use]
        entitled = start == 0
        follows = self.past_of(section, own[section] - self.first_group[section], self.local[use]) >= needed[section]
        entitled[use] |= np.where(self.mine[use], self.rank[use] + 1 >= needed[section], follows)
        # What its origin sent after something that came in the interval.
        came = np.flatnonzero((self.position > start) & ~implied)
        part = np.cumsum(heads_of(self.section, self.group)) - 1
        first = np.full(int(part[-1]) + 1 if part.size else 0, self.row.size, dtype=np.int64)
        first[part[came[::-1]]] = came[::-1]
        entitled |= np.arange(self.row.size) >= first[part]
        member: Bools = entitled & (start < NEVER_MEMBER)
        return member

    def past_of(self, section: Ints, column: Ints, local: Ints) -> NDArray[np.int32]:
        """Return how many messages of an origin happened before each message."""
        found: NDArray[np.int32] = self._past[self._pasts[section] + column * self._size[section] + local]
        return found

    def run(self) -> Iterator[tuple[int, Violations]]:
        """Yield what each section violates, in the order in which `replay` finds it."""
        parts = [*self._late(), *self._missing(), *self._undelivered()]
        found: list[tuple[int, int, Violations]] = []
        for order, (kind, rows, cause, root, because) in enumerate(parts):
            if rows.size == 0:
                continue
            local = np.where(cause >= 0, self.local[cause], -1)
            absent = kind == "undelivered"
            at = np.zeros(rows.size, dtype=np.int64) if absent else self.position[rows]
            cause_at = np.where(cause >= 0, self.position[cause], 0)
            message, section = self.local[rows], self.section[rows]
            heads = np.flatnonzero(heads_of(section))
            for first, last in zip(heads.tolist(), [*heads[1:].tolist(), rows.size], strict=True):
                some = slice(first, last)
                number = int(section[first])
                violations = Violations(
                    topic=self.flat.topics[self.topic[number]],
                    kind=CODE[kind],
                    reason=NO_REASON,
                    message=message[some],
                    cause=local[some],
                    at=at[some],
                    cause_at=cause_at[some],
                    root=root[some],
                    because=None if because is None else because[some],
                )
                found.append((number, order, violations))
        found.sort(key=lambda each: each[:2])
        return ((number, violations) for number, _, violations in found)

    def _late(self) -> Iterator[tuple[FindingKind, Ints, Ints, Bools, None]]:
        """Yield what comes before one of its causes, and the cause that comes last."""
        rows = np.flatnonzero(~self.absent & self._disordered()[self.section])
        latest = self._latest_cause(rows)
        late = latest > self.position[rows]
        rows, latest = rows[late], latest[late]
        if rows.size == 0:
            return
        present = np.flatnonzero(~self.absent)
        keys = keys_of(np.append(self.section[present], self.section[rows]), np.append(self.position[present], latest))
        order = np.argsort(keys[: present.size], kind="stable")
        cause = present[order[np.searchsorted(keys[: present.size], keys[present.size :], sorter=order)]]
        root = first_per_cause(cause, self.position[rows])
        fifo = (cause == rows - 1) & (self.group[cause] == self.group[rows])
        yield "fifo-order", rows[fifo], cause[fifo], root[fifo], None
        yield "causal-order", rows[~fifo], cause[~fifo], root[~fifo], None

    def _disordered(self) -> Bools:
        """Return in which sections something may come before one of its causes: `order` says how that shows."""
        flat = self.flat
        sizes = np.diff(flat.edges)[self.topic]
        edge = places(flat.edges[self.topic], sizes)
        section = np.repeat(np.arange(sizes.size), sizes)
        cause = self.starts[section] + flat.cause[edge]
        after, before = self.position[self.starts[section] + flat.effect[edge]], self.position[cause]
        found = np.zeros(sizes.size, dtype=bool)
        found[section[(after > 0) & (before > after)]] = True
        passed = np.flatnonzero((after > 0) & (before == 0) & ~found[section])
        absent, at = np.unique(cause[passed], return_inverse=True)
        found[section[passed[self._latest_cause(absent)[at] > after[passed]]]] = True
        return found

    def _latest_cause(self, wanted: Ints) -> Ints:
        """Return, for each of the places `wanted`, the highest position among its causes, 0 where it has none."""
        latest = np.zeros(wanted.size, dtype=np.int64)
        groups = self.groups[self.section[wanted]]
        for some in _portions(groups):
            of = np.repeat(np.arange(some.start, some.stop), groups[some])
            section = self.section[wanted[of]]
            column = places(np.zeros(some.stop - some.start, dtype=np.int64), groups[some])
            count = self.past_of(section, column, self.local[wanted[of]])
            first = self.flat.messages.starts[self.first_group[section] + column]
            before = self.starts[section] + first - self.flat.messages.first[self.topic[section]] + count - 1
            reached = np.where(count > 0, self._running[before], 0)
            heads = np.cumsum(groups[some]) - groups[some]
            latest[some] = np.maximum.reduceat(reached, heads)
        return latest

    @cached_property
    def _running(self) -> Ints:
        """The highest position, up to each message, among those of its origin."""
        part = np.cumsum(heads_of(self.section, self.group)) - 1
        # A step that no number reaches keeps the origins apart in one running maximum.
        values, number = np.unique(self.position, return_inverse=True)
        step = part * values.size
        running: Ints = values[np.maximum.accumulate(number + step) - step]
        return running

    def _missing(self) -> Iterator[tuple[FindingKind, Ints, Ints, Bools, None]]:
        """Yield what is there although a cause of it, which was owed, is not."""
        rows, cause = self._first_absent(self.owed & self.absent, np.flatnonzero(~self.absent))
        root = first_per_cause(cause, self.position[rows]) & ~self.agreed[cause]
        yield "missing-cause", rows, cause, root, None

    def _undelivered(self) -> Iterator[tuple[FindingKind, Ints, Ints, Bools, Ints]]:
        """Yield what is owed and not there."""
        gone = self.owed & self.agreed & self.absent
        rows = np.flatnonzero(gone)
        explained, cause = self._first_absent(gone, rows)
        because = np.full(rows.size, -1, dtype=np.int64)
        because[np.searchsorted(rows, explained)] = self.local[cause]
        yield "undelivered", rows, np.full(rows.size, -1, dtype=np.int64), because < 0, because

    def _first_absent(self, gone: Bools, rows: Ints) -> tuple[Ints, Ints]:
        """Of `rows`, return those with something `gone` in their past, and of the first origin with any the first."""
        at = np.flatnonzero(gone)
        at = at[heads_of(self.section[at], self.group[at])]
        section = self.section[at]
        column = self.group[at] - self.first_group[section]
        starts = np.searchsorted(self.section[rows], np.arange(self.topic.size + 1))
        sizes = np.diff(starts)[section]
        first = np.full(rows.size, -1, dtype=np.int64)
        # The last one written stays, so that of the first origin is written last.
        for some in reversed(list(_portions(sizes))):
            of = np.repeat(np.arange(some.start, some.stop), sizes[some])
            row = places(starts[section[some]], sizes[some])
            after = self.past_of(section[of], column[of], self.local[rows[row]]) > self.rank[at[of]]
            first[row[after][::-1]] = at[of[after][::-1]]
        found = first >= 0
        return rows[found], first[found]


def _portions(sizes: Ints) -> Iterator[slice]:
    """Cut what has so many cells each into parts of `_CELLS` at most, or one."""
    ends = np.flatnonzero(np.diff(np.cumsum(sizes) // _CELLS)) + 1
    for first, last in zip([0, *ends.tolist()], [*ends.tolist(), sizes.size], strict=True):
        if last > first:
            yield slice(first, last)
