"""Members that come late, leave, crash, recover and are taken for crashed; links that end."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, cast

import pytest

from causalcast.model import Roster
from causalcast.protocols import Stack, stack
from causalcast.simulation import (
    NS_PER_MS,
    Broadcasts,
    Churn,
    Constant,
    Crash,
    Cut,
    Fault,
    InvalidModelError,
    Join,
    Leave,
    Network,
    Simulator,
    Suspicion,
    Turnover,
    Uniform,
    UnsupportedFaultError,
    process_names,
)
from causalcast.simulation.faults import plan_faults
from tests.simulation.memory import Memory
from tests.simulation.moving_stacks import COUNTING, DURABLE_GOSSIP, GOSSIP, Counting, Gossip

if TYPE_CHECKING:
    from collections.abc import Sequence

MS = NS_PER_MS


def run(
    chosen: Stack,
    faults: Sequence[Fault],
    *,
    nodes: int = 3,
    messages: int = 0,
    seed: int = 0,
    network: Network | None = None,
) -> tuple[Simulator, Memory]:
    sink = Memory()
    simulator = Simulator(
        chosen,
        process_names(nodes),
        Broadcasts(messages, Constant(20 * MS)),
        network=network or Network(Constant(MS)),
        seed=seed,
        faults=faults,
        trace=sink,
    )
    simulator.run(until_ns=10_000 * MS)
    return simulator, sink


def gossip(simulator: Simulator, name: str) -> Gossip:
    return cast("Gossip", simulator.hosts[name].process)


def test_members_of_the_start_join_one_by_one_over_session_links() -> None:
    simulator, sink = run(GOSSIP, [], nodes=4, messages=3)
    assert all(set(gossip(simulator, name).known) >= set(simulator.roster) - {name} for name in simulator.roster)
    joins = [(row.process, row.time_ns) for row in sink.rows if row.event == "join"]
    assert [name for name, _ in joins] == ["p1", "p2", "p3"]
    assert all(first.event == "join" for first in (sink.of(name)[0] for name in ("p1", "p2", "p3")))
    assert simulator.counters.deliveries == 4 * 3 * 3


@pytest.mark.parametrize("chosen", [GOSSIP, DURABLE_GOSSIP], ids=["sessions", "durable"])
def test_a_late_member_and_one_that_leaves(chosen: Stack) -> None:
    faults = [Join("q", 100 * MS, "p0"), Leave("q", 190 * MS)]
    simulator, sink = run(chosen, faults, messages=20)
    rows = sink.of("q")
    assert [row.event for row in rows if row.event not in {"broadcast", "deliver"}] == ["join", "leave"]
    assert [row.time_ns for row in rows if row.event == "join"] == [102 * MS]
    assert rows[-1].event == "leave"
    assert 3 <= sum(row.event == "broadcast" for row in rows) <= 5
    assert "q" not in gossip(simulator, "p0").known
    assert gossip(simulator, "p0").down == []


def test_the_contact_is_drawn_among_those_who_are_there() -> None:
    def contacts(seed: int) -> set[str]:
        simulator, _ = run(GOSSIP, [Crash("p1", 50 * MS), Join("q", 100 * MS)], nodes=4, seed=seed)
        return set(gossip(simulator, "q").known)

    assert all("p1" not in contacts(seed) for seed in range(8))


def test_a_crash_ends_session_links() -> None:
    simulator, sink = run(GOSSIP, [Crash("p1", 50 * MS)])
    assert gossip(simulator, "p0").down == ["p1"]
    assert gossip(simulator, "p2").down == ["p1"]
    assert sink.of("p1")[-1].event == "crash"


def test_nobody_is_behind_a_link_to_one_that_is_gone() -> None:
    simulator, _ = run(GOSSIP, [Crash("p1", 50 * MS), Join("q", 100 * MS, "p1")])
    assert gossip(simulator, "q").down == ["p1"]


def test_a_cut_ends_session_links_only_when_it_lasts() -> None:
    network = Network(Constant(MS), session_timeout_ns=100 * MS)
    short, _ = run(GOSSIP, [Cut("p0", "p1", 50 * MS, 90 * MS)], messages=10, network=network)
    assert gossip(short, "p0").down == gossip(short, "p1").down == []
    assert short.counters.deliveries == 60
    assert short.counters.held
    long, _ = run(GOSSIP, [Cut("p0", "p1", 50 * MS, 150 * MS)], messages=10, network=network)
    assert gossip(long, "p0").down == ["p1"]
    assert gossip(long, "p1").down == ["p0"]
    assert long.counters.lost
    assert long.counters.deliveries < 60


def test_a_false_suspicion_ends_a_session_link_and_is_told_to_a_durable_process() -> None:
    simulator, _ = run(GOSSIP, [Suspicion("p0", "p1", 50 * MS)])
    assert gossip(simulator, "p0").down == ["p1"]
    assert gossip(simulator, "p0").suspected == []
    simulator, _ = run(DURABLE_GOSSIP, [Suspicion("p0", "p1", 50 * MS)])
    assert gossip(simulator, "p0").suspected == ["p1"]


@pytest.mark.parametrize("seed", range(5))
def test_a_process_recovers_what_it_had_written_down(seed: int) -> None:
    faults = [Crash("p1", 50 * MS, 90 * MS), Crash("p1", 300 * MS, 1 * MS), Crash("p2", 60 * MS, 500 * MS)]
    network = Network(Uniform(0, 30 * MS))
    simulator, sink = run(COUNTING, faults, messages=30, seed=seed, network=network)
    assert simulator.counters.deliveries == 3 * 2 * 30
    process = cast("Counting", simulator.hosts["p1"].process)
    assert process.restored == 1
    assert process.kept.sent == 30
    events = [row.event for row in sink.of("p1")]
    assert events.count("crash") == events.count("recover") == 2
    for down, up in ((50 * MS, 140 * MS), (300 * MS, 301 * MS)):
        assert not [row for row in sink.of("p1") if down < (row.time_ns or 0) < up]
    # Timers are no part of what is written down: the last one set is the one of the last recovery.
    assert process.fired == [351 * MS]


def test_what_a_stack_cannot_do_is_said() -> None:
    for fault, words in (
        (Join("q", 0), "join is beyond the stack 'counting'"),
        (Leave("p0", 0), "leave is beyond"),
        (Turnover(0, 100 * MS, MS), "turnover is beyond"),
        (Churn(10 * MS, 0, 100 * MS), "churn is beyond"),
    ):
        with pytest.raises(UnsupportedFaultError, match=words):
            run(COUNTING, [fault])
    with pytest.raises(UnsupportedFaultError, match="persist nothing"):
        run(GOSSIP, [Crash("p0", 0, 1)])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Join("p1", 0), "'p1', which is a member before it"),
        (Join("q", 0, "nobody"), "'nobody', which is no process"),
        (Churn(0, 0, MS), "sessions that last"),
        (Turnover(0, MS), "nobody joins or leaves"),
        (Turnover(0, MS, join_every_ns=0), "some time between"),
    ],
)
def test_comings_and_goings_that_cannot_be(fault: Fault, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words):
        run(GOSSIP, [fault])


def test_churn_keeps_the_size_and_has_the_rate_of_its_sessions() -> None:
    members = Roster(process_names(100))
    churn = Churn(10_000 * MS, at_ns=1_000 * MS, for_ns=60_000 * MS)
    counts, gaps = [], []
    for seed in range(20):
        planned, joiners = plan_faults([churn], members, GOSSIP, seed)
        there = set(members)
        departures = [fault for fault in planned if isinstance(fault, Leave)]
        joins = [fault for fault in planned if isinstance(fault, Join)]
        assert len(departures) == len(joins) == len(joiners)
        for leave, join in zip(departures, joins, strict=True):
            assert leave.at_ns == join.at_ns
            there.remove(leave.process)
            there.add(join.process)
            assert len(there) == 100
        counts.append(len(joins))
        gaps += [b.at_ns - a.at_ns for a, b in itertools.pairwise(joins)]
    # 100 members, sessions of 10 s: ten a second, for 60 s; a Poisson count has the variance of its mean.
    assert abs(fmean(counts) - 600) < 4 * math.sqrt(600 / len(counts))
    assert abs(fmean(gaps) - 100 * MS) < 4 * 100 * MS / math.sqrt(len(gaps))


def test_a_turnover_has_both_its_rates() -> None:
    members = Roster(process_names(50))
    turnover = Turnover(0, 60_000 * MS, join_every_ns=100 * MS, leave_every_ns=200 * MS, departure="crash")
    kinds: Counter[type] = Counter()
    for seed in range(10):
        planned, _ = plan_faults([turnover], members, GOSSIP, seed)
        kinds.update(map(type, planned))
    assert abs(kinds[Join] - 6_000) < 4 * math.sqrt(6_000)
    assert abs(kinds[Crash] - 3_000) < 4 * math.sqrt(3_000)


def test_a_run_with_churn_repeats_to_the_byte() -> None:
    def rows(seed: int) -> Memory:
        churn = Churn(500 * MS, at_ns=100 * MS, for_ns=400 * MS, departure="crash")
        return run(GOSSIP, [churn], nodes=6, messages=10, seed=seed)[1]

    assert rows(3).rows == rows(3).rows
    assert rows(3).rows != rows(4).rows
    assert sum(row.event == "crash" for row in rows(3).rows) >= 2


def test_static_stacks_have_no_links_to_end() -> None:
    assert not stack("tcb").session_links
    simulator, _ = run(stack("tcb"), [], messages=2)
    assert simulator.sessions is None
