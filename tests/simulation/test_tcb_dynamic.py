"""Members of `tcb-dynamic` come and go: every schedule of small cases, and runs of the simulator with 50."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causalcast.model import Delivered, Event, MembershipChanged, NotAMemberError
from causalcast.protocols import stack
from causalcast.simulation import (
    NS_PER_MS,
    Churn,
    Crash,
    Fault,
    Join,
    Leave,
    Partition,
    SimulatedHost,
    Simulator,
    Suspicion,
    process_names,
)
from causalcast.simulation import steps as step
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.properties import own_tables
from tests.protocols.overlay.judged import Judge, Seen, hash_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster

STACK = stack("tcb-dynamic")
MS = NS_PER_MS
S = 1_000 * MS

NAMES = ("p0", "p1", "p2")
JOIN = {"p2": (step.Join("p2", "p0"),)}

CASES = {
    "join": {"scripts": JOIN, "broadcasts": (0, 1, 0)},
    "two joins through one contact": {"scripts": {**JOIN, "p1": (step.Join("p1", "p0"),)}},
    "leave": {"scripts": {"p1": (step.Leave("p1"),)}},
    "join and leave": {"scripts": {**JOIN, "p1": (step.Leave("p1"),)}},
    "join, broadcast, leave": {"scripts": {"p2": (*JOIN["p2"], step.Leave("p2"))}},
    # Who asks one that is gone already is told by nobody but its host: then its join is never complete.
    "join through one that leaves": {
        "scripts": {**JOIN, "p0": (step.Leave("p0"),)},
        "properties": STACK.promises - {"P8"},
    },
    "evict": {"scripts": {"p0": (step.Suspect("p0", "p1"),)}, "crashes": (0, 1, 0), "broadcasts": (0, 1, 0)},
    "join and evict": {"scripts": {**JOIN, "p0": (step.Suspect("p0", "p1"),)}, "crashes": (0, 1, 0)},
    "leave and evict": {
        "scripts": {"p2": (step.Leave("p2"),), "p0": (step.Suspect("p0", "p1"),)},
        "crashes": (0, 1, 0),
    },
    "the contact crashes": {
        "scripts": {
            "p2": (*JOIN["p2"], step.Suspect("p2", "p0")),
            "p1": (step.Suspect("p1", "p0"), step.Suspect("p1", "p2")),
        },
        "crashes": (1, 0, 0),
    },
    "the joiner crashes": {"scripts": {**JOIN, "p0": (step.Suspect("p0", "p2"),)}, "crashes": (0, 0, 1)},
    "two evict the same": {
        "scripts": {"p0": (step.Suspect("p0", "p2"),), "p1": (step.Suspect("p1", "p2"),)},
        "crashes": (0, 0, 1),
    },
    "two are evicted": {
        "scripts": {"p0": (step.Suspect("p0", "p1"), step.Suspect("p0", "p2"))},
        "crashes": (0, 1, 1),
    },
    "two evict each other": {"scripts": {"p0": (step.Suspect("p0", "p1"),), "p1": (step.Suspect("p1", "p0"),)}},
    "a wrongly evicted one is alive": {"scripts": {"p0": (step.Suspect("p0", "p1"),)}, "broadcasts": (0, 1, 0)},
}
"""All over links that keep order, with applications that take at once what there is: a larger case takes minutes."""


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_of_three(name: str) -> None:
    settings = {"broadcasts": 0, "fifo": True, "prompt": Promptness.ALL, "sizes": own_tables, **CASES[name]}
    outcome = explore(Case(STACK, NAMES, **settings), limit=60_000)  # type: ignore[arg-type] # by name
    assert outcome.found is None, outcome.found
    assert outcome.exhausted


@pytest.mark.parametrize(
    ("name", "who"),
    [("two joins through one contact", 2), ("join and evict", 1), ("leave and evict", 1), ("two evict the same", 0)],
)
def test_every_schedule_of_three_one_of_whom_restarts(name: str, who: int) -> None:
    settings = {"broadcasts": 0, "fifo": True, "prompt": Promptness.ALL, "sizes": own_tables, **CASES[name]}
    restarts = tuple(int(place == who) for place in range(3))
    outcome = explore(Case(STACK, NAMES, restarts=restarts, **settings), limit=60_000)  # type: ignore[arg-type]
    assert outcome.found is None, outcome.found
    assert outcome.exhausted


class Talker:
    """Broadcasts at some times while it is a member, and has all it sees judged."""

    def __init__(self, name: ProcessId, judge: Judge, times: Sequence[int]) -> None:
        self.name, self.judge, self.times = name, judge, times

    def start(self, host: SimulatedHost) -> None:
        self.judge.seen.setdefault(self.name, Seen()).since = len(self.judge.pasts)
        for time in self.times:
            if time >= host.now_ns():
                host.call_after(time - host.now_ns(), lambda: self.say(host))

    def say(self, host: SimulatedHost) -> None:
        try:
            tag = host.broadcast(b"x")
        except NotAMemberError:
            return
        self.judge.broadcast(self.name, tag.counter)

    def receive(self, host: SimulatedHost, event: Event) -> None:
        if isinstance(event, Delivered):
            tag = event.message.tag
            self.judge.seen.setdefault(self.name, Seen())
            self.judge.deliver(self.name, tag.origin, tag.counter)
        elif isinstance(event, MembershipChanged) and self.name in (*event.left, *event.evicted):
            self.judge.seen.setdefault(self.name, Seen()).since = None


class Talk:
    def __init__(self, judge: Judge, times: Sequence[int]) -> None:
        self.judge, self.times = judge, times

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Talker:
        shift = hash_of(f"{name}{seed}") % 97 * MS
        return Talker(name, self.judge, [time + shift for time in self.times])


def run(nodes: int, faults: Sequence[Fault], *, seed: int, seconds: int, each_ms: int) -> tuple[Simulator, Judge]:
    """Everyone broadcasts once in `each_ms`; then there is time for all to come to rest."""
    judge = Judge()
    names = process_names(nodes)
    times = [number * each_ms * MS for number in range(1, 1_000 * seconds // each_ms)]
    simulator = Simulator(STACK, names, Talk(judge, times), seed=seed, faults=faults)
    simulator.run(until_ns=(seconds + 60) * S)
    judge.ended([name for name, host in simulator.hosts.items() if not host.absent], [])
    return simulator, judge


def at_rest(simulator: Simulator) -> dict[ProcessId, str]:
    """Who is there at the end, after all that must be so was looked at: P6 by the empty graphs, P7, P8."""
    there = {name: host.process.membership for name, host in simulator.hosts.items() if not host.absent}
    for name, membership in there.items():
        assert sorted((name, *membership.others)) == sorted(there), name
        assert set(simulator.hosts[name].process.tables().values()) == {0}, name
        assert simulator.hosts[name].process.unstable == 0
    return {name: membership.state for name, membership in there.items()}


def with_suspicions(faults: Sequence[Fault], by: Sequence[ProcessId], after_ns: int) -> list[Fault]:
    """The faults, and who finds out about each crash, one after the other."""
    told = [
        Suspicion(name, fault.process, fault.at_ns + after_ns + place * MS)
        for fault in faults
        if isinstance(fault, Crash)
        for place, name in enumerate(by)
        if name != fault.process
    ]
    return [*faults, *told]


def test_fifty_members_of_whom_many_come_and_go() -> None:
    churn = Churn(12 * S, at_ns=200 * MS, for_ns=1 * S)
    simulator, judge = run(50, [churn], seed=1, seconds=2, each_ms=600)
    assert (dict(judge.faults), judge.first) == ({}, "")
    assert set(at_rest(simulator).values()) == {"member"}
    assert len(at_rest(simulator)) == 50
    assert simulator.counters.joins == simulator.counters.leaves >= 3


def test_members_crash_and_others_come_meanwhile() -> None:
    names = process_names(10)
    faults: list[Fault] = [
        Partition((("p3",),), 400 * MS, 60 * S),
        Crash("p3", 700 * MS),
        Crash("p5", 800 * MS),
        Join("x", 790 * MS, "p5"),
        Join("y", 900 * MS, "p6"),
        Join("z", 1_000 * MS, "p7"),
        Leave("p8", 1_000 * MS),
        Suspicion("x", "p5", 1_200 * MS),
    ]
    simulator, judge = run(10, with_suspicions(faults, names[:2], 300 * MS), seed=3, seconds=3, each_ms=200)
    assert (dict(judge.faults), judge.first) == ({}, "")
    assert set(at_rest(simulator).values()) == {"member"}
    assert {"y", "z"} <= set(at_rest(simulator))


def recoveries(names: Sequence[ProcessId], seed: int, within_ms: int) -> list[Fault]:
    """Twelve crashes, each for up to 400 ms, of one or another."""
    return [
        Crash(
            names[hash_of(f"who{seed}/{number}") % len(names)],
            (100 + hash_of(f"when{seed}/{number}") % within_ms) * MS,
            (1 + hash_of(f"how long{seed}/{number}") % 400) * MS,
        )
        for number in range(12)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_members_recover_while_others_come_go_and_crash_for_good(seed: int) -> None:
    names = process_names(8)
    faults: list[Fault] = [
        *recoveries([*names[:7], "x", "y"], seed, 1_500),
        Crash("p7", 700 * MS),
        Join("x", 400 * MS, "p1"),
        Join("y", 650 * MS, "p7"),
        Join("z", 900 * MS, "p3"),
        Leave("p5", 800 * MS),
    ]
    told = [Suspicion(by, of, 1_200 * MS) for by in names[:2] for of in ("p7", "y")]
    simulator, judge = run(8, [*faults, *told], seed=seed, seconds=3, each_ms=200)
    assert (dict(judge.faults), judge.first) == ({}, "")
    assert set(at_rest(simulator).values()) == {"member"}
    assert {*names[:5], "p6", "x", "z"} <= set(at_rest(simulator))
