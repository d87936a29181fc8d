"""Subscriptions that come, and end, in topics in which messages are settled (see `settled`) without a change to these.

Who unsubscribes has all of what is settled there that it is entitled to. Who subscribes for the first time, to what it
took no part in before, is entitled to nothing of it, once its log has begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.events import STABLE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.members import FOREVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns
    from causalcast.audit.settled import Settled

    Ints = NDArray[np.int64]


def turned(settled: Settled, rows: LogColumns, log: Ints) -> frozenset[tuple[str, str]] | None:
    """Return who, in which topics in which some is settled, begins a subscription by these rows.

    Returns:
        `None` where a subscription, or the end of one, may change what is settled.
    """
    at = np.flatnonzero((rows.event == SUBSCRIBE) | (rows.event == UNSUBSCRIBE))
    if at.size and not settled.subscriptions:
        return None
    words = [*rows.names, ""]
    told = np.bincount(settled.log[settled.rows.event == SUBSCRIBE], minlength=len(settled.processes))
    begun = told < settled.last
    between: dict[tuple[int, int], tuple[int, int]] = {}
    fresh: set[tuple[str, str]] = set()
    for row in at.tolist():
        place, name = (int(log[row]), int(rows.topic[row])), words[rows.topic[row]]
        if name not in settled.upto:
            continue
        process, seq = settled.processes[place[0]], int(rows.seq[row])
        concerned, ended = process in settled.concerned[name], process in settled.ended.get(name, ())
        begins = rows.event[row] == SUBSCRIBE
        if place in between or ended or concerned == begins:
            return None
        if begins and not (begun[place[0]] and name not in settled.tagged | settled.stable):
            return None
        between[place] = (seq, FOREVER) if begins else (0, seq)
        if begins:
            fresh.add((process, name))
    return frozenset(fresh) if _within(rows, log, between) else None


def _within(rows: LogColumns, log: Ints, between: dict[tuple[int, int], tuple[int, int]]) -> bool:
    """Whether the rows of logs about topics, given as pairs, stand between the given rows."""
    if not between:
        return True
    wide = len(rows.names) + 1
    pairs, bounds = np.array(sorted(between)), np.array([between[pair] for pair in sorted(between)])
    keys, about = pairs[:, 0] * wide + pairs[:, 1] + 1, np.flatnonzero(rows.event <= STABLE)
    key = log[about] * wide + rows.topic[about] + 1
    at = np.minimum(np.searchsorted(keys, key), keys.size - 1)
    mine = keys[at] == key
    seq, (low, high) = rows.seq[about[mine]], bounds[at[mine]].T
    return bool(((low < seq) & (seq < high)).all())
