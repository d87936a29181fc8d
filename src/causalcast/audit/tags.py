"""P4: tags name what happened before, and their down-closure leaves nothing of it out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.violations import TAG_OVER, TAG_UNDER, TAG_UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.digests import TopicBody
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def check_tags(view: View, log: TopicBody) -> None:
    """Judge the tags of the process's own broadcasts."""
    if log.context_counter_of.size == 0 or view.own < 0:
        return
    topic = view.topic
    own = np.full(log.context_counter_of.size, view.names.index(view.process), dtype=np.int64)
    message = topic.locate(view.names, own, log.context_counter_of)
    sizes = np.diff(log.context_ends, prepend=0)
    of = np.repeat(message, sizes)
    dots = topic.locate(view.names, log.context_origin, log.context_counter)
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
    if over.any() or unknown.any():
        # So did what follows the message of one who came late.
        for j, came, rejoined in topic.joiners:
            if j == view.own:
                continue
            touched = (of >= 0) & view.after_join(of, j, came)
            over &= ~(touched & ~view.after_join(dots, j, rejoined))
            unknown &= ~touched
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


def _check_cover(view: View, message: Ints, of: Ints, dots: Ints, wrong: Bools) -> None:
    """Report tags whose down-closure leaves out part of the past."""
    topic = view.topic
    rows = message[(message >= 0)]
    rows = rows[~topic.in_doubt[rows] & ~wrong[rows]]
    if rows.size == 0:
        return
    use = dots >= 0
    of, dots = of[use], dots[use]
    cause = np.full(topic.messages, -1, dtype=np.int64)
    touched = [_covered(view, of, dots, j) >= first for j, first, _ in topic.joiners]
    for a in range(len(topic.origins)):
        covered = _covered(view, of, dots, a)
        short = rows[topic.past[a, rows] > covered[rows]]
        last = topic.starts[a] + topic.past[a, short] - 1
        # A tag may reach what a joiner's message follows by the state it joined with, which no log shows.
        for by_joiner, (j, _, rejoined) in zip(touched, topic.joiners, strict=True):
            keep = ~by_joiner[short] | view.after_join(last, j, rejoined)
            short, last = short[keep], last[keep]
        cause[short] = last
    short = rows[cause[rows] >= 0]
    if short.size:
        view.add("tag-mismatch", short, cause[short], topic.seq[short], topic.seq[cause[short]], reason=TAG_UNDER)


def _covered(view: View, of: Ints, dots: Ints, a: int) -> Ints:
    """Return, per message, how far into origin `a` the down-closure of its tag reaches."""
    topic = view.topic
    reach = topic.past[a, dots].astype(np.int64)
    mine = topic.owner[dots] == a
    reach[mine] = dots[mine] - topic.starts[a] + 1
    covered = np.zeros(topic.messages, dtype=np.int64)
    np.maximum.at(covered, of, reach)
    return covered
