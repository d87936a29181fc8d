"""Causal aggregation when members crash, or are taken for crashed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.cli.script import scripts_of
from causalcast.model import ProtocolViolationError
from causalcast.protocols import stack
from causalcast.protocols.dissemination.aggregating_repair import Again, Had, Lacking, RepairedAggregatingTree
from causalcast.protocols.ordering.aggregation import CausalMessage
from causalcast.simulation import Crash as CrashFault
from causalcast.simulation import Simulator, Suspicion, process_names
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.properties import own_tables
from causalcast.simulation.workload import Broadcasts
from causalcast.simulation.world import Crash, Receive, Suspect, World
from tests.protocols.vcube.worlds import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.protocols import Stack, WireMessage
    from causalcast.protocols.dissemination.aggregating_tree import Packet

STACKS = ["causal-aggregation", "causal-aggregation-barriers", "causal-aggregation-bundling"]
AGGREGATION = stack("causal-aggregation")
SETTINGS: list[dict[str, Any]] = [
    {"crashes": 1},
    {"crashes": 2},
    {"duplicates": True},
    {"wrong": 3},
    {"crashes": 2, "wrong": 3, "corrected": True},
]
MS = 1_000_000


def broken(made: Stack, seeds: int) -> Iterator[str]:
    """What random schedules break."""
    for seed in range(seeds):
        for settings in SETTINGS:
            run = Run(made, seed, members=3 + seed % 6, actions=14, topics=("",), **settings)
            yield from (violation.property for violation in run.run())


@pytest.mark.parametrize("name", STACKS)
def test_random_schedules_keep_what_is_promised(name: str) -> None:
    assert list(broken(stack(name), 12)) == []


class TellsNothing(RepairedAggregatingTree):
    """Mistake: only the way round the crashed is changed."""

    __slots__ = ()

    def neighbour_down(self, _: str) -> None:
        self._views_change()


class SendsOnOnce(RepairedAggregatingTree):
    """Mistake: what is known goes nowhere."""

    __slots__ = ()

    def _pass_on(self, *_: Any) -> None:
        """Nothing."""


class TrustsAll(RepairedAggregatingTree):
    """Mistake: what comes from one that is suspected goes down the tree like anything else."""

    __slots__ = ()

    def _come(self, sender: str, peer: int, messages: tuple[CausalMessage, ...], span: int) -> None:
        correct = self._membership.correct
        self._membership.correct |= 1 << peer
        super()._come(sender, peer, messages, span)
        self._membership.correct = correct


class PassesBySuspects(RepairedAggregatingTree):
    """Mistake: who is suspected gets nothing."""

    __slots__ = ()

    def _send(self, s: int, messages: list[CausalMessage]) -> None:
        if self._membership.children()[s - 1] >= 0:
            super()._send(s, messages)


class HoldsOn(RepairedAggregatingTree):
    """Mistake: what is held waits for what never goes that way."""

    __slots__ = ()

    def _let_go(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("mistake", "property_"),
    [(TellsNothing, "P2"), (SendsOnOnce, "P2"), (PassesBySuspects, "P2"), (HoldsOn, "P7")],
)
def test_random_schedules_find_the_mistake(mistake: type[RepairedAggregatingTree], property_: str) -> None:
    assert property_ in broken(replace(AGGREGATION, dissemination=mistake), 40)


def case(script: str, nodes: int, made: Stack = AGGREGATION, *, fifo: bool = True) -> Case:
    names = tuple(f"p{number}" for number in range(nodes))
    scripts = scripts_of(script, names, made)
    checked = frozenset({"P1", "P2", "P3", "P7", "P8"})
    return Case(made, names, 0, fifo=fifo, scripts=scripts, properties=checked, sizes=own_tables)


@pytest.mark.parametrize(
    ("script", "nodes", "states"),
    [
        ("p0: broadcast; p2: crash", 4, 7_199),
        ("p0: broadcast, crash; p1: broadcast", 3, 2_062),
        ("p0: broadcast; p1: broadcast; p2: suspect p3", 4, 3_633),
    ],
)
def test_every_schedule_with_a_crash_keeps_what_is_promised(script: str, nodes: int, states: int) -> None:
    outcome = explore(case(script, nodes))
    assert outcome.found is None
    assert outcome.exhausted
    assert outcome.states == states


def test_the_explorer_finds_what_is_lost_when_nobody_compares() -> None:
    outcome = explore(case("p0: broadcast; p2: crash", 4, replace(AGGREGATION, dissemination=TellsNothing)))
    assert outcome.found is not None
    assert outcome.found.violation.property == "P2"


class HidesGaps(RepairedAggregatingTree):
    """Mistake: what has come after a gap is no part of what it says it has."""

    __slots__ = ()

    def neighbour_down(self, peer: str) -> None:
        beyond, self._beyond = self._beyond, {}
        super().neighbour_down(peer)
        self._beyond = beyond


@pytest.mark.parametrize(("dissemination", "delivered"), [(RepairedAggregatingTree, 1), (TrustsAll, 0)])
def test_what_comes_late_from_one_that_crashed_goes_to_all(
    dissemination: type[RepairedAggregatingTree], delivered: int
) -> None:
    """p0 and p2, the only way to p3, crash before p1 has p0's message, and all know it."""
    made = World(replace(AGGREGATION, dissemination=dissemination), ("p0", "p1", "p2", "p3"))
    made.broadcast("p0", b"1")
    for name in ("p2", "p0"):
        made.do(Crash(name))
        made.do(Suspect("p1", name))
        made.do(Suspect("p3", name))
    made.settle()
    assert len([entry for entry in made.logs["p3"] if entry.kind == "deliver"]) == delivered


