"""The audit of logs that still grow: batch kernels over a window of rows, and what is stable is forgotten.

Each step adds the new rows of every process and judges the window with the same kernels as the batch audit. Some
findings are certain at once, since more rows only add to the past of a message: wrong order, absent causes,
repeated and altered deliveries, own messages delivered before they were broadcast. The others could still be
explained by rows to come; they count when their message is forgotten, or at the end.

A message is *settled* when its broadcast is in its sender's log and every process that owes its delivery, or its
stability report, has logged it, with nothing unexplained before. Let `forgotten[a]` be the least number of messages of
origin `a` in the pasts of all that is not settled. These messages are before all that is to come (a process's rows
are read in their order, so what it broadcasts later follows what it is known to have delivered). Their rows can go, but
for the last of each origin, which shows who reached that origin. This is causal stability, read off the logs.

What cannot be judged in a window makes it *doubtful*, with a reason: rows out of order or missing, a log that
appears when messages it owes are forgotten, a window that outgrows its bound. Then the verdict at the end is the
batch audit's over the whole trace, which is still there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.clocks import build_clock
from causalcast.audit.events import BROADCAST, JOIN, LAST_MESSAGE_EVENT, SUBSCRIBE
from causalcast.audit.findings import Case, Collection
from causalcast.audit.logs import digest
from causalcast.audit.parts import merge, select
from causalcast.audit.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.log_findings import LogFinding
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.result import Finding
    from causalcast.audit.topic_clock import TopicClock
    from causalcast.audit.view import View

MAX_ROWS: Final = 2_000_000
"""Rows that a window holds; beyond, the online judgement ends."""
LAG: Final = 5
"""Steps for which a settled message is kept: time for logs that begin and for reports that lag behind."""
MAX_SHOWN: Final = 100_000
"""Findings that a window remembers having shown; any more are counted only."""
CERTAIN: Final = frozenset({"causal-order", "fifo-order", "missing-cause", "altered", "duplicate", "not-broadcast"})
"""Kinds that no later row explains away, once the message's own broadcast is known."""


