"""Processes that come and go where messages are settled (see `settled`) without a change to these.

Who leaves, or is evicted, has all of what is settled that it is entitled to. Who joins, also again, is entitled to
nothing of it by that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from causalcast.audit.events import EVICT, JOIN, LEAVE, SUBSCRIBE
from causalcast.audit.ranges import heads_of
from causalcast.audit.spans import NO_TIMES

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from causalcast.audit.digests import Marks
    from causalcast.audit.left_out import LeftOut
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.settled import Settled

    Ints = NDArray[np.int64]


def with_processes(settled: Settled, others: Collection[str]) -> Settled | None:
    """Return what is settled with the logs of other processes, of which no row is read yet.

    Returns:
        `None` where somebody noted before what became of one of them.
    """
    if not others:
        return settled
    if not set(others).isdisjoint(settled.rows.peers.values()):
        return None
    processes = tuple(sorted({*settled.processes, *others}))
    place = {process: i for i, process in enumerate(processes)}
    to = np.array([place[process] for process in settled.processes], dtype=np.int64)

    def spread(column: NDArray[Any], nothing: Ints | int = 0) -> NDArray[Any]:
        found = np.full((len(processes), *column.shape[1:]), nothing, dtype=column.dtype)
        found[to] = column
        return found

    return replace(
        settled,
        processes=processes,
        last=spread(settled.last),
        left_out=spread(settled.left_out),
        repeated=spread(settled.repeated),
        totals=spread(settled.totals),
        traffic=spread(settled.traffic),
        received=replace(settled.received, log=to[settled.received.log]),
        times=spread(settled.times, NO_TIMES),
        gone=spread(settled.gone),
        away=spread(settled.away),
        log=to[settled.log],
        measures=replace(settled.measures, excused=settled.measures.excused + len(others) * settled.measures.messages),
    )


def may_turn(settled: Settled, rows: LogColumns, log: Ints) -> bool:
    """Whether processes come and go, as these rows say, without a change to what is settled."""
    if settled.silent and bool((rows.event == EVICT).any()):
        return False
    fresh = settled.last == 0
    asked = np.zeros(fresh.size, dtype=bool)
    asked[log] = True
    mine = (settled.gone | fresh)[log]
    begins = _first_events(rows, log, mine, fresh.size) == JOIN
    joins = _first_events(rows, log, mine & np.isin(rows.event, (JOIN, LEAVE)), fresh.size) == JOIN
    # Who has not joined was there from the start, and had to have all that is settled.
    late = joins | settled.subscriptions
    return bool(np.where(fresh, late, ~settled.gone | (settled.away & begins))[asked].all())


def may_excuse(settled: Settled, rows: LogColumns, log: Ints) -> bool:
    """Whether somebody comes again to where something was found of tags: what they say may have come with a state."""
    words = [*rows.names, ""]
    found = np.array([name in settled.concluded.tags for name in words], dtype=bool)
    comes = (rows.event == JOIN) | ((rows.event == SUBSCRIBE) & found[rows.topic])
    return bool((comes & (settled.last[log] > 0)).any())


def _first_events(rows: LogColumns, log: Ints, among: NDArray[np.bool_], number: int) -> Ints:
    """Return the event of each log's first row `among` the rows, -1 where it has none there."""
    at = np.flatnonzero(among)
    at = at[np.lexsort((rows.seq[at], log[at]))]
    first = at[heads_of(log[at])]
    found = np.full(number, -1, dtype=np.int64)
    found[log[first]] = rows.event[first]
    return found


def standing(settled: Settled, marks: Marks) -> LeftOut:
    """Return what is to be known of messages that are left out, now that these are all rows of coming and going.

    Who joins first of all was not there before, whatever its log says of that time.
    """
    known = settled.standing
    every = {process for dues in known.dues.values() for process in dues}
    late: set[str] = set()
    for place, process in enumerate(settled.processes):
        if process in every:
            mine = slice(marks.starts[place], marks.starts[place + 1])
            turns = np.isin(marks.event[mine], (JOIN, LEAVE))
            first = marks.seq[mine][turns][:1]
            if first.size and first[0] > settled.last[place] and marks.event[mine][turns][0] == JOIN:
                late.add(process)
    if not late:
        return known
    dues = {topic: {p: each for p, each in dues.items() if p not in late} for topic, dues in known.dues.items()}
    return replace(known, dues=dues)
