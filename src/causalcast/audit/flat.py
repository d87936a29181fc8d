"""The clocks of many topics side by side, so that one call judges a process, or many, in all of them.

A *group* is one origin in one topic. Messages are by topic, then origin (both in the order of their names), then
number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from causalcast.audit.ranges import starts_of
from causalcast.audit.reduction import Predecessors
from causalcast.audit.topic_clock import TopicClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.topic_clock import Joiner

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_LARGEST: Final = 2**62


@dataclass(frozen=True)
class Messages:
    """The messages of many topics: the groups of topic `t` are `groups[t]:groups[t + 1]`, the messages of group `g`
    `starts[g]:starts[g + 1]`. `origin` is a group's, an index into `origins`.
    """

    origins: tuple[str, ...]
    groups: Ints
    origin: Ints
    starts: Ints
    counters: Ints

    @cached_property
    def first(self) -> Ints:
        """Where each topic's messages begin, and behind them where the last ends."""
        return self.starts[self.groups]

    @cached_property
    def _keys(self) -> Ints:
        topic = np.repeat(np.arange(self.groups.size - 1), np.diff(self.groups))
        return topic * len(self.origins) + self.origin

    @cached_property
    def _numbers(self) -> tuple[Ints, int] | None:
        """The group and number of each message as one, and its width; `None` where they do not fit."""
        width = int(self.counters.max()) + 1 if self.counters.size else 1
        if width * self.origin.size >= _LARGEST:
            return None
        group = np.repeat(np.arange(self.origin.size), np.diff(self.starts))
        return group * width + self.counters, width

    @cached_property
    def _dense(self) -> tuple[Ints, Ints]:
        """The first number of each group, and how many follow it without a gap: all or, as a mark, none."""
        first, size = self.counters[self.starts[:-1]], np.diff(self.starts)
        return first, np.where(self.counters[self.starts[1:] - 1] - first + 1 == size, size, 0)

    def groups_of(self, topic: Ints, origin: Ints) -> Ints:
        """Return the group of each origin in each topic, -1 where there is none."""
        if self.origin.size == 0:
            return np.full(topic.size, -1, dtype=np.int64)
        wanted = topic * len(self.origins) + origin
        at = np.minimum(np.searchsorted(self._keys, wanted), self.origin.size - 1)
        found: Ints = np.where((origin >= 0) & (self._keys[at] == wanted), at, -1)
        return found

    def rows_of(self, group: Ints, counter: Ints) -> Ints:
        """Return the row of each message, -1 where there is none or where the numbers are too large to look for."""
        if self.origin.size == 0:
            return np.full(group.size, -1, dtype=np.int64)
        first, size = self._dense
        inside = counter - first[group]
        rows = np.where((group >= 0) & (inside >= 0) & (inside < size[group]), self.starts[group] + inside, -1)
        rest = np.flatnonzero((group >= 0) & (size[group] == 0))
        if rest.size and self._numbers is not None:
            keys, width = self._numbers
            wanted = group[rest] * width + np.minimum(counter[rest], width - 1)
            at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
            rows[rest] = np.where((keys[at] == wanted) & (counter[rest] < width), at, -1)
        return rows


