"""The explorer against a plain walk of every interleaving, and the real stacks under every schedule of small cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols import STACKS, stack
from causalcast.protocols.ordering import Unordered
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.properties import violations
from causalcast.simulation.schedule import Replay, Schedule, replay
from causalcast.simulation.shrink import shrink
from causalcast.simulation.world import Broadcast, Crash, Duplicate, Step, World
from tests.protocols.mutants import mutated
from tests.protocols.mutants.plausible import PLAUSIBLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from causalcast.protocols import BroadcastMessage, Process

NAMES = ("p0", "p1", "p2")


# -------------------------------------------------------------------------------------------- against a plain walk


def logs_of(world: World) -> tuple[object, ...]:
    """What every application saw, to the last tag."""
    return tuple(
        (name, tuple((e.kind, e.tag.dot, e.tag.context, e.tag.counts, e.payload) for e in entries))
        for name, entries in world.logs.items()
    )


def choices(world: World, case: Case, left: dict[str, int]) -> Iterator[Step]:
    yield from world.enabled(fifo=case.fifo)
    for name in case.names:
        if left[name] and name not in world.crashed:
            sent = sum(entry.kind == "broadcast" for entry in world.logs[name])
            yield Broadcast(name, f"{name}/{sent + 1}".encode())
    if left["duplicates"]:
        for (sender, receiver), messages in world.in_flight.items():
            yield from (Duplicate(sender, receiver, place) for place in range(len(messages)))
    if left["crashes"]:
        yield from (Crash(name) for name in case.names if name not in world.crashed)


def take(world: World, step: Step, left: dict[str, int]) -> None:
    if isinstance(step, Broadcast):
        left[step.process] -= 1
    left["duplicates"] -= isinstance(step, Duplicate)
    left["crashes"] -= isinstance(step, Crash)
    world.do(step)


def at_rest(world: World, case: Case, left: dict[str, int]) -> bool:
    return world.quiescent and not any(left[name] for name in case.names if name not in world.crashed)


def walk(case: Case) -> tuple[int, set[object], set[str]]:
    """Every interleaving, each from the start: how many, all final logs, and all that any of them breaks."""
    assert isinstance(case.broadcasts, int)
    assert isinstance(case.duplicates, int)
    assert isinstance(case.crashes, int)
    number, ends, broken = 0, set(), set()
    todo: list[tuple[Step, ...]] = [()]
    while todo:
        path = todo.pop()
        world = World(case.stack, case.names)
        left = {
            name: case.broadcasts // len(case.names) + (slot < case.broadcasts % len(case.names))
            for slot, name in enumerate(case.names)
        } | {"duplicates": case.duplicates, "crashes": case.crashes}
        for step in path:
            take(world, step, left)
        while True:
            steps = list(choices(world, case, left))
            if at_rest(world, case, left):
                number += not steps
                ends.add(logs_of(world))
                found = violations(world.logs, case.checked, crashed=world.crashed)
                broken |= {violation.property for violation in found}
            if not steps:
                break
            todo.extend((*path, step) for step in steps[1:])
            take(world, steps[0], left)
            path = (*path, steps[0])
    return number, ends, broken


def explored(case: Case, *, reduce: bool, merge: bool) -> tuple[int, set[object]]:
    ends: set[object] = set()
    outcome = explore(
        case,
        reduce=reduce,
        merge=merge,
        on_end=lambda steps: ends.add(logs_of(replay(Schedule("", case.names, steps), case.stack).world)),
    )
    assert outcome.found is None
    assert outcome.exhausted
    return outcome.schedules, ends


TINY: list[tuple[str, int, int, dict[str, Any]]] = [
    ("tcb", 2, 1, {"fifo": True}),
    ("tcb", 2, 1, {"fifo": False, "duplicates": 1}),
    ("tcb", 2, 1, {"fifo": True, "crashes": 1}),
    ("cbcast", 2, 3, {"fifo": True}),
    ("cbcast", 2, 3, {"fifo": False}),
    ("cbcast", 3, 2, {"fifo": True}),
    ("unordered", 2, 2, {"fifo": False, "duplicates": 1}),
]


@pytest.mark.parametrize(("name", "nodes", "broadcasts", "settings"), TINY)
def test_the_reduced_search_ends_in_all_the_logs_that_a_plain_walk_ends_in(
    name: str, nodes: int, broadcasts: int, settings: Mapping[str, Any]
) -> None:
    case = Case(stack(name), NAMES[:nodes], broadcasts, properties=frozenset(), **settings)
    number, ends, _ = walk(case)
    assert explored(case, reduce=True, merge=False)[1] == ends
    if case.fifo and not case.duplicates and not case.crashes:
        assert explored(case, reduce=False, merge=False)[0] == number
        assert explored(case, reduce=False, merge=True)[0] == number


@pytest.mark.parametrize("mutant", [m for m in PLAUSIBLE if m.nodes == 2 and m.broadcasts == 1], ids=lambda m: m.name)
def test_the_search_finds_exactly_what_a_plain_walk_finds(mutant: Any) -> None:
    made = mutated(mutant)
    for prop in sorted(made.promises):
        case = Case(made, NAMES[:2], 1, properties=frozenset({prop}), **{"fifo": True, **mutant.case})
        for reduce in (True, False):
            assert (explore(case, reduce=reduce).found is not None) == (prop in walk(case)[2])


class Sleepy(Unordered):
    """Hears nothing in its second step: what it does depends on the time, which equal states may not share."""

    def receive(self, message: BroadcastMessage) -> None:
        if self._port.now_ns() != 2:
            super().receive(message)


def test_a_protocol_that_reads_the_clock_is_walked_with_the_time() -> None:
    made = replace(stack("unordered"), ordering=Sleepy)
    case = Case(made, NAMES[:2], 2, fifo=True, duplicates=1, properties=frozenset())
    number, ends, _ = walk(case)
    assert number
    for merge in (False, True):
        assert explored(case, reduce=True, merge=merge)[1] <= ends
    assert explored(case, reduce=True, merge=False)[1] == ends
    broken = Case(made, NAMES[:2], 2, fifo=True, duplicates=1, properties=frozenset({"P2"}))
    assert "P2" in walk(broken)[2]
    assert explore(broken).found is not None


# ------------------------------------------------------------------------------------------------ the real stacks


def tables(process: Process) -> dict[str, int]:
    tcb = process.ordering  # type: ignore[attr-defined]
    return {"graph": tcb.graph_size, "phantoms": len(tcb._phantoms), "pending": sum(tcb._pending)}


EXHAUSTED: list[tuple[str, int, int, dict[str, Any]]] = [
    ("tcb", 3, 2, {"fifo": True}),
    ("tcb", 3, 2, {"fifo": False}),
    ("tcb", 2, 3, {"fifo": False, "duplicates": 1}),
    ("tcb", 3, 2, {"fifo": True, "duplicates": 1, "prompt": Promptness.ALL}),
    ("tcb", 3, 2, {"fifo": True, "crashes": 1, "prompt": Promptness.STABLE}),
    ("cbcast", 3, 4, {"fifo": True}),
    ("cbcast", 3, 4, {"fifo": False}),
    ("cbcast", 3, 3, {"fifo": False, "duplicates": 1, "anyone": True}),
    ("cbcast", 3, 3, {"fifo": True, "duplicates": 1, "crashes": 1}),
    ("unordered", 3, 4, {"fifo": True}),
    ("unordered", 3, 3, {"fifo": False, "duplicates": 1}),
]


@pytest.mark.parametrize(("name", "nodes", "broadcasts", "settings"), EXHAUSTED)
def test_every_schedule_keeps_what_the_stack_promises(
    name: str, nodes: int, broadcasts: int, settings: Mapping[str, Any]
) -> None:
    chosen = stack(name)
    sizes = tables if name == "tcb" and "crashes" not in settings else None
    checked = chosen.promises | ({"P7", "P8"} if sizes else {"P8"})
    outcome = explore(Case(chosen, NAMES[:nodes], broadcasts, properties=checked, sizes=sizes, **settings))
    assert outcome.found is None, outcome.found
    assert outcome.exhausted
    assert outcome.schedules > outcome.states // 10


def test_the_control_is_caught_with_the_six_steps_that_it_takes() -> None:
    outcome = explore(Case(stack("unordered"), NAMES, 2, fifo=True, properties=frozenset({"P3"})))
    assert outcome.found is not None
    small = shrink(Schedule("unordered", NAMES, outcome.found.schedule), "P3")
    assert (len(small.steps), small.breaks, small.note) == (6, "P3", "P3 p2: p1:1 before its cause p0:1")


def test_the_control_has_no_exact_tags() -> None:
    outcome = explore(Case(stack("unordered"), NAMES[:2], 2, fifo=True, properties=frozenset({"P4"})))
    assert outcome.found is not None
    assert outcome.found.violation.property == "P4"


def test_tables_that_are_not_empty_at_rest_are_found() -> None:
    sizes = lambda process: {"deliveries": process.ordering._deliveries}  # noqa: E731
    outcome = explore(Case(stack("tcb"), NAMES[:2], 1, fifo=True, properties=frozenset({"P7"}), sizes=sizes))
    assert outcome.found is not None
    assert str(outcome.found.violation) == "P7 p0: deliveries holds 1"


def test_a_limit_is_admitted() -> None:
    outcome = explore(Case(stack("tcb"), NAMES, 2, fifo=True), limit=1000)
    assert (outcome.found, outcome.exhausted, outcome.limited) == (None, False, True)
    assert outcome.states <= 1000


def test_two_searches_find_the_same() -> None:
    case = Case(STACKS["unordered"], NAMES, 3, properties=frozenset({"P3"}))
    first, second = explore(case), explore(case)
    assert first.found == second.found
    assert (first.states, first.steps) == (second.states, second.steps)


def test_a_found_schedule_replays_to_the_same_violation() -> None:
    case = Case(stack("unordered"), NAMES, 3, properties=frozenset({"P3"}))
    found = explore(case).found
    assert found is not None
    played = Replay(case.stack, case.names)
    for step in found.schedule:
        played.do(step)
    assert found.violation in played.judge({"P3"})
