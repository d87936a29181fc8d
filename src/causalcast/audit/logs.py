"""The rows of logs as columns, and what the later stages keep of them.

`digest_logs` is the *edges* stage. It puts many logs in order at once and splits them into `Indices`, which are small
and go to the driver (broadcasts, the immediate dependencies of each, which messages were seen), and `Bodies`, which
stay in the scratch folder until the processes are replayed (deliveries, stability reports and tags, in the order of
their logs). No step of it is done log by log or topic by topic, but for those that have something odd.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.digests import Bodies, Indices, Marks, measured
from causalcast.audit.events import BROADCAST, CRASH, DELIVER, FIRST_MEMBERSHIP, STABLE, SUBSCRIBE
from causalcast.audit.links import count_links, spans_of
from causalcast.audit.ranges import heads_of, keys_of, order_of, places, runs_of, starts_of
from causalcast.audit.received import NOTHING_RECEIVED
from causalcast.audit.spans import times_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import LogBody, LogIndex
    from causalcast.audit.received import Received

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MAX_RANGES: Final = 1000
"""Ranges of missing rows that are listed for one log; their total is always exact."""


@dataclass(frozen=True, slots=True)
class LogColumns:
    """Rows of logs, in any order; `n` rows.

    `origin` and `topic` are indices into `names` (-1: none), `peer` holds a name or `None` and only for
    membership rows. Absent numbers are `NO_VALUE`. `context_rows` lists the rows that carry a tag,
    `context_ends` where each one's part of `context_origin` and `context_counter` ends.
    """

    names: Sequence[str]
    seq: Ints
    event: NDArray[np.int8]
    origin: Ints
    counter: Ints
    topic: Ints
    time: Ints
    payload: Ints
    overhead: Ints
    peers: dict[int, str]
    context_rows: Ints
    context_ends: Ints
    context_origin: Ints
    context_counter: Ints


def digest(process: str, rows: LogColumns) -> tuple[LogIndex, LogBody]:
    """Digest one process's rows."""
    indices, bodies = digest_logs((process,), rows, np.zeros(rows.seq.size, dtype=np.int64))
    return indices.log(0), bodies.log(0)


def digest_logs(
    processes: Sequence[str],
    rows: LogColumns,
    log: Ints,
    since: Ints | None = None,
    received: Received = NOTHING_RECEIVED,
) -> tuple[Indices, Bodies]:
    """Put the logs of `processes` in order and split them into what the driver and what the replay needs.

    `log` is whose row each is, an index into `processes`. Of the rows up to number `since[i]` of log `i` some may be
    left out, and nothing is said of their times; without `since` every process has a row. `received` is what the logs
    received by rows that are left out.
    """
    since = np.zeros(len(processes), dtype=np.int64) if since is None else since
    return _Digest(tuple(processes), rows, log, since, received).run()


