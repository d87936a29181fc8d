"""Workloads: who broadcasts what, and when."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest

from causalcast.model import Roster, UnsupportedByStackError
from causalcast.simulation import (
    NS_PER_MS,
    AnyWorkload,
    Broadcasts,
    Constant,
    Exponential,
    InvalidModelError,
    Network,
    Publications,
    Replies,
    Stream,
    Uniform,
    process_names,
    simulate,
)
from causalcast.simulation.publisher import subscriptions
from tests.simulation.memory import Memory

if TYPE_CHECKING:
    from causalcast.simulation.world import Step

MS = NS_PER_MS


def trace(workload: AnyWorkload, nodes: int = 4, seed: int = 0) -> Memory:
    sink = Memory()
    simulate("tcb", nodes=nodes, workload=workload, seed=seed, network=Network(Constant(100 * MS)), trace=sink)
    return sink


def broadcasts(workload: AnyWorkload, nodes: int = 4, seed: int = 0) -> list[tuple[str, int]]:
    rows = trace(workload, nodes, seed).rows
    return [(row.process, row.time_ns or 0) for row in rows if row.event == "broadcast"]


@pytest.mark.parametrize(("senders", "expected"), [(1, 1), (3, 3), (None, 4), (9, 4), (0, 0)])
def test_one_sender_several_or_all(senders: int | None, expected: int) -> None:
    counts = Counter(process for process, _ in broadcasts(Broadcasts(7, senders=senders)))
    assert counts == {f"p{number}": 7 for number in range(expected)}


def test_a_fixed_interval() -> None:
    assert broadcasts(Broadcasts(3, Constant(10 * MS), senders=1)) == [
        ("p0", 10 * MS),
        ("p0", 20 * MS),
        ("p0", 30 * MS),
    ]


def test_a_poisson_interval_is_truncated_at_four_times_its_mean() -> None:
    times = [0, *(time for _, time in broadcasts(Broadcasts(2000, Exponential(10 * MS), senders=1), nodes=2))]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) == 40 * MS
    assert sum(gaps) / len(gaps) == pytest.approx(10 * MS * 0.9817, rel=0.07)


def test_another_seed_is_another_workload() -> None:
    workload = Broadcasts(5)
    assert broadcasts(workload, seed=1) == broadcasts(workload, seed=1) != broadcasts(workload, seed=2)


@pytest.mark.parametrize("first", [1, 3])
def test_replies_follow_what_they_answer(first: int) -> None:
    """Document 002, section 5.6.4."""
    sink = trace(Replies(first, Uniform(0, 99 * MS)), nodes=8)
    said = [row for row in sink.rows if row.event == "broadcast"]
    assert Counter(row.process for row in said) == {f"p{number}": 1 for number in range(8)}
    opening = {row.process for row in said if row.time_ns == 0}
    assert len(opening) == first
    for row in said[first:]:
        before = sink.rows[: sink.rows.index(row)]
        taken = {one.origin for one in before if (one.process, one.event) == (row.process, "deliver")}
        assert opening <= taken
        assert row.time_ns is not None
        assert 100 * MS <= row.time_ns <= 199 * MS
        assert {origin for origin, _ in row.context or ()} >= (opening if first == 1 else set())


def test_replies_choose_who_begins_by_the_seed() -> None:
    begin = {broadcasts(Replies(), nodes=8, seed=seed)[0][0] for seed in range(10)}
    assert len(begin) > 2


@pytest.mark.parametrize("workload", [Broadcasts(5, Exponential(MS), 32, 2), Replies(10)])
def test_a_workload_is_data(workload: AnyWorkload) -> None:
    assert msgspec.json.decode(msgspec.json.encode(workload), type=AnyWorkload) == workload


@pytest.mark.parametrize(
    "text", ['{"workload": "broadcasts", "messages": -1}', '{"workload": "replies", "first": 0}', '{"workload": "x"}']
)
def test_workloads_that_cannot_be(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=AnyWorkload)


def test_topics_are_chosen_by_zipf() -> None:
    workload = Publications(8, 2_000, Constant(MS), exponent=0.825, publishers=2)
    counts = Counter(row.topic for row in trace(workload, 2).rows if row.event == "broadcast")
    weights = [(rank + 1) ** -0.825 for rank in range(8)]
    for rank, weight in enumerate(weights):
        expected = 4_000 * weight / sum(weights)
        assert abs(counts[f"t{rank}"] - expected) < 4 * math.sqrt(expected)


def test_subscribers_come_and_go_at_constant_number() -> None:
    workload = Publications(3, 0, subscribers=4, session=Exponential(50 * MS), begin_ns=100 * MS, until_ns=1_000 * MS)
    plan = subscriptions(workload, Roster(process_names(10)), 1)
    changes = sorted((change, name) for name, mine in plan.items() for change in mine)
    assert len(changes) > 100
    inside: dict[int, set[str]] = {topic: set() for topic in range(3)}
    for change, name in changes:
        assert (name in inside[change.topic]) != change.subscribes
        (inside[change.topic].add if change.subscribes else inside[change.topic].remove)(name)
        assert change.time_ns == 0 or 3 <= len(inside[change.topic]) <= 5
    assert all(len(names) == 4 for names in inside.values())
    assert subscriptions(workload, Roster(process_names(10)), 2) != plan


def test_whoever_publishes_only_where_it_subscribes_waits_for_that() -> None:
    rows = trace(Publications(4, 10, subscribers_only=True, exponent=1.0)).rows
    assert {row.event for row in rows} == {"subscribe", "broadcast", "deliver", "stable"}
    assert all(row.topic is not None for row in rows)


def test_nobody_sends_before_the_beginning() -> None:
    assert min(time for _, time in broadcasts(Broadcasts(3, Constant(10 * MS), begin_ns=500 * MS))) == 510 * MS


@pytest.mark.parametrize("stack", ["vcube-ps", "srpt-s", "srpt-b"])
def test_a_stream_comes_from_one_subscriber_after_the_other(stack: str) -> None:
    """Document 002, section 5.6.6: subscribers from the start come and go, and one of them publishes at a time."""
    workload = Stream(40, Constant(50 * MS), subscribers=8, session=Exponential(1_000 * MS))
    sink = Memory()
    done = simulate(stack, nodes=20, seed=1, workload=workload, trace=sink)
    rows = sink.rows
    assert sum(row.event == "subscribe" and row.time_ns == 0 for row in rows) == 8
    assert sum(row.event == "subscribe" for row in rows) > 12
    said = [row for row in rows if row.event == "broadcast"]
    assert 30 <= len(said) <= 40
    assert len({row.process for row in said}) > 5
    inside: set[str] = set()
    for row in rows:
        if row.event in {"subscribe", "unsubscribe"}:
            (inside.add if row.event == "subscribe" else inside.discard)(row.process)
        if row.event == "broadcast":
            assert row.process in inside
    assert done.counters.deliveries > 150


def test_a_stream_without_churn_spares_brokers_and_reaches_all_others() -> None:
    sink = Memory()
    done = simulate("srpt-b-many", nodes=16, workload=Stream(5, spared=8), trace=sink)
    assert {row.process for row in sink.rows if row.event == "subscribe"} == {f"p{at:02}" for at in range(8, 16)}
    assert done.counters.deliveries == 5 * 7
    with pytest.raises(InvalidModelError, match="nobody subscribes"):
        simulate("srpt-s", nodes=4, workload=Stream(5, spared=4))


@pytest.mark.parametrize("stack", ["vcube-ps", "srpt-s"])
def test_subscribers_known_from_the_start_cost_no_message(stack: str) -> None:
    workload = Publications(3, 4, subscribers=5, subscribers_only=True, preset=True)
    sink = Memory()
    quiet = simulate(stack, nodes=9, seed=2, workload=msgspec.structs.replace(workload, messages=0), trace=sink)
    assert quiet.counters.sends == 0
    assert Counter(row.topic for row in sink.rows) == {"t0": 5, "t1": 5, "t2": 5}
    told = simulate(stack, nodes=9, seed=2, workload=workload)
    assert told.counters.deliveries == 4 * told.counters.broadcasts


def test_who_cannot_begin_with_subscribers_says_so() -> None:
    with pytest.raises(UnsupportedByStackError, match="cannot begin with 4 subscribers"):
        simulate("tcb", nodes=4, workload=Stream(1))
    steps: list[Step] = []
    with pytest.raises(InvalidModelError, match="leave them to ask"):
        simulate("vcube-ps", nodes=4, workload=Stream(1), record=steps.append)
