"""One process's log as columns, and what the later stages keep of it.

`digest` is the *edges* stage. It splits a log into a `LogIndex`, which is small and goes to the driver (its
broadcasts, the immediate dependencies of each, which messages it saw), and a `LogBody`, which stays in the
scratch folder until the process is replayed (its deliveries, stability reports and tags, in its own order).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import (
    BROADCAST,
    CRASH,
    DELIVER,
    FIRST_MEMBERSHIP,
    NO_VALUE,
    STABLE,
)
from causalcast.audit.links import NO_TRAFFIC, count_links, span_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.links import Links, Traffic

    Ints = NDArray[np.int64]

MAX_RANGES: Final = 1000
"""Ranges of missing rows that are listed for one log; their total is always exact."""


@dataclass(frozen=True, slots=True)
class LogColumns:
    """All rows of one process, in any order; `n` rows.

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


@dataclass(frozen=True, slots=True)
class Mark:
    """A membership event: where it stands in the log, what it is, the topic and the other process it names."""

    seq: int
    event: int
    topic: str | None
    peer: str | None
    time: int = NO_VALUE


@dataclass(frozen=True, slots=True)
class TopicIndex:
    """What a process did in one topic, as the driver needs it.

    Broadcasts are `b` rows in log order. `delta_*` are the immediate dependencies: for each broadcast, of each
    other origin, the ranges of numbers delivered since the broadcast before it, and the row where the highest of
    a range was delivered; the part of broadcast `i` is `delta_ends[i - 1]:delta_ends[i]`. `runs_*` are the ranges of
    numbers, per origin, that the process delivered or reported stable. Origins are indices into
    `LogIndex.names`.
    """

    counter: Ints
    seq: Ints
    time: Ints
    payload: Ints
    overhead: Ints
    delta_ends: Ints
    delta_origin: Ints
    delta_first: Ints | None
    """`None` where every range has one number."""
    delta_last: Ints
    delta_seq: Ints
    runs_origin: Ints
    runs_first: Ints
    runs_last: Ints
    foreign_origin: Ints
    foreign_counter: Ints
    reused: Ints
    """Counters that this process broadcast more than once."""
    deliveries: int
    stables: int
    tags: int


@dataclass(frozen=True, slots=True)
class LogIndex:
    """What the driver knows of one log. `missing` are ranges of absent rows, `conflicts` rows that stand twice."""

    process: str
    names: tuple[str, ...]
    rows: int
    missing: tuple[tuple[int, int], ...]
    missing_rows: int
    repeated: int
    conflicts: tuple[int, ...]
    marks: tuple[Mark, ...]
    topics: dict[str, TopicIndex] = field(default_factory=dict)
    span: tuple[int, int] | None = None
    """First and last time in the log; see `links.span_of`."""
    traffic: Traffic = NO_TRAFFIC


@dataclass(frozen=True, slots=True)
class TopicBody:
    """A process's deliveries, stability reports and tags in one topic, each in the order of its log."""

    origin: Ints
    counter: Ints
    seq: Ints
    time: Ints | None
    payload: Ints | None
    stable_origin: Ints
    stable_counter: Ints
    stable_seq: Ints
    stable_time: Ints | None
    context_counter_of: Ints
    """The broadcast's own number, for each broadcast with a tag."""
    context_ends: Ints
    context_origin: Ints
    context_counter: Ints


@dataclass(frozen=True, slots=True)
class LogBody:
    """What a replay needs of one log; origins are indices into `names`."""

    process: str
    names: tuple[str, ...]
    topics: dict[str, TopicBody] = field(default_factory=dict)
    links: Links | None = None
    """`None` where the log has no sends and no receptions."""


def digest(process: str, rows: LogColumns) -> tuple[LogIndex, LogBody]:
    """Put one process's rows in order and split them into what the driver and what the replay needs."""
    if _rising(rows.seq):
        order, seqs = np.arange(rows.seq.size), rows.seq
    else:
        order, seqs = np.lexsort((rows.counter, rows.origin, rows.event, rows.seq)), np.unique(rows.seq)
    keep, repeated, conflicts = _one_row_per_seq(rows, order)
    missing, missing_rows = _gaps(seqs)
    marks = _marks(rows, keep)
    topics_i: dict[str, TopicIndex] = {}
    topics_b: dict[str, TopicBody] = {}
    own = rows.names.index(process) if process in rows.names else -1
    messages = keep[rows.event[keep] <= STABLE]
    for topic, part in _by_topic(rows.topic[messages], messages):
        name = rows.names[topic] if topic >= 0 else ""
        topics_i[name], topics_b[name] = _digest_topic(own, rows, part)
    names = tuple(rows.names)
    traffic, links = count_links(own, rows, keep)
    index = LogIndex(
        process=process,
        names=names,
        rows=int(rows.seq.size) - repeated,
        missing=missing,
        missing_rows=missing_rows,
        repeated=repeated,
        conflicts=conflicts,
        marks=marks,
        topics=topics_i,
        span=span_of(rows.time),
        traffic=traffic,
    )
    return index, LogBody(process, names, topics_b, links)