class _Digest:
    """One run; a method's rows are indices of rows, in the order of the logs, and their parts of sections."""

    def __init__(
        self, processes: tuple[str, ...], rows: LogColumns, log: Ints, since: Ints, received: Received
    ) -> None:
        self.processes = processes
        self.rows = rows
        self.log = log
        self.since = since
        self.received = received
        code_of = {name: code for code, name in enumerate(rows.names)}
        self.own = np.array([code_of.get(process, -1) for process in processes], dtype=np.int64)

    def run(self) -> tuple[Indices, Bodies]:
        rows, log, count = self.rows, self.log, len(self.processes)
        order = _in_order(rows, log)
        keep, repeated, conflicts = _one_row_per_seq(rows, log, order, count)
        later = order[rows.seq[order] > self.since[log[order]]]
        missing, missing_rows = _gaps(log[later], rows.seq[later], self.since)
        traffic, links = count_links(self.own, rows, log, keep, self.received)
        messages = keep[rows.event[keep] <= STABLE]
        topic = rows.topic[messages]
        by_section = order_of(log[messages], topic)
        messages, topic = messages[by_section], topic[by_section]
        heads = heads_of(log[messages], topic)
        section = np.cumsum(heads) - 1
        at = np.flatnonzero(heads)
        sections = np.searchsorted(log[messages[at]], np.arange(count + 1))
        event = rows.event[messages]
        mine = rows.origin[messages] == self.own[log[messages]]
        sent, first = self._sent(messages, section, (event == BROADCAST) & mine)
        foreign = (event == BROADCAST) & ~mine
        delivered, stable = event == DELIVER, event == STABLE
        delta = self._deltas(messages, section, sent & first, delivered & ~mine, bool(conflicts))
        seen = delivered | stable
        runs = _runs(section[seen], rows.origin[messages[seen]], rows.counter[messages[seen]])
        tags = self._tags(messages[sent & first], section[sent & first])
        parts = _Parts(at.size, section)
        marks = self._marks(keep, count)
        kept, others, gave = messages[sent & first], messages[foreign], messages[delivered]
        told, again = messages[stable], sent & ~first
        tagged = kept[np.isin(kept, rows.context_rows)] if tags[1].size else kept[:0]
        reused_section, reused = _once(section[again], rows.counter[messages[again]])
        indices = Indices(
            processes=self.processes,
            names=rows.names,
            rows=np.bincount(log, minlength=count) - repeated,
            repeated=repeated,
            missing_rows=missing_rows,
            missing=missing,
            conflicts=conflicts,
            spans=spans_of(log[later], rows.time[later], count),
            traffic=traffic,
            marks=marks,
            sections=sections,
            topic=topic[at],
            starts=parts.starts(sent & first),
            counter=rows.counter[kept],
            seq=rows.seq[kept],
            time=rows.time[kept],
            payload=rows.payload[kept],
            overhead=rows.overhead[kept],
            delta_starts=delta[0],
            delta_origin=delta[1],
            delta_first=delta[2],
            delta_last=delta[3],
            delta_seq=delta[4],
            run_starts=np.searchsorted(runs[0], np.arange(at.size + 1)),
            run_origin=runs[1],
            run_first=runs[2],
            run_last=runs[3],
            foreign_starts=parts.starts(foreign),
            foreign_origin=rows.origin[others],
            foreign_counter=rows.counter[others],
            reused_starts=np.searchsorted(reused_section, np.arange(at.size + 1)),
            reused=reused,
            stables=parts.sizes(stable),
            before=np.zeros(at.size, dtype=np.int64),
            totals=np.stack([np.bincount(log[each], minlength=count) for each in (kept, gave, told, tagged)], axis=1),
            times=times_of(log[later], rows.time[later], count),
            restarts=np.zeros(count, dtype=bool),
        )
        bodies = Bodies(
            processes=self.processes,
            names=rows.names,
            marks=marks,
            sections=sections,
            topic=topic[at],
            starts=parts.starts(delivered),
            origin=_narrow(rows.origin[gave]),
            counter=_narrow(rows.counter[gave]),
            seq=_narrow(rows.seq[gave]),
            time=measured(rows.time[gave]),
            payload=measured(rows.payload[gave]),
            stable_starts=parts.starts(stable),
            stable_origin=_narrow(rows.origin[told]),
            stable_counter=_narrow(rows.counter[told]),
            stable_seq=_narrow(rows.seq[told]),
            stable_time=measured(rows.time[told]),
            tag_starts=np.searchsorted(tags[0], np.arange(at.size + 1)),
            tag_counter=tags[1],
            dot_starts=tags[2],
            dot_origin=tags[3],
            dot_counter=tags[4],
            explicit=np.zeros(at.size, dtype=bool),
            links=links,
        )
        return indices, bodies

    def _marks(self, keep: Ints, count: int) -> Marks:
        rows = self.rows
        members = keep[rows.event[keep] >= FIRST_MEMBERSHIP]
        log, event = self.log[members], rows.event[members]
        starts = np.searchsorted(log, np.arange(count + 1))
        opens = (event == SUBSCRIBE) & (rows.seq[members] == np.arange(members.size) - starts[log] + 1)
        closed = np.append(np.flatnonzero(~opens), members.size)
        opening = np.minimum(closed[np.searchsorted(closed, starts[:-1])], starts[1:]) - starts[:-1]
        named = enumerate(members.tolist()) if rows.peers else ()
        return Marks(
            names=rows.names,
            starts=starts,
            seq=rows.seq[members],
            event=event,
            topic=rows.topic[members],
            time=rows.time[members],
            peers={i: rows.peers[row] for i, row in named if row in rows.peers},
            opening=opening,
        )

    def _sent(self, messages: Ints, section: Ints, sent: Bools) -> tuple[Bools, Bools]:
        """Return which rows are own broadcasts, and which of all rows are the first with their number."""
        first = np.ones(messages.size, dtype=bool)
        at = np.flatnonzero(sent)
        counter, of = self.rows.counter[messages[at]], section[at]
        if not bool(((of[1:] != of[:-1]) | (counter[1:] > counter[:-1])).all()):
            again = np.ones(at.size, dtype=bool)
            again[np.unique(keys_of(of, counter), return_index=True)[1]] = False
            first[at[again]] = False
        return sent, first

    def _deltas(
        self, messages: Ints, section: Ints, sent: Bools, others: Bools, doubled: bool
    ) -> tuple[Ints, Ints, Ints | None, Ints, Ints]:
        """Return the immediate dependencies of each broadcast: part starts, origins, ranges of numbers, delivery rows.

        `doubled` says that two rows of a log may have one number.
        """
        rows = self.rows
        number: Ints = np.cumsum(sent)
        total = int(number[-1]) if number.size else 0
        at = np.flatnonzero(others)
        owner = number[at]
        if doubled:
            both = keys_of(section, rows.seq[messages])
            owner = np.searchsorted(both[sent], both[at])
        counted = owner < total
        at, owner = at[counted], owner[counted]
        counted = section[np.flatnonzero(sent)[owner]] == section[at]
        at, owner = at[counted], owner[counted]
        row = messages[at]
        origin, counter = rows.origin[row], rows.counter[row]
        order = order_of(owner, origin, counter)
        owner, origin, counter = owner[order], origin[order], counter[order]
        heads = heads_of(owner, origin)
        heads[1:] |= counter[1:] > counter[:-1] + 1
        tails = np.append(heads[1:], True)[: heads.size]
        first, last = counter[heads], counter[tails]
        starts = starts_of(np.bincount(owner[heads], minlength=total))
        lone = None if np.array_equal(first, last) else _narrow(first)
        return starts, _narrow(origin[tails]), lone, _narrow(last), _narrow(rows.seq[row[order[tails]]])

    def _tags(self, sent: Ints, section: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return the tags of broadcasts: sections, their numbers, starts of dots, origins and numbers of the dots."""
        rows = self.rows
        if rows.context_rows.size == 0 or sent.size == 0:
            none = np.zeros(0, dtype=np.int64)
            return none, none, np.zeros(1, dtype=np.int64), none, none
        number = np.full(rows.seq.size, -1, dtype=np.int64)
        number[sent] = np.arange(sent.size)
        mine = np.flatnonzero(number[rows.context_rows] >= 0)
        mine = mine[np.argsort(section[number[rows.context_rows[mine]]], kind="stable")]
        starts = np.concatenate((np.zeros(1, dtype=np.int64), rows.context_ends[:-1]))
        sizes = rows.context_ends[mine] - starts[mine]
        take = places(starts[mine], sizes)
        of = section[number[rows.context_rows[mine]]]
        return (
            of,
            rows.counter[rows.context_rows[mine]],
            starts_of(sizes),
            rows.context_origin[take],
            rows.context_counter[take],
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    """Cuts rows, given by a mask over rows that are by section, into sections."""

    number: int
    section: Ints

    def sizes(self, mask: Bools) -> Ints:
        return np.bincount(self.section[mask], minlength=self.number)

    def starts(self, mask: Bools) -> Ints:
        return starts_of(self.sizes(mask))


def _in_order(rows: LogColumns, log: Ints) -> Ints:
    """Return the rows log by log, each log in its order."""
    order = order_of(log, rows.seq)
    key, seq = log[order], rows.seq[order]
    if bool(((key[1:] != key[:-1]) | (seq[1:] > seq[:-1])).all()):
        return order
    return np.lexsort((rows.counter, rows.origin, rows.event, rows.seq, log))


def _one_row_per_seq(
    rows: LogColumns, log: Ints, order: Ints, count: int
) -> tuple[Ints, Ints, dict[int, tuple[int, ...]]]:
    """Return the rows to keep, and per log how many were plain repeats and the row numbers that unlike rows claim."""
    repeated = np.zeros(count, dtype=np.int64)
    conflicts: dict[int, tuple[int, ...]] = {}
    same = ~heads_of(log[order], rows.seq[order])
    if not same.any():
        return order, repeated, conflicts
    starts = np.searchsorted(log[order], np.arange(count + 1))
    kept: list[Ints] = []
    done = 0
    for place in np.unique(log[order[same]]).tolist():
        first, last = int(starts[place]), int(starts[place + 1])
        mine, repeated[place], doubled = _without_repeats(rows, order[first:last])
        if doubled:
            conflicts[place] = doubled
        kept += [order[done:first], mine]
        done = last
    return np.concatenate((*kept, order[done:])), repeated, conflicts


def _without_repeats(rows: LogColumns, order: Ints) -> tuple[Ints, int, tuple[int, ...]]:
    """Do the same for one log in which numbers stand twice.

    A `crash` row is written by whoever saw the crash, so its number says nothing and never conflicts.
    """
    crash = rows.event[order] == CRASH
    solid = order[~crash]
    seq = rows.seq[solid]
    same = np.zeros(solid.size, dtype=bool)
    same[1:] = seq[1:] == seq[:-1]
    equal = same.copy()
    for column in (rows.event, rows.origin, rows.counter, rows.topic):
        values = column[solid]
        equal[1:] &= values[1:] == values[:-1]
    conflicts = np.unique(seq[same & ~equal])
    kept = np.concatenate((solid[~equal], order[crash]))
    kept = kept[np.argsort(rows.seq[kept], kind="stable")]
    return kept, int(equal.sum()), tuple(conflicts[:MAX_RANGES].tolist())


def _gaps(log: Ints, seqs: Ints, since: Ints) -> tuple[dict[int, tuple[tuple[int, int], ...]], Ints]:
    """Return the ranges of missing rows of each log that has any behind `since`, and how many rows each log misses."""
    total = np.zeros(since.size, dtype=np.int64)
    before = np.append(np.zeros(1, dtype=np.int64), seqs[:-1])[: seqs.size]
    heads = heads_of(log)
    before[heads] = since[log[heads]]
    holes = np.flatnonzero(seqs - before > 1)
    np.add.at(total, log[holes], seqs[holes] - before[holes] - 1)
    ranges: dict[int, tuple[tuple[int, int], ...]] = {}
    for part in runs_of(log[holes]):
        mine = holes[part][:MAX_RANGES]
        ranges[int(log[mine[0]])] = tuple(zip((before[mine] + 1).tolist(), (seqs[mine] - 1).tolist(), strict=True))
    return ranges, total


def _once(section: Ints, counter: Ints) -> tuple[Ints, Ints]:
    """Return the distinct pairs of a section and a number, in order."""
    first = np.unique(keys_of(section, counter), return_index=True)[1] if section.size else section
    return section[first], counter[first]


def _runs(section: Ints, origin: Ints, counter: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the ranges of consecutive numbers per section and origin: sections, origins, first and last numbers."""
    order = order_of(section, origin, counter)
    section, origin, counter = section[order], origin[order], counter[order]
    heads = heads_of(section, origin)
    heads[1:] |= counter[1:] - counter[:-1] > 1
    tails = np.append(heads[1:], True)[: heads.size]
    return section[heads], origin[heads], counter[heads], counter[tails]


def _narrow(values: Ints) -> Ints:
    """Keep values in as few bytes as they need: these columns are most of what an audit holds and moves."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values
