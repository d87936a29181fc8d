"""Random schedules of small groups keep what each stack promises; the control is caught breaking what it does not."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causalcast.protocols import STACKS, stack
from causalcast.protocols.hypercube_stacks import REPAIRED_STACKS
from causalcast.protocols.twin_stacks import TWIN_STACKS
from causalcast.simulation.properties import violations
from causalcast.simulation.world import Take, World

DURABLE = [name for name, entry in STACKS.items() if not entry.session_links]

SEEDED = [name for name in DURABLE if name not in {entry.name for entry in REPAIRED_STACKS}]
"""Those repaired take a timer for every few messages here, rounds without end: `vcube/test_repaired_tree.py` has slower
clocks, and crashes.
"""

TWINS = {entry.name for entry in TWIN_STACKS}
"""They share most of their code with each other and with those above: fewer seeds do."""

NAMES = ("ann", "bob", "cat", "dan", "eve", "fay")


def run(stack_name: str, data: st.DataObject, *, fifo: bool) -> World:
    """A schedule of up to 80 steps that Hypothesis draws, then everything else in a fixed order."""
    members = data.draw(st.integers(2, 6), label="members")
    world = World(stack(stack_name), NAMES[:members])
    broadcasts = data.draw(st.integers(1, 14), label="broadcasts")
    for _ in range(data.draw(st.integers(0, 80), label="steps")):
        steps = world.enabled(fifo=fifo)
        choice = data.draw(
            st.integers(0, len(steps) + (members if broadcasts else 0) - 1 if steps or broadcasts else 0)
        )
        if choice < len(steps):
            world.do(steps[choice])
        elif broadcasts:
            broadcasts -= 1
            name = NAMES[choice - len(steps)]
            world.broadcast(name, f"{name} {broadcasts}".encode())
    world.settle()
    return world


@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "reordering"])
@pytest.mark.parametrize("name", DURABLE)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_promises_hold_under_every_drawn_schedule(name: str, fifo: bool, data: st.DataObject) -> None:
    world = run(name, data, fifo=fifo)
    assert violations(world.logs, STACKS[name].promises) == []


def seeded(
    stack_name: str, seed: int, *, members: int, broadcasts: int, late: float, duplicates: bool = False
) -> World:
    """A long schedule from a seed; applications take events with probability `1 - late` when they could."""
    draw = random.Random(seed)
    names = NAMES[:members]
    world = World(stack(stack_name), names)
    while broadcasts or world.enabled(fifo=False):
        steps = world.enabled(fifo=draw.random() < 0.5)
        if draw.random() < late:
            steps = [step for step in steps if not isinstance(step, Take)] or steps
        if broadcasts and (not steps or draw.random() < 0.15):
            broadcasts -= 1
            world.broadcast(draw.choice(names), f"{broadcasts}".encode())
            continue
        step = draw.choice(steps)
        result = world.do(step)
        if duplicates and hasattr(step, "sender") and draw.random() < 0.1:
            world.in_flight[step.sender, step.receiver].append(result)  # type: ignore[arg-type]
    return world


@pytest.mark.parametrize("name", SEEDED)
@pytest.mark.parametrize("late", [0.0, 0.9], ids=["eager", "late"])
def test_promises_hold_over_long_seeded_runs(name: str, late: float) -> None:
    for seed in range(3 if name in TWINS else 12):
        world = seeded(name, seed, members=2 + seed % 5, broadcasts=60, late=late)
        assert violations(world.logs, STACKS[name].promises) == [], seed


@pytest.mark.parametrize("name", SEEDED)
def test_an_old_message_replayed_after_its_effects_changes_nothing(name: str) -> None:
    """USERS 1: links that duplicate and reorder at once."""
    for seed in range(3 if name in TWINS else 12):
        world = seeded(name, seed, members=2 + seed % 4, broadcasts=40, late=0.3, duplicates=True)
        assert violations(world.logs, STACKS[name].promises) == [], seed


def test_the_control_breaks_causal_order() -> None:
    caught = 0
    for seed in range(12):
        world = seeded("unordered", seed, members=4, broadcasts=40, late=0.0)
        caught += bool(violations(world.logs, frozenset({"P3"})))
    assert caught >= 10


def test_everyone_idle_and_every_message_stable_and_the_graph_empty() -> None:
    """USERS 13, and P7: the tail becomes stable without further broadcasts, and nothing stays behind."""
    world = seeded("tcb", 7, members=5, broadcasts=100, late=0.5)
    assert violations(world.logs, frozenset({"P6"})) == []
    for process in world.processes.values():
        tcb = process.ordering  # type: ignore[attr-defined]
        assert (tcb.graph_size, tcb.unstable, tcb._phantoms, sum(tcb._pending)) == (0, 0, {}, 0)