def _by_topic(topic: Ints, messages: Ints) -> Iterator[tuple[int, Ints]]:
    """Split `messages` by topic, each part in its order; quick where there is one topic."""
    if messages.size == 0:
        return
    if int(topic.min()) == int(topic.max()):
        yield int(topic[0]), messages
        return
    order = np.argsort(topic, kind="stable")
    sorted_topic, sorted_messages = topic[order], messages[order]
    starts = np.flatnonzero(np.r_[True, sorted_topic[1:] != sorted_topic[:-1]])
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), messages.size], strict=True):
        yield int(sorted_topic[start]), sorted_messages[start:end]


def _rising(values: Ints) -> bool:
    return bool(values.size < 2 or np.all(values[1:] > values[:-1]))


def _one_row_per_seq(rows: LogColumns, order: Ints) -> tuple[Ints, int, tuple[int, ...]]:
    """Return the rows to keep, how many were plain repeats, and the row numbers that two unlike rows claim.

    A `crash` row is written by whoever saw the crash, so its number says nothing and never conflicts.
    """
    seq = rows.seq[order]
    same = np.zeros(order.size, dtype=bool)
    same[1:] = seq[1:] == seq[:-1]
    if not same.any():
        return order, 0, ()
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


def _gaps(seqs: Ints) -> tuple[tuple[tuple[int, int], ...], int]:
    before = np.concatenate((np.zeros(1, dtype=np.int64), seqs[:-1])) if seqs.size else seqs
    holes = np.flatnonzero(seqs - before > 1)
    ranges = tuple((int(before[i]) + 1, int(seqs[i]) - 1) for i in holes[:MAX_RANGES])
    return ranges, int((seqs[holes] - before[holes] - 1).sum())


def _marks(rows: LogColumns, keep: Ints) -> tuple[Mark, ...]:
    members = keep[rows.event[keep] >= FIRST_MEMBERSHIP]
    return tuple(
        Mark(
            seq=int(rows.seq[i]),
            event=int(rows.event[i]),
            topic=rows.names[rows.topic[i]] if rows.topic[i] >= 0 else None,
            peer=rows.peers.get(int(i)),
            time=int(rows.time[i]),
        )
        for i in members
    )


def _digest_topic(own: int, rows: LogColumns, part: Ints) -> tuple[TopicIndex, TopicBody]:
    event = rows.event[part]
    sent = part[event == BROADCAST]
    delivered = part[event == DELIVER]
    stable = part[event == STABLE]
    foreign = sent[rows.origin[sent] != own]
    sent = sent[rows.origin[sent] == own]
    first = _first_of_each(rows.counter[sent])
    reused = np.unique(rows.counter[sent[~first]])
    sent = sent[first]
    ends, d_origin, d_first, d_last, d_seq = _deltas(own, rows, sent, delivered)
    runs = _runs(
        np.concatenate((rows.origin[delivered], rows.origin[stable])),
        np.concatenate((rows.counter[delivered], rows.counter[stable])),
    )
    c_of, c_ends, c_origin, c_counter = _contexts(rows, sent)
    index = TopicIndex(
        counter=rows.counter[sent],
        seq=rows.seq[sent],
        time=rows.time[sent],
        payload=rows.payload[sent],
        overhead=rows.overhead[sent],
        delta_ends=ends,
        delta_origin=d_origin,
        delta_first=d_first,
        delta_last=d_last,
        delta_seq=d_seq,
        runs_origin=runs[0],
        runs_first=runs[1],
        runs_last=runs[2],
        foreign_origin=rows.origin[foreign],
        foreign_counter=rows.counter[foreign],
        reused=reused,
        deliveries=int(delivered.size),
        stables=int(stable.size),
        tags=int(c_of.size),
    )
    body = TopicBody(
        origin=_narrow(rows.origin[delivered]),
        counter=_narrow(rows.counter[delivered]),
        seq=_narrow(rows.seq[delivered]),
        time=_measured(rows.time[delivered]),
        payload=_measured(rows.payload[delivered]),
        stable_origin=_narrow(rows.origin[stable]),
        stable_counter=_narrow(rows.counter[stable]),
        stable_seq=_narrow(rows.seq[stable]),
        stable_time=_measured(rows.time[stable]),
        context_counter_of=c_of,
        context_ends=c_ends,
        context_origin=c_origin,
        context_counter=c_counter,
    )
    return index, body


