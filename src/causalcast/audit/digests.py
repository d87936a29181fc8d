"""What is kept of logs once they are read: flat columns over many logs at once, and views of one log in one topic.

A *section* is what one log says in one topic. Ten thousand processes, or as many topics, have few rows in each of many
sections, so the columns of all sections stand one behind the other, and nothing but a view is made for one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from causalcast.audit.events import NO_VALUE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.links import Links, Traffic
from causalcast.audit.ranges import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

Section = TypeVar("Section")


@dataclass(frozen=True, slots=True)
class Mark:
    """A membership event: where it stands in the log, what it is, the topic and the other process it names."""

    seq: int
    event: int
    topic: str | None
    peer: str | None
    time: int = NO_VALUE


@dataclass(frozen=True, slots=True)
class Marks:
    """The membership events of many logs; those of log `i` are `starts[i]:starts[i + 1]`, in its order.

    `topic` is an index into `names`, -1 where there is none. `opening` is how many of a log's first rows subscribe.
    """

    names: Sequence[str]
    starts: Ints
    seq: Ints
    event: NDArray[np.int8]
    topic: Ints
    time: Ints
    peers: dict[int, str]
    opening: Ints

    def events(self, log: int) -> NDArray[np.int8]:
        """Return what the marks of one log are."""
        return self.event[self.starts[log] : self.starts[log + 1]]

    def of(self, log: int, *, turns: bool = False) -> tuple[Mark, ...]:
        """Return the marks of one log; with `turns`, without its subscriptions."""
        rows = np.arange(self.starts[log], self.starts[log + 1])
        if turns:
            event = self.event[rows]
            rows = rows[(event != SUBSCRIBE) & (event != UNSUBSCRIBE)]
        return tuple(
            Mark(
                seq=int(self.seq[i]),
                event=int(self.event[i]),
                topic=self.names[self.topic[i]] if self.topic[i] >= 0 else None,
                peer=self.peers.get(i),
                time=int(self.time[i]),
            )
            for i in rows.tolist()
        )


def measured(values: Ints | None, part: slice = slice(None)) -> Ints | None:
    """Return a part of a column, `None` where nothing in it has a value."""
    if values is None:
        return None
    mine = values[part]
    return mine if bool((mine != NO_VALUE).any()) else None


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
    stables: int
    before: int
    """A number up to which nothing is missing, of logs from which settled messages are left out."""


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
    explicit: bool
    """Whether it is known to log its own deliveries, by rows that are left out."""


class Topics(Mapping[str, Section], Generic[Section]):
    """The sections of one log by the names of their topics, each made when it is asked for."""

    def __init__(self, names: Sequence[str], topics: Ints, first: int, make: Callable[[int], Section]) -> None:
        self._names = names
        self._codes = topics
        self._first = first
        self._make = make
        self._numbers: dict[str, int] | None = None

    @property
    def sections(self) -> dict[str, int]:
        """The number of each section."""
        if self._numbers is None:
            words = [self._names[code] if code >= 0 else "" for code in self._codes.tolist()]
            self._numbers = dict(zip(words, range(self._first, self._first + len(words)), strict=True))
        return self._numbers

    def __getitem__(self, topic: str) -> Section:
        return self._make(self.sections[topic])

    def __iter__(self) -> Iterator[str]:
        return iter(self.sections)

    def __len__(self) -> int:
        return int(self._codes.size)


@dataclass(frozen=True, slots=True)
class Columns:
    """What logs say in their sections.

    `topic` is the section's, an index into a list of names (-1: none). The part of section `k` in a column is
    `*_starts[k]:*_starts[k + 1]`, of broadcast `b` in a delta column `delta_starts[b]:delta_starts[b + 1]`.
    """

    topic: Ints
    starts: Ints
    counter: Ints
    seq: Ints
    time: Ints
    payload: Ints
    overhead: Ints
    delta_starts: Ints
    delta_origin: Ints
    delta_last: Ints
    run_starts: Ints
    run_origin: Ints
    run_first: Ints
    run_last: Ints
    foreign_starts: Ints
    stables: Ints
    before: Ints
    """A number of the log's own up to which nothing is missing, where settled messages are left out."""


