"""The application of `Stream`: subscribers from the start, and one publication after the other by one of them."""

from __future__ import annotations

import random
from functools import lru_cache, partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.model import Subscribed
from causalcast.simulation.portable import choose

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Roster
    from causalcast.simulation.host import SimulatedHost
    from causalcast.simulation.workload import Stream

TOPIC: Final = "t0"


class Act(NamedTuple):
    """What a process does, and when: it subscribes (1), subscribes no longer (0), or publishes (2)."""

    time_ns: int
    what: int


SUBSCRIBES, LEAVES, PUBLISHES = 1, 0, 2


class Plan(NamedTuple):
    """A stream drawn out."""

    inside: tuple[ProcessId, ...]
    """Who subscribes from the start, as chosen."""
    subscribers: frozenset[ProcessId]
    """The same, to look for somebody."""
    acts: dict[ProcessId, list[Act]]
    """In order of time, of those who do anything later."""


@lru_cache(maxsize=2)
def plan(stream: Stream, roster: Roster, seed: int) -> Plan:
    """Who does what when."""
    source = random.Random(f"{seed}=stream")
    order = choose(source, roster.names[stream.spared :], len(roster) - stream.spared)
    count = len(order) if stream.subscribers is None else min(stream.subscribers, len(order))
    start, outside = tuple(order[:count]), order[count:]
    inside = list(start)
    acts: dict[ProcessId, list[Act]] = {}
    places = range(count)
    ends: list[tuple[int, int]] = []
    """When the subscription at each place of `inside` is over."""
    if stream.session is not None and outside:
        ends = [(stream.begin_ns + stream.session.draw(source), place) for place in places]
        heapify(ends)
    now = stream.begin_ns
    for _ in range(stream.messages if inside else 0):
        now += stream.interval.draw(source)
        while ends and ends[0][0] <= now:
            assert stream.session is not None
            time_ns, place = heappop(ends)
            acts.setdefault(inside[place], []).append(Act(time_ns, LEAVES))
            which = int(source.random() * len(outside))
            inside[place], outside[which] = outside[which], inside[place]
            acts.setdefault(inside[place], []).append(Act(time_ns, SUBSCRIBES))
            heappush(ends, (time_ns + max(stream.session.draw(source), 1), place))
        publisher = inside[int(source.random() * len(inside))]
        acts.setdefault(publisher, []).append(Act(now, PUBLISHES))
    return Plan(start, frozenset(start), acts)


class Streamer:
    """A process of `Stream`."""

    def __init__(self, stream: Stream, name: ProcessId, roster: Roster, seed: int) -> None:
        drawn = plan(stream, roster, seed)
        self._inside = drawn.inside
        self._acts = drawn.acts.get(name, [])
        self._payload_bytes = stream.payload_bytes
        self._asked = name in drawn.subscribers
        self._complete = False
        """Whether it subscribes, and that is complete."""

    def start(self, host: SimulatedHost) -> None:
        host.preset(TOPIC, self._inside)
        for act in self._acts:
            host.call_after(act.time_ns - host.now_ns(), partial(self._do, host, act.what))

    def receive(self, host: SimulatedHost, event: Event) -> None:
        if isinstance(event, Subscribed):
            self._complete = self._asked

    def _do(self, host: SimulatedHost, what: int) -> None:
        if what == SUBSCRIBES:
            self._asked = True
            host.subscribe(TOPIC)
        elif what == LEAVES:
            self._asked = self._complete = False
            host.unsubscribe(TOPIC)
        elif self._complete:
            host.broadcast(bytes(self._payload_bytes), TOPIC)
