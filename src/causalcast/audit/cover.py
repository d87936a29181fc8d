"""What tags reach of messages that stay, by way of messages that are left out (see `settled`).

Of each origin in a topic with tags, the last settled message stays. A tag reaches all that is left out of an origin if
it reaches that one, so what is asked of a message that is left out is only which of these are in its past. An origin's
later messages have all that its earlier ones have: one number for each pair of origins tells.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from causalcast.audit.ranges import heads_of, order_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns
    from causalcast.audit.topic_clock import TopicClock

    Ints = NDArray[np.int64]

Reach: TypeAlias = "dict[str, list[tuple[int, str, int]]]"
"""By origin: from which of its numbers on its messages follow a message that stays, and that message."""


def reach_of(clock: TopicClock, ranks: Ints, before: Reach) -> Reach:
    """Return the reach of the messages of a topic that are left out: `ranks` of each origin, and those before."""
    found: Reach = {origin: [] for origin in {*clock.origins, *before}}
    for o, origin in enumerate(clock.origins):
        if ranks[o] == clock.starts[o + 1] - clock.starts[o]:
            continue
        stays = int(clock.counters[clock.starts[o] + ranks[o]])
        for a, other in enumerate(clock.origins):
            known = [each for each in before.get(other, ()) if each[1:] == (origin, stays)]
            block = clock.block(a)
            at = int(np.searchsorted(clock.past[o, block], ranks[o] + 1))
            if known:
                found[other] += known
            elif at < ranks[a]:
                found[other].append((int(clock.counters[block.start + at]), origin, stays))
    for other in before.keys() - set(clock.origins):
        found[other] = before[other]
    return {origin: sorted(reach) for origin, reach in found.items() if reach}


def without_dots(rows: LogColumns, gone: NDArray[np.bool_], reach: Mapping[str, Reach]) -> LogColumns:
    """Return rows whose tags name, for each dot that is `gone`, what stays of its past."""
    starts = np.concatenate((np.zeros(1, dtype=np.int64), rows.context_ends[:-1]))[: rows.context_ends.size]
    tag = np.repeat(np.arange(rows.context_rows.size), rows.context_ends - starts)
    lost = np.flatnonzero(gone)
    order = order_of(tag[lost], rows.context_origin[lost], rows.context_counter[lost])
    lost = lost[order]
    last = np.append(heads_of(tag[lost], rows.context_origin[lost])[1:], True)[: lost.size]
    names = {name: code for code, name in enumerate(rows.names)}
    topic = rows.topic[rows.context_rows]
    words = [*rows.names, ""]
    added: list[tuple[int, int, int]] = []
    for i in lost[last].tolist():
        mine = reach.get(words[topic[tag[i]]], {}).get(rows.names[rows.context_origin[i]], ())
        for number, name, stays in mine:
            if number <= rows.context_counter[i]:
                added.append((int(tag[i]), names.setdefault(name, len(names)), stays))
    more = np.array(added, dtype=np.int64).reshape(-1, 3)
    tag, origin, counter = (
        np.concatenate((column[~gone], fresh))
        for column, fresh in zip((tag, rows.context_origin, rows.context_counter), more.T, strict=True)
    )
    order = np.argsort(tag, kind="stable")
    return replace(
        rows,
        names=list(names),
        context_ends=np.cumsum(np.bincount(tag, minlength=rows.context_rows.size)),
        context_origin=origin[order],
        context_counter=counter[order],
    )
