"""Faults: what each keeps from happening, and that everything goes on after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from causalcast.protocols import STACKS, stack
from causalcast.simulation import (
    NS_PER_MS,
    Broadcasts,
    Churn,
    Constant,
    Crash,
    Cut,
    Fault,
    Flap,
    InvalidModelError,
    Network,
    Partition,
    Pause,
    Suspicion,
    Uniform,
    UnsupportedFaultError,
    World,
    draw_faults,
    process_names,
    simulate,
)
from causalcast.simulation.world import Crash as CrashStep
from causalcast.simulation.world import Step
from tests.simulation.memory import Memory

DURABLE = [name for name, entry in STACKS.items() if not entry.session_links]

if TYPE_CHECKING:
    from causalcast.model import CausalcastError

MS = NS_PER_MS
STEADY = Network(Constant(5 * MS))
EVERY_MS = Broadcasts(100, Constant(MS), senders=1)


def run(*faults: Fault, nodes: int = 3, network: Network = STEADY) -> tuple[dict[str, list[int]], Memory]:
    """Times in ms at which each process delivers what p0 broadcasts at 1, 2, ... 100 ms."""
    sink = Memory()
    simulate("unordered", nodes=nodes, workload=EVERY_MS, network=network, faults=faults, trace=sink)
    times: dict[str, list[int]] = {name: [] for name in process_names(nodes)}
    for row in sink.rows:
        if row.event == "deliver":
            assert row.time_ns is not None
            times[row.process].append(row.time_ns // MS)
    return times, sink


USUAL = list(range(6, 106))


def test_a_crashed_process_does_nothing_more_and_its_trace_says_so() -> None:
    times, sink = run(Crash("p1", 50 * MS))
    assert times == {"p0": [], "p1": list(range(6, 50)), "p2": USUAL}
    last = [row for row in sink.rows if row.process == "p1"][-1]
    assert (last.event, last.seq, last.time_ns) == ("crash", 45, 50 * MS)


def test_what_a_crashed_process_sent_arrives() -> None:
    times, _ = run(Crash("p0", 50 * MS))
    assert times["p1"] == list(range(6, 55))


def test_what_a_fault_holds_is_lost_with_its_sender() -> None:
    times, _ = run(Cut("p0", "p1", 20 * MS, 50 * MS), Crash("p0", 40 * MS))
    assert (times["p1"], times["p2"]) == (list(range(6, 20)), list(range(6, 45)))


def test_a_paused_process_catches_up_at_once() -> None:
    times, _ = run(Pause("p1", 20 * MS, 30 * MS))
    assert times["p1"] == [*range(6, 20), *[50] * 31, *range(51, 106)]
    times, _ = run(Pause("p0", 20 * MS, 30 * MS))
    assert times["p1"] == [*range(6, 25), 55, *range(56, 136)], "a sender that is paused goes on where it was"


def test_pauses_that_overlap_end_with_the_last() -> None:
    times, _ = run(Pause("p1", 20 * MS, 30 * MS), Pause("p1", 40 * MS, 30 * MS))
    assert times["p1"] == [*range(6, 20), *[70] * 51, *range(71, 106)]


def test_a_partition_holds_what_would_pass_it_and_heals() -> None:
    times, _ = run(Partition((("p1",),), 20 * MS, 30 * MS))
    assert times["p1"] == [*range(6, 20), *[55] * 36, *range(56, 106)]
    assert times["p2"] == USUAL


def test_a_cut_works_in_one_direction() -> None:
    times, _ = run(Cut("p0", "p1", 20 * MS, 30 * MS))
    assert times["p1"][14:20] == [55] * 6
    times, _ = run(Cut("p1", "p0", 20 * MS, 30 * MS))
    assert times["p1"] == USUAL


def test_a_link_flaps() -> None:
    times, _ = run(Flap("p1", "p0", 20 * MS, 10 * MS, 10 * MS, 3))
    held = [time for time in USUAL if times["p1"].count(time) > 1]
    assert held == [35, 55, 75]
    assert len(times["p1"]) == 100


def test_fifo_links_keep_order_through_cuts() -> None:
    cuts = [Cut("p0", "p1", at * MS, 3 * MS) for at in range(5, 100, 7)]
    for seed in range(5):
        sink = Memory()
        network = Network(Uniform(MS, 20 * MS))
        simulate("unordered", nodes=2, workload=EVERY_MS, seed=seed, network=network, faults=cuts, trace=sink)
        assert [row.counter for row in sink.rows if row.event == "deliver"] == list(range(1, 101))


@pytest.mark.parametrize("name", DURABLE)
@pytest.mark.parametrize("seed", range(4))
def test_everything_arrives_once_the_faults_are_over(name: str, seed: int) -> None:
    faults = draw_faults(process_names(6), seed=seed, count=12, within_ns=300 * MS)
    done = simulate(name, nodes=6, messages=30, seed=seed, faults=faults, network=Network(fifo=bool(seed % 2)))
    assert done.counters.held > 0
    assert done.counters.deliveries == 6 * 5 * 30
    assert done.counters.stables == (6 * 6 * 30 if "P6" in STACKS[name].promises else 0)


def test_faults_are_drawn_from_the_seed_and_are_data() -> None:
    drawn = draw_faults(process_names(5), seed=1, count=50, within_ns=100 * MS)
    assert drawn == draw_faults(process_names(5), seed=1, count=50, within_ns=100 * MS)
    assert drawn != draw_faults(process_names(5), seed=2, count=50, within_ns=100 * MS)
    assert {type(fault) for fault in drawn} == {Pause, Partition, Cut, Flap}
    assert all(0 <= fault.at_ns < 100 * MS for fault in drawn)
    assert msgspec.json.decode(msgspec.json.encode(drawn), type=tuple[Fault, ...]) == drawn


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (Crash("p9", 0), InvalidModelError, "'p9', which is no process"),
        (Partition((("p0",), ("p0",)), 0, 1), InvalidModelError, "names 'p0' twice"),
        (Cut("p0", "p0", 0, 1), InvalidModelError, "names 'p0' twice"),
        (Churn(1, 0, 1), UnsupportedFaultError, "'tcb'.*neither join nor leave"),
        (Suspicion("p0", "p1", 0), UnsupportedFaultError, "'tcb'.*no answer to a failure detector"),
    ],
)
def test_faults_that_cannot_happen(fault: Fault, error: type[CausalcastError], words: str) -> None:
    with pytest.raises(error, match=words):
        simulate("tcb", nodes=2, messages=1, faults=[fault])


def test_faults_outside_of_time() -> None:
    with pytest.raises(InvalidModelError, match="at_ns of -1"):
        Pause("p0", -1, 5)


@pytest.mark.parametrize("seed", range(6))
def test_a_recorded_run_is_one_that_a_world_takes(seed: int) -> None:
    """With everything that a world knows: thinking, duplicates, crashes, cuts, pauses, reordering and loss."""
    names = process_names(4)
    faults = [*draw_faults(names, seed=seed, count=6, within_ns=100 * MS), Crash("p3", 60 * MS)]
    network = Network(Uniform(0, 30 * MS), fifo=bool(seed % 2), duplication=0.2, loss=0.05 * (seed % 3))
    sink = Memory()
    steps: list[Step] = []
    simulate(
        "tcb",
        nodes=4,
        messages=10,
        seed=seed,
        network=network,
        thinking=Uniform(0, 9 * MS),
        faults=faults,
        trace=sink,
        record=steps.append,
    )
    world = World(stack("tcb"), names, seed=seed)
    for step in steps:
        world.do(step)
    assert CrashStep("p3") in steps
    for name in names:
        rows = [(row.event, row.origin, row.counter) for row in sink.rows if row.process == name]
        logged = [(entry.kind, entry.tag.origin, entry.tag.counter) for entry in world.logs[name]]
        assert logged == [row for row in rows if row[0] != "crash"]
