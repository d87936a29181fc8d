"""What processes are entitled to by their stays in a topic, once messages are left out (see `left_out`).

What a stay that is over entitles to is final: a few ranges of numbers. One that goes on entitles to all that an origin
sent after something that it delivered from it, and to all that follows its own first message. That message is long left
out when somebody who was away comes again and sends what does not follow it; so it is kept whose messages are known to
follow, and the rest is told by what they follow in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.entitlement import after, followed, met, owed_ranks
from causalcast.audit.left_out import Dues
from causalcast.audit.members import FOREVER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from causalcast.audit.left_out import Numbers
    from causalcast.audit.topic_clock import TopicClock
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Stays:
    """What one process did in a topic, in all its stays there.

    Of one that is `silent` the log is at its end; who left by itself `may_return` nevertheless.
    """

    view: View
    silent: bool
    may_return: bool

    @property
    def speaks(self) -> bool:
        """Whether it may send again."""
        return not self.silent or self.may_return

    @property
    def open(self) -> bool:
        """Whether the last stay goes on."""
        spans = self.view.spans
        return bool(spans) and spans[-1].end == FOREVER and not self.silent

    @property
    def begun(self) -> bool:
        """Whether it delivered or sent anything in its last stay."""
        view, number = self.view, len(self.view.spans) - 1
        here = bool((view.position > view.spans[number].start).any())
        return here or any(due.first or due.since is not None for due in view.dues[number:])

    @property
    def over(self) -> int:
        """The row up to which its log may be about stays that are over."""
        ends = (span.end for span in self.view.spans if span.end < FOREVER)
        return FOREVER if self.silent else max(ends, default=0)

    def reached(self, cut: int, *, stable: bool, sends: bool) -> Ints:
        """Return, per origin, up to which rank it has all that it may ever have to have, in its rows before `cut`.

        With `stable`, it reported it stable, too. With `sends`, what it sends next follows all of that.
        """
        view, topic = self.view, self.view.topic
        absent = view.position == 0
        lacking = (absent & view.owed) | (view.position >= cut)
        if stable:
            lacking |= ~absent & ~self._stable(cut)
        first = np.flatnonzero(lacking)
        reached: Ints = np.diff(topic.starts)
        at = first - topic.starts[topic.owner[first]]
        np.minimum.at(reached, topic.owner[first], at)
        return np.minimum(reached, self.knows()) if sends else reached

    def _stable(self, cut: int) -> Bools:
        view, log = self.view, self.view.log
        stable = np.zeros(view.topic.messages, dtype=bool)
        if log is not None and log.stable_origin.size:
            rows = view.topic.locate(view.names, log.stable_origin, log.stable_counter)
            stable[rows[(rows >= 0) & (log.stable_seq < cut)]] = True
        return stable

    def seen(self) -> Ints:
        """Return the messages that its next message follows at once."""
        view, topic = self.view, self.view.topic
        seen = view.position > 0
        if view.own >= 0:
            seen[topic.block(view.own)] |= topic.logged[topic.block(view.own)]
        return np.flatnonzero(seen)

    def knows(self) -> Ints:
        """Return, per origin, up to which rank its next message will follow all messages."""
        view, topic = self.view, self.view.topic
        rows = self.seen()
        knows: Ints = topic.past[:, topic.maximal(rows)].max(axis=1, initial=0).astype(np.int64)
        np.maximum.at(knows, topic.owner[rows], rows - topic.starts[topic.owner[rows]] + 1)
        for _, origin, stay in view.clock.left_out.bonds.get(topic.topic, {}).get(view.process, ()):
            if origin in topic.place:
                a = topic.place[origin]
                knows[a] = max(int(knows[a]), int(np.searchsorted(topic.counters[topic.block(a)], stay, "right")))
        return knows


def next_number(topic: TopicClock, process: str, upto: Numbers) -> int:
    """Return the number of the next message of a process whose messages up to `upto` are left out."""
    a = topic.place.get(process, -1)
    last = int(topic.counters[topic.starts[a + 1] - 1]) if a >= 0 else 0
    return max(last, upto.get(process, 0)) + 1


def reaches(topic: TopicClock, rows: Ints, since: Ints) -> bool:
    """Whether any of these messages is of a rank of `since` or a higher one."""
    owner = topic.owner[rows]
    return bool((rows - topic.starts[owner] + 1 >= since[owner]).any())


class Standing:
    """What is to be known of those who came to a topic or are gone from it, once `left` of each origin are left out.

    Args:
        topic: the clock.
        left: the ranks up to which messages are left out.
        stays: what those did who came or are gone, or who need not have everything.
        steady: those who have all that is left out.
        upto: the numbers of `left`, and those of origins that are not there any more.
        before: what was known of what was left out before, `None` where that is nothing.
    """

    def __init__(
        self,
        topic: TopicClock,
        left: Ints,
        stays: Mapping[str, Stays],
        steady: Collection[str],
        upto: Numbers,
        before: Numbers | None,
    ) -> None:
        self.topic = topic
        self.left = left
        self.stays = stays
        self.steady = steady
        self.upto = upto
        self.rank = np.arange(topic.messages) - topic.starts[topic.owner]
        self.rest = np.flatnonzero(self.rank >= left[topic.owner])
        self.seen = {process: stay.seen() for process, stay in stays.items()}
        self.after = self._after(before)

    def _after(self, before: Numbers | None) -> dict[str, int]:
        """Return from which numbers on messages follow all that is left out; see `LeftOut.after`."""
        topic = self.topic
        follows = np.zeros(topic.messages, dtype=bool)
        follows[self.rest] = (topic.past[:, self.rest] >= self.left[:, None]).all(axis=0)
        speaking = (process for process, stay in self.stays.items() if stay.speaks)
        knowing = {process for process in speaking if bool((self.stays[process].knows() >= self.left).all())}
        if before is not None:
            since = after(topic, before)
            follows &= self.rank + 1 >= since[topic.owner]
            knowing -= {p for p in knowing - before.keys() if not self._sees(p, since)}
        return self._numbers(follows, {*knowing, *self.steady})

    def _sees(self, process: str, since: Ints) -> bool:
        """Whether a process delivered, or sent, a message that is of a rank of `since` or a higher one."""
        return reaches(self.topic, self.seen[process], since)

    def _numbers(self, follows: Bools, next_ones: Collection[str]) -> dict[str, int]:
        """Return, of each origin, the first number that is not left out and `follows`; the next one of `next_ones`."""
        topic = self.topic
        rows = self.rest[follows[self.rest]]
        owners, first = np.unique(topic.owner[rows], return_index=True)
        numbers = topic.counters[rows[first]].tolist()
        found = {topic.origins[a]: number for a, number in zip(owners.tolist(), numbers, strict=True)}
        for process in next_ones:
            if process not in found and (process not in self.stays or self.stays[process].speaks):
                found[process] = next_number(topic, process, self.upto)
        return found

    def dues(self) -> dict[str, tuple[Dues, ...]]:
        """Return what processes are entitled to by each of their stays, of those that had any."""
        found = {process: self._dues(stays) for process, stays in self.stays.items()}
        return {process: dues for process, dues in found.items() if dues}

    def _dues(self, stays: Stays) -> tuple[Dues, ...]:
        number = len(stays.view.spans)
        found = tuple(self._ended(stays, i) for i in range(number - stays.open))
        return (*found, self._going_on(stays, number - 1)) if stays.open else found

    def _ended(self, stays: Stays, number: int) -> Dues:
        topic = self.topic
        first, last = owed_ranks(stays.view, number)
        first, last = np.maximum(first, self.left + 1), np.minimum(last, np.diff(topic.starts))
        some = np.flatnonzero(first <= last)
        origins = [topic.origins[a] for a in some.tolist()]
        lowest, highest = (topic.counters[topic.starts[some] + rank[some] - 1].tolist() for rank in (first, last))
        return Dues(dict(zip(origins, lowest, strict=True)), dict(zip(origins, highest, strict=True)))

    def _going_on(self, stays: Stays, number: int) -> Dues:
        topic, view = self.topic, stays.view
        before = view.dues[number] if number < len(view.dues) else None
        span = view.spans[number]
        first = dict(before.first) if before is not None else {}
        ranks = met(view, span, before)
        for a in np.flatnonzero(ranks <= np.diff(topic.starts)).tolist():
            first[topic.origins[a]] = int(topic.counters[topic.starts[a] + ranks[a] - 1])
        since = self._since(stays, number)
        if since is None:
            return Dues(first)
        follow = {o: min(self.after.get(o, FOREVER), since.get(o, FOREVER)) for o in first}
        return Dues({o: n for o, n in first.items() if follow[o] > max(n, self.upto.get(o, 0) + 1)}, since=since)

    def _since(self, stays: Stays, number: int) -> dict[str, int] | None:
        """Return from which numbers on messages follow its first in a stay, where that is not what `after` says."""
        topic, view = self.topic, stays.view
        before = view.dues[number] if number < len(view.dues) else None
        known = before.since if before is not None else None
        since = followed(view, view.spans[number], before)
        if known is None and (view.own < 0 or since[view.own] > self.left[view.own]):
            return None
        follows = self.rank + 1 >= since[topic.owner]
        before_all = view.clock.left_out.after.get(topic.topic, {}) if known is not None else {}
        next_ones = {process for process in self.stays if self._sees(process, since)}
        next_ones.update(known or (), before_all)
        found = self._numbers(follows, next_ones)
        for process, least in (known or {}).items():
            if process not in topic.place:
                found[process] = least
        return {p: n for p, n in found.items() if p not in self.after or n < self.after[p]}
