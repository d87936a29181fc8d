"""What an ordering says of its cost, against small cases counted by hand (004, sections 8.3.1 and 8.4)."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.model import UnsupportedByStackError
from causalcast.protocols import stack
from causalcast.protocols.ordering import Ordering
from causalcast.protocols.ordering.meter import Meter
from causalcast.simulation.world import Receive, Take, World

if TYPE_CHECKING:
    from causalcast.protocols import StackProcess

NAMES = ("ann", "bob", "cat")


def ordering(world: World, name: str) -> Any:
    process: StackProcess = world.processes[name]  # type: ignore[assignment]
    return process.ordering


def test_the_graph_is_counted_by_its_nodes_and_edges() -> None:
    w = World(stack("tcb"), NAMES)
    assert ordering(w, "ann").words() == 0
    w.broadcast("ann")
    assert ordering(w, "ann").words() == 4
    w.broadcast("ann")
    # ann:1 and ann:2, and the edge between them at both its ends.
    assert ordering(w, "ann").words() == 4 + 4 + 2 + 2
    w.do(Receive("ann", "bob", 1))
    # The slot of ann:1, which bob only knows as a predecessor, counts as a node.
    assert ordering(w, "bob").words() == 12
    w.do(Receive("ann", "bob"))
    assert ordering(w, "bob").words() == 12
    w.do(Take("bob"))
    w.do(Take("bob"))
    w.broadcast("bob")
    assert ordering(w, "bob").words() == 3 * 4 + 2 * 4
    w.settle()
    assert [ordering(w, name).words() for name in NAMES] == [0, 0, 0]


def test_without_stability_a_dot_leaves_the_graph_when_it_is_delivered() -> None:
    w = World(stack("tcb-delivery"), NAMES)
    w.broadcast("ann")
    w.broadcast("ann")
    assert ordering(w, "ann").words() == 0
    w.do(Receive("ann", "bob", 1))
    assert ordering(w, "bob").words() == 4 + 4 + 2 + 2
    w.do(Receive("ann", "bob"))
    assert ordering(w, "bob").words() == 0


@pytest.mark.parametrize(
    ("name", "vectors", "waiting"), [("cbcast", 2 * 3, 3 + 1), ("vv", 2 * 3, 3 + 1), ("vv-classical", 3 * 3, 2 * 3 + 1)]
)
def test_vectors_are_counted_by_their_length(name: str, vectors: int, waiting: int) -> None:
    w = World(stack(name), NAMES)
    assert ordering(w, "bob").words() == vectors
    w.broadcast("ann")
    w.broadcast("ann")
    w.do(Receive("ann", "bob", 1))
    assert ordering(w, "bob").words() == vectors + waiting
    w.do(Receive("ann", "bob"))
    assert ordering(w, "bob").words() == vectors


@pytest.mark.parametrize(
    ("name", "base", "message"), [("vv-stable", 2 * 3 + 9, 2 + 3), ("vv-classical-stable", 3 * 3 + 9, 2 + 2 * 3)]
)
def test_the_matrix_and_the_stable_map_are_counted(name: str, base: int, message: int) -> None:
    w = World(stack(name), NAMES)
    w.broadcast("ann")
    w.broadcast("ann")
    w.do(Receive("ann", "bob"))
    assert [ordering(w, each).words() for each in NAMES] == [base + 2 * message, base + message, base]
    w.settle()
    assert [ordering(w, each).words() for each in NAMES] == [base] * 3


def test_the_control_counts_what_it_has_seen() -> None:
    w = World(stack("unordered"), NAMES)
    w.broadcast("ann")
    w.broadcast("ann")
    w.do(Receive("ann", "bob", 1))
    assert ordering(w, "bob").words() == 3 + 1


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("tcb", 2),
        ("tcb-delivery", 2),
        ("cbcast", 3),
        ("vv", 3),
        ("vv-stable", 3),
        ("vv-classical", 6),
        ("unordered", 0),
    ],
)
def test_the_entries_of_a_message(name: str, entries: int) -> None:
    """bob follows what ann and cat said: two predecessors, in a group of three."""
    w = World(stack(name), NAMES)
    for sender in ("ann", "cat"):
        w.broadcast(sender)
        w.do(Receive(sender, "bob"))
        w.do(Take("bob"))
    w.broadcast("bob")
    (message,) = w.in_flight["bob", "cat"]
    assert ordering(w, "bob").entries(message) == entries


@pytest.mark.parametrize("name", ["tcb", "cbcast", "unordered", "tcb-delivery", "vv", "vv-classical-stable"])
def test_operations_grow_with_what_arrives_and_are_no_part_of_the_state(name: str) -> None:
    w = World(stack(name), NAMES)
    counts = [ordering(w, "bob").operations]
    for _ in range(2):
        w.broadcast("ann")
        w.do(Receive("ann", "bob"))
        counts.append(ordering(w, "bob").operations)
        w.settle()
    assert counts[0] == 0 < counts[1] < counts[2]
    meter = Meter()
    empty = pickle.dumps(meter)
    meter.count = 7
    assert pickle.dumps(meter) == empty


def test_an_ordering_that_counts_nothing_says_so() -> None:
    class Silent(Ordering):
        pass

    silent = Silent()  # type: ignore[abstract]
    for ask in (silent.words, lambda: silent.operations, lambda: silent.entries(None)):  # type: ignore[arg-type]
        with pytest.raises(UnsupportedByStackError, match="Silent does not count"):
            ask()
