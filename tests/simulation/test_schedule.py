"""Schedules as files: read back as written, replayed step by step, made small."""

from __future__ import annotations

import random

import pytest

from causalcast.protocols import stack
from causalcast.simulation.properties import violations
from causalcast.simulation.schedule import Schedule, ScheduleError, load, record, replay
from causalcast.simulation.shrink import NotBrokenError, shrink
from causalcast.simulation.steps import (
    Break,
    Broadcast,
    Crash,
    Duplicate,
    Fire,
    Join,
    Leave,
    Receive,
    Restart,
    Step,
    Subscribe,
    Suspect,
    Take,
    Unsubscribe,
)
from causalcast.simulation.world import ImpossibleStepError, World

NAMES = ("ann", "bob", "cat", "dan")


def test_a_file_reads_back_as_it_was_written() -> None:
    steps = (
        Broadcast("ann", b"two words, 100%\n\xff\x00"),
        Broadcast("ann"),
        Receive("ann", "bob", 1),
        Duplicate("ann", "bob"),
        Take("bob"),
        Fire("bob", "tcb.phantom"),
        Crash("cat"),
    )
    schedule = Schedule("tcb", ("ann", "bob", "cat"), steps, "P3", "a note")
    read = load(schedule.dump())
    assert read == schedule
    assert list(map(type, read.steps)) == list(map(type, steps)), "as tuples, steps of different types can be equal"
    assert schedule.dump().splitlines()[:5] == [
        "causalcast schedule 1",
        "# a note",
        "stack tcb",
        "members ann bob cat",
        "breaks P3",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1"),
        ("causalcast schedule 2\n", "line 1"),
        ("causalcast schedule 1\nstack tcb\n", "'members'"),
        ("causalcast schedule 1\nmembers a b\n", "'stack'"),
        ("causalcast schedule 1\nstack tcb\nmembers a a\n", "given twice"),
        ("causalcast schedule 1\nstack tcb\nmembers a b\nbreaks P99\n", "P99"),
        ("causalcast schedule 1\nstack tcb\nmembers a b\njump a\n", "line 4: 'jump a' is no step"),
        ("causalcast schedule 1\nstack tcb\nmembers a b\nreceive a b -1\n", "line 4: '-1' is no place"),
        ("causalcast schedule 1\nstack tcb\nmembers a b\ntake a\nstack tcb\n", "line 5"),
    ],
)
def test_what_is_no_schedule_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        load(text)


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Take("ann"), "no event is queued"),
        (Receive("ann", "bob"), "0 messages"),
        (Receive("ann", "ann"), "no link"),
        (Receive("ann", "eve"), "'eve' is no member"),
        (Fire("ann", "tcb.phantom"), "not set the timer"),
        (Broadcast("cat"), "has crashed"),
    ],
)
def test_a_step_that_is_not_possible_is_named(step: object, reason: str) -> None:
    schedule = Schedule("tcb", NAMES, (Crash("cat"), step))  # type: ignore[arg-type]
    with pytest.raises(ImpossibleStepError, match=f"step 2, .* is not possible: .*{reason}"):
        replay(schedule)


def random_world(stack_name: str, seed: int) -> World:
    draw = random.Random(seed)
    world = World(stack(stack_name), NAMES)
    broadcasts = 30
    while broadcasts or not world.quiescent:
        steps = world.enabled(fifo=False)
        if broadcasts and (not steps or draw.random() < 0.2):
            broadcasts -= 1
            world.broadcast(draw.choice(NAMES), b"%d" % broadcasts)
        else:
            world.do(draw.choice(steps))
    return world


@pytest.mark.parametrize("name", ["tcb", "cbcast", "unordered"])
def test_a_recorded_run_replays_to_the_same_logs(name: str) -> None:
    world = random_world(name, 1)
    assert replay(load(record(world).dump())).world.logs == world.logs


@pytest.mark.parametrize("seed", [2, 3])
def test_a_long_run_shrinks_to_the_steps_that_matter_and_no_other(seed: int) -> None:
    world = random_world("unordered", seed)
    assert violations(world.logs, {"P3"})
    small = shrink(record(world), "P3")
    assert (len(small.members), len(small.steps)) in {(2, 4), (3, 6)}
    assert replay(small).judge({"P3"})
    for left_out in range(len(small.steps)):
        steps = small.steps[:left_out] + small.steps[left_out + 1 :]
        with pytest.raises(NotBrokenError):
            shrink(Schedule("unordered", small.members, steps), "P3")


def test_what_is_not_broken_does_not_shrink() -> None:
    with pytest.raises(NotBrokenError):
        shrink(record(random_world("cbcast", 1)), "P3")


def test_effort_bounds_the_shrinking() -> None:
    world = random_world("unordered", 2)
    rough = shrink(record(world), "P3", effort=0)
    assert replay(rough).judge({"P3"})
    assert len(rough.steps) > len(shrink(record(world), "P3").steps)


def test_the_steps_of_moving_members_read_back_as_they_were_written() -> None:
    steps = (
        Join("dan", "ann"),
        Broadcast("ann", b"", "news of/the day"),
        Broadcast("ann", b"%", "news"),
        Subscribe("bob", "a b"),
        Subscribe("bob", "%"),
        Subscribe("bob", ""),
        Unsubscribe("bob", "a b"),
        Suspect("ann", "bob"),
        Break("ann", "bob"),
        Restart("cat"),
        Leave("bob"),
    )
    schedule = Schedule("tcb", ("ann", "bob", "cat"), steps, joiners=("dan",))
    read = load(schedule.dump())
    assert read == schedule
    assert list(map(type, read.steps)) == list(map(type, steps))


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Broadcast("dan"), "not joined yet"),
        (Join("ann", "bob"), "there already"),
        (Join("dan", "ann"), "are fixed"),
        (Subscribe("ann", ""), "cannot name a topic"),
        (Break("ann", "bob"), "keeps no session link"),
    ],
)
def test_a_step_that_the_stack_does_not_know_is_named(step: Step, reason: str) -> None:
    with pytest.raises(ImpossibleStepError, match=reason):
        replay(Schedule("cbcast", ("ann", "bob"), (step,), joiners=("dan",)))


def test_a_restart_of_what_cannot_recover_is_named() -> None:
    with pytest.raises(ImpossibleStepError, match="cannot recover"):
        replay(Schedule("tcb-plumtree", ("ann", "bob"), (Restart("ann"),)))


def test_a_name_cannot_be_member_and_joiner() -> None:
    with pytest.raises(ScheduleError, match="given twice"):
        load("causalcast schedule 1\nstack tcb\nmembers a b\njoiners b\n")
