"""Packed vectors against tuples; `tcb` when its counts outgrow their lanes."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causalcast.protocols import stack
from causalcast.protocols.ordering.lanes import Lanes, Minima
from causalcast.protocols.ordering.meter import Meter
from causalcast.simulation.world import Receive, Take, World

if TYPE_CHECKING:
    from causalcast.model import Tag

LANES = st.builds(Lanes, st.integers(1, 9), st.sampled_from([8, 16, 32, 64]))


@given(st.data(), LANES)
def test_packed_vectors_join_and_meet_like_tuples(data: st.DataObject, lanes: Lanes) -> None:
    edge = st.sampled_from([0, 1, lanes.limit - 2, lanes.limit - 1])
    vector = st.lists(st.integers(0, lanes.limit - 1) | edge, min_size=lanes.size, max_size=lanes.size)
    first, *others = data.draw(st.lists(vector, min_size=1, max_size=5))
    packed = [lanes.pack(each) for each in others]
    assert lanes.unpack(lanes.pack(first)) == tuple(first)
    assert lanes.head(lanes.pack(first)) == tuple(first[: lanes.size // 2])
    assert lanes.unpack(lanes.join(lanes.pack(first), packed)) == tuple(map(max, zip(first, *others, strict=True)))
    for each in others:
        low = lanes.meet(lanes.pack(first), lanes.pack(each))
        assert lanes.unpack(low) == tuple(map(min, first, each))


def test_a_wider_lane_holds_what_was_at_the_limit() -> None:
    lanes = Lanes(3)
    assert (lanes.limit, lanes.words, lanes.wider().limit, lanes.wider().wider().words) == (128, 1, 2**15, 2)
    with pytest.raises(struct.error):
        lanes.pack([256, 0, 0])
    assert lanes.wider().unpack(lanes.wider().pack([256, 0, 1])) == (256, 0, 1)


@given(st.randoms(use_true_random=False), st.integers(1, 9))
def test_the_smallest_counts_are_kept_up(draw: random.Random, size: int) -> None:
    lanes = Lanes(size)
    slots = sorted(draw.sample(range(size), draw.randint(1, size)))
    vectors = {slot: [draw.randrange(4) for _ in range(size)] for slot in slots}
    meter = Meter()
    minima = Minima(lanes, {slot: lanes.pack(vector) for slot, vector in vectors.items()}, meter)
    for _ in range(20):
        slot, place = draw.choice(slots), draw.randrange(size)
        before = minima.lowest
        more = draw.randrange(5)
        vectors[slot][place] += more
        packed = lanes.pack(vectors[slot])
        assert packed == minima.of(slot) + more * lanes.units[place]
        if more == 1 and size > 1 and vectors[slot][place] > minima.beside(slot, place) and draw.random() < 0.5:
            minima.replace(slot, packed)
            changed = False
        elif more == 1 and draw.random() < 0.5:
            changed = minima.rise(slot, packed, place, vectors[slot][place])
        else:
            changed = minima.put(slot, packed)
        assert changed == (minima.lowest != before or size == 1)
        assert lanes.unpack(minima.lowest) == tuple(map(min, *vectors.values(), vectors[slot]))
    assert (meter.count > 0) == (size > 1)


def tcb(world: World, name: str) -> Any:
    return world.processes[name].ordering  # type: ignore[attr-defined]


def test_counts_that_outgrow_their_lanes_change_nothing() -> None:
    """130 messages each, so that the 128th comes while others are waited for and not stable; tags against the truth."""
    draw = random.Random(3)
    names = ("ann", "bob", "cat")
    w = World(stack("tcb"), names)
    taken = {name: [0, 0, 0] for name in names}
    truth: dict[tuple[str, int], tuple[int, ...]] = {}

    def check(tag: Tag) -> None:
        assert tag.counts == truth[tag.dot]

    left = [name for name in names for _ in range(130)]
    draw.shuffle(left)
    while left or w.enabled(fifo=False):
        steps = w.enabled(fifo=False)
        if left and (not steps or draw.random() < 0.3):
            name = left.pop()
            slot = names.index(name)
            taken[name][slot] += 1
            tag = w.broadcast(name)
            truth[tag.dot] = tuple(taken[name])
            check(tag)
            continue
        step = draw.choice([step for step in steps if isinstance(step, Receive | Take)] or steps)
        before = len(w.logs[step.process]) if isinstance(step, Take) else 0
        w.do(step)
        if isinstance(step, Take) and w.logs[step.process][before].kind == "deliver":
            tag = w.logs[step.process][before].tag  # type: ignore[assignment]
            check(tag)
            taken[step.process] = list(map(max, taken[step.process], tag.counts))
    for name in names:
        assert [entry.kind for entry in w.logs[name]].count("stable") == 3 * 130
        assert (tcb(w, name)._lanes.width, tcb(w, name).graph_size) == (16, 0)
