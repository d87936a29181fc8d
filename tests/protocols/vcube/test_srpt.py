"""SRPT-S and SRPT-B: the figure of document 002, section 5.3, brokers, and random schedules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from causalcast.model import NotAMemberError, Roster
from causalcast.protocols import stack
from causalcast.protocols.membership.vcube import VCube
from causalcast.protocols.pubsub.srpt import SRPT, root_of
from causalcast.simulation.world import Subscribe, World, WorldPort
from tests.protocols.vcube.worlds import Run

NAMES = [f"p{i}" for i in range(8)]
TOPIC = next(name for name in map(str, range(100)) if root_of(name, 8) == 0)
"""A topic whose root is node 0."""


def layers(made: World) -> list[SRPT]:
    processes: list[Any] = [made.processes[name] for name in NAMES]
    return [process.dissemination for process in processes]


def test_figure_5_2_the_single_tree_has_two_relays() -> None:
    made = World(stack("srpt-s"), NAMES)
    for slot in (0, 1, 3, 5, 6):
        made.do(Subscribe(NAMES[slot], TOPIC))
        made.settle()
    before = sum(layer.sent for layer in layers(made))
    made.broadcast("p1", b"x", TOPIC)
    made.settle()
    assert [slot for slot, layer in enumerate(layers(made)) if layer.false_positives] == [2, 4]
    # One hop to the root, then the tree of four subscribers and two relays.
    assert sum(layer.sent for layer in layers(made)) - before == 1 + 6
    assert {name for name in NAMES if any(e.kind == "deliver" for e in made.logs[name])} == {"p0", "p3", "p5", "p6"}


@pytest.mark.parametrize(("brokers", "each"), [(32, 127), (256, 15), (2048, 1)])
def test_section_5_6_7_subscribers_are_spread_over_brokers(brokers: int, each: int) -> None:
    roster = Roster(f"p{i:04}" for i in range(4096))
    port = WorldPort("p0000", 0, lambda *_: None)
    layer = SRPT(port, VCube(port, roster), brokers)
    flocks = [layer._flock(slot).bit_count() - 1 for slot in range(brokers)]
    assert set(flocks) == {each}
    assert sum(flocks) + brokers == 4096


def test_roots_differ_by_topic() -> None:
    assert len({root_of(f"t{i}", 256) for i in range(128)}) > 80


def test_only_subscribers_publish() -> None:
    made = World(stack("srpt-s"), NAMES)
    with pytest.raises(NotAMemberError, match="subscribe to publish"):
        made.processes["p1"].broadcast(b"x", TOPIC)


@pytest.mark.parametrize("name", ["srpt-s", "srpt-b"])
@pytest.mark.parametrize("late", [0.2, 0.8])
def test_random_schedules_keep_what_is_promised(name: str, late: float) -> None:
    for seed in range(25):
        run = Run(stack(name), seed, members=2 + seed % 7, actions=25, topics=("t", "u"), late=late, duplicates=True)
        assert run.run() == [], seed


class Unnumbered(SRPT):
    """Mistake: links are taken to keep order."""

    __slots__ = ()

    def receive(self, sender: str, message: Any) -> None:
        self._arrived(self._membership.slot_of(sender), message, self._topic(message.topic))


def test_over_links_that_reorder_numbers_are_needed() -> None:
    mistaken = replace(stack("srpt-s"), dissemination=Unnumbered)
    assert any(Run(mistaken, seed, members=3 + seed % 5, actions=25).run() for seed in range(60))
