"""The clock of one topic, put together from the indices of its logs, whatever is odd with them.

A message is in the *universe* of its topic when its broadcast is logged, or when others saw it and its sender's
log is absent or has lost that row. A message that others saw and whose sender's log is whole was never
broadcast: it is a phantom and orders nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.closure import close
from causalcast.audit.entitlement import after
from causalcast.audit.events import NO_VALUE
from causalcast.audit.left_out import NOTHING, Begun, LeftOut
from causalcast.audit.log_findings import LogFinding
from causalcast.audit.ranges import expand, merge, spans
from causalcast.audit.reduction import close_by_predecessors
from causalcast.audit.topic_clock import NEVER, Joiner, TopicClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import LogIndex, TopicIndex
    from causalcast.audit.members import Attendance, Member

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MAX_GAPS: Final = 10_000


class TopicBuilder:
    """Builds one topic's clock; its methods run in the order of their definition."""

    def __init__(
        self,
        topic: str,
        logs: Sequence[LogIndex],
        members: dict[str, Member],
        elsewhere: Callable[[str], dict[str, Ints]],
        attendance: Callable[[str], Attendance],
        stopped: bool,
        many_origins: int,
        left_out: LeftOut = NOTHING,
    ) -> None:
        self.topic = topic
        self.logs = logs
        self.attendance = attendance
        self.stopped = stopped
        self.many_origins = many_origins
        self.bonds = left_out.bonds.get(topic, {})
        self.begun = left_out.begun.get(topic, {})
        self.after = left_out.after.get(topic, {})
        self.index: dict[str, TopicIndex] = {log.process: log.topics[topic] for log in self.logs}
        self.by_name = {log.process: log for log in self.logs}
        self.members = members
        self.elsewhere = elsewhere
        self.findings: list[LogFinding] = []

    def build(self) -> tuple[TopicClock, list[LogFinding]]:
        seen = self._seen_numbers()
        foreign = self._foreign_numbers()
        origins, counters, logged, seq = [], [], [], []
        for origin in sorted(seen.keys() | {p for p, i in self.index.items() if i.counter.size} | foreign.keys()):
            own = self.index.get(origin)
            sent, rows = self._in_order(origin, own)
            others = np.setdiff1d(seen.get(origin, _NONE), sent, assume_unique=True)
            lost = np.union1d(self._lost(origin, sent, others), foreign.get(origin, _NONE))
            lost = np.setdiff1d(lost, sent, assume_unique=True)
            numbers = np.concatenate((sent, lost))
            if numbers.size == 0:
                continue
            order = np.argsort(numbers, kind="stable")
            origins.append(origin)
            counters.append(numbers[order])
            logged.append((np.arange(numbers.size) < sent.size)[order])
            seq.append(np.concatenate((rows, np.zeros(lost.size, dtype=np.int64)))[order])
            self._report_lost(origin, own, sent, lost, foreign.get(origin, _NONE))
        return self._assemble(tuple(origins), counters, logged, seq), self.findings

    def _seen_numbers(self) -> dict[str, Ints]:
        """Return, per origin, the numbers that any process delivered or reported stable."""
        codes: dict[str, int] = {}
        parts = []
        for log in self.logs:
            index = self.index[log.process]
            table = np.full(len(log.names), -1, dtype=np.int64)
            for code in np.unique(index.runs_origin).tolist():
                table[code] = codes.setdefault(log.names[code], len(codes))
            parts.append((table[index.runs_origin], index.runs_first, index.runs_last))
        if not codes:
            return {}
        origin, first, last = (np.concatenate([part[column] for part in parts]) for column in range(3))
        order = np.argsort(origin, kind="stable")
        ends = np.cumsum(np.bincount(origin, minlength=len(codes)))[:-1]
        grouped = zip(codes, np.split(first[order], ends), np.split(last[order], ends), strict=True)
        return {name: expand([(firsts, lasts)]) for name, firsts, lasts in grouped}

    def _foreign_numbers(self) -> dict[str, Ints]:
        found: dict[str, list[int]] = {}
        for log in self.logs:
            index = self.index[log.process]
            for code, number in zip(index.foreign_origin.tolist(), index.foreign_counter.tolist(), strict=True):
                found.setdefault(log.names[code], []).append(number)
        return {origin: np.unique(np.array(numbers, dtype=np.int64)) for origin, numbers in found.items()}

    def _in_order(self, origin: str, own: TopicIndex | None) -> tuple[Ints, Ints]:
        """Return the numbers and rows of an origin's own broadcasts, without those that step back."""
        if own is None or own.counter.size == 0:
            return _NONE, _NONE
        rising = own.counter >= np.maximum.accumulate(own.counter)
        if not rising.all():
            detail = f"{int((~rising).sum())} of its broadcasts stand in its log against the order of their numbers"
            self.findings.append(
                LogFinding("absent-log", origin, origin, int(own.counter[~rising][0]), self.topic, detail)
            )
        return own.counter[rising], own.seq[rising]

    def _lost(self, origin: str, sent: Ints, others: Ints) -> Ints:
        """Of the numbers that only others saw, return those whose broadcast was lost rather than never made."""
        if others.size == 0:
            return others
        for topic, numbers in self.elsewhere(origin).items():
            if topic != self.topic:
                others = np.setdiff1d(others, numbers, assume_unique=True)
        member = self.members.get(origin)
        if member is None or member.holes or member.crashed:
            return others
        return others[others < sent[-1]] if sent.size else others[:0]

    def _report_lost(self, origin: str, own: TopicIndex | None, sent: Ints, lost: Ints, foreign: Ints) -> None:
        lost = np.setdiff1d(lost, foreign, assume_unique=True)
        if own is not None and not (own.counter >= np.maximum.accumulate(own.counter)).all():
            lost = np.setdiff1d(lost, own.counter)
        member = self.members.get(origin)
        if member is None:
            if lost.size:
                seen_by = f"{lost.size} message{'s' if lost.size > 1 else ''} from {lost[0]} on"
                detail = f"it has no log of its own; others saw {seen_by}"
                self.findings.append(LogFinding("absent-log", origin, None, None, self.topic, detail))
            return
        for first, last in merge(spans(lost) + self._gaps(origin, sent, lost)):
            what = f"number {first} is" if first == last else f"numbers {first} to {last} are"
            detail = f"{what} missing from its sender's own log; its order is judged from what is known"
            root = not member.holes
            self.findings.append(LogFinding("absent-log", origin, origin, first, self.topic, detail, root))

    def _gaps(self, origin: str, sent: Ints, lost: Ints) -> list[tuple[int, int]]:
        """Return the ranges of numbers that nobody saw and that the sender skipped.

        One who joined may go on from the numbers of an earlier membership, so nothing is missing before its first.
        Where numbers run across topics, the first topic reports for all.
        """
        parts = self.elsewhere(origin) or {self.topic: sent}
        if sent.size == 0 or self.topic != min(parts):
            return []
        settled = self.index[origin].before
        numbers = np.maximum(np.unique(np.concatenate((*parts.values(), lost))), settled)
        late = self.members[origin].joined_late and settled == 0
        start = numbers[:1] - 1 if late else np.array([settled], dtype=np.int64)
        before = np.concatenate((start, numbers[:-1]))
        at = np.flatnonzero(numbers - before > 1)[:MAX_GAPS]
        return [(int(before[i]) + 1, int(numbers[i]) - 1) for i in at]

    def _assemble(
        self, origins: tuple[str, ...], counters: list[Ints], logged: list[Bools], seq: list[Ints]
    ) -> TopicClock:
        starts = np.concatenate(([0], np.cumsum([c.size for c in counters]))).astype(np.int64)
        owner = np.repeat(np.arange(len(origins), dtype=np.int32), np.diff(starts))
        total = int(starts[-1])
        clock = TopicClock(
            topic=self.topic,
            origins=origins,
            starts=starts,
            owner=owner,
            counters=np.concatenate(counters) if counters else _NONE,
            past=np.zeros((0, 0), dtype=np.int32),
            logged=np.concatenate(logged) if logged else np.zeros(0, dtype=bool),
            seq=np.concatenate(seq) if seq else _NONE,
            time=np.full(total, NO_VALUE, dtype=np.int64),
            payload=np.full(total, NO_VALUE, dtype=np.int64),
            overhead=np.full(total, NO_VALUE, dtype=np.int64),
            in_doubt=np.zeros(total, dtype=bool),
            owed=np.ones(total, dtype=bool),
            stability=any(index.stables for index in self.index.values()),
            stability_owed=not self.stopped,
            place={origin: a for a, origin in enumerate(origins)},
        )
        past = self._direct(clock)
        predecessors = close_by_predecessors(past, starts) if len(origins) >= self.many_origins else None
        for later, earlier in close(past, starts) if predecessors is None else ():
            detail = f"its sender delivered {clock.name(earlier)} before, which depends on it: the logs contradict"
            who = origins[owner[later]]
            number = int(clock.counters[later])
            self.findings.append(LogFinding("not-broadcast", who, who, number, self.topic, detail))
        in_doubt = doubts_of(clock, past, self.by_name, self.members)
        owed = self._owed(clock)
        columns = np.ascontiguousarray(past.T)
        clock = replace(clock, past=columns, in_doubt=in_doubt, owed=owed, predecessors=predecessors)
        return replace(clock, joiners=tuple(self._joiners(clock)))

    def _direct(self, clock: TopicClock) -> NDArray[np.int32]:
        """Return what each log says directly: per message, how far into each origin its sender had delivered."""
        direct = np.zeros((clock.messages, len(clock.origins)), dtype=np.int32)
        for a, origin in enumerate(clock.origins):
            block = clock.block(a)
            own = self.index.get(origin)
            log = self.by_name.get(origin)
            if own is not None and log is not None and own.counter.size:
                rows = clock.locate([origin], np.zeros(own.counter.size, dtype=np.int64), own.counter)
                rows = np.where(clock.seq[rows] == own.seq, rows, -1)
                mine = rows >= 0
                clock.time[rows[mine]] = own.time[mine]
                clock.payload[rows[mine]] = own.payload[mine]
                clock.overhead[rows[mine]] = own.overhead[mine]
                sizes = np.diff(own.delta_ends, prepend=0)
                target = np.repeat(_next_kept(rows), sizes)
                source = clock.locate_last(log.names, own.delta_origin, own.delta_first, own.delta_last)
                use = (source >= 0) & (target >= 0)
                column = clock.owner[source[use]]
                rank = (source[use] - clock.starts[column] + 1).astype(np.int32)
                np.maximum.at(direct, (target[use], column), rank)
            for number, other, stays in self.bonds.get(origin, ()):
                least = block.start + int(np.searchsorted(clock.counters[block], number))
                followed = clock.place.get(other, -1)
                if least < block.stop and followed >= 0:
                    count = int(np.searchsorted(clock.counters[clock.block(followed)], stays, "right"))
                    direct[least, followed] = max(int(direct[least, followed]), count)
            part = direct[block]
            part[:, a] = np.arange(part.shape[0], dtype=np.int32)
            np.maximum.accumulate(part, axis=0, out=part)
        return direct

    def _owed(self, clock: TopicClock) -> Bools:
        """Mark what correct members must deliver: a crashed or evicted sender's messages only if somebody did."""
        owed = np.ones(clock.messages, dtype=bool)
        for a, origin in enumerate(clock.origins):
            member = self.members.get(origin)
            if member is None or not (member.crashed or member.evictions):
                continue
            delivered = np.zeros(clock.messages, dtype=bool)
            for log in self.logs:
                if log.process == origin:
                    continue
                index = self.index[log.process]
                mine = np.flatnonzero([log.names[code] == origin for code in index.runs_origin.tolist()])
                numbers = clock.counters[clock.block(a)]
                first = np.searchsorted(numbers, index.runs_first[mine], "left")
                last = np.searchsorted(numbers, index.runs_last[mine], "right")
                for i, j in zip(first.tolist(), last.tolist(), strict=True):
                    delivered[clock.starts[a] + i : clock.starts[a] + j] = True
            owed[clock.block(a)] = delivered[clock.block(a)]
        return owed

    def _joiners(self, clock: TopicClock) -> Iterator[Joiner]:
        """Yield who joined late, also those whose first messages since are left out."""
        known = {clock.origins[each.origin]: each for each in joiners_of(clock, self.by_name, self.attendance)}
        for process in sorted(known.keys() | self.begun.keys()) if clock.messages else ():
            begun = self.begun.get(process, Begun())
            arrivals = self.attendance(process).arrivals(self.topic)
            joiner = known.get(process, Joiner(-1, 0, NEVER, process, arrivals[-1]))
            last = begun.last if begun.came == arrivals[-1] else None
            yield joiner._replace(
                since=None if begun.first is None else after(clock, self.after, begun.first),
                since_last=None if last is None else after(clock, self.after, last),
            )