@pytest.mark.parametrize(("dissemination", "delivered"), [(RepairedAggregatingTree, 2), (HidesGaps, 1)])
def test_what_came_after_a_gap_is_told_of(dissemination: type[RepairedAggregatingTree], delivered: int) -> None:
    """p0 and p2, the only way to p3, crash. p1 has p0's second message when it hears of that, and the first later."""
    made = World(replace(AGGREGATION, dissemination=dissemination), ("p0", "p1", "p2", "p3"))
    made.broadcast("p0", b"1")
    made.broadcast("p0", b"2")
    made.do(Receive("p0", "p1", 1))
    for name in ("p2", "p0"):
        made.do(Crash(name))
        made.do(Suspect("p1", name))
        made.do(Suspect("p3", name))
    made.settle()
    assert [entry.payload for entry in made.logs["p1"] if entry.kind == "deliver"] == [b"1", b"2"]
    assert len([entry for entry in made.logs["p3"] if entry.kind == "deliver"]) == delivered


class Watched(Simulator):
    """Counts the messages of each type."""

    def watch(self) -> Counter[str]:
        self.seen: Counter[str] = Counter()
        return self.seen

    def send(self, sender: str, destinations: Any, message: WireMessage) -> None:
        self.seen[type(message).__name__] += len(destinations)
        super().send(sender, destinations, message)


def test_while_nobody_is_suspected_nothing_is_added() -> None:
    simulator = Watched(AGGREGATION, process_names(16), Broadcasts(5), seed=2)
    seen = simulator.watch()
    simulator.run()
    assert set(seen) == {"Packet"}


def test_all_who_live_deliver_the_same_after_a_crash() -> None:
    names = process_names(8)
    faults = [
        CrashFault("p3", 300 * MS),
        *(Suspicion(name, "p3", 1_300 * MS) for name in names if name != "p3"),
    ]
    simulator = Watched(AGGREGATION, names, Broadcasts(100), seed=1, faults=faults)
    seen = simulator.watch()
    delivered: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    log_event = simulator.log_event

    def log(host: Any, event: Any) -> None:
        delivered[host.name].add((event.message.tag.origin, event.message.tag.counter))
        log_event(host, event)

    simulator.log_event = log  # type: ignore[method-assign]
    simulator.run()
    assert seen["Had"] == 7 * 6
    for name in set(names) - {"p3"}:
        own = {(name, number) for number in range(1, 101)}
        others = {(peer, number) for peer in names if peer not in {name, "p3"} for number in range(1, 101)}
        assert delivered[name] >= others, name
        assert delivered[name] | own >= delivered["p3"], name


@pytest.mark.parametrize(
    "message",
    [
        Again((CausalMessage("p1", 1, (), b""),), 3),
        Again((CausalMessage("p0", 1, (), b""),), 0),
        Had((0, 0), ()),
        Had((0, -1, 0), ()),
        Had((1, 0, 0), ()),
        Had((0, 0, 0), (1,)),
        Had((0, 0, 0), (3, 1)),
        Lacking((0, 0, 0, 0)),
        Lacking((0, 1 << 60, 0)),
        CausalMessage("p1", 1, (), b""),
    ],
)
def test_what_nobody_says_is_refused(message: Packet | CausalMessage) -> None:
    made = World(AGGREGATION, ("p0", "p1", "p2"))
    made.processes["p0"].suspect("p2")
    with pytest.raises(ProtocolViolationError):
        made.processes["p0"].dissemination.receive("p1", message)  # type: ignore[attr-defined]


def test_so_many_of_each_member_are_kept() -> None:
    made = World(AGGREGATION, ("p0", "p1"))
    for number in range(2_100):
        made.processes["p0"].broadcast(b"%d" % number)
    recent = made.processes["p0"].dissemination._recent[0]  # type: ignore[attr-defined]
    assert 1_024 <= len(recent) <= 2_048
    assert recent[-1].counter == 2_100
