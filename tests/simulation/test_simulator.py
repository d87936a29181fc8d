"""The simulator: the same seed gives the same bytes, and its traces keep what the stack promises."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from causalcast.model import Dot
from causalcast.protocols import STACKS
from causalcast.simulation import NS_PER_MS, Network, Uniform, process_names, simulate
from causalcast.simulation.queue import TimeQueue
from tests.simulation.memory import Memory

DURABLE = [name for name, entry in STACKS.items() if not entry.session_links]


def digest(seed: int) -> str:
    sink = Memory()
    simulate("tcb", nodes=5, messages=20, seed=seed, thinking=Uniform(0, 5 * NS_PER_MS), trace=sink)
    return hashlib.sha256(b"\n".join(map(msgspec.json.encode, sink.rows))).hexdigest()


def test_the_same_seed_gives_the_same_trace_to_the_byte_in_another_process() -> None:
    program = "from tests.simulation.test_simulator import digest; print(digest(42))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": hashing}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for hashing in ("0", "1")
    }
    assert printed == {digest(42)}
    assert digest(42) != digest(43)


@pytest.mark.parametrize("name", DURABLE)
@pytest.mark.parametrize("fifo", [True, False], ids=["fifo", "reordering"])
@pytest.mark.parametrize("thinking", [None, Uniform(0, 30 * NS_PER_MS)], ids=["eager", "late"])
def test_everyone_delivers_everything(name: str, fifo: bool, thinking: Uniform | None) -> None:
    network = Network(Uniform(1, 50 * NS_PER_MS), fifo=fifo)
    sink = Memory()
    done = simulate(name, nodes=5, messages=15, seed=3, network=network, thinking=thinking, trace=sink)
    assert (done.counters.broadcasts, done.counters.deliveries) == (75, 300)
    assert done.counters.stables == (375 if "P6" in STACKS[name].promises else 0)
    for process in process_names(5):
        rows = [row for row in sink.rows if row.process == process]
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))


def test_fifo_links_keep_order_and_others_do_not() -> None:
    def overtakes(fifo: bool) -> int:
        sink = Memory()
        network = Network(Uniform(1, 50 * NS_PER_MS), fifo=fifo)
        simulate("unordered", nodes=2, messages=200, seed=1, network=network, trace=sink)
        counters = [row.counter or 0 for row in sink.rows if (row.process, row.event) == ("p0", "deliver")]
        return sum(a > b for a, b in pairwise(counters))

    assert overtakes(True) == 0
    assert overtakes(False) > 0


def test_the_tag_in_the_trace_is_the_context_that_was_sent() -> None:
    sink = Memory()
    simulate("tcb", nodes=3, messages=5, seed=1, trace=sink)
    broadcasts = [row for row in sink.rows if row.event == "broadcast"]
    assert all(row.context is not None and row.overhead_bytes for row in broadcasts)
    assert Dot("p0", 1) in {dot for row in broadcasts for dot in row.context or ()}


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3)), max_size=40))
def test_calls_happen_by_time_then_by_insertion(pushes: list[tuple[int, int]]) -> None:
    """Each call pushes up to three more at its own time, which happen last of that time."""
    queue = TimeQueue()
    happened: list[tuple[int, int]] = []
    numbers = iter(range(10_000))

    def call(argument: tuple[int, int, int], _: None) -> None:
        time, number, children = argument
        assert queue.now == time
        happened.append((time, number))
        for _ in range(children):
            queue.push(time, call, (time, next(numbers), 0))

    for time, children in pushes:
        queue.push(time, call, (time, next(numbers), children))
    for bucket in queue.buckets():
        calls = iter(bucket)
        for function, first, second in zip(calls, calls, calls, strict=True):
            function(first, second)
    assert happened == sorted(happened)
    assert len(happened) == len(pushes) + sum(children for _, children in pushes)
    assert len(queue) == 0


def test_the_time_queue_refuses_the_past() -> None:
    queue = TimeQueue()
    queue.push(5, print)
    next(queue.buckets())
    with pytest.raises(ValueError, match="before the present"):
        queue.push(4, print)
