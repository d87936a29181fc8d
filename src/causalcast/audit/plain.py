"""The clocks of all small topics whose logs are whole, made side by side.

Most topics have nothing odd: each origin's numbers run without a gap, all that anybody saw was broadcast, and no two
logs contradict each other. Their clocks are made together, with as many array operations as one of them takes. What is
odd in any way, and what is large, is left to `clocks`, one topic at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.flat import FlatClock, Messages, PlainClocks
from causalcast.audit.matrices import Pasts, close_side_by_side
from causalcast.audit.ranges import heads_of, order_of, places, starts_of
from causalcast.audit.sections import Overview, Sections, gathered

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import LogIndex
    from causalcast.audit.members import Member

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

SMALL: Final = 2**20
"""Cells, messages times origins, up to which a topic is small."""


def order_plain(
    logs: Sequence[LogIndex],
    members: Mapping[str, Member],
    seen: Overview,
    many_origins: int,
    apart: Collection[str] = (),
    *,
    stopped: bool,
) -> PlainClocks:
    """Order the messages of all topics that are small and have nothing odd.

    Args:
        logs: one index per process.
        members: what is known of each process.
        seen: the sections of `logs`.
        many_origins: from how many origins on a topic is not small.
        apart: topics that are to be left to `clocks`.
        stopped: whether a member stopped for good.
    """
    candidates = _small(seen, many_origins)
    candidates &= ~_with_gaps(logs, members, seen)
    candidates[[seen.code[topic] for topic in apart if topic in seen.code]] = False
    while True:
        # What is found odd is left out, and the rest is made anew without it.
        making = _Making(logs, members, seen, gathered(seen, candidates), stopped)
        odd = making.odd() & candidates
        if not odd.any():
            pasts = making.pasts()
            odd[making.topics[~pasts.closed]] = True
            if not odd.any():
                return making.clocks(pasts)
        candidates &= ~odd


def _small(seen: Overview, many_origins: int) -> Bools:
    number = len(seen.names)
    messages = np.bincount(seen.topic, weights=seen.sent, minlength=number)
    origins = np.bincount(seen.topic, weights=seen.sent > 0, minlength=number)
    small: Bools = (messages > 0) & (origins < many_origins) & (messages * origins <= SMALL)
    return small


def _with_gaps(logs: Sequence[LogIndex], members: Mapping[str, Member], seen: Overview) -> Bools:
    """Mark the topics in which an origin skipped a number; see `clocks` for what is a gap."""
    found = np.zeros(len(seen.names), dtype=bool)
    late = np.array([members[log.process].joined_late for log in logs], dtype=bool)
    for source in seen.sources:
        of, sections, log = source.columns, source.sections, source.log
        topic = source.codes[of.topic[sections]]
        sizes = np.diff(of.starts)[sections]
        has = sizes > 0
        sections, log, topic, sizes = sections[has], log[has], topic[has], sizes[has]
        if sections.size == 0:
            continue
        counter = of.counter[places(of.starts[sections], sizes)]
        of_log = np.repeat(log, sizes)
        order = order_of(of_log, counter)
        sorted_log, sorted_counter = of_log[order], counter[order]
        twice = np.array([each.restarts for each in logs], dtype=bool)
        again = ~heads_of(sorted_log, sorted_counter)
        twice[sorted_log[again]] = True
        # Numbers that run across a log's topics are missed in the first of them, others in their own.
        before = np.zeros(len(logs), dtype=np.int64)
        np.maximum.at(before, log, of.before[sections])
        gap = _skips(sorted_log, sorted_counter, late, before)
        first = np.full(len(logs), len(seen.names), dtype=np.int64)
        np.minimum.at(first, log, topic)
        found[first[np.unique(sorted_log[gap & ~twice[sorted_log]])]] = True
        section = np.repeat(np.arange(sections.size), sizes)
        order = order_of(section, counter)
        gap = _skips(section[order], counter[order], late[log], of.before[sections]) & twice[of_log[order]]
        found[topic[np.unique(section[order][gap])]] = True
    return found


def _skips(part: Ints, counter: Ints, late: Bools, settled: Ints) -> Bools:
    """Mark numbers that do not follow the one before in their part, or that up to which nothing is missing there.

    Where a part begins late, its first may be any.
    """
    counter = np.maximum(counter, settled[part])
    before = np.append(0, counter[:-1])[: counter.size]
    heads = heads_of(part)
    of = part[heads]
    before[heads] = np.where(late[of] & (settled[of] == 0), counter[heads] - 1, settled[of])
    skips: Bools = counter - before > 1
    return skips


class _Making:
    """One attempt: the clocks of the topics of `sections`, which are numbered anew."""

    def __init__(
        self,
        logs: Sequence[LogIndex],
        members: Mapping[str, Member],
        seen: Overview,
        sections: Sections,
        stopped: bool,
    ) -> None:
        self.seen = seen
        self.sections = sections
        self.stopped = stopped
        self.topics = np.unique(sections.topic)
        """Their names."""
        self.topic = np.searchsorted(self.topics, sections.topic)
        process = np.array([seen.code.get(log.process, -1) for log in logs], dtype=np.int64)[sections.log]
        gone = [bool(members[log.process].crashed or members[log.process].evictions) for log in logs]
        self.process = process
        self.gone = np.array(gone, dtype=bool)[sections.log]
        sizes = np.diff(sections.starts)
        order = order_of(self.topic, process)
        self.group = order[sizes[order] > 0]
        """The section of each group."""
        self.sent = places(sections.starts[self.group], sizes[self.group])
        """The broadcast of each message."""
        self.messages = Messages(
            origins=tuple(seen.names),
            groups=np.searchsorted(self.topic[self.group], np.arange(self.topics.size + 1)),
            origin=process[self.group],
            starts=starts_of(sizes[self.group]),
            counters=sections.counter[self.sent],
        )
        run_group = self.messages.groups_of(self.topic[sections.run_at], sections.run_origin)
        self.run_first = self.messages.rows_of(run_group, sections.run_first)
        self.run_last = self.messages.rows_of(run_group, sections.run_last)

    def odd(self) -> Bools:
        """Mark the names of topics that have to be looked at one by one."""
        sections, found = self.sections, np.zeros(len(self.seen.names), dtype=bool)
        found[sections.topic[np.diff(sections.foreign_starts) > 0]] = True
        at = np.repeat(np.arange(self.group.size), np.diff(self.messages.starts))
        falls = (at[1:] == at[:-1]) & (self.messages.counters[1:] <= self.messages.counters[:-1])
        found[sections.topic[self.group[at[1:][falls]]]] = True
        numbers = sections.run_last - sections.run_first
        known = (self.run_first >= 0) & (self.run_last >= 0) & (self.run_last - self.run_first == numbers)
        found[sections.topic[sections.run_at[~known]]] = True
        return found

    def pasts(self) -> Pasts:
        """Make the matrices."""
        sections = self.sections
        sizes = sections.delta_starts[self.sent + 1] - sections.delta_starts[self.sent]
        part = places(sections.delta_starts[self.sent], sizes)
        target = np.repeat(np.arange(self.sent.size), sizes)
        topic = np.repeat(self.topic[self.group], np.diff(self.messages.starts))[target]
        group = self.messages.groups_of(topic, sections.delta_origin[part])
        row = self.messages.rows_of(group, sections.delta_last[part])
        return close_side_by_side(self.messages, target, group, row - self.messages.starts[group] + 1)

    def clocks(self, pasts: Pasts) -> PlainClocks:
        """Return the result."""
        sections, number = self.sections, self.topics.size
        flat = FlatClock(
            topics=tuple(self.seen.names[topic] for topic in self.topics.tolist()),
            messages=self.messages,
            stability=np.bincount(self.topic, weights=sections.stables, minlength=number) > 0,
            logged=np.ones(self.sent.size, dtype=bool),
            seq=sections.seq[self.sent],
            time=sections.time[self.sent],
            payload=sections.payload[self.sent],
            edges=pasts.edges,
            effect=pasts.effect,
            cause=pasts.cause,
        )
        return PlainClocks(
            flat=flat,
            past=pasts.past,
            pasts=pasts.pasts,
            overhead=sections.overhead[self.sent],
            owed=self._owed(),
            stability_owed=not self.stopped,
        )

    def _owed(self) -> Bools:
        """Mark what correct members must deliver: a crashed or evicted sender's messages only if somebody did."""
        gone = np.repeat(self.gone[self.group], np.diff(self.messages.starts))
        if not gone.any():
            return np.ones(self.sent.size, dtype=bool)
        others = self.process[self.sections.run_at] != self.sections.run_origin
        change = np.zeros(self.sent.size + 1, dtype=np.int64)
        np.add.at(change, self.run_first[others], 1)
        np.add.at(change, self.run_last[others] + 1, -1)
        return ~gone | (np.cumsum(change)[:-1] > 0)
