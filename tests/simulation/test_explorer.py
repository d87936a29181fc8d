"""The explorer against a plain walk of every interleaving, and the real stacks under every schedule of small cases."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.model import UnsupportedByStackError
from causalcast.protocols import STACKS, stack
from causalcast.protocols.ordering import Unordered
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.properties import judge_world, own_tables, violations
from causalcast.simulation.schedule import Replay, Schedule, load, replay
from causalcast.simulation.shrink import shrink
from causalcast.simulation.steps import (
    Break,
    Broadcast,
    Crash,
    Duplicate,
    Fire,
    Join,
    Leave,
    Restart,
    Step,
    Subscribe,
    Suspect,
    Unsubscribe,
    actor,
)
from causalcast.simulation.world import ImpossibleStepError, World
from tests.protocols.mutants import mutated
from tests.protocols.mutants.plausible import PLAUSIBLE
from tests.simulation import small_stacks
from tests.simulation.small_stacks import small

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from causalcast.protocols import BroadcastMessage, Process

NAMES = ("p0", "p1", "p2")


# -------------------------------------------------------------------------------------------- against a plain walk


def logs_of(world: World) -> tuple[object, ...]:
    """What every application saw, to the last tag."""
    return tuple(
        (name, tuple((e.kind, e.tag and (e.message, e.tag.context, e.tag.counts), e[2:]) for e in entries))
        for name, entries in world.logs.items()
    )


class Left:
    """What of a case is still to come; everything shared by all, as the case says it."""

    def __init__(self, case: Case) -> None:
        assert isinstance(case.broadcasts, int)
        self.broadcasts = {
            name: case.broadcasts // len(case.members) + (slot < case.broadcasts % len(case.members))
            for slot, name in enumerate(case.members)
        }
        self.scripts = {name: list(steps) for name, steps in case.scripts.items()}
        self.faults = {
            Duplicate: case.duplicates,
            Crash: case.crashes,
            Restart: case.restarts,
            Break: case.breaks,
            Suspect: case.suspicions,
        }

    def choices(self, world: World, case: Case) -> Iterator[Step]:
        yield from world.enabled(fifo=case.fifo)
        for name, number in self.broadcasts.items():
            if number:
                yield Broadcast(name, payload_of(world, name))
        for steps in self.scripts.values():
            if steps:
                yield (
                    steps[0]._replace(payload=payload_of(world, steps[0].process))
                    if isinstance(steps[0], Broadcast)
                    else steps[0]
                )
        if self.faults[Duplicate]:
            for (sender, receiver), messages in world.in_flight.items():
                yield from (Duplicate(sender, receiver, place) for place in range(len(messages)))
        for fault in (Crash, Restart):
            if self.faults[fault]:
                yield from map(fault, case.names)
        for fault in (Break, Suspect):
            if self.faults[fault]:
                yield from (fault(one, other) for one in case.names for other in case.names if one != other)

    def take(self, world: World, step: Step) -> None:
        """Raises `ImpossibleStepError`."""
        world.do(step)
        name = actor(step)
        if any(steps and type(steps[0]) is type(step) and actor(steps[0]) == name for steps in self.scripts.values()):
            self.scripts[name].pop(0)
        elif isinstance(step, Broadcast):
            self.broadcasts[name] -= 1
        elif type(step) in self.faults:
            self.faults[type(step)] -= 1

    def out_of_broadcasts(self, world: World) -> bool:
        return not any(number for name, number in self.broadcasts.items() if name not in world.crashed)


def payload_of(world: World, name: str) -> bytes:
    sent = sum(entry.kind == "broadcast" for entry in world.logs[name])
    return f"{name}/{sent + 1}".encode()


def run(case: Case, path: tuple[Step, ...]) -> tuple[World, Left]:
    world, left = World(case.stack, case.members, case.joiners), Left(case)
    for step in path:
        left.take(world, step)
    return world, left


def possible(case: Case, path: tuple[Step, ...], step: Step) -> bool:
    world, left = run(case, path)
    try:
        left.take(world, step)
    except ImpossibleStepError:
        return False
    return True


def walk(case: Case) -> tuple[int, set[object], set[str]]:
    """Every interleaving, each from the start: how many, all final logs, and all that any of them breaks."""
    number, ends, broken = 0, set(), set()
    moving = bool(case.scripts or case.suspicions or case.restarts or case.breaks)
    todo: list[tuple[Step, ...]] = [()]
    while todo:
        path = todo.pop()
        world, left = run(case, path)
        while True:
            steps = [step for step in left.choices(world, case) if world.possible(step) is None]
            if moving:
                steps = [step for step in steps if possible(case, path, step)]
            if not steps or (not moving and world.quiescent and left.out_of_broadcasts(world)):
                number += not steps
                ends.add(logs_of(world))
                found = (
                    judge_world(world, case.checked, case.sizes)
                    if moving
                    else violations(world.logs, case.checked, crashed=world.crashed)
                )
                broken |= {violation.property for violation in found}
            if not steps:
                break
            todo.extend((*path, step) for step in steps[1:])
            left.take(world, steps[0])
            path = (*path, steps[0])
    return number, ends, broken


def explored(case: Case, *, reduce: bool, merge: bool) -> tuple[int, set[object]]:
    ends: set[object] = set()
    outcome = explore(
        case,
        reduce=reduce,
        merge=merge,
        on_end=lambda steps: ends.add(
            logs_of(replay(Schedule("", case.members, steps, joiners=case.joiners), case.stack).world)
        ),
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


JOIN = {"p2": (Join("p2", "p0"),)}
TOPIC = {"p1": (Subscribe("p1", "a"),), "p0": (Broadcast("p0", b"", "a"),)}
MOVING: list[tuple[type[small_stacks.Small], int, int, dict[str, Any]]] = [
    (small_stacks.Overlay, 3, 1, {"scripts": JOIN}),
    (small_stacks.Overlay, 2, 0, {"scripts": {"p1": (Join("p1", "p0"), Broadcast("p1"), Leave("p1"))}}),
    (small_stacks.HastyOverlay, 3, 1, {"scripts": JOIN}),
    (small_stacks.Overlay, 2, 1, {"scripts": {"p0": (Leave("p0"),)}}),
    (small_stacks.Overlay, 2, 1, {"breaks": 1}),
    (small_stacks.Overlay, 2, 1, {"crashes": 1}),
    (small_stacks.DeafOverlay, 2, 1, {"breaks": 1, "sizes": lambda process: process.tables()}),
    (small_stacks.Publisher, 2, 0, {"scripts": TOPIC}),
    (small_stacks.Publisher, 2, 0, {"scripts": {**TOPIC, "p1": (Subscribe("p1", "a"), Unsubscribe("p1", "a"))}}),
    (small_stacks.HastyPublisher, 2, 0, {"scripts": TOPIC}),
    (small_stacks.Lasting, 2, 2, {"restarts": 1}),
    (small_stacks.Forgetful, 2, 1, {"restarts": 1, "duplicates": 1}),
    (small_stacks.Club, 2, 1, {"suspicions": 1}),
    (small_stacks.SilentClub, 2, 1, {"suspicions": 1}),
]


@pytest.mark.parametrize(("kind", "nodes", "broadcasts", "settings"), MOVING)
def test_joins_topics_restarts_and_breaks_are_walked_as_a_plain_walk_does(
    kind: type[small_stacks.Small], nodes: int, broadcasts: int, settings: Mapping[str, Any]
) -> None:
    case = Case(small(kind), NAMES[:nodes], broadcasts, fifo=True, properties=frozenset(), **settings)
    number, ends, _ = walk(case)
    assert explored(case, reduce=True, merge=False)[1] == ends
    if case.scripts and not case.breaks:
        assert explored(case, reduce=False, merge=False)[0] == number
        assert explored(case, reduce=False, merge=True)[0] == number
    checked = frozenset({"P1", "P2", "P3", "P7", "P8"} if case.sizes else {"P1", "P2", "P3", "P8"})
    broken = walk(replace(case, properties=checked))[2]
    for prop in checked:
        for reduce in (True, False):
            outcome = explore(replace(case, properties=frozenset({prop})), reduce=reduce)
            assert (outcome.found is not None) == (prop in broken), prop


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


MISTAKES: list[tuple[type[small_stacks.Small], str, int, int, dict[str, Any]]] = [
    (small_stacks.HastyOverlay, "P2", 7, 1, {"scripts": JOIN}),
    (small_stacks.DirectOverlay, "P2", 3, 1, {"breaks": 1}),
    (small_stacks.DeafOverlay, "P7", 2, 1, {"breaks": 1, "sizes": lambda process: process.tables()}),
    (small_stacks.HastyPublisher, "P2", 5, 0, {"scripts": TOPIC}),
    (small_stacks.Forgetful, "P1", 7, 2, {"restarts": 1, "duplicates": 1}),
    (small_stacks.SilentClub, "P2", 9, 1, {"suspicions": 1}),
    (
        small_stacks.LaxPublisher,
        "P2",
        12,
        0,
        {"scripts": {**TOPIC, "p1": (Subscribe("p1", "a"), Unsubscribe("p1", "a"), Subscribe("p1", "a"))}},
    ),
]


@pytest.mark.parametrize(("kind", "prop", "steps", "broadcasts", "settings"), MISTAKES)
def test_mistakes_of_moving_members_become_small_schedules(
    kind: type[small_stacks.Small], prop: str, steps: int, broadcasts: int, settings: Mapping[str, Any]
) -> None:
    case = Case(small(kind), NAMES, broadcasts, fifo=True, properties=frozenset({prop}), **settings)
    outcome = explore(case)
    assert outcome.found is not None
    found = Schedule(case.stack.name, case.members, outcome.found.schedule, joiners=case.joiners)
    tried = shrink(found, prop, stack=case.stack, sizes=case.sizes)
    assert (len(tried.steps), tried.breaks) == (steps, prop), tried.dump()
    read = load(tried.dump())
    assert list(map(type, read.steps)) == list(map(type, tried.steps))
    assert read == tried
    assert [str(each) for each in replay(read, case.stack).judge({prop}, case.sizes)][:1] == [tried.note]


RIGHT: list[tuple[type[small_stacks.Small], int, dict[str, Any]]] = [
    (small_stacks.Overlay, 2, {"scripts": {"p2": (Join("p2", "p0"), Broadcast("p2"), Leave("p2"))}}),
    (small_stacks.Overlay, 2, {"breaks": 1}),
    (small_stacks.Publisher, 0, {"scripts": {**TOPIC, "p2": (Subscribe("p2", "a"), Broadcast("p2", b"", "a"))}}),
    (small_stacks.Lasting, 2, {"duplicates": 1, "restarts": 2}),
    (small_stacks.Club, 1, {"crashes": 1, "suspicions": 1}),
]


@pytest.mark.parametrize(("kind", "broadcasts", "settings"), RIGHT)
def test_moving_members_that_make_no_mistake_are_exhausted(
    kind: type[small_stacks.Small], broadcasts: int, settings: Mapping[str, Any]
) -> None:
    outcome = explore(Case(small(kind), NAMES, broadcasts, fifo=True, properties=frozenset({"P1", "P2"}), **settings))
    assert outcome.found is None, outcome.found
    assert outcome.exhausted


def test_a_join_that_never_completes_is_a_violation() -> None:
    deaf = small(small_stacks.Small, dynamic=True)

    class Unheard(small_stacks.Small):
        def join(self, contact: str) -> None:
            """Ask nobody."""

    case = Case(replace(deaf, kind=Unheard), NAMES, 0, fifo=True, properties=frozenset({"P8"}), scripts=JOIN)
    found = explore(case).found
    assert found is not None
    assert str(found.violation) == "P8 p2: its join never complete"


def test_a_stack_that_cannot_do_what_a_script_says_is_refused() -> None:
    with pytest.raises(UnsupportedByStackError):
        explore(Case(stack("cbcast"), NAMES, 1, scripts={"p0": (Leave("p0"),)}))


def test_a_case_whose_timers_come_again_for_ever_ends_where_they_are_limited() -> None:
    case = Case(
        stack("flood"),
        ("a", "b"),
        0,
        scripts={"b": (Join("b", "a"), Broadcast("b")), "a": (Broadcast("a"),)},
        prompt=Promptness.ALL,
        sizes=own_tables,
    )
    assert "P7" in case.checked
    assert "P7" not in replace(case, timers=1).checked
    assert explore(case, limit=3_000).limited
    ends: list[tuple[Step, ...]] = []
    outcome = explore(replace(case, timers=1), on_end=ends.append)
    assert outcome.exhausted
    fired = [Counter(step for step in steps if isinstance(step, Fire)) for steps in ends]
    assert {count for each in fired for count in each.values()} == {1}
    assert {step.timer for each in fired for step in each} == {"hyparview.round", "flood.age"}
