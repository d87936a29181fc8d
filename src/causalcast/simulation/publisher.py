"""The application of `Publications`: it subscribes, publishes by Zipf's law, and comes and goes."""

from __future__ import annotations

import random
from bisect import bisect_right
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from causalcast.model import Subscribed
from causalcast.simulation.portable import choose, exp, ln

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import Event, ProcessId, Roster
    from causalcast.simulation.host import SimulatedHost
    from causalcast.simulation.workload import Publications


def zipf_weights(topics: Sequence[int], exponent: float) -> list[float]:
    """For each rank, its weight and those of all before it: (rank + 1) ** -exponent, added up."""
    return list(accumulate(exp(-exponent * ln(rank + 1.0)) for rank in topics))


class Change(NamedTuple):
    """A process begins or ends its subscription."""

    time_ns: int
    topic: int
    subscribes: bool


@lru_cache(maxsize=2)
def subscriptions(workload: Publications, roster: Roster, seed: int) -> dict[ProcessId, tuple[Change, ...]]:
    """What each process does about its subscriptions, in order of time."""
    changes: dict[ProcessId, list[Change]] = {name: [] for name in roster}
    count = len(roster) if workload.subscribers is None else min(workload.subscribers, len(roster))
    for topic in range(workload.topics):
        source = random.Random(f"{seed}=subscribers/{topic}")
        order = choose(source, roster.names, len(roster))
        inside, outside = order[:count], order[count:]
        for name in inside:
            changes[name].append(Change(0, topic, True))
        if workload.session is None or workload.until_ns is None:
            continue
        session = workload.session
        ends = [(workload.begin_ns + session.draw(source), place, name) for place, name in enumerate(inside)]
        heapify(ends)
        place = len(ends)
        while ends and ends[0][0] < workload.until_ns and outside:
            time_ns, _, name = heappop(ends)
            changes[name].append(Change(time_ns, topic, False))
            which = int(source.random() * len(outside))
            other, outside[which] = outside[which], name
            changes[other].append(Change(time_ns, topic, True))
            heappush(ends, (time_ns + max(session.draw(source), 1), place, other))
            place += 1
    return {name: tuple(sorted(mine)) for name, mine in changes.items()}


@lru_cache(maxsize=2)
def starters(workload: Publications, roster: Roster, seed: int) -> tuple[tuple[ProcessId, ...], ...]:
    """For each topic, who subscribes to it from the start."""
    found: list[list[ProcessId]] = [[] for _ in range(workload.topics)]
    for name, changes in subscriptions(workload, roster, seed).items():
        for change in changes:
            if not change.time_ns:
                found[change.topic].append(name)
    return tuple(map(tuple, found))


class Publisher:
    """A process of `Publications`."""

    def __init__(self, workload: Publications, name: ProcessId, roster: Roster, seed: int) -> None:
        self._workload = workload
        self._random = random.Random(f"{seed}=workload/{name}")
        self._changes = subscriptions(workload, roster, seed).get(name, ())
        self._starters = starters(workload, roster, seed) if workload.preset else ()
        publishes = workload.publishers is None or name in roster.names[: workload.publishers]
        self._left = workload.messages if publishes else 0
        self._open: list[int] = [] if workload.subscribers_only else list(range(workload.topics))
        """Topics that it may publish to."""
        self._weights = zipf_weights(self._open, workload.exponent)
        self._asked: set[int] = set()
        """Topics that it has asked for, and not since for no more of."""

    def start(self, host: SimulatedHost) -> None:
        changes = self._changes
        if self._workload.preset:
            changes = tuple(change for change in changes if change.time_ns)
            self._asked.update(change.topic for change in self._changes if not change.time_ns)
            for topic, names in enumerate(self._starters):
                host.preset(f"t{topic}", names)
        for change in changes:
            if change.time_ns <= host.now_ns():
                self._make(host, change)
            else:
                host.call_after(change.time_ns - host.now_ns(), partial(self._make, host, change))
        self._schedule(host, max(self._workload.begin_ns - host.now_ns(), 0))

    def receive(self, host: SimulatedHost, event: Event) -> None:
        if self._workload.subscribers_only and isinstance(event, Subscribed):
            topic = int(event.topic[1:])
            if topic in self._asked:
                self._reopen([*self._open, topic])

    def _make(self, host: SimulatedHost, change: Change) -> None:
        topic = f"t{change.topic}"
        if change.subscribes:
            self._asked.add(change.topic)
            host.subscribe(topic)
            return
        # Whoever asks for no more of a topic has said its last word there.
        self._asked.discard(change.topic)
        if self._workload.subscribers_only:
            self._reopen([each for each in self._open if each != change.topic])
        host.unsubscribe(topic)

    def _reopen(self, topics: list[int]) -> None:
        self._open = sorted(topics)
        self._weights = zipf_weights(self._open, self._workload.exponent)

    def _schedule(self, host: SimulatedHost, wait_ns: int = 0) -> None:
        if self._left:
            host.call_after(wait_ns + self._workload.interval.draw(self._random), lambda: self._publish(host))

    def _publish(self, host: SimulatedHost) -> None:
        self._left -= 1
        draw = self._random.random()
        if self._open:
            rank = bisect_right(self._weights, draw * self._weights[-1])
            host.broadcast(bytes(self._workload.payload_bytes), f"t{self._open[rank]}")
        self._schedule(host)
