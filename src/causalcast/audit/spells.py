"""Since when many processes were members of topics, where that is all that their logs say of their membership."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import EVICT, JOIN, LEAVE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.members import FOREVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import Bodies
    from causalcast.audit.left_out import Dues, Numbers
    from causalcast.audit.topic_clock import TopicClock

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NEVER_MEMBER: Final = FOREVER
SEVERAL: Final = -1
"""Membership that ended, or may have: `members.Attendance` tells of it."""


class Spells:
    """The membership of the processes of `bodies`; the same as `members.Attendance` says, for most of them."""

    def __init__(self, bodies: Bodies, clock: Clock) -> None:
        self._bodies = bodies
        self._clock = clock
        marks = bodies.marks
        self._owner = np.repeat(np.arange(len(bodies.processes)), np.diff(marks.starts))

    def since(self, log: Ints, topic: Ints) -> Ints:
        """Return the row of each log from which on its process was a correct member of the topic to the end.

        Args:
            log: places in the bodies.
            topic: indices into the names of the bodies, -1 for none.

        Returns:
            0 for the start of the log, `NEVER_MEMBER`, or `SEVERAL`.
        """
        subscribed, unsubscribed = self._subscriptions
        since = self._joined[log]
        if self._clock.subscriptions:
            keys, seq = subscribed
            wanted = self._key(log, topic)
            at = np.minimum(np.searchsorted(keys, wanted), max(keys.size - 1, 0))
            known = keys[at] == wanted if keys.size else np.zeros(log.size, dtype=bool)
            since = np.where(known, np.maximum(since, seq[at] if keys.size else 0), NEVER_MEMBER)
        odd = self._odd[log] | np.isin(self._key(log, topic), unsubscribed)
        keys, known_since = self._dues
        if keys.size:
            at = np.minimum(np.searchsorted(keys, self._key(log, topic)), keys.size - 1)
            since = np.where(keys[at] == self._key(log, topic), known_since[at], since)
        found: Ints = np.where(odd, SEVERAL, since)
        return found

    def _key(self, log: Ints, topic: Ints) -> Ints:
        return log * (len(self._bodies.names) + 1) + topic + 1

    @cached_property
    def _joined(self) -> Ints:
        """The first `join` of each log, 0 where it has none."""
        marks = self._bodies.marks
        joins = np.flatnonzero(marks.event == JOIN)[::-1]
        joined = np.zeros(len(self._bodies.processes), dtype=np.int64)
        joined[self._owner[joins]] = marks.seq[joins]
        return joined

    @cached_property
    def _dues(self) -> tuple[Ints, Ints]:
        """The keys of those that are entitled to more than their rows say, sorted: to all messages, or `SEVERAL`."""
        bodies, left_out = self._bodies, self._clock.left_out
        topics = {name: code for code, name in enumerate(bodies.names)}
        places = {process: place for place, process in enumerate(bodies.processes)}
        found = []
        for name, dues in left_out.dues.items():
            if (name and name not in topics) or name not in self._clock.topics:
                continue
            first = _firsts(self._clock.topics[name], left_out.after.get(name, {}))
            for process in dues.keys() & places.keys():
                key = places[process] * (len(bodies.names) + 1) + topics.get(name, -1) + 1
                found.append((key, 0 if _all(dues[process], first) else SEVERAL))
        keys, since = np.array(sorted(found), dtype=np.int64).reshape(-1, 2).T
        return keys, since

    @cached_property
    def _odd(self) -> Bools:
        """Which processes left, or did not live to the end, or have logs with holes."""
        bodies, members = self._bodies, self._clock.members
        known = (members.get(process) for process in bodies.processes)
        odd = np.array([each is None or not each.correct or each.holes for each in known], dtype=bool)
        event = bodies.marks.event
        odd[self._owner[event == LEAVE]] = True
        for row in np.flatnonzero(event == EVICT).tolist():
            place = int(self._owner[row])
            odd[place] |= bodies.marks.peers.get(row) == bodies.processes[place]
        return odd

    @cached_property
    def _subscriptions(self) -> tuple[tuple[Ints, Ints], Ints]:
        """The first subscription of each log to each topic, sorted by key, and its row; the keys of what was ended."""
        marks = self._bodies.marks
        some = np.flatnonzero(marks.event == SUBSCRIBE)
        keys, first = np.unique(self._key(self._owner[some], marks.topic[some]), return_index=True)
        ended = np.flatnonzero(marks.event == UNSUBSCRIBE)
        return (keys, marks.seq[some[first]]), self._key(self._owner[ended], marks.topic[ended])


def _firsts(topic: TopicClock, after: Numbers) -> dict[str, int]:
    """Return the first number of each origin, but of those of whom all messages follow all that is left out."""
    first = topic.counters[topic.starts[:-1]].tolist()
    return {o: n for o, n in zip(topic.origins, first, strict=True) if after.get(o, FOREVER) > n}


def _all(dues: Sequence[Dues], first: Numbers) -> bool:
    """Whether a process that stays once is entitled to all messages, given the first that may be others."""
    if len(dues) != 1 or dues[0].last is not None:
        return False
    since = dues[0].since
    return since is not None and all(since.get(origin, FOREVER) <= number for origin, number in first.items())