@dataclass(frozen=True, slots=True)
class Indices(Columns):
    """The indices of many logs; section `k` is of the log `i` with `sections[i] <= k < sections[i + 1]`."""

    processes: tuple[str, ...]
    names: Sequence[str]
    rows: Ints
    repeated: Ints
    missing_rows: Ints
    missing: dict[int, tuple[tuple[int, int], ...]]
    conflicts: dict[int, tuple[int, ...]]
    spans: Ints
    """First and last time of each log, `NO_VALUE` where it has none; see `links.spans_of`."""
    traffic: Ints
    marks: Marks
    sections: Ints
    delta_first: Ints | None
    delta_seq: Ints
    foreign_origin: Ints
    foreign_counter: Ints
    reused_starts: Ints
    reused: Ints
    totals: Ints
    """Of each log: broadcasts, deliveries, stability reports, tags; also of what is left out since it is settled."""
    times: Ints
    """Of each log, see `spans.NO_TIMES`."""
    restarts: Bools
    """Whether a log is known to number its messages in each topic anew."""

    def log(self, place: int) -> LogIndex:
        """Return the index of one log."""
        first, last = self.sections_of(place)
        span = self.spans[place]
        return LogIndex(
            process=self.processes[place],
            names=self.names,
            rows=int(self.rows[place]),
            missing=self.missing.get(place, ()),
            missing_rows=int(self.missing_rows[place]),
            repeated=int(self.repeated[place]),
            conflicts=self.conflicts.get(place, ()),
            topics=Topics(self.names, self.topic[first:last], first, self._section),
            span=None if span[0] == NO_VALUE else (int(span[0]), int(span[1])),
            traffic=Traffic(*self.traffic[place].tolist()),
            source=self,
            place=place,
        )

    def sections_of(self, place: int) -> tuple[int, int]:
        """Return the first section of a log and the one behind its last."""
        return int(self.sections[place]), int(self.sections[place + 1])

    def _section(self, k: int) -> TopicIndex:
        sent = slice(self.starts[k], self.starts[k + 1])
        ends = self.delta_starts[sent.start : sent.stop + 1]
        delta = slice(ends[0], ends[-1])
        runs = slice(self.run_starts[k], self.run_starts[k + 1])
        foreign = slice(self.foreign_starts[k], self.foreign_starts[k + 1])
        return TopicIndex(
            counter=self.counter[sent],
            seq=self.seq[sent],
            time=self.time[sent],
            payload=self.payload[sent],
            overhead=self.overhead[sent],
            delta_ends=ends[1:] - ends[0],
            delta_origin=self.delta_origin[delta],
            delta_first=None if self.delta_first is None else self.delta_first[delta],
            delta_last=self.delta_last[delta],
            delta_seq=self.delta_seq[delta],
            runs_origin=self.run_origin[runs],
            runs_first=self.run_first[runs],
            runs_last=self.run_last[runs],
            foreign_origin=self.foreign_origin[foreign],
            foreign_counter=self.foreign_counter[foreign],
            reused=self.reused[self.reused_starts[k] : self.reused_starts[k + 1]],
            stables=int(self.stables[k]),
            before=int(self.before[k]),
        )


