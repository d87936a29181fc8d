"""One process's log judged against the clock: the *replay* stage, pure NumPy.

With `past[a, m]` messages of origin `a` before message `m`, and `position[i]` the row where the process
delivered message `i` (0: never), the highest position among the causes of `m` that `a` sent is
`running_maximum(position of a's messages)[past[a, m]]`. One gather per origin therefore judges every message of a
topic at once, however indirect the dependency and whether or not what lies between was delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.clocks import NEVER, Clock, TopicClock
from causalcast.audit.events import NO_VALUE
from causalcast.audit.members import FOREVER, Interval, Member, intervals
from causalcast.audit.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.logs import LogBody, Mark, TopicBody
    from causalcast.audit.result import FindingKind

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

KINDS: Final[tuple[FindingKind, ...]] = (
    "causal-order",
    "fifo-order",
    "missing-cause",
    "undelivered",
    "duplicate",
    "not-broadcast",
    "altered",
    "stable-order",
    "unstable",
    "tag-mismatch",
    "reused-identifier",
    "absent-log",
)
_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}

NO_REASON: Final = 0
EARLY_DELIVERY: Final = 1
TWICE_STABLE: Final = 2
STABLE_UNDELIVERED: Final = 3
STABLE_BEFORE_DELIVERY: Final = 4
STABLE_OUT_OF_ORDER: Final = 5
STABLE_SKIPPED: Final = 6
CONCURRENT_AFTER_STABLE: Final = 7
TAG_OVER: Final = 8
TAG_UNDER: Final = 9
TAG_UNKNOWN: Final = 10

_CELLS: Final = 1_000_000
"""Cells of the clock that are looked up at once."""

_EXACT_WITNESSES: Final = 20_000
"""Premature stability reports of one process whose witness is looked for; any more stand without one."""


@dataclass(frozen=True, slots=True)
class Violations:
    """Violations of one kind in one topic, as columns of equal length.

    `message` and `cause` are rows of the topic's clock (-1: none); a phantom has -1 and its `origin` (index
    into the body's names) and `counter`. `at` and `cause_at` are rows of the process's log (0: none).
    """

    topic: str
    kind: int
    reason: int
    message: Ints
    cause: Ints
    at: Ints
    cause_at: Ints
    root: Bools
    origin: Ints | None = None
    counter: Ints | None = None

    def __len__(self) -> int:
        return int(self.message.size)


@dataclass(slots=True)
class Replay:
    """What the replay of one process found and measured."""

    process: str
    violations: list[Violations] = field(default_factory=list)
    latency: Histogram = field(default_factory=Histogram)
    stability_delay: Histogram = field(default_factory=Histogram)
    excused: int = 0
    """Messages of others that it never delivered and was not entitled to."""
    unproven: int = 0
    """Messages that it never delivered as far as its log shows, which has holes."""


def replay(body: LogBody, marks: Sequence[Mark], clock: Clock) -> Replay:
    """Judge one process in every topic of the clock."""
    result = Replay(body.process)
    for name, topic in clock.topics.items():
        _TopicReplay(body, marks, clock, topic, body.topics.get(name), result).run()
    return result


class _TopicReplay:
    """Judges one process in one topic."""

    def __init__(
        self,
        body: LogBody,
        marks: Sequence[Mark],
        clock: Clock,
        topic: TopicClock,
        log: TopicBody | None,
        result: Replay,
    ) -> None:
        self.names = body.names
        self.marks = marks
        self.clock = clock
        self.topic = topic
        self.log = log
        self.result = result
        self.process = body.process
        self.member: Member = clock.members[body.process]
        self.own = topic.origins.index(body.process) if body.process in topic.origins else -1
        self.position = np.zeros(topic.messages, dtype=np.int64)
        self.explicit = False

    def run(self) -> None:
        """Run the checks; each adds to the result."""
        if self.log is not None:
            self._place_deliveries(self.log)
        if self.position.size and int(self.position.max()) < 2**31:
            self.position = self.position.astype(np.int32)
        self._entitle()
        self._check_order(self.position, stable=False)
        self._check_undelivered()
        if self.log is not None:
            self._check_payloads(self.log)
            self._check_tags(self.log)
        if self.topic.stability:
            self._check_stability()

    # ------------------------------------------------------------------------------------------- P1

    def _place_deliveries(self, log: TopicBody) -> None:
        topic = self.topic
        rows = topic.locate(self.names, log.origin, log.counter)
        known = rows >= 0
        if not known.all():
            self._report_phantoms(log, ~known)
            rows, seq = rows[known], log.seq[known].astype(np.int64)
        else:
            seq = log.seq.astype(np.int64)
        self.delivered = rows
        self.delivered_at = seq
        self.position[rows[::-1]] = seq[::-1]
        again = self.position[rows] != seq
        if again.any():
            at = np.flatnonzero(again)
            self._add("duplicate", rows[at], at=seq[at], cause_at=self.position[rows[at]])
        self._measure_latency(log, rows, known, again)
        if self.own >= 0:
            self._place_own()

    def _place_own(self) -> None:
        block = self.topic.block(self.own)
        logged = self.topic.logged[block]
        here = self.position[block]
        sent = self.topic.seq[block]
        self.explicit = bool(((here > 0) & logged).any())
        if not self.explicit:
            here[logged] = sent[logged]
            return
        early = np.flatnonzero((here > 0) & logged & (here < sent)) + block.start
        if early.size:
            self._add(
                "not-broadcast",
                early,
                at=self.position[early],
                cause_at=self.topic.seq[early],
                reason=EARLY_DELIVERY,
            )

    def _report_phantoms(self, log: TopicBody, phantom: Bools) -> None:
        at = np.flatnonzero(phantom)
        origin, counter = log.origin[at].astype(np.int64), log.counter[at].astype(np.int64)
        first = np.sort(np.unique(np.stack((origin, counter)), axis=1, return_index=True)[1])
        again = np.setdiff1d(np.arange(at.size), first)
        both: tuple[tuple[FindingKind, Ints], ...] = (("not-broadcast", first), ("duplicate", again))
        for kind, pick in both:
            if pick.size:
                self._add(
                    kind,
                    np.full(pick.size, -1, dtype=np.int64),
                    at=log.seq[at[pick]].astype(np.int64),
                    phantoms=(origin[pick], counter[pick]),
                    root=np.full(pick.size, kind == "not-broadcast"),
                )

    def _check_payloads(self, log: TopicBody) -> None:
        if log.payload is None:
            return
        rows = self.topic.locate(self.names, log.origin, log.counter)
        known = (rows >= 0) & (log.payload != NO_VALUE)
        rows, payload, seq = rows[known], log.payload[known], log.seq[known].astype(np.int64)
        sent = self.topic.payload[rows]
        bad = (sent != NO_VALUE) & (sent != payload)
        if bad.any():
            rows, first = np.unique(rows[bad], return_index=True)
            self._add("altered", rows, at=seq[bad][first])

    # ------------------------------------------------------------------------------------- entitlement

    def _entitle(self) -> None:
        """Find, per origin, the ranges of numbers that the process is entitled to; see `members`."""
        topic = self.topic
        self.owed = np.zeros(topic.messages, dtype=bool)
        self.owed_to_the_end = np.zeros(topic.messages, dtype=bool)
        spans = intervals(self.process, self.marks, topic.topic, self.clock.subscriptions)
        for span in spans:
            if span.start == 0 and span.end == FOREVER and self.member.correct:
                self.owed[:] = True
                self.owed_to_the_end[:] = True
                continue
            first, last = self._joined_before(span), self._not_gone(span)
            for a in range(len(topic.origins)):
                low, high = int(first[a]), int(min(last[a], topic.starts[a + 1] - topic.starts[a]))
                if low <= high:
                    start = int(topic.starts[a])
                    self.owed[start + low - 1 : start + high] = True
                    if span.end == FOREVER and self.member.correct:
                        self.owed_to_the_end[start + low - 1 : start + high] = True
        if self.own >= 0:
            block = topic.block(self.own)
            mine = topic.logged[block] if self.explicit else np.zeros(block.stop - block.start, dtype=bool)
            self.owed[block] &= mine
            self.owed_to_the_end[block] &= mine
        absent = self.position == 0
        self.result.excused += int((absent & ~self.owed).sum())
        if self.member.holes:
            self.result.unproven += int((absent & self.owed).sum())
            self.owed[:] = False
            self.owed_to_the_end[:] = False

    def _joined_before(self, span: Interval) -> Ints:
        """Return, per origin, the first rank whose broadcast comes after the start of the interval."""
        topic = self.topic
        count = len(topic.origins)
        start, end = span.start, span.end
        if start == 0:
            return np.ones(count, dtype=np.int64)
        first = np.full(count, FOREVER, dtype=np.int64)
        if self.own >= 0:
            block = topic.block(self.own)
            mine = np.flatnonzero(topic.logged[block] & (topic.seq[block] > start) & (topic.seq[block] < end))
            if mine.size:
                needed = int(mine[0]) + 1
                for a in range(count):
                    first[a] = 1 + int(np.searchsorted(topic.past[self.own, topic.block(a)], needed))
                first[self.own] = needed
        if self.log is not None:
            inside = (self.delivered_at > start) & (self.delivered_at < end)
            rows = self.delivered[inside]
            np.minimum.at(first, topic.owner[rows], rows - topic.starts[topic.owner[rows]] + 1)
        return first

    def _not_gone(self, span: Interval) -> Ints:
        """Return, per origin, the last rank whose broadcast surely comes before the end of the interval."""
        topic = self.topic
        count = len(topic.origins)
        start, end = span.start, span.end
        last = np.full(count, FOREVER, dtype=np.int64)
        if end == FOREVER and self.member.correct:
            return last
        inside = np.flatnonzero((self.position > start) & (self.position < end))
        last[:] = topic.past[:, inside].max(axis=1, initial=0)
        owners = topic.owner[inside]
        np.maximum.at(last, owners, inside - topic.starts[owners] + 1)
        for evictor, seq in self.member.evictions:
            self._before_eviction(last, evictor, seq)
        return last

    def _before_eviction(self, last: Ints, evictor: str, seq: int) -> None:
        if evictor not in self.topic.origins:
            return
        topic = self.topic
        who = topic.origins.index(evictor)
        block = topic.block(who)
        after = np.flatnonzero(topic.logged[block] & (topic.seq[block] > seq))
        if after.size == 0:
            return
        rank = int(after[0]) + 1
        for a in range(len(topic.origins)):
            last[a] = min(last[a], int(np.searchsorted(topic.past[who, topic.block(a)], rank)))
        last[who] = min(last[who], rank - 1)

    # ------------------------------------------------------------------------------------------- P3, P5

    def _check_order(self, position: Ints, *, stable: bool) -> None:
        """Report messages that come before one of their causes, and those whose cause never comes."""
        topic = self.topic
        if topic.messages == 0 or not position.any():
            return
        latest = self._latest_cause(position)
        late = np.flatnonzero((latest > position) & (position > 0))
        if late.size:
            by_position = np.argsort(position, kind="stable")
            cause = by_position[np.searchsorted(position, latest[late], sorter=by_position)]
            root = _first_per_cause(cause, position[late])
            if stable:
                self._add("stable-order", late, cause, position[late], latest[late], root, STABLE_OUT_OF_ORDER)
            else:
                fifo = (cause == late - 1) & (topic.owner[cause] == topic.owner[late])
                self._add_late("fifo-order", late[fifo], cause[fifo], root[fifo])
                self._add_late("causal-order", late[~fifo], cause[~fifo], root[~fifo])
        if not (stable and self.member.holes):
            self._check_missing(position, stable=stable)

    def _latest_cause(self, position: Ints) -> Ints:
        """Return, per message, the highest position among all its causes, 0 where it has none."""
        topic = self.topic
        latest = np.zeros(topic.messages, dtype=position.dtype)
        step = max(1, _CELLS // topic.messages)
        for first in range(0, len(topic.origins), step):
            chosen = slice(first, min(len(topic.origins), first + step))
            running, offsets = _running_maxima(position, topic.starts[chosen.start : chosen.stop + 1])
            here = running[topic.past[chosen] + offsets[:, None]]
            np.maximum(latest, here.max(axis=0), out=latest)
        return latest

    def _add_late(self, kind: FindingKind, rows: Ints, cause: Ints, root: Bools) -> None:
        self._add(kind, rows, cause, self.position[rows], self.position[cause], root)

    def _check_missing(self, position: Ints, *, stable: bool) -> None:
        topic = self.topic
        expected = (self.position > 0) & ~self._foreign_past() if stable else self.owed
        absent = expected & (position == 0)
        if not absent.any():
            return
        rows, cause = self._first_absent(absent, np.flatnonzero(position > 0))
        if rows.size == 0:
            return
        explained = self.stable_owed[cause] if stable else (self.owed_to_the_end & topic.owed)[cause]
        root = _first_per_cause(cause, position[rows]) & ~explained
        kind: FindingKind = "stable-order" if stable else "missing-cause"
        reason = STABLE_SKIPPED if stable else NO_REASON
        self._add(kind, rows, cause, position[rows], np.zeros(rows.size, dtype=np.int64), root, reason)

    def _foreign_past(self) -> Bools:
        """Mark what a joiner delivered before it was a member, which may have been stable before it came."""
        if self.member.joined_late:
            return ~self.owed
        return np.zeros(self.topic.messages, dtype=bool)

    def _first_absent(self, absent: Bools, rows: Ints) -> tuple[Ints, Ints]:
        """Of `rows`, return those with an absent message in their past, and for each the first such message."""
        topic = self.topic
        cause = np.full(rows.size, -1, dtype=np.int64)
        gone = np.flatnonzero(absent)
        origins, at = np.unique(topic.owner[gone], return_index=True)
        for a, first in zip(origins[::-1].tolist(), gone[at][::-1].tolist(), strict=True):
            cause[topic.past[a][rows] > first - topic.starts[a]] = first
        found = cause >= 0
        return rows[found], cause[found]

    # ------------------------------------------------------------------------------------------- P2

    def _check_undelivered(self) -> None:
        gone = self.owed_to_the_end & self.topic.owed & (self.position == 0)
        rows = np.flatnonzero(gone)
        if rows.size == 0:
            return
        root = np.ones(rows.size, dtype=bool)
        root[np.isin(rows, self._first_absent(gone, rows)[0])] = False
        self._add("undelivered", rows, root=root)

    # ------------------------------------------------------------------------------------------- P4

    def _check_tags(self, log: TopicBody) -> None:
        if log.context_counter_of.size == 0 or self.own < 0:
            return
        topic = self.topic
        own = np.full(log.context_counter_of.size, self.names.index(self.process), dtype=np.int64)
        message = topic.locate(self.names, own, log.context_counter_of)
        sizes = np.diff(log.context_ends, prepend=0)
        of = np.repeat(message, sizes)
        dots = topic.locate(self.names, log.context_origin, log.context_counter)
        sure = (of >= 0) & ~topic.in_doubt[of]
        unknown = sure & (dots < 0)
        known = sure & (dots >= 0)
        rank = dots - topic.starts[topic.owner[dots]] + 1
        over = np.zeros(of.size, dtype=bool)
        over[known] = rank[known] > topic.past[topic.owner[dots[known]], of[known]]
        if self.member.joined_late:
            # What a joiner's tag names of the time before came with the state that it joined with.
            inherited = ~self.owed[dots] & (self.position[dots] == 0)
            over &= ~inherited
            unknown[:] = False
        wrong = np.zeros(topic.messages, dtype=bool)
        for mask, reason in ((over, TAG_OVER), (unknown, TAG_UNKNOWN)):
            at = np.flatnonzero(mask)
            rows, first = np.unique(of[at], return_index=True)
            fresh = ~wrong[rows]
            rows, first = rows[fresh], first[fresh]
            wrong[rows] = True
            cause = dots[at[first]]
            if reason == TAG_UNKNOWN:
                part = at[first]
                self._add(
                    "tag-mismatch",
                    rows,
                    at=topic.seq[rows],
                    reason=reason,
                    phantoms=(log.context_origin[part], log.context_counter[part]),
                )
            else:
                self._add("tag-mismatch", rows, cause, topic.seq[rows], topic.seq[cause], reason=reason)
        self._check_cover(message, of, dots, wrong)

    def _check_cover(self, message: Ints, of: Ints, dots: Ints, wrong: Bools) -> None:
        """Report tags whose down-closure leaves out part of the past."""
        topic = self.topic
        rows = message[(message >= 0)]
        rows = rows[~topic.in_doubt[rows] & ~wrong[rows]]
        if rows.size == 0:
            return
        use = dots >= 0
        of, dots = of[use], dots[use]
        cause = np.full(topic.messages, -1, dtype=np.int64)
        touched = [self._covered(of, dots, j) >= first for j, first, _ in topic.joiners]
        for a in range(len(topic.origins)):
            covered = self._covered(of, dots, a)
            short = rows[topic.past[a, rows] > covered[rows]]
            last = topic.starts[a] + topic.past[a, short] - 1
            # A tag may reach what a joiner's message follows by the state it joined with, which no log shows.
            for by_joiner, (j, _, rejoined) in zip(touched, topic.joiners, strict=True):
                keep = ~by_joiner[short] | self._after_join(last, j, rejoined)
                short, last = short[keep], last[keep]
            cause[short] = last
        short = rows[cause[rows] >= 0]
        if short.size:
            self._add("tag-mismatch", short, cause[short], topic.seq[short], topic.seq[cause[short]], reason=TAG_UNDER)

    def _covered(self, of: Ints, dots: Ints, a: int) -> Ints:
        """Return, per message, how far into origin `a` the down-closure of its tag reaches."""
        topic = self.topic
        reach = topic.past[a, dots].astype(np.int64)
        mine = topic.owner[dots] == a
        reach[mine] = dots[mine] - topic.starts[a] + 1
        covered = np.zeros(topic.messages, dtype=np.int64)
        np.maximum.at(covered, of, reach)
        return covered

    def _after_join(self, rows: Ints, joiner: int, rank: int) -> Bools:
        """Mark the messages that follow, or are, message `rank` of a joiner."""
        topic = self.topic
        own: Bools = (topic.owner[rows] == joiner) & (rows - topic.starts[joiner] + 1 >= rank)
        follows: Bools = topic.past[joiner, rows] >= rank
        return own | follows

    # ------------------------------------------------------------------------------------------- P5, P6

    def _check_stability(self) -> None:
        topic, log = self.topic, self.log
        stable = np.zeros(topic.messages, dtype=np.int64)
        if log is not None and log.stable_origin.size:
            rows = topic.locate(self.names, log.stable_origin, log.stable_counter)
            seq = log.stable_seq.astype(np.int64)
            phantom = rows < 0
            if phantom.any():
                self._add(
                    "stable-order",
                    rows[phantom],
                    at=seq[phantom],
                    reason=STABLE_UNDELIVERED,
                    phantoms=(log.stable_origin[phantom], log.stable_counter[phantom]),
                )
            self._measure_stability(log, rows)
            rows, seq = rows[~phantom], seq[~phantom]
            stable[rows[::-1]] = seq[::-1]
            again = stable[rows] != seq
            if again.any():
                self._add("stable-order", rows[again], at=seq[again], cause_at=stable[rows[again]], reason=TWICE_STABLE)
        self.stable_owed = self._stability_owed()
        given = np.flatnonzero(stable)
        never = given[self.position[given] == 0]
        if not self.member.holes:
            self._add("stable-order", never, at=stable[never], reason=STABLE_UNDELIVERED)
        early = given[(self.position[given] > stable[given])]
        self._add("stable-order", early, at=stable[early], cause_at=self.position[early], reason=STABLE_BEFORE_DELIVERY)
        self._check_order(stable, stable=True)
        self._check_soundness(stable, given)
        missing = np.flatnonzero(self.stable_owed & (self.position > 0) & (stable == 0))
        if missing.size:
            gone = np.zeros(topic.messages, dtype=bool)
            gone[missing] = True
            root = ~np.isin(missing, self._first_absent(gone, missing)[0])
            self._add("unstable", missing, at=self.position[missing].astype(np.int64), root=root)

    def _stability_owed(self) -> Bools:
        topic, member = self.topic, self.member
        if not topic.stability_owed or not member.correct or member.left or member.holes:
            return np.zeros(topic.messages, dtype=bool)
        return ~self._foreign_past()

    def _check_soundness(self, stable: Ints, given: Ints) -> None:
        """Report messages after whose stability something concurrent with them was delivered."""
        topic = self.topic
        if given.size == 0:
            return
        order = np.flatnonzero(self.position)
        order = order[np.argsort(self.position[order], kind="stable")]
        judged = order[~topic.in_doubt[order]]
        # What a joiner sends may follow, by the state it joined with, what its log never shows. Against a message that
        # may have been in that state, only what no joiner had a part in can be called concurrent.
        settled, untouched = np.ones(given.size, dtype=bool), np.ones(judged.size, dtype=bool)
        for joiner, first, last in topic.joiners:
            settled &= self._after_join(given, joiner, last)
            untouched &= ~self._after_join(judged, joiner, first)
        found = self._premature(stable, given[settled], judged)
        found += self._premature(stable, given[~settled], judged[untouched])
        if found:
            pairs = np.array(found, dtype=np.int64)
            rows, cause = pairs[:, 0], pairs[:, 1]
            cause_at = np.where(cause >= 0, self.position[cause], 0)
            root = _first_per_cause(cause, stable[rows])
            self._add("stable-order", rows, cause, stable[rows], cause_at, root, CONCURRENT_AFTER_STABLE)

    def _premature(self, stable: Ints, given: Ints, judged: Ints) -> list[tuple[int, int]]:
        """Return messages of `given` and, for each, the first concurrent one of `judged` delivered after its report."""
        topic = self.topic
        at = self.position[judged]
        suspects: list[int] = []
        for a in range(len(topic.origins)):
            block = topic.block(a)
            mine = given[(given >= block.start) & (given < block.stop)]
            if mine.size == 0:
                continue
            least = np.minimum.accumulate(topic.past[a][judged][::-1])[::-1]
            after = np.searchsorted(at, stable[mine], side="right")
            floor = np.append(least, NEVER)[after]
            suspects.extend(mine[floor < mine - block.start + 1].tolist())
        found = [
            (row, self._concurrent_after(row, int(stable[row]), judged, at)) for row in suspects[:_EXACT_WITNESSES]
        ]
        found.extend((row, -1) for row in suspects[_EXACT_WITNESSES:])
        return [(row, witness) for row, witness in found if witness is not None]

    def _concurrent_after(self, row: int, seq: int, judged: Ints, at: Ints) -> int | None:
        topic = self.topic
        owner = int(topic.owner[row])
        later = judged[int(np.searchsorted(at, seq, side="right")) :]
        after = topic.past[owner, later] > row - topic.starts[owner]
        owners = topic.owner[later]
        before = topic.past[owners, row] > later - topic.starts[owners]
        hits = np.flatnonzero(~after & ~before & (later != row))
        return int(later[hits[0]]) if hits.size else None

    # ------------------------------------------------------------------------------------------- measures

    def _measure_latency(self, log: TopicBody, rows: Ints, known: Bools, again: Bools) -> None:
        if log.time is None:
            return
        time = log.time if known.all() else log.time[known]
        sent = self.topic.time[rows]
        use = (time != NO_VALUE) & (sent != NO_VALUE) & ~again
        if self.own >= 0:
            use &= self.topic.owner[rows] != self.own
        self.result.latency.add(time[use] - sent[use])

    def _measure_stability(self, log: TopicBody, rows: Ints) -> None:
        """Measure from the delivery here to the report here: one clock, so no skew."""
        if log.stable_time is None:
            return
        delivered = np.full(self.topic.messages, NO_VALUE, dtype=np.int64)
        if self.own >= 0:
            block = self.topic.block(self.own)
            delivered[block] = self.topic.time[block]
        if log.time is not None:
            at = self.topic.locate(self.names, log.origin, log.counter)
            keep = at >= 0
            delivered[at[keep][::-1]] = log.time[keep][::-1]
        since = np.where(rows >= 0, delivered[rows], NO_VALUE)
        use = (since != NO_VALUE) & (log.stable_time != NO_VALUE)
        self.result.stability_delay.add(log.stable_time[use] - since[use])

    # ------------------------------------------------------------------------------------------- results

    def _add(
        self,
        kind: FindingKind,
        message: Ints,
        cause: Ints | None = None,
        at: Ints | None = None,
        cause_at: Ints | None = None,
        root: Bools | None = None,
        reason: int = NO_REASON,
        phantoms: tuple[Ints, Ints] | None = None,
    ) -> None:
        """Add violations; `phantoms` are the origins and numbers of dots that are not in the universe."""
        size = message.size
        if size == 0:
            return
        zero = np.zeros(size, dtype=np.int64)
        self.result.violations.append(
            Violations(
                topic=self.topic.topic,
                kind=_CODE[kind],
                reason=reason,
                message=message,
                cause=zero - 1 if cause is None else cause,
                at=zero if at is None else at.astype(np.int64),
                cause_at=zero if cause_at is None else cause_at.astype(np.int64),
                root=np.ones(size, dtype=bool) if root is None else root,
                origin=None if phantoms is None else phantoms[0].astype(np.int64),
                counter=None if phantoms is None else phantoms[1].astype(np.int64),
            )
        )


def _running_maxima(values: Ints, starts: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """Return, block after block, the maxima of the first 0, 1, 2, ... values, and where each block's part begins."""
    blocks = starts.size - 1
    sizes = np.diff(starts)
    offsets = np.cumsum(sizes + 1) - (sizes + 1)
    running = np.zeros(int(sizes.sum()) + blocks, dtype=np.int64)
    within = np.arange(int(sizes.sum())) + np.repeat(np.arange(1, blocks + 1), sizes)
    running[within] = values[starts[0] : starts[-1]]
    if blocks > 1:
        # A step that no value reaches keeps the blocks apart in one running maximum.
        steps = np.repeat(np.arange(blocks, dtype=np.int64), sizes + 1) * (int(running.max()) + 1)
        running = np.maximum.accumulate(running + steps) - steps
    else:
        np.maximum.accumulate(running, out=running)
    return running.astype(values.dtype), offsets.astype(np.int32)


def _first_per_cause(cause: Ints, position: Ints) -> Bools:
    """Mark, for each cause, the violation that comes first: the others follow from what was wrong there."""
    order = np.lexsort((position, cause))
    first = np.zeros(cause.size, dtype=bool)
    heads = np.r_[True, cause[order][1:] != cause[order][:-1]] if order.size else np.zeros(0, dtype=bool)
    first[order[heads]] = True
    return first
