"""Subscriptions that come, and end, in topics in which messages are settled (see `settled`) without a change to these.

Who unsubscribes has all of what is settled there that it is entitled to. Who subscribes, also again, is
entitled to nothing of it by that. Where tags or stability are reported, what it sends may have to do with what is
settled; so nobody may subscribe there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.events import STABLE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.members import FOREVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.clocks import Known
    from causalcast.audit.digests import Bodies
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
    before: dict[tuple[int, int], int] = {}
    fresh: set[tuple[str, str]] = set()
    for row in at.tolist():
        place, name = (int(log[row]), int(rows.topic[row])), words[rows.topic[row]]
        process, begins = settled.processes[place[0]], rows.event[row] == SUBSCRIBE
        if name not in settled.upto:
            continue
        if begins:
            fresh.add((process, name))
        if settled.quiet(name):
            continue
        concerned, ended = process in settled.concerned[name], process in settled.ended.get(name, ())
        if place in before or ended or begins or not concerned:
            return None
        before[place] = int(rows.seq[row])
    return frozenset(fresh) if _before(rows, log, before) else None


def _before(rows: LogColumns, log: Ints, last: dict[tuple[int, int], int]) -> bool:
    """Whether the rows of logs about topics, given as pairs, stand before the given rows."""
    if not last:
        return True
    wide = len(rows.names) + 1
    pairs = np.array(sorted(last))
    keys, about = pairs[:, 0] * wide + pairs[:, 1] + 1, np.flatnonzero(rows.event <= STABLE)
    key = log[about] * wide + rows.topic[about] + 1
    at = np.minimum(np.searchsorted(keys, key), keys.size - 1)
    mine = keys[at] == key
    ends = np.array([last[pair] for pair in sorted(last)], dtype=np.int64)
    return bool((rows.seq[about[mine]] < ends[at[mine]]).all())


def lacks_the_first(settled: Settled, known: Known, bodies: Bodies) -> bool:
    """Whether a process that stays in a topic from its start lacks the first message of one who is new as a sender.

    Who has that has to have all that follows; of others the messages that are left out would have to tell.
    """
    for topic, limits in settled.upto.items():
        clock = known.clock.topics.get(topic)
        if clock is None or not settled.quiet(topic):
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
