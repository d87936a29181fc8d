"""A process that crashes and takes up from its snapshot behaves as if it had not crashed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causalcast.model import SnapshotError
from causalcast.protocols import STACKS, stack
from causalcast.simulation import (
    NS_PER_MS,
    Broadcasts,
    Crash,
    Network,
    Simulator,
    Uniform,
    World,
    draw_faults,
    process_names,
    simulate,
)
from causalcast.simulation.check import check
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.properties import violations
from causalcast.simulation.world import (
    Broadcast,
    ImpossibleStepError,
    Join,
    Leave,
    Receive,
    Restart,
    Suspect,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.simulation.steps import LogEntry, Step

MS = NS_PER_MS
RECOVERING = [name for name, entry in STACKS.items() if entry.recovers]
NAMES = ("ann", "bob", "cat", "dan", "eve")
TOPICS = ("", "news", "weather")


class Twins:
    """Two worlds that take the same steps, but for restarts, which only the second has."""

    def __init__(self, stack_name: str, members: int, joiners: tuple[str, ...] = ()) -> None:
        self.calm = World(stack(stack_name), NAMES[:members], joiners)
        self.restarted = World(stack(stack_name), NAMES[:members], joiners)

    def do(self, step: Step) -> None:
        self.calm.do(step)
        self.restarted.do(step)

    def try_to(self, step: Step) -> None:
        """Take `step` if both can; if one cannot, neither can the other."""
        refused = 0
        for world in (self.calm, self.restarted):
            try:
                world.do(step)
            except ImpossibleStepError:
                refused += 1
        assert refused in {0, 2}

    def restart(self, name: str) -> None:
        world = self.restarted
        before = world.processes[name].snapshot()
        world.do(Restart(name))
        assert world.processes[name].snapshot() == before
        assert set(world.enabled(fifo=False)) == set(self.calm.enabled(fifo=False))

    def judge(self) -> None:
        """Both see the same, and it is what the stack promises to fixed members."""
        self.compare()
        assert violations(self.restarted.logs, self.calm.stack.promises) == []

    def compare(self) -> None:
        """Whatever is left to do is done; then both have seen the same."""
        while steps := self.calm.enabled(fifo=True):
            self.do(steps[0])
        assert self.restarted.quiescent
        for name, seen in self.calm.logs.items():
            assert [shown(entry) for entry in self.restarted.logs[name] if entry.kind != "recover"] == [
                shown(entry) for entry in seen
            ]
        for name, process in self.calm.processes.items():
            assert process.snapshot() == self.restarted.processes[name].snapshot()


def shown(entry: LogEntry) -> tuple[object, ...]:
    tag = entry.tag
    return (entry.kind, entry.topic, entry.payload, tag and (tag.origin, tag.counter, tag.context, tag.counts))


@pytest.mark.parametrize("name", RECOVERING)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_schedule_with_restarts_anywhere_gives_the_same_logs(name: str, data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 4), label="members")
    twins = Twins(name, members)
    topics = TOPICS if twins.calm.stack.topics else TOPICS[:1]
    for number in range(data.draw(st.integers(0, 60), label="steps")):
        member = data.draw(st.sampled_from(NAMES[:members]), label="member")
        steps = twins.calm.enabled(fifo=False)
        choice = data.draw(st.integers(0, len(steps) + 1), label="step")
        if choice < len(steps):
            twins.do(steps[choice])
        elif choice == len(steps):
            twins.do(Broadcast(member, b"%d" % number, data.draw(st.sampled_from(topics), label="topic")))
        else:
            twins.restart(member)
    twins.judge()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_schedule_of_members_that_come_and_go_with_restarts_gives_the_same_logs(data: st.DataObject) -> None:
    members = data.draw(st.integers(1, 3), label="members")
    joiners = NAMES[members : members + 2]
    twins = Twins("tcb-dynamic", members, joiners)
    names = NAMES[: members + 2]
    for number in range(data.draw(st.integers(0, 80), label="steps")):
        one, other = data.draw(st.permutations(names), label="who")[:2]
        steps = twins.calm.enabled(fifo=data.draw(st.booleans(), label="in order"))
        choice = data.draw(st.integers(-3, len(steps) + 2), label="step")
        if 0 <= choice < len(steps):
            twins.do(steps[choice])
        elif choice >= len(steps):
            twins.try_to(Broadcast(one, b"%d" % number))
        elif choice == -1:
            step = data.draw(st.sampled_from((Join(one, other), Leave(one), Suspect(one, other))), label="membership")
            twins.try_to(step)
        elif twins.restarted.possible(Restart(one)) is None:
            twins.restart(one)
    twins.compare()


@pytest.mark.parametrize("name", RECOVERING)
@pytest.mark.parametrize("late", [0.1, 0.8], ids=["eager", "late"])
def test_long_schedules_with_many_restarts_give_the_same_logs(name: str, late: float) -> None:
    """More messages of one member than a packed vector begins with room for, and long queues."""
    draw = random.Random(name)
    twins = Twins(name, 3)
    broadcasts = 155
    while broadcasts:
        steps = twins.calm.enabled(fifo=False)
        if draw.random() < late:
            steps = [step for step in steps if not isinstance(step, Take)]
        if draw.random() < 0.03:
            twins.restart(draw.choice(NAMES[:3]))
        elif not steps or draw.random() < 0.2:
            broadcasts -= 1
            twins.do(Broadcast("ann" if draw.random() < 0.9 else "bob", b"%d" % broadcasts))
        else:
            twins.do(draw.choice(steps))
    twins.judge()
    assert sum(entry.kind == "broadcast" for entry in twins.calm.logs["ann"]) > 128


def test_who_waits_for_whom_is_kept_in_a_group_of_more_than_64() -> None:
    names = [f"m{number:02}" for number in range(70)]
    world = World(stack("tcb"), names)
    last, sender = "m69", "m68"
    for name in names[:68]:
        world.broadcast(name, name.encode())
        world.do(Receive(name, sender, 0))
    while world.ports[sender].queue:
        world.do(Take(sender))
    world.broadcast(sender, b"after all of them")
    world.do(Receive(sender, last, 0))
    world.do(Restart(last))
    assert world.processes[last].pending(sender) == 1
    for name in reversed(names[:68]):
        assert len(world.ports[last].queue) < 68
        world.do(Receive(name, last, 0))
    assert len(world.ports[last].queue) == 69


@pytest.mark.parametrize("name", ["tcb", "cbcast"])
@pytest.mark.parametrize("taken", range(4))
def test_a_chain_keeps_its_order_over_a_crash_anywhere_in_its_release(name: str, taken: int) -> None:
    """USERS 2: of C, B, A in reverse, a crash while they wait and one after the first `taken` of A, B, C."""
    world = World(stack(name), ("ann", "bob"))
    for payload in (b"A", b"B", b"C"):
        world.broadcast("ann", payload)
    world.do(Receive("ann", "bob", 2))
    world.do(Receive("ann", "bob", 1))
    world.do(Restart("bob"))
    assert world.processes["bob"].pending("ann") == 2
    assert not world.ports["bob"].queue
    world.do(Receive("ann", "bob", 0))
    for _ in range(taken):
        world.do(Take("bob"))
    world.do(Restart("bob"))
    world.settle()
    dots = [str(entry.tag.dot) for entry in world.logs["bob"] if entry.kind == "deliver" and entry.tag is not None]
    assert dots == ["ann:1", "ann:2", "ann:3"]


@pytest.mark.parametrize("topic", ["", "news"])
def test_who_had_news_when_it_crashed_still_tells_it(topic: str) -> None:
    """Without the timer of the one that restarts nobody learns that the message is stable (P6)."""
    world = World(stack("tcb"), ("ann", "bob"))
    world.broadcast("ann", b"hello", topic)
    world.do(Receive("ann", "bob", 0))
    world.do(Take("bob"))
    world.do(Restart("bob"))
    world.settle()
    assert [entry.kind for entry in world.logs["ann"]] == ["broadcast", "stable"]
    assert [entry.kind for entry in world.logs["bob"]] == ["deliver", "recover", "stable"]


def test_tags_of_before_and_after_a_restart_compare() -> None:
    for topic in TOPICS:
        world = World(stack("tcb"), ("ann", "bob"))
        before = world.broadcast("ann", b"1", topic)
        world.do(Restart("ann"))
        after = world.broadcast("ann", b"2", topic)
        other = world.broadcast("bob", b"3", topic)
        assert before < after
        assert after.concurrent_with(other)


def recovering(name: str, seed: int) -> Callable[[Callable[[Step], None] | None], Simulator]:
    names = process_names(4)
    faults = [
        *draw_faults(names, seed=seed, count=5, within_ns=150 * MS),
        *(
            Crash(names[number % 4], (10 + 17 * number + seed) * MS, (1 + 23 * number % 60) * MS)
            for number in range(seed, seed + 8)
        ),
    ]

    def prepare(record: Callable[[Step], None] | None) -> Simulator:
        return Simulator(
            stack(name),
            names,
            Broadcasts(10),
            seed=seed,
            network=Network(Uniform(0, 30 * MS), fifo=bool(seed % 2), duplication=0.1),
            thinking=Uniform(0, 9 * MS),
            faults=faults,
            record=record,
        )

    return prepare


@pytest.mark.parametrize("name", RECOVERING)
@pytest.mark.parametrize("seed", range(4))
def test_promises_hold_when_processes_crash_and_recover_among_other_faults(name: str, seed: int) -> None:
    verdict = check(recovering(name, seed))
    assert verdict.violation is None
    assert verdict.left_open == frozenset()
    assert verdict.simulator.counters.deliveries == 4 * 3 * 10


@pytest.mark.parametrize("name", RECOVERING)
def test_every_schedule_of_a_small_case_with_a_restart(name: str) -> None:
    outcome = explore(Case(stack(name), ("p0", "p1"), 2, restarts=1))
    assert outcome.found is None
    assert outcome.exhausted


def test_a_process_that_forgets_its_counters_is_caught() -> None:
    """What the checks above would see if a snapshot did not say what was sent."""
    tcb = stack("tcb")

    class Forgetful(tcb.ordering):  # type: ignore[name-defined, misc] # the registry says it is a callable
        def restore(self, snapshot: bytes) -> None:
            super().restore(snapshot)
            self._taken[self._my_slot] = 0

    outcome = explore(Case(replace(tcb, ordering=Forgetful), ("p0", "p1"), (2, 0), restarts=1))
    assert outcome.found is not None


@pytest.mark.parametrize("name", RECOVERING)
def test_other_bytes_are_no_snapshot(name: str) -> None:
    simulator = simulate(name, nodes=3, messages=5)
    host = simulator.hosts["p0"]
    good = host.process.snapshot()
    for bad in (b"", b"\xc1", good[:-1], good + b"\0", good[: len(good) // 2], b"\x92\xc4\x01\x00\x80"):
        with pytest.raises(SnapshotError, match=f"no snapshot of a process of '{name}'"):
            stack(name).recover(host, simulator.members, bad)