@dataclass(slots=True)
class Window:
    """The rows that may still matter, and what was found so far. Pickles: it is the state of a stream."""

    crashed: frozenset[str] = frozenset()
    logs: dict[str, LogColumns] = field(default_factory=dict)
    last_seq: dict[str, int] = field(default_factory=dict)
    forgotten: dict[tuple[str, str], int] = field(default_factory=dict)
    """By topic and origin: all numbers up to this one are gone."""
    settled: dict[tuple[str, str], int] = field(default_factory=dict)
    """By topic and origin: what was found about the numbers up to this one is final."""
    last_number: dict[tuple[str, str | None], int] = field(default_factory=dict)
    """By process and topic, and by process over all topics (`None`): the number of its last broadcast."""
    explicit: set[tuple[str, str]] = field(default_factory=set)
    """Processes, by topic, that log their own deliveries."""
    counts: Counter[str] = field(default_factory=Counter)
    """Findings on settled messages, of each kind and step at most `findings.SAMPLE`."""
    shown: set[tuple[str, str | None, str | None, str]] = field(default_factory=set)
    doubts: list[str] = field(default_factory=list)
    """Why the verdict needs the batch audit; empty in all ordinary runs."""
    unexplained: list[str] = field(default_factory=list)
    """What would make the logs incomplete if they ended here: origins without a log, contradictions."""
    rows_read: int = 0
    lag: int = LAG
    _reached: list[dict[tuple[str, str], tuple[int, int]]] = field(default_factory=list)
    """What was settled, and could be forgotten, in the last `lag` steps."""
    _judged: Counter[str] = field(default_factory=Counter)
    _unsure: set[str] = field(default_factory=set)
    """Kinds of what was found last that a later row may explain."""

    @property
    def rows(self) -> int:
        """How many rows the window holds."""
        return sum(int(log.seq.size) for log in self.logs.values())

    @property
    def total(self) -> dict[str, int]:
        """Findings by kind, if the trace ended here."""
        return dict(sorted((self.counts + self._judged).items()))

    @property
    def open_questions(self) -> list[str]:
        """Why the batch audit has the last word; empty where the window's verdict is its verdict.

        A window can accuse wrongly where it has forgotten what excuses, so kinds that are not certain are confirmed.
        """
        kinds = sorted(self._unsure.union(kind for kind in self.counts if kind not in CERTAIN))
        confirm = [f"{', '.join(kinds)}: to be confirmed on the whole trace"] if kinds else []
        return [*self.doubts, *self.unexplained, *confirm]

    def advance(self, parts: Iterable[tuple[str, LogColumns]]) -> list[Finding]:
        """Add new rows, each process's in their order; return the findings that are certain now and were not before."""
        for process, rows in parts:
            self._add(process, rows)
        if not self.logs:
            return []
        return self._judge()

    def _add(self, process: str, rows: LogColumns) -> None:
        self.rows_read += int(rows.seq.size)
        last = self.last_seq.get(process, 0)
        if not np.array_equal(rows.seq, np.arange(last + 1, last + 1 + rows.seq.size)):
            self._doubt(f"{process}: rows are missing, repeated or out of order after row {last}")
        begins_late = bool(np.isin(rows.event[:1], (JOIN, SUBSCRIBE)).all())
        if last == 0 and self.forgotten and not begins_late:
            self._doubt(f"{process}: its log appeared after messages that it may owe were forgotten")
        self.last_seq[process] = max(last, int(rows.seq.max()))
        self._number(process, rows)
        gone = ~self._beyond(rows, self.settled)
        if gone.any():
            self._doubt(f"{process}: row {int(rows.seq[gone][0])} is about a message that was done with")
        kept = self._known(rows)
        old = self.logs.get(process)
        self.logs[process] = kept if old is None else merge([old, kept])

    def _number(self, process: str, rows: LogColumns) -> None:
        """Follow the numbers of a process's broadcasts: each is one more than the last, in its topic or over all."""
        for i in np.flatnonzero(rows.event == BROADCAST).tolist():
            topic, number = rows.names[rows.topic[i]] if rows.topic[i] >= 0 else "", int(rows.counter[i])
            last = self.last_number.get((process, topic), 0), self.last_number.get((process, None), 0)
            if rows.names[rows.origin[i]] != process or number - 1 not in last:
                self._doubt(f"{process}: broadcasts are missing or repeated before its number {number}")
            self.last_number[process, topic] = self.last_number[process, None] = number

    def _beyond(self, rows: LogColumns, limits: dict[tuple[str, str], int]) -> NDArray[np.bool_]:
        """Return which rows are about no message up to the limits of its topic and origin."""
        keep = np.ones(rows.seq.size, dtype=bool)
        names = [*rows.names, ""]
        messages = np.flatnonzero(rows.event <= LAST_MESSAGE_EVENT)
        for topic in np.unique(rows.topic[messages]).tolist() if limits else ():
            table = np.array([limits.get((names[topic] if topic >= 0 else "", name), 0) for name in names])
            mine = messages[rows.topic[messages] == topic]
            keep[mine] = rows.counter[mine] > table[rows.origin[mine]]
        return keep

    def _known(self, rows: LogColumns) -> LogColumns:
        """Return the rows without those of forgotten messages, and without forgotten parts of tags."""
        keep = self._beyond(rows, self.forgotten)
        starts = np.concatenate(([0], rows.context_ends))[:-1]
        tag_of = np.repeat(rows.context_rows, rows.context_ends - starts)
        names = [*rows.names, ""]
        dots = np.array(
            [
                counter > self.forgotten.get((names[topic] if topic >= 0 else "", names[origin]), 0)
                for topic, origin, counter in zip(
                    rows.topic[tag_of].tolist(),
                    rows.context_origin.tolist(),
                    rows.context_counter.tolist(),
                    strict=True,
                )
            ],
            dtype=bool,
        )
        return rows if keep.all() and dots.all() else select(rows, keep, dots)

    def _doubt(self, reason: str) -> None:
        if len(self.doubts) < 20 and reason not in self.doubts:
            self.doubts.append(reason)

    # ------------------------------------------------------------------------------------------- judging

    def _judge(self) -> list[Finding]:
        digests = [digest(process, rows) for process, rows in self.logs.items()]
        # What is forgotten is no hole.
        indices = {index.process: replace(index, missing=(), missing_rows=0) for index, _ in digests}
        known = build_clock(list(indices.values()), self.crashed)
        clock = known.clock
        pending = {name: _Pending(topic) for name, topic in clock.topics.items()}
        collection = Collection(clock)
        for _, body in digests:
            views: list[View] = []
            result = replay(body, indices[body.process].marks, clock, views.append)
            for view in views:
                self._find_pending(view, pending[view.topic.topic])
            collection.add(result, indices[body.process].names)
        frontiers = {name: topic.frontier() for name, topic in pending.items()}
        self.unexplained = [finding.detail for finding in known.findings if self._is_unexplained(finding)]
        cases = [case for case in collection.sample() if not self._is_settled(case, clock)]
        fresh = [case.finding() for case in cases if self._is_news(case)]
        self._settle(clock, frontiers)
        final = Counter[str](case.kind for case in cases if self._is_settled(case, clock))
        self.counts += final
        self._judged = Counter[str](case.kind for case in cases) - final
        self._unsure = {case.kind for case in cases if not _is_certain(case)}
        for process, rows in self.logs.items():
            self.logs[process] = self._known(rows)
        if self.rows > MAX_ROWS:
            self._doubt(f"more than {MAX_ROWS} rows wait for messages that do not come; the oldest were let go")
            self._overflow()
        return fresh

    def _is_news(self, case: Case) -> bool:
        key = (case.kind, case.process, case.message, case.topic)
        if not _is_certain(case) or key in self.shown:
            return False
        if len(self.shown) < MAX_SHOWN:
            self.shown.add(key)
        return True

    def _find_pending(self, view: View, pending: _Pending) -> None:
        """Mark what this process must still do in one topic, and what it did after something unexplained."""
        topic = view.topic
        mark = pending.open
        mark |= (view.owed | view.owed_to_the_end) & (view.position == 0)
        if topic.stability and view.log is not None:
            reported = np.zeros(topic.messages + 1, dtype=bool)
            reported[topic.locate(view.names, view.log.stable_origin, view.log.stable_counter)] = True
            mark |= view.stable_owed & (view.position > 0) & ~reported[:-1]
        if view.explicit:
            self.explicit.add((topic.topic, view.process))
        elif view.own >= 0 and (topic.topic, view.process) in self.explicit:
            mark[topic.block(view.own)] = True
        if view.log is not None:
            unknown = view.log.seq[topic.locate(view.names, view.log.origin, view.log.counter) < 0]
            if unknown.size:
                mark |= view.position > int(unknown.min())

    def _settle(self, clock: Clock, frontiers: dict[str, NDArray[np.int64]]) -> None:
        """Move what is settled and what is forgotten forward."""
        reached: dict[tuple[str, str], tuple[int, int]] = {}
        for name, topic in clock.topics.items():
            for a, count in enumerate(frontiers[name].tolist()):
                if count > 0:
                    numbers = topic.counters[topic.block(a)]
                    last = int(numbers[count - 2]) if count > 1 else 0
                    reached[name, topic.origins[a]] = int(numbers[count - 1]), last
        self._reached.append(reached)
        if len(self._reached) <= self.lag:
            return
        for key, (settled, forgotten) in self._reached.pop(0).items():
            self.settled[key] = max(self.settled.get(key, 0), settled)
            if forgotten:
                self.forgotten[key] = max(self.forgotten.get(key, 0), forgotten)

    def _is_settled(self, case: Case, clock: Clock) -> bool:
        if case.row < 0:
            return False
        topic = clock.topics[case.topic]
        origin = topic.origins[int(topic.owner[case.row])]
        return int(topic.counters[case.row]) <= self.settled.get((case.topic, origin), 0)

    def _is_unexplained(self, finding: LogFinding) -> bool:
        """Tell what is wrong with a log from what a window has forgotten."""
        known = self.forgotten.get((finding.topic, finding.origin or ""), 0)
        return finding.kind != "absent-log" or finding.number is None or finding.number > known

    def _overflow(self) -> None:
        for process, rows in self.logs.items():
            last = np.arange(rows.seq.size) >= rows.seq.size // 2
            keep = last | (rows.event > LAST_MESSAGE_EVENT)
            self.logs[process] = select(rows, keep, np.ones(rows.context_origin.size, dtype=bool))


def _is_certain(case: Case) -> bool:
    return case.kind in CERTAIN and case.row >= 0


class _Pending:
    """What is not settled in one topic."""

    def __init__(self, topic: TopicClock) -> None:
        self.topic = topic
        self.open = ~topic.logged

    def frontier(self) -> NDArray[np.int64]:
        """Return, per origin, how many of its messages are in the pasts of all that is not settled."""
        topic = self.topic
        waiting = np.flatnonzero(self.open)
        if waiting.size == 0:
            return np.diff(topic.starts)
        least: NDArray[np.int64] = topic.past[:, waiting].min(axis=1).astype(np.int64)
        return least
