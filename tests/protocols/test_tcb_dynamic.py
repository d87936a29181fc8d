"""`tcb-dynamic`: cases of joins, leaves and evictions by hand, and drawn ones judged by the brute-force checker."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causalcast.model import Delivered, MembershipChanged, ProtocolViolationError, Roster, Stable
from causalcast.protocols import stack
from causalcast.protocols.ordering.tcb_dynamic_messages import JoinDot, JoinRequest, Refusal
from causalcast.simulation.properties import Judge, own_tables
from causalcast.simulation.steps import Broadcast, Crash, Fire, Join, Leave, Receive, Suspect, Take
from causalcast.simulation.world import ImpossibleStepError, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import ProcessId

STACK = stack("tcb-dynamic")


def world(members: str, joiners: str = "") -> World:
    return World(STACK, members.split(), joiners.split())


def others(run: World, name: ProcessId) -> list[ProcessId]:
    return sorted(run.processes[name].membership.others)  # type: ignore[attr-defined]


def state(run: World, name: ProcessId) -> str:
    return run.processes[name].membership.state  # type: ignore[attr-defined,no-any-return]


def kinds(run: World, name: ProcessId) -> list[str]:
    return [f"{entry.kind} {entry.message}" if entry.tag else f"{entry.kind}{entry.peer}" for entry in run.logs[name]]


def judged(run: World) -> None:
    """Nothing of P1 to P8 is broken, though all is at rest."""
    run.settle()
    judge = Judge(run)
    judge.look()
    assert judge.violations == []
    assert judge.at_rest(own_tables) == []


def through(run: World, sender: ProcessId, receiver: ProcessId) -> None:
    """All that is in flight on a link arrives."""
    while run.in_flight[sender, receiver]:
        run.do(Receive(sender, receiver))


# ---------------------------------------------------------------------- joins


def test_a_joiner_gets_what_follows_its_join_and_what_is_concurrent_with_it() -> None:
    run = world("ann bob", "cat")
    run.broadcast("ann", b"before")
    run.settle()
    run.broadcast("bob", b"on its way")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    run.settle()
    run.broadcast("bob", b"after")
    run.broadcast("cat", b"mine")
    judged(run)
    assert kinds(run, "cat")[:3] == ["joining", "join", "deliver bob:1"]
    assert [entry.payload for entry in run.logs["cat"] if entry.kind == "deliver"] == [b"on its way", b"after"]
    assert others(run, "ann") == ["bob", "cat"]


def test_numbers_and_contexts_of_messages_have_no_gaps_where_members_came() -> None:
    run = world("ann", "bob cat")
    run.broadcast("ann")
    run.do(Join("bob", "ann"))
    run.settle()
    run.do(Join("cat", "bob"))
    run.settle()
    tag = run.broadcast("ann")
    assert (tag.counter, tag.context) == (2, (("ann", 1),))
    run.settle()
    assert run.broadcast("cat").context == (("ann", 2),)
    judged(run)


@pytest.mark.parametrize("seed", range(6))
def test_in_bursts_each_message_becomes_stable_once_whoever_comes_and_goes(seed: int) -> None:
    """Two members, to whom each message of the other is stable at once, a third that joins, and one that leaves."""
    draw = random.Random(seed)
    run = world("ann bob", "cat")
    names = ["ann", "bob"]
    turns = [Join("cat", "ann"), Leave("bob")]
    for _ in range(8):
        for _ in range(draw.randint(1, 4)):
            name = draw.choice(names)
            for _ in range(draw.randint(1, 12)):
                run.broadcast(name)
            for _ in range(draw.randint(0, 40)):
                if steps := run.enabled(fifo=True):
                    run.do(draw.choice(steps))
        if turns and draw.random() < 0.3:
            turn = turns.pop(0)
            run.settle()
            run.do(turn)
            run.settle()
            names = ["ann", "bob", "cat"] if isinstance(turn, Join) else ["ann", "cat"]
    judged(run)
    for name in names:
        stable = [entry.message for entry in run.logs[name] if entry.kind == "stable"]
        assert len(stable) == len(set(stable))
        assert run.processes[name].unstable == 0


def test_one_that_comes_back_before_it_takes_a_message_speaks_as_if_it_had_stayed() -> None:
    """The message follows a join, which its tag does not name: what it was sent with must not be forgotten."""
    run = world("ann bob", "cat")
    run.broadcast("ann")
    run.settle()
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    run.broadcast("ann")
    through(run, "ann", "bob")
    stayed = run.processes["bob"]
    port = copy.copy(run.ports["bob"])
    came_back = STACK.recover(port, Roster(["ann", "bob"]), stayed.snapshot())  # type: ignore[attr-defined]
    events = list(run.ports["bob"].queue)
    assert any(isinstance(event, Delivered) for event in events)
    for event in events:
        stayed.take(event)
        came_back.take(event)
    assert stayed.snapshot() == came_back.snapshot()  # type: ignore[attr-defined]


def test_tags_compare_across_joins_and_leaves() -> None:
    run = world("ann bob", "cat")
    first = run.broadcast("bob")
    run.settle()
    apart = run.broadcast("bob")
    run.do(Join("cat", "ann"))
    run.settle()
    run.do(Leave("bob"))
    run.settle()
    last = run.broadcast("cat")
    run.settle()
    seen = {entry.message: entry.tag for entry in run.logs["ann"] if entry.tag}
    one, two, three = (seen[tag.dot] for tag in (first, apart, last))
    assert one is not None
    assert two is not None
    assert three is not None
    assert others(run, "ann") == ["cat"]
    assert one < two < three
    assert three > one
    assert not three < two
    assert not one.concurrent_with(three)
    judged(run)


def test_two_join_at_once_through_different_contacts() -> None:
    run = world("ann bob", "cat dan")
    for name, contact in (("cat", "ann"), ("dan", "bob")):
        run.do(Join(name, contact))
        through(run, name, contact)
    run.settle()
    for name in run.roster:
        assert others(run, name) == [other for other in run.roster if other != name]
        run.broadcast(name)
    judged(run)


def test_nobody_is_let_in_under_a_name_that_is_in_use() -> None:
    run = world("ann bob", "cat")
    run.do(Join("cat", "ann"))
    run.settle()
    run.processes["bob"].receive("cat", JoinRequest("cat"))
    assert [type(each) for each in run.in_flight["bob", "cat"]] == [Refusal]


def test_a_contact_that_leaves_passes_the_request_on() -> None:
    run = world("ann bob", "cat")
    run.do(Leave("ann"))
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    run.settle()
    assert state(run, "cat") == "member"
    assert others(run, "cat") == ["bob"]
    judged(run)


def test_a_joiner_may_not_broadcast_before_it_is_a_member() -> None:
    run = world("ann bob", "cat")
    run.do(Join("cat", "ann"))
    with pytest.raises(ImpossibleStepError, match="can broadcast while it is a member"):
        run.do(Broadcast("cat"))


def test_an_application_that_is_behind_lets_the_joiner_wait_and_nobody_else() -> None:
    run = world("ann bob", "cat")
    run.broadcast("bob", b"untaken")
    through(run, "bob", "ann")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    assert not run.in_flight["ann", "cat"]
    run.do(Take("ann"))
    assert len(run.in_flight["ann", "cat"]) == 1
    judged(run)


def test_the_state_of_the_application_comes_before_its_first_event() -> None:
    run = world("ann bob", "cat")
    given: list[object] = []
    joins = {name: run.processes[name].membership.joins for name in run.roster}  # type: ignore[attr-defined]
    joins["ann"].give_state = lambda: b"so far: 1"
    joins["cat"].take_state = lambda data: given.append((data, len(run.logs["cat"])))
    run.broadcast("bob", b"1")
    run.do(Receive("bob", "ann"))
    run.do(Take("ann"))
    run.do(Join("cat", "ann"))
    run.settle()
    assert given == [(b"so far: 1", 1)]
    # What is in the state is not delivered, and becomes stable.
    assert kinds(run, "cat") == ["joining", "join", "stable bob:1"]


# ---------------------------------------------------------------------- leaves


def test_a_leaver_stays_until_all_have_taken_its_leave() -> None:
    run = world("ann bob cat")
    run.broadcast("cat", b"last words")
    run.do(Leave("cat"))
    for name in ("ann", "bob"):
        assert state(run, "cat") == "leaving"
        through(run, "cat", name)
        while run.ports[name].queue:
            run.do(Take(name))
        through(run, name, "cat")
    assert state(run, "cat") == "out"
    judged(run)
    assert others(run, "ann") == ["bob"]


def test_a_member_that_reads_slowly_blocks_nobody_by_its_leave_or_its_presence() -> None:
    run = world("ann bob cat")
    run.do(Leave("cat"))
    through(run, "cat", "ann")
    run.broadcast("ann", b"1")
    through(run, "ann", "bob")
    assert [type(event) for event in run.ports["bob"].queue] == []
    through(run, "cat", "bob")
    assert [type(event) for event in run.ports["bob"].queue] == [MembershipChanged, Delivered, Stable]
    judged(run)


def test_one_that_joins_meanwhile_gets_what_the_leaver_had_sent() -> None:
    run = world("ann bob", "cat")
    run.broadcast("bob", b"concurrent with the join")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    run.do(Leave("bob"))
    judged(run)
    assert [entry.payload for entry in run.logs["cat"] if entry.kind == "deliver"] == [b"concurrent with the join"]


def test_a_reader_that_speaks_long_after_a_leave_names_nobody_who_is_forgotten() -> None:
    run = world("ann bob cat")
    run.broadcast("cat")
    run.settle()
    run.do(Leave("cat"))
    run.settle()
    run.broadcast("bob")
    assert [dot for dot in run.in_flight["bob", "ann"][0].context if dot[0].startswith("cat")] == []
    judged(run)


def test_the_last_two_leave() -> None:
    run = world("ann bob")
    run.do(Leave("ann"))
    run.do(Leave("bob"))
    run.settle()
    assert [state(run, name) for name in ("ann", "bob")] == ["out", "out"]


# ---------------------------------------------------------------------- evictions


def crash_having_told(run: World, name: ProcessId, told: dict[ProcessId, int]) -> None:
    """`name` crashes; of what it had in flight, so much reaches each."""
    run.do(Crash(name))
    for (sender, receiver), items in run.in_flight.items():
        if sender == name:
            del items[told.get(receiver, 0) :]


def test_what_one_survivor_has_of_the_crashed_all_get() -> None:
    run = world("ann bob cat dan")
    run.broadcast("dan", b"1")
    run.broadcast("dan", b"2")
    crash_having_told(run, "dan", {"bob": 2, "cat": 1})
    run.settle()
    run.do(Suspect("ann", "dan"))
    judged(run)
    for name in ("ann", "bob", "cat"):
        assert [entry.payload for entry in run.logs[name] if entry.kind == "deliver"] == [b"1", b"2"]
        assert "evictdan" in kinds(run, name)
        assert others(run, name) == [other for other in ("ann", "bob", "cat") if other != name]


def test_what_depends_on_what_nobody_has_is_dropped_by_all() -> None:
    run = world("ann bob cat")
    for payload in (b"lost", b"depends on it"):
        run.broadcast("cat", payload)
    run.do(Receive("cat", "ann", 1))
    assert run.processes["ann"].pending("cat") == 1
    crash_having_told(run, "cat", {})
    run.do(Suspect("bob", "cat"))
    judged(run)
    assert "deliver" not in "".join(kinds(run, "ann") + kinds(run, "bob"))


def test_others_deliver_meanwhile_and_stability_follows_the_decision() -> None:
    run = world("ann bob cat")
    run.do(Crash("cat"))
    run.broadcast("ann", b"1")
    run.settle()
    assert "deliver ann:1" in kinds(run, "bob")
    assert "stable ann:1" not in kinds(run, "bob")
    run.do(Suspect("bob", "cat"))
    judged(run)
    assert "stable ann:1" in kinds(run, "bob")


def test_a_member_put_out_though_it_lives_is_told_and_stops() -> None:
    run = world("ann bob cat")
    run.broadcast("cat", b"in time")
    through(run, "cat", "bob")
    run.do(Suspect("ann", "cat"))
    run.broadcast("cat", b"too late")
    judged(run)
    assert kinds(run, "cat")[-1] == "evictcat"
    assert state(run, "cat") == "out"
    for name in ("ann", "bob"):
        assert [entry.payload for entry in run.logs[name] if entry.kind == "deliver"] == [b"in time"]


def test_what_the_evicted_sent_arrives_after_it_is_forgotten_and_is_dropped() -> None:
    run = world("ann bob cat")
    run.broadcast("cat", b"too late")
    late = list(run.in_flight["cat", "ann"])
    crash_having_told(run, "cat", {})
    run.do(Suspect("ann", "cat"))
    run.settle()
    run.in_flight["cat", "ann"].extend(late)
    judged(run)
    assert run.processes["ann"].pending("cat") == 0


def test_a_joiner_whose_contact_crashed_before_it_told_anybody_is_told_that_it_is_out() -> None:
    run = world("ann bob", "cat")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    crash_having_told(run, "ann", {"cat": 1})
    run.do(Suspect("bob", "ann"))
    run.settle()
    assert state(run, "cat") == "installed"
    run.do(Suspect("cat", "ann"))
    run.settle()
    assert state(run, "cat") == "out"
    assert others(run, "bob") == []
    judged(run)


def test_a_joiner_brings_its_own_join_if_its_contact_is_not_yet_known_to_have_crashed() -> None:
    run = world("ann bob", "cat")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    crash_having_told(run, "ann", {"cat": 1})
    run.settle()
    run.do(Suspect("cat", "ann"))
    judged(run)
    assert state(run, "cat") == "member"
    assert others(run, "bob") == ["cat"]


def test_the_join_through_a_crashed_contact_reaches_all_if_anybody_has_it() -> None:
    run = world("ann bob dan", "cat")
    run.do(Join("cat", "ann"))
    through(run, "cat", "ann")
    crash_having_told(run, "ann", {"cat": 1, "bob": 1})
    run.settle()
    assert isinstance(next(iter(run.processes["bob"].ordering.graph.nodes.values())).message, JoinDot)  # type: ignore[attr-defined]
    run.do(Suspect("bob", "ann"))
    judged(run)
    assert others(run, "dan") == ["bob", "cat"]
    assert state(run, "cat") == "member"


def test_two_are_evicted_of_whom_one_had_what_the_other_sent() -> None:
    run = world("ann bob cat dan")
    run.broadcast("dan", b"only for cat")
    crash_having_told(run, "dan", {"cat": 1})
    run.settle()
    run.broadcast("cat", b"answer")
    run.do(Suspect("cat", "dan"))
    crash_having_told(run, "cat", {"bob": 2})
    run.settle()
    run.do(Suspect("ann", "cat"))
    run.do(Suspect("ann", "dan"))
    judged(run)
    delivered = [[entry.payload for entry in run.logs[name] if entry.kind == "deliver"] for name in ("ann", "bob")]
    assert delivered == [[b"only for cat", b"answer"]] * 2


# ---------------------------------------------------------------------- drawn


class Drawn:
    """A run in which members come, go, crash with part of what they sent, and are suspected rightly or wrongly."""

    def __init__(self, seed: int, *, crashes: int = 0, wrong: int = 0, leaves: int = 1, repeats: float = 0.0) -> None:
        self.draw = random.Random(seed)
        members, joiners = 3 + seed % 3, 2
        self.run = World(STACK, [f"p{n}" for n in range(members)], [f"q{n}" for n in range(joiners)])
        self.fifo = seed % 2 == 0
        self.repeats = repeats
        self.look: Callable[[World], None] | None = None
        """Is shown the run after every step."""
        self.todo = ["broadcast"] * 18 + ["join"] * joiners + ["leave"] * leaves + ["crash"] * crashes
        self.todo += ["suspect"] * wrong
        self.draw.shuffle(self.todo)

    def alive(self) -> list[ProcessId]:
        run = self.run
        return [n for n in run.roster if n not in run.crashed and n not in run.absent and not run.ports[n].gone]

    def act(self) -> None:
        """One of the things to do."""
        draw, run, alive = self.draw, self.run, self.alive()
        kind = self.todo.pop()
        name = draw.choice(alive)
        if kind == "broadcast" and state(run, name) == "member":
            run.broadcast(name, str(len(self.todo)).encode())
        elif kind == "join":
            run.do(Join(draw.choice(sorted(run.absent)), name))
        elif kind == "leave" and len(alive) > 1 and state(run, name) != "leaving":
            run.do(Leave(name))
        elif kind == "crash" and len(alive) > 1:
            crash_having_told(run, name, {other: draw.randrange(8) for other in run.roster})
        elif kind == "suspect" and len(alive) > 2:
            run.do(Suspect(name, draw.choice([other for other in alive if other != name])))

    def find_out(self) -> bool:
        """Somebody finds out that one that is gone is gone; returns whether anybody could."""
        run = self.run
        gone = [name for name in run.roster if name in run.crashed or run.ports[name].gone]
        for name in self.alive():
            membership: Any = run.processes[name].membership  # type: ignore[attr-defined]
            for peer in gone:
                awaits = state(run, name) == "joining" and membership.joins.contact == peer
                if awaits or (peer in membership.present() and not membership.evictions.closed_to(peer)):
                    run.do(Suspect(name, peer))
                    return True
        return False

    def all(self) -> World:
        draw, run = self.draw, self.run
        while self.alive():
            steps = run.enabled(fifo=self.fifo)
            if draw.random() < 0.3:
                steps = [step for step in steps if not isinstance(step, Take)] or steps
            if draw.random() < 0.7:
                steps = [step for step in steps if not isinstance(step, Fire)] or steps
            if self.todo and (not steps or draw.random() < 0.12):
                self.act()
            elif steps:
                step = draw.choice(steps)
                result = run.do(step)
                if self.look is not None:
                    self.look(run)
                if isinstance(step, Receive) and not run.ports[step.receiver].gone and draw.random() < self.repeats:
                    run.in_flight[step.sender, step.receiver].append(result)
            elif not self.find_out():
                break
        return run


CHURN: dict[str, dict[str, Any]] = {
    "joins and leaves": {"leaves": 2},
    "repeated messages": {"leaves": 2, "repeats": 0.1},
    "crashes": {"crashes": 2},
    "wrong suspicions": {"wrong": 2},
    "all of it": {"crashes": 1, "wrong": 1, "leaves": 2},
}


def look_for_calm(run: World) -> None:
    """No process takes itself for calm that has anything to do but for messages."""
    for process in run.processes.values():
        membership: Any = process.membership  # type: ignore[attr-defined]
        busy = membership.gone or membership.evictions.open or membership.joins.requests
        assert not membership.is_calm or (membership.state == "member" and not busy)


@pytest.mark.parametrize("name", CHURN)
def test_drawn_churn_keeps_all_promises(name: str) -> None:
    for seed in range(5):
        drawn = Drawn(seed, **CHURN[name])
        drawn.look = look_for_calm
        run = drawn.all()
        judged(run)
        assert all(run.processes[alive].membership.is_calm for alive in drawn.alive())  # type: ignore[attr-defined]
        alive = [other for other in run.roster if other not in run.crashed and not run.ports[other].gone]
        assert {state(run, other) for other in alive} <= {"member"}, seed
        if "wrong" not in CHURN[name]:
            # Otherwise two parts may have evicted each other.
            assert all(others(run, one) == [other for other in alive if other != one] for one in alive), seed


# ---------------------------------------------------------------------- whatever a peer sends

NAMES = st.sampled_from(["ann", "bob", "cat", "bob/", "", "a b"])
DOTS = st.lists(st.tuples(NAMES, st.integers(-1, 4) | st.just(2**63)), max_size=3)
NUMBERS = st.integers(-1, 4) | st.just(2**63)
BODIES = st.deferred(
    lambda: (
        st.tuples(st.just(150), NAMES, NUMBERS, DOTS, st.just(b"x"), st.none() | DOTS)
        | st.tuples(st.just(151), NAMES, NUMBERS, DOTS, NAMES)
        | st.tuples(st.just(152), NAMES, NUMBERS, DOTS)
        | st.tuples(st.just(153), NAMES, NUMBERS, DOTS, NAMES, st.lists(BODIES, max_size=2))
        | st.tuples(st.just(154), NAMES, NUMBERS, DOTS, st.lists(NAMES, max_size=2))
        | st.tuples(st.just(155), NAMES, NUMBERS, NUMBERS, DOTS)
    )
)
OTHERS = (
    st.tuples(st.just(156), NAMES)
    | st.tuples(st.sampled_from([157, 159]), st.lists(BODIES, max_size=2))
    | st.tuples(st.just(158), NUMBERS, NUMBERS)
    | st.tuples(st.just(160))
)


def have_taken(run: World, dot: tuple[str, int]) -> int | None:
    """At how many processes the message is taken, by its application or with the state that it began with.

    `None`: one of them has forgotten its origin, or does not know it yet.
    """
    installed = [name for name in run.processes if state(run, name) != "joining" and name not in run.absent]
    counts = [run.processes[name].ordering.taken.get(dot[0]) for name in installed]  # type: ignore[attr-defined]
    return None if None in counts else sum(count >= dot[1] for count in counts)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), leaves=st.integers(0, 2))
def test_no_message_is_said_to_be_at_more_members_than_have_taken_it_and_at_last_it_is_at_all(
    seed: int, leaves: int
) -> None:
    drawn = Drawn(seed, leaves=leaves)

    def look(run: World) -> None:
        name = drawn.draw.choice(drawn.alive() or list(run.processes))
        ordering: Any = run.processes[name].ordering  # type: ignore[attr-defined]
        origin, last = drawn.draw.choice(list(ordering.taken.items()))
        if last and not origin.endswith("/"):
            dot = origin, drawn.draw.randint(1, last)
            taken = have_taken(run, dot)
            assert taken is None or 1 <= ordering.holders(dot) <= taken

    drawn.look = look
    run = drawn.all()
    for name in drawn.alive():
        ordering: Any = run.processes[name].ordering  # type: ignore[attr-defined]
        for entry in run.logs[name]:
            if entry.kind == "deliver" and entry.tag is not None:
                assert ordering.holders(entry.tag.dot) == len(others(run, name)) + 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies=st.lists(BODIES | OTHERS, max_size=8))
def test_whatever_arrives_the_answer_is_an_error_that_says_so(bodies: list[tuple[object, ...]]) -> None:
    run = world("ann bob cat")
    decode = STACK.decoder().decode
    for body in bodies:
        with contextlib.suppress(msgspec.DecodeError, ProtocolViolationError):
            run.processes["ann"].receive("bob", decode(msgspec.msgpack.encode(body)))