@dataclass(frozen=True)
class FlatClock:
    """The clocks of `topics`: columns over their `messages` as in `TopicClock`.

    `stability` says of each topic whether any process reports stability in it. The predecessors of topic `t` are
    `edges[t]:edges[t + 1]`; `effect` and `cause` are rows within the topic.
    """

    topics: tuple[str, ...]
    messages: Messages
    stability: Bools
    logged: Bools
    seq: Ints
    time: Ints
    payload: Ints
    edges: Ints
    effect: NDArray[np.int32]
    cause: NDArray[np.int32]

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each topic."""
        return {topic: number for number, topic in enumerate(self.topics)}


def side_by_side(clocks: Sequence[TopicClock]) -> FlatClock:
    """Return clocks as one; each has its predecessors."""
    names = tuple(sorted({origin for clock in clocks for origin in clock.origins}))
    code = {name: i for i, name in enumerate(names)}
    sizes = [np.diff(clock.starts) for clock in clocks]
    edges = [clock.predecessors for clock in clocks if clock.predecessors is not None]
    nothing = np.zeros(0, dtype=np.int64)
    return FlatClock(
        topics=tuple(clock.topic for clock in clocks),
        messages=Messages(
            origins=names,
            groups=starts_of(np.array([len(clock.origins) for clock in clocks], dtype=np.int64)),
            origin=np.array([code[origin] for clock in clocks for origin in clock.origins], dtype=np.int64),
            starts=starts_of(np.concatenate((nothing, *sizes))),
            counters=np.concatenate((nothing, *(clock.counters for clock in clocks))),
        ),
        stability=np.array([clock.stability for clock in clocks], dtype=bool),
        logged=np.concatenate((nothing.astype(bool), *(clock.logged for clock in clocks))),
        seq=np.concatenate((nothing, *(clock.seq for clock in clocks))),
        time=np.concatenate((nothing, *(clock.time for clock in clocks))),
        payload=np.concatenate((nothing, *(clock.payload for clock in clocks))),
        edges=starts_of(np.array([part.effect.size for part in edges], dtype=np.int64)),
        effect=np.concatenate((nothing.astype(np.int32), *(part.effect for part in edges))),
        cause=np.concatenate((nothing.astype(np.int32), *(part.cause for part in edges))),
    )


@dataclass(frozen=True)
class PlainClocks:
    """Clocks that were made side by side: what `FlatClock` has, and what only a single one of them is asked for.

    `past` holds the matrices one after the other, `pasts` where each begins. The dictionaries name the few topics
    that have something to say.
    """

    flat: FlatClock
    past: NDArray[np.int32]
    pasts: Ints
    overhead: Ints
    owed: Bools
    stability_owed: bool
    in_doubt: dict[int, Bools] = field(default_factory=dict)
    joiners: dict[int, tuple[Joiner, ...]] = field(default_factory=dict)

    def clock(self, t: int) -> TopicClock:
        """Return one topic's clock."""
        flat, messages = self.flat, self.flat.messages
        groups = slice(messages.groups[t], messages.groups[t + 1])
        mine = slice(messages.first[t], messages.first[t + 1])
        edges = slice(flat.edges[t], flat.edges[t + 1])
        origins = tuple(messages.origins[i] for i in messages.origin[groups].tolist())
        starts = messages.starts[groups.start : groups.stop + 1] - messages.starts[groups.start]
        size = int(mine.stop - mine.start)
        return TopicClock(
            topic=flat.topics[t],
            origins=origins,
            starts=starts,
            owner=np.repeat(np.arange(len(origins), dtype=np.int32), np.diff(starts)),
            counters=messages.counters[mine],
            past=self.past[self.pasts[t] : self.pasts[t + 1]].reshape(len(origins), size),
            logged=flat.logged[mine],
            seq=flat.seq[mine],
            time=flat.time[mine],
            payload=flat.payload[mine],
            overhead=self.overhead[mine],
            in_doubt=self.in_doubt.get(t, np.zeros(size, dtype=bool)),
            owed=self.owed[mine],
            stability=bool(flat.stability[t]),
            stability_owed=self.stability_owed,
            joiners=self.joiners.get(t, ()),
            predecessors=Predecessors(flat.effect[edges], flat.cause[edges]),
            place={origin: a for a, origin in enumerate(origins)},
        )


class TopicClocks(Mapping[str, TopicClock]):
    """The clock of each topic: kept, or made from those side by side when it is first asked for."""

    def __init__(self, plain: PlainClocks, built: dict[str, TopicClock]) -> None:
        self._plain = plain
        self._built = built
        self._names = sorted(plain.flat.number.keys() | built.keys())
        self._made: dict[str, TopicClock] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}

    def __getitem__(self, topic: str) -> TopicClock:
        found = self._built.get(topic) or self._made.get(topic)
        if found is None:
            found = self._made[topic] = self._plain.clock(self._plain.flat.number[topic])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def side_by_side(self, flat: FlatClock) -> tuple[NDArray[np.int32], Ints, Bools] | None:
        """Return the matrices of the topics of `flat`, where each begins, and on what agreement is owed.

        `None` where they were not made side by side.
        """
        plain = self._plain
        return (plain.past, plain.pasts, plain.owed) if flat.topics == plain.flat.topics else None

    @property
    def stability_owed(self) -> bool:
        """Whether every message must become stable; see `TopicClock`."""
        return self._plain.stability_owed

    def measures(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Yield the times, payloads and overheads of all messages, of one or of many topics at once."""
        yield self._plain.flat.time, self._plain.flat.payload, self._plain.overhead
        for clock in self._built.values():
            yield clock.time, clock.payload, clock.overhead
