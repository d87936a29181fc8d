"""P1: what was delivered was broadcast, once, and not altered; where each message stands in the process's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.events import NO_VALUE
from causalcast.audit.metrics import logarithm
from causalcast.audit.violations import EARLY_DELIVERY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.digests import TopicBody
    from causalcast.audit.result import FindingKind
    from causalcast.audit.view import View

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def place_deliveries(view: View, log: TopicBody) -> None:
    """Find the position of every message; report what was never broadcast and what came twice."""
    topic = view.topic
    rows = topic.locate(view.names, log.origin, log.counter)
    known = rows >= 0
    if not known.all():
        _report_phantoms(view, log, ~known)
        rows, seq = rows[known], log.seq[known].astype(np.int64)
    else:
        seq = log.seq.astype(np.int64)
    view.delivered = rows
    view.delivered_at = seq
    view.position[rows[::-1]] = seq[::-1]
    again = view.position[rows] != seq
    if again.any():
        at = np.flatnonzero(again)
        view.add("duplicate", rows[at], at=seq[at], cause_at=view.position[rows[at]])
    _measure_latency(view, log, rows, known, again)
    if view.own >= 0:
        _place_own(view, log)


def _place_own(view: View, log: TopicBody) -> None:
    block = view.topic.block(view.own)
    logged = view.topic.logged[block]
    here = view.position[block]
    sent = view.topic.seq[block]
    view.explicit = log.explicit or bool(((here > 0) & logged).any())
    if not view.explicit:
        here[logged] = sent[logged]
        return
    early = np.flatnonzero((here > 0) & logged & (here < sent)) + block.start
    if early.size:
        view.add(
            "not-broadcast",
            early,
            at=view.position[early],
            cause_at=view.topic.seq[early],
            reason=EARLY_DELIVERY,
        )


def _report_phantoms(view: View, log: TopicBody, phantom: Bools) -> None:
    at = np.flatnonzero(phantom)
    origin, counter = log.origin[at].astype(np.int64), log.counter[at].astype(np.int64)
    first = np.sort(np.unique(np.stack((origin, counter)), axis=1, return_index=True)[1])
    again = np.setdiff1d(np.arange(at.size), first)
    both: tuple[tuple[FindingKind, Ints], ...] = (("not-broadcast", first), ("duplicate", again))
    for kind, pick in both:
        if pick.size:
            view.add(
                kind,
                np.full(pick.size, -1, dtype=np.int64),
                at=log.seq[at[pick]].astype(np.int64),
                phantoms=(origin[pick], counter[pick]),
                root=np.full(pick.size, kind == "not-broadcast"),
            )


def check_payloads(view: View, log: TopicBody) -> None:
    """Report deliveries of another size than their broadcast."""
    if log.payload is None:
        return
    rows = view.topic.locate(view.names, log.origin, log.counter)
    known = (rows >= 0) & (log.payload != NO_VALUE)
    rows, payload, seq = rows[known], log.payload[known], log.seq[known].astype(np.int64)
    sent = view.topic.payload[rows]
    bad = (sent != NO_VALUE) & (sent != payload)
    if bad.any():
        rows, first = np.unique(rows[bad], return_index=True)
        view.add("altered", rows, at=seq[bad][first])


def _measure_latency(view: View, log: TopicBody, rows: Ints, known: Bools, again: Bools) -> None:
    if log.time is None:
        return
    time = log.time if known.all() else log.time[known]
    sent = view.topic.time[rows]
    use = (time != NO_VALUE) & (sent != NO_VALUE) & ~again
    if view.own >= 0:
        use &= view.topic.owner[rows] != view.own
    took = time[use] - sent[use]
    bins = logarithm(took)
    view.result.latency.add(took, bins)
    view.result.timeline.add_deliveries(view.clock.grid, sent[use], time[use], bins)