@dataclass(frozen=True, slots=True)
class LogIndex:
    """What the driver knows of one log. `missing` are ranges of absent rows, `conflicts` rows that stand twice."""

    process: str
    names: Sequence[str]
    rows: int
    missing: tuple[tuple[int, int], ...]
    missing_rows: int
    repeated: int
    conflicts: tuple[int, ...]
    topics: Topics[TopicIndex]
    span: tuple[int, int] | None
    traffic: Traffic
    source: Indices
    place: int
    """In `source`, the columns that it shares with other logs."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Its membership events."""
        return self.source.marks.of(self.place)

    @property
    def turns(self) -> tuple[Mark, ...]:
        """Its membership events but for subscriptions."""
        return self.source.marks.of(self.place, turns=True)

    @property
    def broadcasts(self) -> int:
        """How many messages it broadcast, in all topics."""
        return int(self.source.totals[self.place, 0])

    @property
    def deliveries(self) -> int:
        """How many deliveries it has, in all topics."""
        return int(self.source.totals[self.place, 1])

    @property
    def stables(self) -> int:
        """How many stability reports it has, in all topics."""
        return int(self.source.totals[self.place, 2])

    @property
    def tags(self) -> int:
        """How many of its broadcasts carry a tag."""
        return int(self.source.totals[self.place, 3])

    @property
    def restarts(self) -> bool:
        """Whether it is known to number its messages in each topic anew."""
        return bool(self.source.restarts[self.place])

    def odd_topics(self) -> Iterator[tuple[str, TopicIndex]]:
        """Yield the topics in which it reused numbers or broadcast under other names."""
        first, last = self.source.sections_of(self.place)
        odd = np.diff(self.source.reused_starts[first : last + 1]) + np.diff(
            self.source.foreign_starts[first : last + 1]
        )
        if odd.any():
            for (topic, _), number in zip(self.topics.sections.items(), odd.tolist(), strict=True):
                if number:
                    yield topic, self.topics[topic]


@dataclass(frozen=True, slots=True)
class Bodies:
    """What the replay needs of many logs; sections and parts as in `Indices`, tag `t` has `dot_starts[t]:...`."""

    processes: tuple[str, ...]
    names: Sequence[str]
    marks: Marks
    sections: Ints
    topic: Ints
    starts: Ints
    origin: Ints
    counter: Ints
    seq: Ints
    time: Ints | None
    payload: Ints | None
    stable_starts: Ints
    stable_origin: Ints
    stable_counter: Ints
    stable_seq: Ints
    stable_time: Ints | None
    tag_starts: Ints
    tag_counter: Ints
    dot_starts: Ints
    dot_origin: Ints
    dot_counter: Ints
    explicit: Bools
    """Whether a log is known to log its own deliveries in the section, by rows that are left out."""
    links: Links | None
    """`None` where no log has sends or receptions."""

    def log(self, place: int) -> LogBody:
        """Return the body of one log."""
        first, last = int(self.sections[place]), int(self.sections[place + 1])
        return LogBody(
            process=self.processes[place],
            names=self.names,
            topics=Topics(self.names, self.topic[first:last], first, self._section),
            source=self,
            place=place,
        )

    def of(self, chosen: Ints) -> tuple[Ints, Ints]:
        """Return the rows of deliveries in the `chosen` sections, one section after the other, and how many in each."""
        sizes = self.starts[chosen + 1] - self.starts[chosen]
        return places(self.starts[chosen], sizes), sizes

    def _section(self, k: int) -> TopicBody:
        part = slice(self.starts[k], self.starts[k + 1])
        stable = slice(self.stable_starts[k], self.stable_starts[k + 1])
        tags = slice(self.tag_starts[k], self.tag_starts[k + 1])
        ends = self.dot_starts[tags.start : tags.stop + 1]
        dots = slice(ends[0], ends[-1])
        return TopicBody(
            origin=self.origin[part],
            counter=self.counter[part],
            seq=self.seq[part],
            time=measured(self.time, part),
            payload=measured(self.payload, part),
            stable_origin=self.stable_origin[stable],
            stable_counter=self.stable_counter[stable],
            stable_seq=self.stable_seq[stable],
            stable_time=measured(self.stable_time, stable),
            context_counter_of=self.tag_counter[tags],
            context_ends=ends[1:] - ends[0],
            context_origin=self.dot_origin[dots],
            context_counter=self.dot_counter[dots],
            explicit=bool(self.explicit[k]),
        )


@dataclass(frozen=True, slots=True)
class LogBody:
    """What a replay needs of one log; origins are indices into `names`."""

    process: str
    names: Sequence[str]
    topics: Topics[TopicBody]
    source: Bodies
    place: int
