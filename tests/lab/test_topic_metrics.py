"""Probes of publish/subscribe against trees, queues and waits that can be worked out by hand (document 002, 5.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.lab.errors import MeasurementError
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics import CALCULATIONS, probe
from causalcast.lab.observe import prepare
from causalcast.lab.spec import RunSpec
from causalcast.simulation import (
    NS_PER_MS,
    AnyWorkload,
    Broadcasts,
    Constant,
    Exponential,
    Network,
    Replies,
    Stream,
    Uniform,
)

if TYPE_CHECKING:
    from causalcast.lab.metrics import Measured

MS = NS_PER_MS
PACKETS = Network(Constant(100 * MS), fifo=False, processing_ns=MS, transmission_ns=MS, tick_ns=MS)
ROUGH = Network(Uniform(0, 400 * MS), fifo=False)
ONE_EACH = Broadcasts(1, Uniform(0, 1_000 * MS))


def measured(
    probes: list[str], stack: str, nodes: int, workload: AnyWorkload, network: Network = PACKETS, seed: int = 1
) -> dict[str, Measured]:
    looking = [probe(name, {}) for name in probes]
    prepare(RunSpec(stack, nodes, workload, network), seed, looking).run()
    return {name: value for each in looking for name, value in each.result().items()}


def counts(value: Any) -> dict[float, int]:
    assert isinstance(value, Histogram)
    return value.counts


def test_a_tree_of_subscribers_has_no_relays() -> None:
    found = measured(["publications", "trees"], "vcube-ps", 16, Stream(1, subscribers=5))
    assert (found["pub_copies"], found["handovers"], found["false_positives"]) == (4, 0, 0)
    assert counts(found["relays"]) == {0: 1}
    assert sum(counts(found["hops"]).values()) == 4


def test_a_single_tree_of_all_has_a_level_for_each_dimension_and_one_hop_more() -> None:
    own = measured(["publications", "trees"], "vcube-ps", 16, Stream(1))
    single = measured(["publications", "trees"], "srpt-s", 16, Stream(1))
    assert counts(own["hops"]) == {1: 4, 2: 6, 3: 4, 4: 1}
    assert (own["levels"], single["levels"]) == (4, 4)
    assert (single["pub_copies"], single["handovers"]) == (15, 1)
    # The publisher gets its own publication back, and the root has it after the hand-over.
    assert sum(hops * times for hops, times in counts(single["hops"]).items()) in range(15 * 3 - 4, 15 * 3 + 1)
    assert counts(single["relays"]) == {0: 1}


def test_relays_of_a_single_tree_are_false_positives() -> None:
    found = measured(["publications", "trees"], "srpt-s", 32, Stream(1, subscribers=6))
    (relays,) = counts(found["relays"])
    assert relays > 0
    assert found["false_positives"] == relays
    assert found["false_positive_percent"] == 100 * relays / (float(found["pub_copies"] or 0) + 1)  # type: ignore[arg-type]


def test_the_queues_of_table_5_1_for_64_nodes() -> None:
    """Half of the nodes are leaves, a quarter sends one copy at a time, an eighth two, which find 1 and 2: 1.5."""
    lengths = counts(measured(["queues"], "srpt-s", 64, Broadcasts(1, Uniform(0, 100_000 * MS)))["queue_length"])
    assert lengths == {0: 32, 1: 16, 1.5: 8, 2: 4, 2.5: 2, 3: 1, 3.5: 1}


def test_acknowledgements_past_the_queues_leave_them_shorter() -> None:
    queued = measured(["queues"], "vcube-ps", 64, ONE_EACH)
    apart = measured(
        ["queues"],
        "vcube-ps",
        64,
        ONE_EACH,
        Network(Constant(100 * MS), fifo=False, processing_ns=MS, transmission_ns=MS, tick_ns=MS, unqueued=("Ack",)),
    )
    means = [sum(length * nodes for length, nodes in counts(each["queue_length"]).items()) for each in (queued, apart)]
    assert means[0] > means[1] > 64


def test_the_wait_on_a_way_adds_up() -> None:
    """One publication, 8 nodes: the root's copies wait 0, 1 and 2, and those of its children from there on."""
    waits = counts(measured(["ways"], "vcube-ps", 8, Stream(1))["queue_wait_ns"])
    assert waits == {0: 1, 1 * MS: 2, 2 * MS: 2, 3 * MS: 2}


def test_what_waits_for_its_causes_and_what_was_taken_before() -> None:
    found = measured(["reception", "entries"], "vcube-ps", 16, Replies(1, Uniform(0, 99 * MS)), ROUGH)
    waits, before, entries = (counts(found[name]) for name in ("causal_wait_ns", "taken_before", "entries"))
    assert sum(waits.values()) == 16 * 15
    assert (sum(before.values()), before[0], entries[0]) == (16, 1, 1)
    assert sum(taken * times for taken, times in before.items()) >= sum(e * times for e, times in entries.items())
    assert waits[0] < 16 * 15


def test_brokers_serve_all_others() -> None:
    found = measured(["brokers", "publications"], "srpt-b-many", 16, Stream(4, Constant(5_000 * MS), spared=8))
    assert counts(found["served"]) == {1: 8}
    whole, tree, last = (found[name] for name in ("publication_latency_ns", "tree_ns", "broker_ns"))
    assert isinstance(whole, Histogram)
    assert isinstance(tree, Histogram)
    assert isinstance(last, Histogram)
    assert whole.count == 4 * 7
    assert whole.sum == tree.sum + last.sum


def test_who_has_left_and_still_gets_publications_is_a_false_positive() -> None:
    churn = Stream(40, Constant(20 * MS), subscribers=30, session=Exponential(1_000 * MS))
    calm = Stream(10, Constant(20 * MS), subscribers=30)
    for stack in ("vcube-ps", "srpt-s"):
        still = measured(["publications"], stack, 32, calm)["false_positives"]
        found = measured(["publications"], stack, 32, churn)["false_positive_percent"]
        assert isinstance(found, float)
        assert 0 < found < 50
        assert isinstance(still, float)
        assert (still == 0) == (stack == "vcube-ps")


def test_probes_say_what_they_cannot_look_at() -> None:
    with pytest.raises(MeasurementError, match="no trees of topics"):
        measured(["publications"], "tcb", 3, Broadcasts(1))
    with pytest.raises(MeasurementError, match="transmission_ns"):
        measured(["queues"], "srpt-s", 3, Broadcasts(1), Network())


def test_churn_is_ln_2_over_the_median() -> None:
    assert CALCULATIONS["churn_percent_per_second"](60) == pytest.approx(1.155, abs=1e-3)
    assert CALCULATIONS["churn_percent_per_minute"](60) == pytest.approx(69.3, abs=0.1)
    assert CALCULATIONS["root_load"](4096, 4000, 1.155, 500) == pytest.approx(1.13, abs=0.01)
