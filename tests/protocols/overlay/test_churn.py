"""Members that come, go, crash and are cut off: what each stack promises holds in runs of the simulator."""

from __future__ import annotations

import pytest

from causalcast.protocols import STACKS
from causalcast.simulation import Churn, Crash, Partition, process_names
from causalcast.simulation.properties import own_tables
from tests.protocols.overlay.judged import judged

S = 1_000_000_000
NODES = 16
NAMES = process_names(NODES)
TIMES = [second * S for second in range(20, 110, 5)]
CAUSAL = ("pc", "prc", "cptcast", "cptcast-cyclon")

FAULTS = {
    "none": [],
    "joins-and-leaves": [Churn(120 * S, 20 * S, 60 * S)],
    "joins-and-crashes": [Churn(120 * S, 20 * S, 60 * S, "crash")],
    "a tenth at once": [Crash(name, 30 * S) for name in NAMES[3::8]],
    "two halves": [Partition((tuple(NAMES[:8]), tuple(NAMES[8:])), 30 * S, 60 * S)],
}


@pytest.mark.parametrize("fault", list(FAULTS))
@pytest.mark.parametrize("name", CAUSAL)
def test_causal_order_and_agreement(name: str, fault: str) -> None:
    for seed in range(2):
        run, judge = judged(
            STACKS[name], NODES, times=TIMES, answers=5 * NODES, seed=seed, faults=FAULTS[fault], until_ns=600 * S
        )
        assert (dict(judge.faults), judge.first) == ({}, "")
        assert judge.lapses == run.counters.leaves
        assert len(judge.pasts) > 150


@pytest.mark.parametrize("name", [*CAUSAL, "plumtree", "flood"])
def test_at_rest_nothing_is_left_in_any_table(name: str) -> None:
    """P7: after churn, once what is kept for recovery is too old and no arcs are exchanged."""
    run, _ = judged(STACKS[name], NODES, times=TIMES, seed=1, faults=FAULTS["joins-and-leaves"], until_ns=3_000 * S)
    assert run.sessions is not None
    for host in run.hosts.values():
        if host.name in run.sessions._gone:
            continue
        tables = host.process.tables()
        assert {table: size for table, size in own_tables(host.process).items() if size} == {}, host.name
        if name in CAUSAL:
            assert tables["safe"] == tables.get("in", tables["safe"]) == tables["neighbours"] > 0


def test_the_flood_is_caught_on_a_changing_overlay() -> None:
    _, judge = judged(STACKS["flood"], NODES, times=TIMES, answers=5 * NODES, faults=FAULTS["two halves"],
                      until_ns=300 * S)  # fmt: skip
    assert judge.faults["P3"] > 100
