"""Subscriptions that come, and end, in topics in which messages are settled (see `settled`) without a change to these.

Who unsubscribes has all of what is settled there that it is entitled to. Who subscribes, also again, is
entitled to nothing of it by that. Where tags or stability are reported, rows of those who do not subscribe may have to
do with what is settled, and so may what one sends whose log begins with its subscription: it does not say that it came
late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.events import STABLE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.members import FOREVER
from causalcast.audit.ranges import heads_of, runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.clocks import Known
    from causalcast.audit.digests import Bodies
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.settled import Settled

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


def turned(settled: Settled, rows: LogColumns, log: Ints) -> frozenset[tuple[str, str]] | None:
    """Return who, in which topics in which some is settled, begins a subscription by these rows.

    Returns:
        `None` where a subscription, or the end of one, may change what is settled.
    """
    at = np.flatnonzero((rows.event == SUBSCRIBE) | (rows.event == UNSUBSCRIBE))
    if not settled.subscriptions:
        return None if at.size else frozenset()
    words = [*rows.names, ""]
    told: dict[tuple[int, int], list[int]] = {}
    fresh: set[tuple[str, str]] = set()
    opening = _opening(settled, rows, log)
    for row in at[np.argsort(rows.seq[at], kind="stable")].tolist():
        place, name = (int(log[row]), int(rows.topic[row])), words[rows.topic[row]]
        if name not in settled.upto:
            continue
        begins = rows.event[row] == SUBSCRIBE
        if begins:
            fresh.add((settled.processes[place[0]], name))
        if not settled.quiet(name):
            if opening[row]:
                return None
            told.setdefault(place, []).append(row)
    return frozenset(fresh) if _while_subscribed(settled, rows, log, told) else None


def _opening(settled: Settled, rows: LogColumns, log: Ints) -> Bools:
    """Mark the rows up to which a log says nothing but what its process subscribes to."""
    old, new = (np.flatnonzero(r.event == SUBSCRIBE) for r in (settled.rows, rows))
    of = np.concatenate((settled.log[old], log[new]))
    seq = np.concatenate((settled.rows.seq[old], rows.seq[new]))
    order = np.lexsort((seq, of))
    heads = np.flatnonzero(heads_of(of[order]))
    rank = np.arange(1, order.size + 1) - np.repeat(heads, np.diff(np.append(heads, order.size)))
    opens = np.zeros(order.size, dtype=bool)
    opens[order] = seq[order] == rank
    found = np.zeros(rows.seq.size, dtype=bool)
    found[new] = opens[old.size :]
    return found


def _while_subscribed(settled: Settled, rows: LogColumns, log: Ints, told: dict[tuple[int, int], list[int]]) -> bool:
    """Whether the rows of logs about topics with tags or stability stand where their processes subscribe.

    `told` has the rows that begin or end a subscription, in order, of pairs of a log and a topic.
    """
    words = [*rows.names, ""]
    told_of = np.array([name in settled.upto and not settled.quiet(name) for name in words], dtype=bool)
    about = np.flatnonzero((rows.event <= STABLE) & told_of[rows.topic])
    about = about[np.lexsort((rows.seq[about], rows.topic[about], log[about]))]
    for part in runs_of(log[about], rows.topic[about]):
        place, topic = int(log[about[part.start]]), int(rows.topic[about[part.start]])
        process, name, turns = settled.processes[place], words[topic], told.get((place, topic), [])
        here = process in settled.concerned[name] and process not in settled.ended.get(name, ())
        if here and not turns:
            continue
        # How many rows stand before each turn, and in all.
        before = [*np.searchsorted(rows.seq[about[part]], rows.seq[turns]).tolist(), part.stop - part.start]
        states = [here, *(rows.event[turns] == SUBSCRIBE).tolist()]
        if any(number > 0 and not state for number, state in zip(np.diff(before, prepend=0), states, strict=True)):
            return False
    return True


def lacks_the_first(settled: Settled, known: Known, bodies: Bodies) -> bool:
    """Whether a process that stays in a topic from its start lacks the first message of one who is new as a sender.

    Who has that has to have all that follows; of others the messages that are left out would have to tell.
    """
    for topic, limits in settled.upto.items():
        clock = known.clock.topics.get(topic)
        if clock is None or not settled.subscriptions:
            continue
        new = [a for a, origin in enumerate(clock.origins) if origin not in limits]
        firsts = {(clock.origins[a], int(clock.counters[clock.starts[a]])) for a in new}
        for process in settled.steady[topic] if firsts else ():
            if not firsts <= _met(bodies, settled.processes.index(process), topic) | _own(firsts, process):
                return True
    return False


def _own(dots: set[tuple[str, int]], process: str) -> set[tuple[str, int]]:
    return {dot for dot in dots if dot[0] == process}


def _met(bodies: Bodies, place: int, topic: str) -> set[tuple[str, int]]:
    """Return what a process delivered in its first stay in a topic."""
    log = bodies.log(place).topics.get(topic)
    if log is None:
        return set()
    ends = (mark.seq for mark in bodies.marks.of(place) if mark.event == UNSUBSCRIBE and (mark.topic or "") == topic)
    inside = log.seq < min(ends, default=FOREVER)
    origins = [bodies.names[code] for code in log.origin[inside].tolist()]
    return set(zip(origins, log.counter[inside].tolist(), strict=True))
