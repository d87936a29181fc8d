"""Workloads: who broadcasts what, and when."""

from __future__ import annotations

import itertools
from collections import Counter

import msgspec
import pytest

from causalcast.simulation import (
    NS_PER_MS,
    AnyWorkload,
    Broadcasts,
    Constant,
    Exponential,
    Network,
    Replies,
    Uniform,
    simulate,
)
from tests.simulation.memory import Memory

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
