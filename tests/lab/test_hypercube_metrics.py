"""What is measured of trees of the hypercube, of packets, and of how long messages wait."""

from __future__ import annotations

from typing import Any

import pytest

from causalcast.lab.compare import compare
from causalcast.lab.errors import MeasurementError
from causalcast.lab.experiment import load, parse
from causalcast.lab.grid import runs
from causalcast.lab.metrics import MetricOptionsError, hypercube, probe
from causalcast.lab.summary import summarize
from causalcast.lab.task import measure


@pytest.mark.parametrize(("name", "rows"), [("002-examples", 18), ("002-trees", 1)])
def test_the_examples_of_the_document_hold(name: str, rows: int) -> None:
    experiment = load(name)
    records = [measure(run) for run in runs(experiment, name)]
    summary = summarize(experiment, records, [1], name=name, command="", version="")
    assert compare({name: experiment}, {name: summary}, everything=False).summary == {
        "met": rows,
        "missed": 0,
        "explained": 0,
        "unanswered": 0,
    }


def test_rounds_are_counted_from_the_first_that_begins_after_the_crash() -> None:
    assert hypercube.detection_rounds_mean(2) == hypercube.detection_rounds_most(2) == 1
    assert 1 < hypercube.detection_rounds_mean(16) < hypercube.detection_rounds_most(16) <= 16


def test_trees_with_failed_members_skip_them() -> None:
    assert hypercube.tree(4, "1", 0) == "0:{2} 2:{3} 3:{}"
    assert hypercube.first_children(8, "1 3 4 5") == "- 2 7 - -"


RUN = """
title = "Packets"
source = "-"
shows = "-"
grid = {{ stack = ["{stack}"] }}

[run]
stack = "$stack"
nodes = {nodes}
workload = {{ workload = "broadcasts", messages = {messages}, interval = "{interval}", payload_bytes = 50 }}
network = {{ delay = "{delay}", fifo = false, processing_ns = 1000000, transmission_ns = 1000000, tick_ns = 1000000 }}

[probes]
packets = {{}}
waits = {{ pairs = true }}
dependencies = {{ indirect = true }}
"""


def measured(stack: str, *, nodes: int = 16, messages: int = 1, interval: str, delay: str) -> dict[str, Any]:
    text = RUN.format(stack=stack, nodes=nodes, messages=messages, interval=interval, delay=delay)
    (run,) = runs(parse(text.encode(), "packets"), "packets")
    return dict(measure(run).measured)


@pytest.mark.parametrize(
    "stack",
    ["causal-aggregation", "causal-aggregation-off", "causal-aggregation-barriers", "causal-aggregation-bundling"],
)
def test_what_is_seen_of_packets_adds_up(stack: str) -> None:
    found = measured(stack, messages=3, interval="uniform:0:100", delay="uniform:20:200")
    copies = 3 * 16 * 15
    assert found["crossings"] == 15
    assert found["packet_messages"].sum == copies == found["reception_ns"].count == found["delivery_ns"].count
    assert found["packets"] == found["packet_messages"].count == found["packet_bytes"].count == found["packets_of"].sum
    assert found["aggregates"] == found["aggregate_messages"].count
    assert (found["aggregates"] > 0) == (stack != "causal-aggregation-off")
    assert found["most_in_packet"].max == found["packet_messages"].max
    assert found["delivery_ns"].sum == found["reception_ns"].sum + found["pending_ns"].sum
    assert found["delayed"] == found["pending_ns"].count - found["pending_ns"].counts.get(0, 0)
    assert found["dependencies"].count == 48
    # A packet has a header, and of each message a source, an entry of its own, and a payload.
    assert found["packet_bytes"].sum >= 20 * found["packets"] + 56 * copies


def test_pairs_are_received_later_and_wait_less_than_alone() -> None:
    found = measured("causal-aggregation", messages=3, interval="uniform:0:100", delay="uniform:20:200")
    assert found["pair_reception_ns"].count == 2 * found["aggregate_messages"].counts[2]
    held = found["pair_reception_ns"].sum - found["pair_reception_alone_ns"].sum
    assert held == found["pair_pending_alone_ns"].sum - found["pair_pending_ns"].sum > 0


def test_a_source_queues_a_copy_for_each_child() -> None:
    found = measured("causal-aggregation-off", nodes=4, interval="constant:1000", delay="constant:10000")
    # All four broadcast at once, to the child of cluster 1 and behind it to that of cluster 2, which sends on.
    assert found["queue_ns"].counts == {0: 8, 1_000_000: 4}
    assert found["reception_ns"].counts == {10_002_000_000: 4, 10_003_000_000: 4, 20_005_000_000: 4}
    assert found["dependencies"].counts == {0: 4}


def test_indirect_dependencies_are_those_that_a_barrier_leaves_out() -> None:
    vector, barrier = (
        measured(stack, messages=2, interval="uniform:0:4000", delay="constant:50")
        for stack in ("causal-aggregation", "causal-aggregation-barriers")
    )
    assert vector["dependencies"].sum - barrier["dependencies"].sum == vector["indirect_dependencies"].sum > 100
    assert barrier["indirect_dependencies"].sum == 0


def test_a_single_tree_brings_a_source_its_own_message_and_that_is_no_reception() -> None:
    found = measured("causal-aggregation-single-tree", interval="uniform:0:100", delay="normal:100:25")
    assert found["reception_ns"].count == found["delivery_ns"].count == 16 * 15
    assert found["crossings"] == (15 * 16 + 15) / 16


def test_other_stacks_are_refused() -> None:
    with pytest.raises(MeasurementError, match="sends no packets to look at"):
        measured("tcb", interval="uniform:0:100", delay="constant:1")
    with pytest.raises(MetricOptionsError, match="pairs: 3 is not true or false"):
        probe("waits", {"pairs": 3})
