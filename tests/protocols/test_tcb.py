"""What users of other systems reported broken, and what no correct member sends, against the tcb process itself."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import msgspec
import pytest

import causalcast.protocols.ordering.tcb as tcb_module
from causalcast.model import Delivered, ProtocolViolationError, Stable
from causalcast.protocols import stack
from causalcast.protocols.ordering.tcb import PHANTOM_TIMER
from causalcast.protocols.ordering.tcb_graph import Phantom, TaggedMessage
from causalcast.simulation.world import Fire, Receive, Take, World

NAMES = ("ann", "bob", "cat")


def world() -> World:
    return World(stack("tcb"), NAMES)


def delivered(world: World, name: str) -> list[str]:
    return [str(e.message.tag.dot) for e in world.ports[name].queue if isinstance(e, Delivered)]


def state(world: World, name: str) -> tuple[Any, ...]:
    tcb = world.processes[name].ordering  # type: ignore[attr-defined]
    return (tcb.describe(), list(tcb._delivered), list(tcb._pending), dict(tcb._phantoms), len(world.ports[name].queue))


def test_a_gap_neither_advances_the_vector_nor_loses_an_event() -> None:
    """USERS 6: 5, 7, 6."""
    w = world()
    for number in range(7):
        w.broadcast("ann", b"%d" % number)
    for _ in range(5):
        w.do(Receive("ann", "bob"))
    w.do(Receive("ann", "bob", 1))
    assert delivered(w, "bob") == [f"ann:{n}" for n in range(1, 6)]
    assert w.processes["bob"].pending("ann") == 1
    w.do(Receive("ann", "bob"))
    assert delivered(w, "bob") == [f"ann:{n}" for n in range(1, 8)]
    assert w.processes["bob"].pending("ann") == 0


def test_a_gap_is_a_gap_even_when_the_context_does_not_say_so() -> None:
    w = world()
    w.processes["bob"].receive("ann", TaggedMessage("ann", 2, (), b"second"))
    assert delivered(w, "bob") == []
    w.processes["bob"].receive("ann", TaggedMessage("ann", 1, (), b"first"))
    assert delivered(w, "bob") == ["ann:1", "ann:2"]


def reversed_arrival(count: int) -> int:
    """Lines of tcb.py run while `count` messages of one chain arrive last first and are delivered."""
    w = world()
    for _ in range(count):
        w.broadcast("ann")
    process, messages = w.processes["bob"], w.in_flight["ann", "bob"]
    file, lines = tcb_module.__file__, 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != file:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for message in reversed(messages):
            process.receive("ann", message)
    finally:
        sys.settrace(before)
    assert len(delivered(w, "bob")) == count
    return lines


def test_messages_in_reverse_order_cost_linear_work() -> None:
    """USERS 12: four times the messages, four times the lines run, not sixteen."""
    assert reversed_arrival(2000) < 4.4 * reversed_arrival(500)


def test_a_chain_of_100_000_in_reverse_order_meets_no_recursion_limit() -> None:
    """USERS 12, and the stability of it: one message of cat, who took all, makes the chain stable at bob."""
    w = world()
    count = 100_000
    for _ in range(count):
        w.broadcast("ann")
    bob, cat = w.processes["bob"], w.processes["cat"]
    messages = w.in_flight["ann", "bob"]
    for message in reversed(messages):
        bob.receive("ann", message)
    for message in messages:
        cat.receive("ann", message)
    while w.ports["cat"].queue:
        cat.take(w.ports["cat"].queue.popleft())
    cat.broadcast(b"")
    bob.receive("cat", w.in_flight["cat", "bob"][0])
    kinds = [type(event) for event in w.ports["bob"].queue]
    assert (kinds.count(Delivered), kinds.count(Stable)) == (count + 1, count)
    stable = [event.tag.counter for event in w.ports["bob"].queue if isinstance(event, Stable)]
    assert stable == list(range(1, count + 1))


def test_ten_thousand_sends_in_one_moment_have_identifiers_that_strictly_increase() -> None:
    """USERS 4."""
    w = world()
    tags = [w.broadcast("ann", b"same") for _ in range(10_000)]
    assert [tag.counter for tag in tags] == list(range(1, 10_001))
    assert len(w.in_flight["ann", "bob"]) == 10_000
    assert all(a < b for a, b in pairwise(tags))


def test_the_same_payload_twice_is_two_messages() -> None:
    """USERS 5."""
    w = world()
    first, second = w.broadcast("ann", b"same"), w.broadcast("ann", b"same")
    assert first != second
    w.settle()
    assert [str(e.tag.dot) for e in w.logs["bob"] if e.kind == "deliver"] == ["ann:1", "ann:2"]


def test_a_message_behind_in_the_queue_is_not_in_the_tag() -> None:
    """004 section 3.6, independent processes: what waits in the delivery queue is concurrent with a broadcast."""
    w = world()
    ann = w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    bob = w.broadcast("bob")
    assert bob.context == ()
    assert bob.concurrent_with(ann)
    w.do(Take("bob"))
    assert w.broadcast("bob") > ann


def test_a_broadcast_while_more_is_ready_follows_only_what_was_taken() -> None:
    """004 section 3.6, callbacks: several messages are ready at once, the application answers the first."""
    w = world()
    first = w.broadcast("ann")
    w.broadcast("cat")
    w.do(Receive("ann", "bob"))
    w.do(Receive("cat", "bob"))
    w.do(Take("bob"))
    answer = w.broadcast("bob")
    assert answer.context == (("ann", 1),)
    assert answer > first
    w.do(Take("bob"))
    assert w.broadcast("bob").context == (("bob", 1), ("cat", 1))


def test_concurrent_messages_are_not_held_back_for_each_other() -> None:
    """004 section 3.6 and 3.7.1, over-ordering: where two broadcasts cross, neither waits for the other elsewhere."""
    w = world()
    w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    w.broadcast("bob")
    w.do(Receive("bob", "cat"))
    assert delivered(w, "cat") == ["bob:1"]


def test_a_phantom_counts_only_when_all_before_it_is_delivered() -> None:
    """A phantom may overtake the messages it speaks after; used early it would report stability too soon."""
    w = world()
    w.broadcast("ann")
    w.do(Receive("ann", "cat"))
    early = w.broadcast("cat")
    w.do(Take("cat"))
    w.do(Fire("cat", PHANTOM_TIMER))
    w.do(Receive("ann", "bob"))
    w.do(Receive("cat", "bob", 1))
    assert not any(isinstance(event, Stable) for event in w.ports["bob"].queue)
    w.do(Receive("cat", "bob"))
    kinds = [event.tag.dot if isinstance(event, Stable) else event.message.tag.dot for event in w.ports["bob"].queue]  # type: ignore[union-attr]
    assert kinds == [("ann", 1), early.dot, ("ann", 1)]


def test_an_older_phantom_that_comes_again_takes_nothing_back() -> None:
    """USERS 1, found by `test_an_old_message_replayed_after_its_effects_changes_nothing[tcb]`."""
    w = World(stack("tcb"), [*NAMES, "dan"])
    for sender in ("ann", "cat"):
        w.broadcast(sender)
        w.do(Receive(sender, "bob"))
        w.do(Take("bob"))
        w.do(Fire("bob", PHANTOM_TIMER))
    first, second = w.in_flight["bob", "ann"]
    w.in_flight["bob", "ann"].clear()
    ann = w.processes["ann"]
    w.do(Receive("cat", "ann"))
    for phantom in (first, second, first):
        ann.receive("bob", phantom)
    # dan was what cat:1 waited for; its node goes, and bob's next message passes over it.
    w.settle()
    w.broadcast("bob")
    w.settle()
    assert [e.kind for e in w.logs["ann"]].count("stable") == 3


def test_a_member_that_spoke_sends_no_phantom() -> None:
    w = world()
    w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    w.do(Take("bob"))
    assert list(w.ports["bob"].timers) == [PHANTOM_TIMER]
    w.broadcast("bob")
    assert not w.ports["bob"].timers
    w.broadcast("cat")
    w.do(Receive("cat", "bob"))
    w.do(Take("bob"))
    w.do(Fire("bob", PHANTOM_TIMER))
    assert [type(message) for message in w.in_flight["bob", "cat"]] == [TaggedMessage, Phantom]
    assert not w.ports["bob"].timers


def test_a_group_of_one_is_stable_at_once() -> None:
    w = World(stack("tcb"), ["ann"])
    w.broadcast("ann")
    w.settle()
    assert [entry.kind for entry in w.logs["ann"]] == ["broadcast", "stable"]


@pytest.mark.parametrize(
    ("sender", "message", "reason"),
    [
        ("ann", TaggedMessage("cat", 1, (), b""), "in the name of"),
        ("eve", TaggedMessage("eve", 1, (), b""), "not a member"),
        ("bob", TaggedMessage("bob", 1, (), b""), "came back"),
        ("ann", TaggedMessage("ann", 0, (), b""), "counters start at 1"),
        ("ann", TaggedMessage("ann", 1, (("eve", 1),), b""), "cannot hold"),
        ("ann", TaggedMessage("ann", 1, (("cat", 1), ("cat", 2)), b""), "cannot hold"),
        ("ann", TaggedMessage("ann", 1, (("cat", 0),), b""), "cannot hold"),
        ("ann", TaggedMessage("ann", 1, (("ann", 1),), b""), "cannot hold"),
        ("ann", TaggedMessage("ann", 3, (("ann", 1),), b""), "cannot hold"),
        ("ann", TaggedMessage("ann", 1, (("bob", 1),), b""), "cannot hold"),
        ("ann", Phantom("ann", 1, 1, (("bob", 1),)), "cannot hold"),
        ("ann", Phantom("ann", 0, 1, ()), "counters start at 1"),
    ],
)
def test_what_no_member_sends_is_refused_and_changes_nothing(sender: str, message: Any, reason: str) -> None:
    w = world()
    w.broadcast("cat")
    w.do(Receive("cat", "bob"))
    before = state(w, "bob")
    with pytest.raises(ProtocolViolationError, match=reason):
        w.processes["bob"].receive(sender, message)
    assert state(w, "bob") == before


def test_the_wire_decodes_what_it_encodes_and_nothing_of_another_stack() -> None:

    message = TaggedMessage("ann", 2, (("ann", 1), ("bob", 7)), b"\x00payload")
    data = msgspec.msgpack.encode(message)
    assert stack("tcb").decoder().decode(data) == message
    with pytest.raises(msgspec.ValidationError):
        stack("cbcast").decoder().decode(data)