def _first_of_each(values: Ints) -> NDArray[np.bool_]:
    if _rising(values):
        return np.ones(values.size, dtype=bool)
    first = np.zeros(values.size, dtype=bool)
    first[np.unique(values, return_index=True)[1]] = True
    return first


def _deltas(own: int, rows: LogColumns, sent: Ints, delivered: Ints) -> tuple[Ints, Ints, Ints | None, Ints, Ints]:
    """Return the immediate dependencies of each broadcast: part ends, origins, ranges of numbers, delivery rows."""
    others = delivered[rows.origin[delivered] != own]
    owner = np.searchsorted(rows.seq[sent], rows.seq[others])
    counted = owner < sent.size
    others, owner = others[counted], owner[counted]
    origin, first = rows.origin[others], rows.counter[others]
    last = first
    if others.size:
        width = int(origin.max()) + 1
        key = owner * width + origin
        order = _by_key(key, first)
        key, counter = key[order], first[order]
        heads = np.ones(order.size, dtype=bool)
        heads[1:] = (key[1:] != key[:-1]) | (counter[1:] > counter[:-1] + 1)
        tails = np.ones(order.size, dtype=bool)
        tails[:-1] = heads[1:]
        first, last = counter[heads], counter[tails]
        others = others[order[tails]]
        owner, origin = owner[order[tails]], origin[order[tails]]
    ends = np.cumsum(np.bincount(owner, minlength=sent.size)) if sent.size else np.zeros(0, dtype=np.int64)
    starts = None if np.array_equal(first, last) else _narrow(first)
    return ends.astype(np.int64), _narrow(origin), starts, _narrow(last), _narrow(rows.seq[others])


def _by_key(key: Ints, counter: Ints) -> Ints:
    """Return the order by key, then counter."""
    return _packed_order(counter, key) if _small(counter, key) else np.lexsort((counter, key))


def _small(counter: Ints, key: Ints) -> bool:
    return int(counter.max()) < 2**31 and int(key.max()) < 2**31


def _packed_order(counter: Ints, key: Ints) -> Ints:
    """Sort by key, then counter, as one integer: several times as quick as a sort by two columns."""
    return np.argsort((key.astype(np.int64) << 32) | counter, kind="stable")


def _runs(origin: Ints, counter: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the ranges of consecutive numbers per origin, as origins, first and last numbers."""
    if origin.size == 0:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none
    order = _by_key(origin, counter)
    origin, counter = origin[order], counter[order]
    starts = np.ones(origin.size, dtype=bool)
    starts[1:] = (origin[1:] != origin[:-1]) | (counter[1:] - counter[:-1] > 1)
    at = np.flatnonzero(starts)
    ends = np.append(at[1:], origin.size) - 1
    return origin[at], counter[at], counter[ends]


def _contexts(rows: LogColumns, sent: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the tags of the broadcasts in `sent`: their numbers, part ends, origins and numbers of the dots."""
    none = np.zeros(0, dtype=np.int64)
    if rows.context_rows.size == 0 or sent.size == 0:
        return none, none, none, none
    starts = np.concatenate((none[:0], [0], rows.context_ends[:-1]))
    mine = np.flatnonzero(np.isin(rows.context_rows, sent))
    lengths = rows.context_ends[mine] - starts[mine]
    ends = np.cumsum(lengths)
    take = np.repeat(starts[mine] - (ends - lengths), lengths) + np.arange(int(ends[-1]) if ends.size else 0)
    take = take.astype(np.int64)
    return (
        rows.counter[rows.context_rows[mine]],
        ends.astype(np.int64),
        rows.context_origin[take],
        rows.context_counter[take],
    )


def _narrow(values: Ints) -> Ints:
    """Keep values in as few bytes as they need: these columns are most of what an audit holds and moves."""
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def _measured(values: Ints) -> Ints | None:
    return values if values.size and bool((values != NO_VALUE).any()) else None
