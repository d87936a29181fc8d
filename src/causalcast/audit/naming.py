"""What findings name, where it is looked for what is settled (see `settled`).

A finding about messages that are left out is *concluded*: no row to come changes it. One that names a message that is
not left out is found again in a later run, by what is left; so it must name no other. Nor must what it names be before
what is left out: its picture would have that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from causalcast.audit.judgement import Judged
    from causalcast.audit.settled import Limits
    from causalcast.audit.topic_clock import TopicClock
    from causalcast.audit.violations import Replay, Violations

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class Naming:
    """What was found in one topic."""

    def __init__(self, clock: TopicClock, found: Iterable[Violations]) -> None:
        self.clock = clock
        self.rank = np.arange(clock.messages) - clock.starts[clock.owner]
        held = [np.zeros(0, dtype=np.int64)]
        pairs = [np.zeros((2, 0), dtype=np.int64)]
        for part in found:
            if part.conclusive:
                pairs.append(np.stack((part.message, part.cause)))
            else:
                held += part.named()
        every = np.concatenate(held)
        self.held = every[every >= 0]
        """Messages that cannot be settled."""
        self.pairs = np.concatenate(pairs, axis=1)
        self.every = self.pairs[self.pairs >= 0]

    def torn(self, left: Ints, stays: Bools) -> Ints:
        """Return the messages that are left out, or stay, and must not, since a finding names two, not both left out.

        Args:
            left: how many of each origin's messages are left out.
            stays: of which origins the next one stays, as the last settled one.
        """
        owner = self.clock.owner
        some = self.pairs >= 0
        out = some & (self.rank < left[owner])[self.pairs]
        staying = some & ((self.rank == left[owner]) & stays[owner])[self.pairs]
        wrong = (out | staying) & some.all(axis=0) & ~out.all(axis=0)
        torn: Ints = self.pairs[wrong]
        return torn


def split(judged: Judged, upto: Limits) -> tuple[list[Replay], list[Replay]]:
    """Return what was found of messages that are left out, by topic and origin up to these numbers, and the rest."""
    topics = judged.known.clock.topics
    out = {topic: _out(topics[topic], limits) for topic, limits in upto.items() if topic in topics}
    concluded: list[Replay] = []
    rest: list[Replay] = []
    for replay in judged.closely:
        chosen = [_concluded(part, out) for part in replay.violations]
        for those, to in ((chosen, concluded), ([~each for each in chosen], rest)):
            parts = [part.those(some) for part, some in zip(replay.violations, those, strict=True) if some.any()]
            if parts:
                to.append(replace(replay, violations=parts))
    return concluded, rest


def _concluded(part: Violations, out: Mapping[str, Bools]) -> Bools:
    chosen = np.zeros(len(part), dtype=bool)
    if part.topic in out and part.conclusive:
        named = np.stack(part.named())
        chosen |= (out[part.topic][named] | (named < 0)).all(axis=0)
    return chosen


def _out(clock: TopicClock, limits: Mapping[str, int]) -> Bools:
    most = np.array([limits.get(origin, 0) for origin in clock.origins], dtype=np.int64)
    out: Bools = clock.counters <= most[clock.owner]
    return out
