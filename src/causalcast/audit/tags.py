"""P4: tags name what happened before, and their down-closure leaves nothing of it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.ranges import AT_ONCE, places, portions
from causalcast.audit.violations import TAG_OVER, TAG_UNDER, TAG_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import TopicBody
    from causalcast.audit.topic_clock import Joiner, TopicClock
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def check_tags(view: View, log: TopicBody) -> None:
    """Judge the tags of the process's own broadcasts."""
    if log.context_counter_of.size == 0 or view.own < 0:
        return
    topic = view.topic
    message, of, dots = located(topic, view.names, view.process, log)
    sure = (of >= 0) & ~topic.in_doubt[of]
    unknown = sure & (dots < 0)
    known = sure & (dots >= 0)
    rank = dots - topic.starts[topic.owner[dots]] + 1
    over = np.zeros(of.size, dtype=bool)
    over[known] = rank[known] > topic.past[topic.owner[dots[known]], of[known]]
    if view.arrivals:
        # What a joiner's tag names of the time before came with the state that it joined with.
        inherited = ~view.owed[dots] & (view.position[dots] == 0)
        over &= ~inherited
        unknown[:] = False
    doubted = np.flatnonzero((over | unknown) & (of >= 0))
    if doubted.size:
        # So did what follows the message of one who came late.
        others = [each for each in topic.joiners if each.origin != view.own]
        for some in portions(doubted.size, len(others)):
            at = doubted[some]
            came = view.after_joins(of[at], others)
            over[at] &= ~(came & ~view.after_joins(dots[at], others, last=True)).any(axis=0)
            unknown[at] &= ~came.any(axis=0)
    wrong = np.zeros(topic.messages, dtype=bool)
    for mask, reason in ((over, TAG_OVER), (unknown, TAG_UNKNOWN)):
        at = np.flatnonzero(mask)
        rows, first = np.unique(of[at], return_index=True)
        fresh = ~wrong[rows]
        rows, first = rows[fresh], first[fresh]
        wrong[rows] = True
        cause = dots[at[first]]
        if reason == TAG_UNKNOWN:
            part = at[first]
            view.add(
                "tag-mismatch",
                rows,
                at=topic.seq[rows],
                reason=reason,
                phantoms=(log.context_origin[part], log.context_counter[part]),
            )
        else:
            view.add("tag-mismatch", rows, cause, topic.seq[rows], topic.seq[cause], reason=reason)
    _check_cover(view, message, of, dots, wrong)


def located(topic: TopicClock, names: Sequence[str], process: str, log: TopicBody) -> tuple[Ints, Ints, Ints]:
    """Return the messages of a process that have tags; and for each dot of these its message, and the one it names.

    What is not in the universe is -1.
    """
    own = np.full(log.context_counter_of.size, names.index(process), dtype=np.int64)
    message = topic.locate(names, own, log.context_counter_of)
    of = np.repeat(message, np.diff(log.context_ends, prepend=0))
    return message, of, topic.locate(names, log.context_origin, log.context_counter)


def _check_cover(view: View, message: Ints, of: Ints, dots: Ints, wrong: Bools) -> None:
    """Report tags whose down-closure leaves out part of the past."""
    topic = view.topic
    rows = np.unique(message[message >= 0])
    rows = rows[~topic.in_doubt[rows] & ~wrong[rows]]
    use = (dots >= 0) & (of >= 0)
    of, dots = of[use], dots[use]
    order = np.argsort(of, kind="stable")
    of, dots = of[order], dots[order]
    ends = np.searchsorted(of, rows, side="right")
    step = max(AT_ONCE // max(len(topic.origins), 1), 1)
    start = done = 0
    while start < rows.size:
        stop = max(start + 1, min(int(np.searchsorted(ends, done + step, side="right")), start + step))
        _check_cover_of(view, rows[start:stop], of, dots)
        start, done = stop, int(ends[stop - 1])


def _check_cover_of(view: View, rows: Ints, of: Ints, dots: Ints) -> None:
    """See `_check_cover`; `of` rises."""
    topic = view.topic
    covered = _covered(topic, rows, of, dots)
    origin, place = np.nonzero(topic.past[:, rows] > covered)
    last = topic.starts[origin] + topic.past[origin, rows[place]] - 1
    if last.size and topic.joiners:
        # A tag may reach what a joiner's message follows by the state it joined with, which no log shows.
        touched = np.stack([_touched(covered, joiner) for joiner in topic.joiners])
        keep = np.ones(last.size, dtype=bool)
        for part in portions(last.size, len(topic.joiners)):
            keep[part] = ~(touched[:, place[part]] & ~view.after_joins(last[part], topic.joiners, last=True)).any(
                axis=0
            )
        place, last = place[keep], last[keep]
    cause = np.full(rows.size, -1, dtype=np.int64)
    cause[place] = last
    short = rows[cause >= 0]
    if short.size:
        cause = cause[cause >= 0]
        view.add("tag-mismatch", short, cause, topic.seq[short], topic.seq[cause], reason=TAG_UNDER)


def _touched(covered: Ints, joiner: Joiner) -> Bools:
    """Return which tags reach a joiner's first message, given how far they reach: origins x tags."""
    reached: Bools = covered[joiner.origin] >= joiner.first
    if joiner.since is not None:
        reached = np.any(covered >= joiner.since[:, None], axis=0)
    return reached


def _covered(topic: TopicClock, rows: Ints, of: Ints, dots: Ints) -> Ints:
    """Return, per origin and message of `rows`, how far the down-closure of its tag reaches: origins x rows."""
    first, end = np.searchsorted(of, rows), np.searchsorted(of, rows, side="right")
    covered = np.zeros((len(topic.origins), rows.size), dtype=np.int64)
    some = np.flatnonzero(end > first)
    if not some.size:
        return covered
    chosen = places(first[some], (end - first)[some])
    mine = dots[chosen]
    reach = topic.past[:, mine].astype(np.int64)
    owner = topic.owner[mine]
    reach[owner, np.arange(mine.size)] = mine - topic.starts[owner] + 1
    starts = np.cumsum((end - first)[some]) - (end - first)[some]
    covered[:, some] = np.maximum.reduceat(reach, starts, axis=1)
    return covered