def joiners_of(
    clock: TopicClock, logs: Mapping[str, LogIndex], attendance: Callable[[str], Attendance]
) -> Iterator[Joiner]:
    """Yield who joined late: its messages may follow what came with the state it joined with."""
    for a, origin in enumerate(clock.origins):
        joins = attendance(origin).arrivals(clock.topic) if origin in logs else ()
        if not joins:
            continue
        block = clock.block(a)
        later = [np.flatnonzero(clock.seq[block] > seq) for seq in (joins[0], joins[-1])]
        first, last = (int(rows[0]) + 1 if rows.size else NEVER for rows in later)
        yield Joiner(a, first, last, origin, joins[-1])


def doubts_of(
    clock: TopicClock, past: NDArray[np.int32], logs: Mapping[str, LogIndex], members: Mapping[str, Member]
) -> Bools:
    """Mark messages whose past may hold more than the logs say, since rows are missing."""
    sure = np.full(len(clock.origins), NEVER, dtype=np.int64)
    for a, origin in enumerate(clock.origins):
        block = clock.block(a)
        doubtful = ~clock.logged[block]
        log = logs.get(origin)
        if log is not None and members[origin].holes:
            doubtful |= clock.seq[block] > _first_hole(log)
        if doubtful.any():
            sure[a] = int(doubtful.argmax())
    if (sure == NEVER).all():
        return np.zeros(clock.messages, dtype=bool)
    rank = np.arange(clock.messages) - clock.starts[clock.owner]
    doubt = rank >= sure[clock.owner]
    for a in np.flatnonzero(sure < NEVER).tolist():
        doubt |= past[:, a] > sure[a]
    return doubt


_NONE: Final[Ints] = np.zeros(0, dtype=np.int64)


def _next_kept(rows: Ints) -> Ints:
    """Let a broadcast that is not kept pass its dependencies on to the next one that is; -1 where there is none."""
    kept = np.where(rows >= 0, np.arange(rows.size), rows.size)
    following = np.minimum.accumulate(kept[::-1])[::-1]
    passed_on: Ints = np.append(rows, -1)[following]
    return passed_on


def _first_hole(log: LogIndex) -> int:
    """Return the row from which on the log has missing or doubtful rows."""
    holes = [first for first, _ in log.missing[:1]] + list(log.conflicts[:1])
    return min(holes, default=0)
