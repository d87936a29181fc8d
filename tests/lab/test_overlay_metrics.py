"""What overlays are measured by, against arithmetic that can be done by hand; and the replayed figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.lab.metrics import CALCULATIONS, MetricOptionsError, probe
from causalcast.lab.metrics.overlay import (
    Comings,
    Links,
    Openings,
    Pings,
    Redundancy,
    Tables,
    path_lengths,
    relative_redundancy,
)
from causalcast.lab.observe import prepare
from causalcast.lab.spec import RunSpec
from causalcast.simulation import NS_PER_MS, Broadcasts, Constant, Crash, Network, Turnover

if TYPE_CHECKING:
    from causalcast.lab.metrics import Probe

MS = NS_PER_MS
SECOND = 1000 * MS


def measured(stack: str, nodes: int, *probes: Probe, messages: int = 4, **spec: Any) -> dict[str, Any]:
    """What the probes say of a run in which one process broadcasts once a second from the 90th second on."""
    workload = Broadcasts(messages, Constant(SECOND), senders=1, begin_ns=90 * SECOND)
    network = Network(spec.pop("delay", Constant(5 * MS)), tick_ns=MS)
    run = RunSpec(stack, nodes, workload, network, until_ns=spec.pop("until_ns", 100 * SECOND), **spec)
    simulator = prepare(run, 1, probes)
    simulator.run(until_ns=run.until_ns)
    found: dict[str, Any] = {}
    for each in probes:
        found |= each.result()
    return found


def test_paths_are_the_shortest_and_those_that_lead_nowhere_are_counted() -> None:
    line = {"a": ["b"], "b": ["a", "c"], "c": ["b", "d"], "d": ["c"], "e": []}
    assert path_lengths(line, ["a"]) == (2.0, 1)
    assert path_lengths(line, ["b", "e"]) == (4 / 3, 5)
    assert path_lengths({"a": []}, ["a"]) == (0.0, 0)


def test_redundancy_of_flooding_follows_from_the_links() -> None:
    found = measured("flood", 30, Redundancy(), Links([89_000]))
    copies = 30 * found["links"] - 29
    assert found["rmr"] == pytest.approx(relative_redundancy(copies, 30))
    assert found["rmr_acknowledged"] == found["rmr"]
    assert found["reliability"] == 100
    assert found["unsafe_links"] == found["unreachable"] == 0


def test_where_a_message_would_go_back_an_acknowledgement_goes() -> None:
    found = measured("prc", 30, Redundancy())
    assert found["rmr_acknowledged"] == pytest.approx(found["rmr"] + 1)


@pytest.mark.parametrize("stack", ["plumtree", "cptcast"])
def test_after_one_broadcast_payloads_go_along_a_tree(stack: str) -> None:
    found = measured(stack, 30, Redundancy(skip=1), Links([91_900]))
    assert found["tree_links"] == 29
    assert found["rmr"] == 0
    assert measured(stack, 30, Redundancy())["rmr"] > 0


def test_who_has_crashed_is_no_survivor_and_owes_nothing() -> None:
    faults = (Crash("p03", 30 * SECOND), Crash("p04", 92_500 * MS))
    found = measured("plumtree", 30, Redundancy(), Links([89_000]), faults=faults)
    assert found["reliability"] == 100
    assert found["members"] == 29
    assert found["last_delivery_ns"].max < 5 * SECOND


def test_a_message_that_nobody_else_gets_has_no_redundancy() -> None:
    found = measured("flood", 1, Redundancy())
    assert found["rmr"] is None
    assert found["reliability"] == 100


def test_a_ping_takes_three_delays_at_most() -> None:
    found = measured("pc", 20, Pings(), messages=0, delay=Constant(100 * MS))
    assert found["ping_ns"].count > 20
    assert found["ping_ns"].max == 300 * MS


def test_what_it_takes_to_make_links_safe_is_counted() -> None:
    turnover = Turnover(60 * SECOND, 20 * SECOND, join_every_ns=2 * SECOND, leave_every_ns=4 * SECOND)
    found = measured("pc", 30, Openings(), Pings(), Comings(), faults=(turnover,))
    # Each ping that was answered had been sent.
    assert found["ways_tried"] >= found["ping_ns"].count > 0
    assert found["asked"] > 0
    assert found["members_at_end"] == 1 + found["joins"] - found["leaves"]
    assert found["joins"] > 29
    later = measured("pc", 30, Openings(from_ms=50_000), faults=(turnover,))
    assert 0 < later["ways_tried"] < found["ways_tried"]
    assert measured("pc", 1, Openings())["ways_tried"] == 0


def test_exchanges_of_a_slow_overlay_make_no_arcs() -> None:
    growth = Turnover(MS, 30 * SECOND, join_every_ns=600 * MS)
    before, after = Links([50_000]), Links([90_000])
    measured("pc", 1, before, after, messages=0, delay=Constant(800 * MS), faults=(growth,), until_ns=91 * SECOND)
    assert before.result()["members"] == after.result()["members"] > 30
    assert after.result()["arcs"] == pytest.approx(before.result()["arcs"], rel=0.1)
    assert before.result()["unsafe_links"] > 0.5


def test_tables_are_those_of_each_process() -> None:
    found = measured("prc", 20, Tables())
    assert found["table.expected"].max == 0
    assert found["table.neighbours"].count == 20


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("openings", {"from_ms": -1}),
        ("links", {"at_ms": []}),
        ("links", {"at_ms": [1.5]}),
        ("links", {"at_ms": [1], "sources": 0}),
        ("redundancy", {"skip": -1}),
        ("pings", {"skip": 1}),
    ],
)
def test_an_option_that_cannot_be_is_named(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(MetricOptionsError, match=f"probes.{name}: "):
        probe(name, options)


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("active_view", {"nodes": 10_000}, 5),
        ("passive_view", {"nodes": 10_000}, 30),
        ("redundancy", {"copies": 50, "receivers": 11}, 4),
        ("naive_deliveries", {}, 2),
        ("order_with_waiting", {}, "m1,m2,m3"),
        ("order_without_waiting", {}, "m1,m3,m2"),
        ("order_over_new_link", {"stack": "flood"}, "a',a"),
        ("order_over_new_link", {"stack": "pc"}, "a,a'"),
        ("buffered_for_new_link", {}, "a' then a'"),
        ("overflow", {}, 1),
        ("stale_pong_opens", {}, 0),
        ("next_attempt_opens", {}, 1),
        ("attempts_before_closing", {}, 6),
        ("left_after_closing", {}, 0),
        ("pings_of_first_link", {}, 0),
        ("pings_of_further_link", {}, 1),
        ("forwards", {"view": 10}, 9),
        ("vector_entries", {"members": 100}, 100),
        ("vector_words", {"members": 10, "waiting": 4}, 2 * 10 + 4 * 11),
        ("vector_operations", {"members": 10, "waiting": 4}, 5 * 10),
    ],
)
def test_the_figures_come_out(name: str, arguments: dict[str, Any], value: float | str) -> None:
    assert CALCULATIONS[name](**arguments) == value
