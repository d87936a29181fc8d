"""The simulator and a second, naive one: identical traces on random small cases."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causalcast.protocols import STACKS
from causalcast.simulation import (
    NS_PER_MS,
    Broadcasts,
    Constant,
    Crash,
    Cut,
    Delay,
    Exponential,
    Fault,
    Flap,
    Link,
    Matrix,
    Network,
    Normal,
    Partition,
    Pause,
    Replies,
    Rise,
    Sites,
    Uniform,
    Weibull,
    process_names,
    simulate,
)
from tests.simulation.memory import Memory
from tests.simulation.naive import Naive

MS = st.integers(0, 60).map(lambda ms: ms * NS_PER_MS // 2)
DELAYS: st.SearchStrategy[Delay] = st.one_of(
    MS.map(Constant),
    st.tuples(MS, MS).map(lambda pair: Uniform(min(pair), max(pair))),
    st.builds(Normal, MS, MS),
    st.builds(Weibull, MS, st.just(0.15), st.sampled_from([1.5, 2.0])),
    st.builds(Exponential, MS),
)

DURABLE = [name for name, entry in STACKS.items() if not entry.session_links]


@st.composite
def networks(draw: st.DrawFn, names: list[str]) -> Network:
    pairs = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)
    links = draw(st.lists(st.builds(lambda pair, delay: Link(*pair, delay), pairs, DELAYS), max_size=2))
    row = st.lists(MS, min_size=len(names), max_size=len(names)).map(tuple)
    rows = st.lists(row, min_size=len(names), max_size=len(names)).map(tuple)
    return Network(
        delay=draw(DELAYS),
        fifo=draw(st.booleans()),
        links=tuple(links),
        matrix=draw(st.none() | st.builds(Matrix, rows, st.sampled_from([0.0, 0.15]))),
        sites=draw(st.none() | st.builds(Sites, st.integers(1, 3), DELAYS)),
        rise=draw(st.none() | st.builds(Rise, MS, MS, MS)),
        processing_ns=draw(st.sampled_from([0, 0, NS_PER_MS])),
        transmission_ns=draw(st.sampled_from([0, 0, NS_PER_MS])),
        bits_per_second=draw(st.sampled_from([None, None, 100_000])),
        loss=draw(st.sampled_from([0.0, 0.0, 0.2])),
        duplication=draw(st.sampled_from([0.0, 0.0, 0.3])),
        tick_ns=draw(st.sampled_from([1, 1000, NS_PER_MS])),
    )


@st.composite
def faults(draw: st.DrawFn, names: list[str]) -> list[Fault]:
    two = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)
    one: st.SearchStrategy[Fault] = st.one_of(
        st.builds(Crash, st.sampled_from(names), MS),
        st.builds(Pause, st.sampled_from(names), MS, MS),
        st.builds(
            lambda group, at, duration: Partition((tuple(group),), at, duration),
            st.lists(st.sampled_from(names), min_size=1, unique=True),
            MS,
            MS,
        ),
        st.builds(lambda pair, at, duration: Cut(*pair, at, duration), two, MS, MS),
        st.builds(lambda pair, at, down, up, times: Flap(*pair, at, down, up, times), two, MS, MS, MS, st.just(3)),
    )
    return draw(st.lists(one, max_size=4))


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.sampled_from(DURABLE), st.integers(2, 5), st.integers(0, 1000), st.none() | DELAYS)
def test_both_simulators_write_the_same_trace(
    data: st.DataObject, stack_name: str, nodes: int, seed: int, thinking: Delay | None
) -> None:
    names = process_names(nodes)
    network = data.draw(networks(names))
    plan = data.draw(faults(names))
    workload = data.draw(
        st.builds(Broadcasts, st.integers(0, 6), DELAYS, st.integers(0, 9), st.none() | st.integers(0, 3))
        | st.builds(Replies, st.integers(1, 3), DELAYS)
    )
    sink = Memory()
    simulate(
        stack_name,
        nodes=nodes,
        workload=workload,
        seed=seed,
        network=network,
        thinking=thinking,
        faults=plan,
        trace=sink,
    )
    naive = Naive(stack_name, nodes, workload, network=network, seed=seed, thinking=thinking, faults=plan)
    assert naive.run() == sink.rows
