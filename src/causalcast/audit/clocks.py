"""The messages of a trace and what happens before what, put together from the indices of all logs.

Topics that are small and have nothing odd are ordered together (`plain`), the others one by one (`building`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.building import TopicBuilder, doubts_of, joiners_of
from causalcast.audit.events import JOIN, SUBSCRIBE
from causalcast.audit.flat import FlatClock, PlainClocks, TopicClocks, side_by_side
from causalcast.audit.left_out import NOTHING, LeftOut
from causalcast.audit.log_findings import LogFinding, findings_in
from causalcast.audit.members import Attendance, Member, find_members
from causalcast.audit.plain import order_plain
from causalcast.audit.ranges import runs_of
from causalcast.audit.reduction import MANY_ORIGINS
from causalcast.audit.sections import Overview, overview
from causalcast.audit.timeline import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import LogIndex
    from causalcast.audit.topic_clock import Joiner, TopicClock

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

QUICK: Final = 2**16
"""Messages up to which a topic of many origins is judged side by side with others."""


@dataclass(frozen=True, slots=True)
class Clock:
    """All that a replay needs to know of the other logs."""

    topics: TopicClocks
    flat: tuple[FlatClock, ...]
    """The same of topics with known predecessors, side by side."""
    members: dict[str, Member]
    subscriptions: bool
    grid: Grid
    messages: int
    """Of all topics."""
    left_out: LeftOut = NOTHING
    """What is to be known of messages that are left out since they are settled."""


@dataclass(frozen=True, slots=True)
class Known:
    """The clock and what its making brought to light."""

    clock: Clock
    findings: list[LogFinding]
    absent: tuple[str, ...]
    """Origins without a log."""


def build_clock(
    logs: Sequence[LogIndex],
    crashed: Collection[str] = (),
    doubtful: Collection[str] = (),
    left_out: LeftOut = NOTHING,
) -> Known:
    """Order the messages of all `logs`.

    Args:
        logs: one index per process.
        crashed: processes that the user says crashed.
        doubtful: processes some of whose rows were set aside, or may have been.
        left_out: what is to be known of messages that are left out of the logs.
    """
    logs = sorted(logs, key=lambda log: log.process)
    members = find_members(logs, crashed, doubtful)
    findings = [finding for log in logs for finding in findings_in(log)]
    subscriptions = any(SUBSCRIBE in log.source.marks.events(log.place) for log in logs)
    by_name = {log.process: log for log in logs}

    @cache
    def attendance(process: str) -> Attendance:
        return Attendance(process, by_name[process].marks, subscriptions)

    @cache
    def numbers(process: str) -> dict[str, Ints]:
        return _numbers_across_topics(by_name[process]) if process in by_name else {}

    stopped = any(member.crashed and not member.evictions for member in members.values())
    seen = overview(logs)
    apart = left_out.begun.keys() | left_out.bonds.keys()
    plain = order_plain(logs, members, seen, MANY_ORIGINS, apart, stopped=stopped)
    plain = _with_exceptions(plain, logs, members, attendance)
    built: dict[str, TopicClock] = {}
    for topic, those in _left(logs, seen, plain):
        builder = TopicBuilder(topic, those, members, numbers, attendance, stopped, MANY_ORIGINS, left_out)
        built[topic], found = builder.build()
        findings.extend(found)
    absent = tuple(sorted({f.process for f in findings if f.process is not None and f.process not in members}))
    messages = plain.flat.seq.size + sum(clock.messages for clock in built.values())
    quick = [clock for clock in built.values() if clock.predecessors is not None and clock.messages <= QUICK]
    flat = (plain.flat, side_by_side(quick))
    clock = Clock(TopicClocks(plain, built), flat, members, subscriptions, Grid.over(logs), messages, left_out)
    return Known(clock, findings, absent)


def _left(logs: Sequence[LogIndex], seen: Overview, plain: PlainClocks) -> Iterator[tuple[str, list[LogIndex]]]:
    """Return the topics that are not plain, in order, and the logs that have them."""
    mine = np.ones(len(seen.names), dtype=bool)
    mine[[seen.code[topic] for topic in plain.flat.topics]] = False
    rows = np.flatnonzero(mine[seen.topic])
    rows = rows[np.lexsort((seen.log[rows], seen.topic[rows]))]
    for part in runs_of(seen.topic[rows]):
        yield seen.names[int(seen.topic[rows[part.start]])], [logs[i] for i in seen.log[rows[part]].tolist()]


def _with_exceptions(
    plain: PlainClocks,
    logs: Sequence[LogIndex],
    members: Mapping[str, Member],
    attendance: Callable[[str], Attendance],
) -> PlainClocks:
    """Add who joined late, and what is in doubt since rows are missing, in those topics that have any."""
    messages = plain.flat.messages
    topic = np.repeat(np.arange(len(plain.flat.topics)), np.diff(messages.groups))
    by_name = {log.process: log for log in logs}
    holes = {process for process, member in members.items() if member.holes}
    comers = {log.process for log in logs if _may_come_late(log)}
    marked = np.array([name in holes or name in comers for name in messages.origins], dtype=bool)
    in_doubt: dict[int, Bools] = {}
    joiners: dict[int, tuple[Joiner, ...]] = {}
    for t in np.unique(topic[marked[messages.origin]]).tolist():
        clock = plain.clock(t)
        if found := tuple(joiners_of(clock, by_name, attendance)):
            joiners[t] = found
        if not holes.isdisjoint(clock.origins):
            in_doubt[t] = doubts_of(clock, clock.past.T, by_name, members)
    return replace(plain, in_doubt=in_doubt, joiners=joiners)


def _may_come_late(log: LogIndex) -> bool:
    marks = log.source.marks
    mine = slice(marks.starts[log.place], marks.starts[log.place + 1])
    event, seq = marks.event[mine], marks.seq[mine]
    return bool(((event == JOIN) | ((event == SUBSCRIBE) & (seq > marks.opening[log.place]))).any())


def _numbers_across_topics(log: LogIndex) -> dict[str, Ints]:
    """Return the numbers that each topic has, where a log numbers its messages across topics; else nothing."""
    parts = {topic: index.counter for topic, index in log.topics.items() if index.counter.size}
    if len(parts) < 2 or log.restarts:
        return {}
    together = np.concatenate(list(parts.values()))
    return parts if np.unique(together).size == together.size else {}
