"""Which messages a process must deliver: the rules of `members`, applied to one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.members import FOREVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.left_out import Dues, Numbers
    from causalcast.audit.members import Interval
    from causalcast.audit.topic_clock import TopicClock
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]


def entitle(view: View) -> None:
    """Find, per origin, the ranges of numbers that the process is entitled to; see `members`."""
    topic = view.topic
    for number, span in enumerate(view.spans):
        if span.start == 0 and span.end == FOREVER and view.member.correct:
            view.owed[:] = True
            view.owed_to_the_end[:] = True
            continue
        first, last = owed_ranks(view, number)
        rank = np.arange(1, topic.messages + 1) - topic.starts[topic.owner]
        entitled = (rank >= first[topic.owner]) & (rank <= last[topic.owner])
        view.owed |= entitled
        if span.end == FOREVER and view.member.correct:
            view.owed_to_the_end |= entitled
    if view.own >= 0:
        block = topic.block(view.own)
        mine = topic.logged[block] if view.explicit else np.zeros(block.stop - block.start, dtype=bool)
        view.owed[block] &= mine
        view.owed_to_the_end[block] &= mine
    absent = view.position == 0
    view.result.excused += int((absent & ~view.owed).sum())
    if view.member.holes:
        view.result.unproven += int((absent & view.owed).sum())
        view.owed[:] = False
        view.owed_to_the_end[:] = False


def owed_ranks(view: View, number: int) -> tuple[Ints, Ints]:
    """Return, per origin, the first and the last rank that the process is entitled to by one of its stays."""
    topic, span = view.topic, view.spans[number]
    dues = view.dues[number] if number < len(view.dues) else None
    if dues is not None and dues.last is not None:
        last = np.zeros(len(topic.origins), dtype=np.int64)
        for origin in dues.last.keys() & topic.place.keys():
            a = topic.place[origin]
            last[a] = np.searchsorted(topic.counters[topic.block(a)], dues.last[origin], "right")
        return topic.ranks_from(dues.first, FOREVER), last
    return np.minimum(met(view, span, dues), followed(view, span, dues)), _not_gone(view, span)


def met(view: View, span: Interval, dues: Dues | None) -> Ints:
    """Return, per origin, the first rank that the process delivered in a stay, or the first of all."""
    topic = view.topic
    count = len(topic.origins)
    if span.start == 0:
        return np.ones(count, dtype=np.int64)
    first = np.full(count, FOREVER, dtype=np.int64) if dues is None else topic.ranks_from(dues.first, FOREVER)
    if view.log is not None:
        inside = (view.delivered_at > span.start) & (view.delivered_at < span.end)
        rows = view.delivered[inside]
        np.minimum.at(first, topic.owner[rows], rows - topic.starts[topic.owner[rows]] + 1)
    return first


def followed(view: View, span: Interval, dues: Dues | None) -> Ints:
    """Return, per origin, the first rank that follows, or is, the first message that the process sent in a stay."""
    topic = view.topic
    first = np.full(len(topic.origins), FOREVER, dtype=np.int64)
    if dues is not None and dues.since is not None:
        first = after(topic, view.clock.left_out.after.get(topic.topic, {}), dues.since)
    if view.own >= 0:
        block = topic.block(view.own)
        inside = (topic.seq[block] > span.start) & (topic.seq[block] < span.end)
        mine = np.flatnonzero(topic.logged[block] & inside)
        if mine.size:
            needed = int(mine[0]) + 1
            since = 1 + topic.count_per_origin(topic.past[view.own] < needed)
            since[view.own] = needed
            first = np.minimum(first, since)
    return first


def after(topic: TopicClock, *numbers: Numbers) -> Ints:
    """Return, per origin, the first rank that is of one of these numbers or a higher one, or follows such a message."""
    first = np.full(len(topic.origins), FOREVER, dtype=np.int64)
    for each in numbers:
        first = np.minimum(first, topic.ranks_from(each, FOREVER))
    sizes = np.diff(topic.starts)
    for a in np.flatnonzero(first <= sizes).tolist() if (first > 1).any() else ():
        since = 1 + topic.count_per_origin(topic.past[a] < first[a])
        since[a] = first[a]
        first = np.minimum(first, since)
    return first


def _not_gone(view: View, span: Interval) -> Ints:
    """Return, per origin, the last rank whose broadcast surely comes before the end of the interval."""
    topic = view.topic
    count = len(topic.origins)
    start, end = span.start, span.end
    last = np.full(count, FOREVER, dtype=np.int64)
    if end == FOREVER and view.member.correct:
        return last
    inside = np.flatnonzero((view.position > start) & (view.position < end))
    last[:] = topic.past[:, topic.maximal(inside)].max(axis=1, initial=0)
    owners = topic.owner[inside]
    np.maximum.at(last, owners, inside - topic.starts[owners] + 1)
    for evictor, seq in view.member.evictions:
        _before_eviction(view, last, evictor, seq)
    return last


def _before_eviction(view: View, last: Ints, evictor: str, seq: int) -> None:
    topic = view.topic
    who = topic.place.get(evictor, -1)
    if who < 0:
        return
    block = topic.block(who)
    after = np.flatnonzero(topic.logged[block] & (topic.seq[block] > seq))
    if after.size == 0:
        return
    rank = int(after[0]) + 1
    np.minimum(last, topic.count_per_origin(topic.past[who] < rank), out=last)
    last[who] = min(last[who], rank - 1)
