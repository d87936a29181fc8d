"""The vector twins of tcb, and tcb without stability: what they share, where they differ, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from causalcast.model import Delivered, ProtocolViolationError, Stable, UnsupportedByStackError
from causalcast.protocols import stack
from causalcast.protocols.ordering.cbcast import VectorMessage
from causalcast.protocols.ordering.vv import TwoVectorMessage
from causalcast.protocols.ordering.vv_stable import PHANTOM_TIMER, VectorPhantom
from causalcast.protocols.twin_stacks import TWIN_STACKS
from causalcast.simulation.world import Fire, Receive, Take, World
from tests.protocols.test_random_schedules import seeded

NAMES = ("ann", "bob", "cat")
VECTOR_STACKS = ("vv", "vv-stable", "vv-classical", "vv-classical-stable")
STABLE = ("vv-stable", "vv-classical-stable")


def ordering(world: World, name: str) -> Any:
    return world.processes[name].ordering  # type: ignore[attr-defined]


def stable(world: World, name: str) -> list[str]:
    return [str(e.tag.dot) for e in world.ports[name].queue if isinstance(e, Stable)]


def delivered(world: World, name: str) -> list[str]:
    return [str(e.message.tag.dot) for e in world.ports[name].queue if isinstance(e, Delivered)]


@pytest.mark.parametrize("twin", ["vv", "tcb-delivery"])
def test_twins_do_the_same_under_the_same_schedule(twin: str) -> None:
    for seed in range(4):
        one = seeded("cbcast", seed, members=4, broadcasts=40, late=0.4)
        other = seeded(twin, seed, members=4, broadcasts=40, late=0.4)
        for name in one.logs:
            assert [(e.kind, e.tag.dot, e.tag.counts) for e in one.logs[name] if e.tag] == [
                (e.kind, e.tag.dot, e.tag.counts) for e in other.logs[name] if e.tag
            ]


@pytest.mark.parametrize(("name", "held"), [("vv", False), ("vv-classical", True)])
def test_only_the_middlewares_vectors_hold_back_what_is_concurrent(name: str, held: bool) -> None:
    """004 section 3.5.1: what lay untaken at bob is waited for at cat, though the tags say concurrent."""
    w = World(stack(name), NAMES)
    ann = w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    bob = w.broadcast("bob")
    assert bob.concurrent_with(ann)
    w.do(Receive("bob", "cat"))
    assert delivered(w, "cat") == ([] if held else ["bob:1"])
    w.do(Receive("ann", "cat"))
    assert sorted(delivered(w, "cat")) == ["ann:1", "bob:1"]


def test_a_message_that_overtakes_another_is_not_taken_for_it() -> None:
    """004 algorithm 7, line 24: receptions are counted there, and ann:1 would be dropped."""
    w = World(stack("vv"), NAMES)
    w.broadcast("ann")
    w.broadcast("ann")
    w.do(Receive("ann", "bob", 1))
    w.do(Receive("ann", "bob"))
    assert delivered(w, "bob") == ["ann:1", "ann:2"]


@pytest.mark.parametrize("name", STABLE)
def test_members_that_only_read_keep_nothing_from_becoming_stable(name: str) -> None:
    """P6: ann alone broadcasts; at cat, the smallest count is often its own row (004 algorithm 7, line 38)."""
    w = World(stack(name), NAMES)
    for _ in range(5):
        w.broadcast("ann")
    w.settle()
    for each in NAMES:
        assert [entry.kind for entry in w.logs[each]].count("stable") == 5
        process = ordering(w, each)
        assert (process.unstable, process._unstable, process._phantoms, process._queue) == (0, {}, {}, [])


def test_a_message_that_waits_untaken_is_not_stable_for_what_its_reader_has_delivered() -> None:
    """004 section 8.4.1 with stability: bob's middleware has ann:1, its application does not, and may yet broadcast."""
    w = World(stack("vv-classical-stable"), ("ann", "bob"))
    w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    w.broadcast("bob")
    w.do(Receive("bob", "ann"))
    w.broadcast("bob")
    assert stable(w, "ann") == ["bob:1"]
    w.do(Receive("bob", "ann"))
    w.do(Take("bob"))
    w.broadcast("bob")
    w.do(Receive("bob", "ann"))
    assert stable(w, "ann") == ["bob:1", "bob:2", "ann:1", "bob:3"]


def test_a_phantom_counts_only_when_all_its_sender_broadcast_before_is_delivered() -> None:
    w = World(stack("vv-stable"), ("ann", "bob"))
    w.broadcast("ann")
    w.broadcast("bob")
    w.do(Receive("ann", "bob"))
    w.do(Take("bob"))
    w.do(Fire("bob", PHANTOM_TIMER))
    w.do(Receive("bob", "ann", 1))
    assert stable(w, "ann") == []
    w.do(Receive("bob", "ann"))
    assert delivered(w, "ann") == ["bob:1"]
    assert stable(w, "ann") == ["bob:1", "ann:1"]


@pytest.mark.parametrize("name", VECTOR_STACKS)
@pytest.mark.parametrize(
    ("origin", "counts", "seen", "reason"),
    [
        ("eve", (1, 0, 0), (1, 0, 0), "not a member"),
        ("bob", (0, 1, 0), (0, 1, 0), "came back"),
        ("ann", (1, 0), (1, 0), "no vector of this group"),
        ("ann", (1, 0, -1), (1, 0, -1), "no vector of this group"),
        ("ann", (0, 0, 0), (0, 0, 0), "does not count the message itself"),
        ("ann", (1, 1, 0), (1, 1, 0), "which cannot be"),
    ],
)
def test_what_no_member_sends_is_refused_and_changes_nothing(
    name: str, origin: str, counts: tuple[int, ...], seen: tuple[int, ...], reason: str
) -> None:
    w = World(stack(name), NAMES)
    classical = "classical" in name
    message = TwoVectorMessage(origin, counts, b"", seen) if classical else VectorMessage(origin, counts, b"")
    before = ordering(w, "bob").words()
    with pytest.raises(ProtocolViolationError, match=reason):
        w.processes["bob"].receive(origin, message)
    assert (ordering(w, "bob").words(), len(w.ports["bob"].queue)) == (before, 0)


@pytest.mark.parametrize("seen", [(1, 0), (1, 0, -1), (2, 0, 0), (1, 0, 1)])
def test_an_application_cannot_have_taken_what_was_not_delivered(seen: tuple[int, ...]) -> None:
    w = World(stack("vv-classical"), NAMES)
    with pytest.raises(ProtocolViolationError, match="says that its application took"):
        w.processes["bob"].receive("ann", TwoVectorMessage("ann", (1, 0, 0), b"", seen))


def test_a_phantom_of_no_member_is_refused() -> None:
    w = World(stack("vv-stable"), NAMES)
    for counts in ((0, 0), (0, 1, 0), (-1, 0, 0)):
        with pytest.raises(ProtocolViolationError):
            w.processes["bob"].receive("ann", VectorPhantom("ann", counts))
    assert ordering(w, "bob")._phantoms == {}


@pytest.mark.parametrize("name", [entry.name for entry in TWIN_STACKS])
def test_a_process_that_cannot_recover_writes_nothing_down(name: str) -> None:
    """What `cbcast` and `tcb` write down is not the whole state of those that are made from them."""
    w = World(stack(name), NAMES)
    w.broadcast("ann")
    with pytest.raises(UnsupportedByStackError, match="cannot recover"):
        w.processes["ann"].snapshot()
