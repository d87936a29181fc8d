"""Topics as groups of their own: each with its order, tags and stability, none with those of another."""

from __future__ import annotations

import random

import pytest

from causalcast.model import (
    Delivered,
    IncomparableTagsError,
    ProtocolViolationError,
    Stable,
    TopicError,
    UnsupportedByStackError,
)
from causalcast.protocols import STACKS, Stack, stack, topics
from causalcast.simulation import Network, Publications, Uniform, simulate
from causalcast.simulation.world import Receive, Take, World
from tests.simulation.memory import Memory
from tests.simulation.moving_stacks import COUNTING

WITH_TOPICS = [each for each in STACKS.values() if each.topic_message is not None]


def test_the_order_of_one_topic_does_not_wait_for_another() -> None:
    world = World(stack("tcb"), "abc")
    first = world.broadcast("a", b"1", "news")
    world.do(Receive("a", "b"))
    world.do(Take("b"))
    other = world.broadcast("b", b"2", "sport")
    effect = world.broadcast("b", b"3", "news")
    world.do(Receive("b", "c"))
    assert list(world.ports["c"].queue) != []
    world.do(Receive("b", "c"))
    delivered = [event.message for event in world.ports["c"].queue if isinstance(event, Delivered)]
    assert [(message.topic, message.payload) for message in delivered] == [("sport", b"2")]
    assert first < effect
    assert other.context == ()
    for tag in (first, effect):
        with pytest.raises(IncomparableTagsError, match="belong to groups"):
            _ = tag < other
        assert tag != other
    world.do(Receive("a", "c"))
    delivered = [event.message for event in world.ports["c"].queue if isinstance(event, Delivered)]
    assert [message.payload for message in delivered] == [b"2", b"1", b"3"]


def test_the_same_number_in_two_topics_is_two_messages() -> None:
    world = World(stack("tcb"), "ab")
    one, two, plain = world.broadcast("a", b"x", "s"), world.broadcast("a", b"x", "t"), world.broadcast("a", b"x")
    assert one.dot == two.dot == plain.dot
    assert len({one, two, plain}) == 3
    world.settle()
    assert [entry.payload for entry in world.logs["b"] if entry.kind == "deliver"] == [b"x", b"x", b"x"]


@pytest.mark.parametrize("chosen", WITH_TOPICS, ids=lambda each: each.name)
def test_every_topic_keeps_what_the_stack_promises(chosen: Stack) -> None:
    for seed in range(5):
        sink = Memory()
        workload = Publications(3, 15, Uniform(0, 20_000_000), exponent=1.0)
        network = Network(Uniform(0, 60_000_000), fifo=chosen.fifo_links)
        counters = simulate(chosen.name, nodes=4, seed=seed, workload=workload, network=network, trace=sink).counters
        assert counters.deliveries == 4 * 15 * 3
        if "P6" in chosen.promises:
            assert counters.stables == 4 * 15 * 4
        for topic in ("t0", "t1", "t2"):
            if "P3" in chosen.promises:
                _assert_causal(sink, topic)


def _assert_causal(sink: Memory, topic: str) -> None:
    pasts: dict[tuple[str, int], set[tuple[str, int]]] = {}
    logs: dict[str, list[tuple[str, tuple[str, int]]]] = {}
    for row in sink.rows:
        if row.topic == topic and row.event in {"broadcast", "deliver"}:
            assert row.origin is not None
            assert row.counter is not None
            logs.setdefault(row.process, []).append((row.event, (row.origin, row.counter)))
            if row.event == "broadcast":
                seen = {dot for _, dot in logs[row.process][:-1]}
                pasts[row.origin, row.counter] = seen.union(*(pasts[dot] for dot in seen))
    assert pasts
    for log in logs.values():
        seen = set()
        for _, dot in log:
            assert pasts[dot] <= seen
            seen.add(dot)


def test_stability_is_of_a_topic() -> None:
    world = World(stack("tcb"), "ab")
    world.broadcast("a", b"1", "news")
    seen = []
    while world.enabled(fifo=True):
        event = world.do(world.enabled(fifo=True)[0])
        if isinstance(event, Stable):
            seen.append(event.topic)
    assert seen == ["news", "news"]
    assert world.processes["a"].unstable == 0


def test_topics_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    process = World(stack("tcb"), "ab").processes["a"]
    for name in ("x" * 256, "\udcff" * 200):
        with pytest.raises(TopicError, match="cannot name a topic"):
            process.broadcast(b"", name)
    monkeypatch.setattr(topics, "TOPICS", 3)
    for name in ("s", "t", "u"):
        process.broadcast(b"", name)
    with pytest.raises(TopicError, match="number 4: a process has at most 3"):
        process.broadcast(b"", "v")
    process.broadcast(b"", "s")
    assert STACKS["tcb"].topic_message is not None
    stranger = World(stack("tcb"), "ab")
    stranger.broadcast("b", b"", "w")
    (message,) = stranger.in_flight["b", "a"]
    with pytest.raises(ProtocolViolationError, match="at most 3"):
        process.receive("b", message)


def test_a_stack_without_topics_says_so() -> None:
    world = World(COUNTING, "ab")
    with pytest.raises(UnsupportedByStackError):
        world.processes["a"].subscribe("news")


def test_timers_find_their_topic() -> None:
    """Phantoms of a topic nobody speaks in any more make its messages stable (P6)."""
    draw = random.Random(1)
    world = World(stack("tcb"), "abc")
    for topic in ("s", "t"):
        world.broadcast("a", b"", topic)
    while steps := world.enabled(fifo=False):
        world.do(draw.choice(steps))
    stable = [entry for log in world.logs.values() for entry in log if entry.kind == "stable"]
    assert len(stable) == 6
