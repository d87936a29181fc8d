"""Mistakes of the listings of document 002, put back: the explorer, random schedules or the count of copies finds each.

Others are beside what they break: `test_vcube_ps` has CHECKCB (algorithm 4, lines 95 to 98), SENDACKS, lines 22 to 25
and forwarders without a view.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols import stack
from causalcast.protocols.dissemination.aggregating_tree import AggregatingTree
from causalcast.protocols.dissemination.vcube_tree import VCubeTree
from causalcast.protocols.ordering.aggregation import CausalMessage, ChangedVector
from causalcast.protocols.pubsub.messages import SUB, Publication
from causalcast.protocols.pubsub.topic import Topic
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.simulation import Network, Simulator, Uniform, process_names
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.schedule import Schedule
from causalcast.simulation.shrink import shrink
from causalcast.simulation.workload import Broadcasts
from causalcast.simulation.world import Subscribe, Unsubscribe, World
from tests.protocols.vcube.worlds import Run

if TYPE_CHECKING:
    from causalcast.protocols import Stack
    from causalcast.protocols.port import BroadcastMessage

MS = 1_000_000


class LeavesOutTheFirstCluster(VCubeTree):
    """CHILDREN (algorithm 1, line 3): 1 < s."""

    __slots__ = ()

    def _send(self, span: int, message: BroadcastMessage) -> None:
        names, children = self._membership.roster.names, self._membership.children()
        destinations = tuple(names[child] for child in children[1:span] if child >= 0)
        if destinations:
            self._port.send(destinations, message)


class WaitsForItself(ChangedVector):
    """CHECKDELIVERY (algorithm 2, line 31): k may be the source of the message."""

    __slots__ = ()

    def _missing(self, message: CausalMessage, slot: int) -> tuple[int, int] | None:
        found = super()._missing(message, slot)
        return (slot, message.counter) if found is None and self._delivered[slot] < message.counter else found


@pytest.mark.parametrize(
    ("mistake", "property_", "steps"),
    [
        (replace(stack("causal-aggregation-off"), dissemination=LeavesOutTheFirstCluster), "P2", 1),
        (replace(stack("causal-aggregation"), ordering=WaitsForItself), "P2", 2),
    ],
    ids=["children", "line 31"],
)
def test_the_explorer_finds_the_mistake(mistake: Stack, property_: str, steps: int) -> None:
    names = ("p0", "p1")
    outcome = explore(Case(mistake, names, 1))
    assert outcome.found is not None
    assert outcome.found.violation.property == property_
    assert len(shrink(Schedule("", names, outcome.found.schedule), property_, stack=mistake).steps) == steps


class OncePerAdvance(AggregatingTree):
    """Algorithm 2, lines 17 to 22: CHECKAGG once for each advance of `vector_max`, what is pending included."""

    __slots__ = ()

    def _forward(self, ready: list[CausalMessage]) -> None:
        for place in range(len(ready)):
            super()._forward(ready[: place + 1])


@pytest.mark.parametrize(("dissemination", "more"), [(AggregatingTree, False), (OncePerAdvance, True)])
def test_copies_that_are_sent_again_are_counted(dissemination: type[AggregatingTree], more: bool) -> None:
    nodes = 16
    network = Network(Uniform(25 * MS, 175 * MS), fifo=False)
    made = replace(stack("causal-aggregation"), dissemination=dissemination)
    simulator = Simulator(made, process_names(nodes), Broadcasts(5, Uniform(0, 30 * MS)), network=network, seed=1)
    simulator.run()
    copies = 0
    for host in simulator.hosts.values():
        tally: Any = host.process.dissemination.tally  # type: ignore[attr-defined]
        copies += sum(size * number for size, number in tally.by_messages.items())
    assert (copies > 5 * nodes * (nodes - 1)) == more
    assert copies >= 5 * nodes * (nodes - 1)


class OnlySubIsQueued(VCubePS):
    """Algorithm 4, lines 14 and 15: PUB and UNS do not wait for the acknowledgement of what went before."""

    __slots__ = ()

    def _next(self, topic: Topic) -> None:
        if topic.queue and topic.queue[-1] != SUB:
            asked, waiting = topic.queue.pop(), topic.queue
            topic.queue = deque([asked])
            topic.busy = False
            super()._next(topic)
            topic.queue = waiting
        else:
            super()._next(topic)


def forgets_who_left(self: Topic, slot: int, number: int, subscribed: bool) -> None:
    """UPDATE (algorithm 4, lines 81 to 87): the record of who left is dropped, with its number."""
    if number > self.changes.get(slot, -1):
        self.changes[slot] = number
        self.view = self.view | 1 << slot if subscribed else self.view & ~(1 << slot)
        self._firsts = None
        if not subscribed:
            self.unaware.pop(slot, None)
            del self.changes[slot]


def broken(made: Stack, seeds: int, **settings: Any) -> set[str]:
    """What the first random schedule that breaks anything breaks."""
    for seed in range(seeds):
        topics = ("t",) if seed % 4 else ("",)
        found = Run(made, seed, members=3 + seed % 6, actions=25, topics=topics, **settings).run()
        if found:
            return {violation.property for violation in found}
    return set()


def test_random_schedules_find_that_only_sub_is_queued() -> None:
    assert broken(replace(stack("vcube-ps"), dissemination=OnlySubIsQueued), 60) & {"P2", "P3", "P8"}


@pytest.mark.parametrize("mistake", [False, True])
def test_a_repeated_sub_brings_back_who_has_left(mistake: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """p1 subscribes and leaves again, and its SUB comes to p0 once more: what p0 publishes does not go to p1."""
    if mistake:
        monkeypatch.setattr(Topic, "changed", forgets_who_left)
    made = World(stack("vcube-ps"), ("p0", "p1"))
    made.do(Subscribe("p0", "t"))
    made.settle()
    made.do(Subscribe("p1", "t"))
    (sub,) = made.in_flight["p1", "p0"]
    made.settle()
    made.do(Unsubscribe("p1", "t"))
    made.settle()
    made.in_flight["p1", "p0"].append(sub)
    made.settle()
    made.broadcast("p0", b"x", "t")
    assert any(isinstance(each, Publication) for each in made.in_flight["p0", "p1"]) == mistake
