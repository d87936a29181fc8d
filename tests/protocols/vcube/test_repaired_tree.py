"""Repaired trees and VCube's diagnosis: crashes in the middle of a broadcast, repeated ones, wrong suspicions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols import stack
from causalcast.protocols.hypercube_stacks import REPAIRED_STACKS, CausalTree
from causalcast.simulation import Network, Uniform, process_names
from causalcast.simulation.faults import Crash as CrashFault
from causalcast.simulation.simulator import Simulator
from causalcast.simulation.workload import Broadcasts
from causalcast.simulation.world import Crash, Receive, Suspect, World
from tests.protocols.vcube.worlds import Run, sizes

if TYPE_CHECKING:
    from causalcast.protocols.membership.diagnosis import DiagnosedVCube

STACKS = [each.name for each in REPAIRED_STACKS]
NAMES = [f"p{i}" for i in range(8)]
MS = 1_000_000
SECOND = 1_000 * MS


def world(name: str) -> World:
    return World(replace(stack(name), dynamic=True), NAMES)


def delivered(made: World) -> set[str]:
    return {name for name in NAMES if any(entry.kind == "deliver" for entry in made.logs[name])}


def test_a_child_that_crashes_is_replaced_by_the_next_of_its_cluster() -> None:
    made = world("vcube-tree")
    made.broadcast("p0", b"x")
    made.do(Crash("p4"))
    made.do(Suspect("p0", "p4"))
    assert [receiver for (sender, receiver), messages in made.in_flight.items() if sender == "p0" and messages] == [
        "p1",
        "p2",
        "p5",
    ]
    made.settle()
    assert delivered(made) == set(NAMES) - {"p0", "p4"}


def test_the_heirs_bring_what_a_crashed_source_left_unfinished() -> None:
    """p0 and its children p1 and p2 crash; only p4 has the message."""
    made = world("vcube-tree")
    made.broadcast("p0", b"x")
    made.do(Receive("p0", "p4"))
    for name in ("p0", "p1", "p2"):
        made.do(Crash(name))
    made.settle()
    assert delivered(made) == {"p3", "p4", "p5", "p6", "p7"}
    for name in ("p3", "p4", "p5", "p6", "p7"):
        assert not any(sizes(made.processes[name]).values())


def test_the_root_of_a_single_tree_that_crashes_is_replaced() -> None:
    made = world("single-tree")
    made.broadcast("p5", b"x")
    made.do(Receive("p5", "p0"))
    made.do(Crash("p0"))
    for messages in (made.in_flight["p0", receiver] for receiver in ("p1", "p2", "p4")):
        messages.clear()
    made.settle()
    assert delivered(made) == set(NAMES) - {"p0", "p5"}


def test_a_wrong_suspicion_loses_nothing() -> None:
    made = world("vcube-tree")
    for name in NAMES[1:]:
        made.do(Suspect(name, "p0"))
    for name in NAMES[:-1]:
        made.do(Suspect(name, "p7"))
    made.broadcast("p0", b"x")
    made.broadcast("p7", b"y")
    made.settle()
    for name in NAMES:
        seen = {entry.payload for entry in made.logs[name] if entry.kind in {"deliver", "broadcast"}}
        assert seen == {b"x", b"y"}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("settings", [{"crashes": 2}, {"crashes": 1, "wrong": 3}, {"duplicates": True}], ids=str)
def test_random_schedules_keep_what_is_promised(name: str, settings: Any) -> None:
    for seed in range(8):
        run = Run(stack(name), seed, members=3 + seed % 5, actions=12, topics=("",), **settings)
        assert run.run() == [], seed


class NeverAgain(CausalTree):
    """Mistake: what a suspected source left is its own affair."""

    __slots__ = ()

    def _hand(self, key: Any) -> None:
        """Nobody is an heir."""


def test_without_heirs_a_message_is_lost() -> None:
    made = World(replace(stack("vcube-tree"), dissemination=NeverAgain, dynamic=True), NAMES)
    made.broadcast("p0", b"x")
    made.do(Receive("p0", "p4"))
    for name in ("p0", "p1", "p2"):
        made.do(Crash(name))
    for name in NAMES[3:]:
        for crashed in ("p0", "p1", "p2"):
            made.do(Suspect(name, crashed))
    for _ in range(2_000):
        steps = [step for step in made.enabled(fifo=True) if not hasattr(step, "timer")]
        if not steps:
            break
        made.do(steps[0])
    assert delivered(made) < {"p3", "p4", "p5", "p6", "p7"}


# -------------------------------------------------------------------------------------------------------- diagnosis


def memberships(simulator: Simulator) -> dict[str, DiagnosedVCube]:
    return {name: host.process.membership for name, host in simulator.hosts.items()}  # type: ignore[attr-defined]


def rounds_to_detect(nodes: int, victim: int) -> dict[str, int]:
    """After how many rounds each survivor suspects the crashed member, everyone watching throughout."""
    names = process_names(nodes)
    simulator = Simulator(
        stack("vcube-tree"),
        names,
        Broadcasts(0),
        network=Network(Uniform(MS, 10 * MS)),
        faults=(CrashFault(names[victim], 1_500 * MS),),
    )
    there = memberships(simulator)
    for membership in there.values():
        membership.watch(True)
    found: dict[str, int] = {}
    d = (nodes - 1).bit_length()

    def look() -> None:
        number = -(-(simulator.queue.now - 2 * SECOND) // SECOND)
        for name, membership in there.items():
            if name != names[victim] and not membership.correct >> victim & 1:
                found.setdefault(name, number)

    for number in range(2, 4 + d * d):
        simulator.queue.push(number * SECOND + 500 * MS, lambda _, __: look())
    simulator.run(until_ns=(5 + d * d) * SECOND)
    return found


@pytest.mark.parametrize("nodes", [8, 13, 32])
def test_section_2_4_all_learn_of_a_crash_within_log_squared_rounds(nodes: int) -> None:
    d = (nodes - 1).bit_length()
    found = rounds_to_detect(nodes, nodes // 2)
    assert len(found) == nodes - 1
    assert max(found.values()) <= d * d
    assert sum(found.values()) / len(found) <= d


def test_a_round_is_log_n_tests_and_they_end_with_their_use() -> None:
    network = Network(Uniform(MS, 10 * MS))
    done = Simulator(stack("vcube-tree"), process_names(16), Broadcasts(1), network=network, seed=1).run()
    assert done.deliveries == 16 * 15
    copies = 2 * 16 * 15 + 16 * 15
    assert copies <= done.sends <= copies + 2 * 16 * 4 * 4


def test_a_mistake_is_corrected_by_the_one_it_is_about() -> None:
    made = world("vcube-tree")
    made.do(Suspect("p0", "p5"))
    membership: Any = made.processes["p0"].membership  # type: ignore[attr-defined]
    assert not membership.correct >> 5 & 1
    made.broadcast("p5", b"x")
    made.settle()
    made.broadcast("p0", b"y")
    made.broadcast("p4", b"z")
    made.settle()
    everybody = [process.membership.correct for process in made.processes.values()]  # type: ignore[attr-defined]
    assert everybody == [255] * 8
