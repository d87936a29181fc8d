"""P2 and P3: nothing before its causes, nothing without them, nothing left out.

With `past[a, m]` messages of origin `a` before message `m`, and `position[i]` the row where the process
delivered message `i` (0: never), the highest position among the causes of `m` that `a` sent is
`running_maximum(position of a's messages)[past[a, m]]`. One gather per origin therefore judges every message of a
topic at once, however indirect the dependency and whether or not what lies between was delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.violations import NO_REASON, STABLE_OUT_OF_ORDER, STABLE_SKIPPED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.result import FindingKind
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_CELLS: Final = 1_000_000
"""Cells of the clock that are looked up at once."""


def check_order(view: View, position: Ints, *, stable: bool) -> None:
    """Report messages that come before one of their causes, and those whose cause never comes."""
    topic = view.topic
    if topic.messages == 0 or not position.any():
        return
    if _in_order_by_predecessors(view, position):
        if not (stable and view.member.holes):
            _check_missing(view, position, stable=stable)
        return
    latest = _latest_cause(view, position)
    late = np.flatnonzero((latest > position) & (position > 0))
    if late.size:
        by_position = np.argsort(position, kind="stable")
        cause = by_position[np.searchsorted(position, latest[late], sorter=by_position)]
        root = first_per_cause(cause, position[late])
        if stable:
            view.add("stable-order", late, cause, position[late], latest[late], root, STABLE_OUT_OF_ORDER)
        else:
            fifo = (cause == late - 1) & (topic.owner[cause] == topic.owner[late])
            _add_late(view, "fifo-order", late[fifo], cause[fifo], root[fifo])
            _add_late(view, "causal-order", late[~fifo], cause[~fifo], root[~fifo])
    if not (stable and view.member.holes):
        _check_missing(view, position, stable=stable)


def _in_order_by_predecessors(view: View, position: Ints) -> bool:
    """Return whether no message comes before one of its causes, as far as immediate predecessors show it at once.

    A message after its predecessors is after all its past: go back along any path from a cause to it. A predecessor
    that is nowhere in the log stands for its own past, whose highest position is looked up.
    """
    edges = view.topic.predecessors
    if edges is None:
        return False
    after, before = position[edges.effect], position[edges.cause]
    if bool(((after > 0) & (before > after)).any()):
        return False
    passed = np.flatnonzero((after > 0) & (before == 0))
    if passed.size == 0:
        return True
    absent, at = np.unique(edges.cause[passed], return_inverse=True)
    return not bool((_latest_cause(view, position, absent.astype(np.int64))[at] > after[passed]).any())


def _latest_cause(view: View, position: Ints, messages: Ints | None = None) -> Ints:
    """Return, for each of `messages` (default: all), the highest position among its causes, 0 where it has none."""
    topic = view.topic
    size = topic.messages if messages is None else messages.size
    latest = np.zeros(size, dtype=position.dtype)
    step = max(1, _CELLS // size)
    for first in range(0, len(topic.origins), step):
        chosen = slice(first, min(len(topic.origins), first + step))
        running, offsets = _running_maxima(position, topic.starts[chosen.start : chosen.stop + 1])
        past = topic.past[chosen] if messages is None else topic.past[chosen, messages]
        here = running[past + offsets[:, None]]
        np.maximum(latest, here.max(axis=0), out=latest)
    return latest


def _add_late(view: View, kind: FindingKind, rows: Ints, cause: Ints, root: Bools) -> None:
    view.add(kind, rows, cause, view.position[rows], view.position[cause], root)


def _check_missing(view: View, position: Ints, *, stable: bool) -> None:
    topic = view.topic
    expected = (view.position > 0) & ~view.foreign_past() if stable else view.owed
    absent = expected & (position == 0)
    if not absent.any():
        return
    rows, cause = view.first_absent(absent, np.flatnonzero(position > 0))
    if rows.size == 0:
        return
    explained = view.stable_owed[cause] if stable else (view.owed_to_the_end & topic.owed)[cause]
    root = first_per_cause(cause, position[rows]) & ~explained
    kind: FindingKind = "stable-order" if stable else "missing-cause"
    reason = STABLE_SKIPPED if stable else NO_REASON
    view.add(kind, rows, cause, position[rows], np.zeros(rows.size, dtype=np.int64), root, reason)


def check_undelivered(view: View) -> None:
    """Report what a correct process owes and never delivered."""
    gone = view.owed_to_the_end & view.topic.owed & (view.position == 0)
    rows = np.flatnonzero(gone)
    if rows.size == 0:
        return
    because = view.explain(gone, rows)
    view.add_absent("undelivered", rows, because)


def _running_maxima(values: Ints, starts: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """Return, block after block, the maxima of the first 0, 1, 2, ... values, and where each block's part begins."""
    blocks = starts.size - 1
    sizes = np.diff(starts)
    offsets = np.cumsum(sizes + 1) - (sizes + 1)
    running = np.zeros(int(sizes.sum()) + blocks, dtype=np.int64)
    within = np.arange(int(sizes.sum())) + np.repeat(np.arange(1, blocks + 1), sizes)
    running[within] = values[starts[0] : starts[-1]]
    if blocks > 1:
        # A step that no value reaches keeps the blocks apart in one running maximum.
        steps = np.repeat(np.arange(blocks, dtype=np.int64), sizes + 1) * (int(running.max()) + 1)
        running = np.maximum.accumulate(running + steps) - steps
    else:
        np.maximum.accumulate(running, out=running)
    return running.astype(values.dtype), offsets.astype(np.int32)


def first_per_cause(cause: Ints, position: Ints) -> Bools:
    """Mark, for each cause, the violation that comes first: the others follow from what was wrong there."""
    order = np.lexsort((position, cause))
    first = np.zeros(cause.size, dtype=bool)
    heads = np.r_[True, cause[order][1:] != cause[order][:-1]] if order.size else np.zeros(0, dtype=bool)
    first[order[heads]] = True
    return first
