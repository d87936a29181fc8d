"""P5 and P6: stability is reported once, after delivery, in causal order, when nothing concurrent can come, at last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import NO_VALUE
from causalcast.audit.members import FOREVER
from causalcast.audit.metrics import logarithm
from causalcast.audit.order import check_order, first_per_cause
from causalcast.audit.ranges import portions
from causalcast.audit.topic_clock import NEVER
from causalcast.audit.violations import (
    CONCURRENT_AFTER_STABLE,
    STABLE_BEFORE_DELIVERY,
    STABLE_UNDELIVERED,
    TWICE_STABLE,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.digests import TopicBody
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_EXACT_WITNESSES: Final = 20_000
"""Premature stability reports of one process whose witness is looked for; any more stand without one."""


def check_stability(view: View) -> None:
    """Judge the stability reports, and those that are absent."""
    topic, log = view.topic, view.log
    stable = np.zeros(topic.messages, dtype=np.int64)
    if log is not None and log.stable_origin.size:
        rows = topic.locate(view.names, log.stable_origin, log.stable_counter)
        seq = log.stable_seq.astype(np.int64)
        phantom = rows < 0
        if phantom.any():
            view.add(
                "stable-order",
                rows[phantom],
                at=seq[phantom],
                reason=STABLE_UNDELIVERED,
                phantoms=(log.stable_origin[phantom], log.stable_counter[phantom]),
            )
        _measure_stability(view, log, rows)
        rows, seq = rows[~phantom], seq[~phantom]
        stable[rows[::-1]] = seq[::-1]
        again = stable[rows] != seq
        if again.any():
            view.add("stable-order", rows[again], at=seq[again], cause_at=stable[rows[again]], reason=TWICE_STABLE)
    view.stable_owed = _stability_owed(view)
    given = np.flatnonzero(stable)
    # What came with the state that a joiner took over is not delivered there, and may become stable there.
    never = given[(view.position[given] == 0) & (view.owed[given] | (not view.arrivals))]
    if not view.member.holes:
        view.add("stable-order", never, at=stable[never], reason=STABLE_UNDELIVERED)
    early = given[(view.position[given] > stable[given])]
    view.add("stable-order", early, at=stable[early], cause_at=view.position[early], reason=STABLE_BEFORE_DELIVERY)
    check_order(view, stable, stable=True)
    _check_soundness(view, stable, given)
    missing = np.flatnonzero(view.stable_owed & (view.position > 0) & (stable == 0))
    if missing.size:
        gone = np.zeros(topic.messages, dtype=bool)
        gone[missing] = True
        because = view.explain(gone, missing)
        view.add_absent("unstable", missing, because, view.position[missing].astype(np.int64))


def _stability_owed(view: View) -> Bools:
    topic, member = view.topic, view.member
    open_to_the_end = bool(view.spans) and view.spans[-1].end == FOREVER
    if not topic.stability_owed or not member.correct or not open_to_the_end or member.holes:
        return np.zeros(topic.messages, dtype=bool)
    return ~view.foreign_past()


def _check_soundness(view: View, stable: Ints, given: Ints) -> None:
    """Report messages after whose stability something concurrent with them was delivered."""
    topic = view.topic
    if given.size == 0:
        return
    order = np.flatnonzero(view.position)
    order = order[np.argsort(view.position[order], kind="stable")]
    judged = order[~topic.in_doubt[order]]
    # What a joiner sends may follow, by the state it joined with, what its log never shows. Against a message that
    # may have been in that state, only what no joiner had a part in can be called concurrent.
    settled, untouched = np.ones(given.size, dtype=bool), np.ones(judged.size, dtype=bool)
    for part in portions(given.size, len(topic.joiners)):
        settled[part] = view.after_joins(given[part], topic.joiners, last=True).all(axis=0)
    for part in portions(judged.size, len(topic.joiners)):
        untouched[part] = ~view.after_joins(judged[part], topic.joiners).any(axis=0)
    found = _premature(view, stable, given[settled], judged)
    found += _premature(view, stable, given[~settled], judged[untouched])
    if found:
        pairs = np.array(found, dtype=np.int64)
        rows, cause = pairs[:, 0], pairs[:, 1]
        cause_at = np.where(cause >= 0, view.position[cause], 0)
        root = first_per_cause(cause, stable[rows])
        view.add("stable-order", rows, cause, stable[rows], cause_at, root, CONCURRENT_AFTER_STABLE)


def _premature(view: View, stable: Ints, given: Ints, judged: Ints) -> list[tuple[int, int]]:
    """Return messages of `given` and, for each, the first concurrent one of `judged` delivered after its report."""
    topic = view.topic
    at = view.position[judged]
    suspects: list[int] = []
    for a in np.unique(topic.owner[given]).tolist():
        block = topic.block(a)
        mine = given[(given >= block.start) & (given < block.stop)]
        least = np.minimum.accumulate(topic.past[a][judged][::-1])[::-1]
        after = np.searchsorted(at, stable[mine], side="right")
        floor = np.append(least, NEVER)[after]
        suspects.extend(mine[floor < mine - block.start + 1].tolist())
    found = [(row, _concurrent_after(view, row, int(stable[row]), judged, at)) for row in suspects[:_EXACT_WITNESSES]]
    found.extend((row, -1) for row in suspects[_EXACT_WITNESSES:])
    return [(row, witness) for row, witness in found if witness is not None]


def _concurrent_after(view: View, row: int, seq: int, judged: Ints, at: Ints) -> int | None:
    topic = view.topic
    owner = int(topic.owner[row])
    later = judged[int(np.searchsorted(at, seq, side="right")) :]
    after = topic.past[owner, later] > row - topic.starts[owner]
    owners = topic.owner[later]
    before = topic.past[owners, row] > later - topic.starts[owners]
    hits = np.flatnonzero(~after & ~before & (later != row))
    return int(later[hits[0]]) if hits.size else None


def _measure_stability(view: View, log: TopicBody, rows: Ints) -> None:
    """Measure from the delivery here to the report here: one clock, so no skew."""
    if log.stable_time is None:
        return
    # The last place is that of what is not in the universe, whose row is -1.
    delivered = np.full(view.topic.messages + 1, NO_VALUE, dtype=np.int64)
    if view.own >= 0:
        block = view.topic.block(view.own)
        delivered[block] = view.topic.time[block]
    if log.time is not None:
        at = view.topic.locate(view.names, log.origin, log.counter)
        keep = (at >= 0) & (log.time != NO_VALUE)
        delivered[at[keep][::-1]] = log.time[keep][::-1]
    since = delivered[rows]
    use = (since != NO_VALUE) & (log.stable_time != NO_VALUE)
    took = log.stable_time[use] - since[use]
    bins = logarithm(took)
    view.result.stability_delay.add(took, bins)
    view.result.timeline.add_stability(view.clock.grid, since[use], log.stable_time[use], bins)
