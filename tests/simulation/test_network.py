"""Networks: order, queues, bandwidth, single links, matrices, loss and repetition, each against its arithmetic."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest

from causalcast.simulation import (
    NS_PER_MS,
    Broadcasts,
    Constant,
    InvalidModelError,
    Link,
    Matrix,
    Network,
    Rise,
    Sites,
    Uniform,
    Weibull,
    read_matrix,
    simulate,
)
from tests.simulation.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

MS = NS_PER_MS
ONCE = Broadcasts(1, Constant(0), payload_bytes=32, senders=1)


def arrivals(network: Network, nodes: int = 4, workload: Broadcasts = ONCE) -> dict[str, list[int]]:
    """When each process took its deliveries, in ms."""
    sink = Memory()
    simulate("unordered", nodes=nodes, workload=workload, network=network, trace=sink)
    times: dict[str, list[int]] = {}
    for row in sink.rows:
        if row.event == "deliver":
            assert row.time_ns is not None
            times.setdefault(row.process, []).append(row.time_ns)
    return times


def test_fifo_links_keep_order_and_others_do_not() -> None:
    def overtakes(fifo: bool) -> int:
        sink = Memory()
        simulate("unordered", nodes=2, messages=200, network=Network(Uniform(1, 50 * MS), fifo=fifo), trace=sink)
        counters = [row.counter or 0 for row in sink.rows if (row.process, row.event) == ("p0", "deliver")]
        return sum(a > b for a, b in pairwise(counters))

    assert overtakes(True) == 0
    assert overtakes(False) > 0


def test_one_slow_link_in_one_direction() -> None:
    network = Network(Constant(MS), links=(Link("p0", "p1", Constant(10 * MS)),))
    assert arrivals(network) == {"p1": [10 * MS], "p2": [MS], "p3": [MS]}
    both = arrivals(network, 2, Broadcasts(1, Constant(0)))
    assert both == {"p0": [MS], "p1": [10 * MS]}


def test_processes_at_two_sites() -> None:
    network = Network(Constant(MS), sites=Sites(2, Constant(12 * MS)))
    assert arrivals(network) == {"p1": [12 * MS], "p2": [MS], "p3": [12 * MS]}
    matrix = Matrix(tuple((7 * MS,) * 4 for _ in range(4)))
    assert arrivals(msgspec.structs.replace(network, matrix=matrix)) == {name: [7 * MS] for name in ("p1", "p2", "p3")}


def test_links_that_become_slower() -> None:
    network = Network(Constant(MS), rise=Rise(by_ns=40 * MS, at_ns=10 * MS, for_ns=40 * MS), tick_ns=MS)
    every = Broadcasts(7, Constant(10 * MS), senders=1)
    taken = arrivals(network, 2, every)["p1"]
    assert [(time // MS) - 1 for time in taken] == [10, 30, 50, 70, 90, 100, 110]
    assert arrivals(msgspec.structs.replace(network, rise=Rise(MS, 0, 0)), 2)["p1"] == [2 * MS]


def test_the_packet_model_of_document_002() -> None:
    """Section 4.5.1: processing 1, a copy per destination in the send queue, transmission 1, propagation 100."""
    network = Network(Constant(100 * MS), processing_ns=MS, transmission_ns=MS)
    assert arrivals(network) == {"p1": [102 * MS], "p2": [103 * MS], "p3": [104 * MS]}
    two = Broadcasts(2, Constant(0), senders=1)
    assert arrivals(network, 3, two) == {"p1": [102 * MS, 104 * MS], "p2": [103 * MS, 105 * MS]}


def test_bandwidth_is_shared_by_the_links_of_a_node_and_counts_bytes_on_the_wire() -> None:
    sink = Memory()
    network = Network(Constant(MS), bits_per_second=100_000_000, tick_ns=1)
    simulate("unordered", nodes=4, workload=ONCE, network=network, trace=sink)
    sent = sink.rows[0]
    assert sent.payload_bytes is not None
    assert sent.overhead_bytes is not None
    service = (sent.payload_bytes + sent.overhead_bytes) * 8 * 10
    assert [row.time_ns for row in sink.rows[1:]] == [MS + service, MS + 2 * service, MS + 3 * service]


def test_times_are_multiples_of_the_tick() -> None:
    network = Network(Uniform(0, 50 * MS), tick_ns=3 * MS, transmission_ns=MS)
    workload = Broadcasts(5, Uniform(1, 10 * MS))
    times = [time for times in arrivals(network, 4, workload).values() for time in times]
    assert len(times) == 60
    assert all(time % (3 * MS) == 0 for time in times)


def test_a_matrix_from_a_file_as_document_004_has_it(tmp_path: Path) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text("0,1000,2000\n3000,0,4000\n\n5000,6000,0\n")
    network = Network(matrix=read_matrix(file))
    assert arrivals(network, 3) == {"p1": [MS], "p2": [2 * MS]}
    weibull = Network(matrix=Matrix(read_matrix(file).baselines_ns, scale=0.15))
    (first,), (second,) = (arrivals(weibull, 3)[name] for name in ("p1", "p2"))
    assert MS < first <= 1.45 * MS < 2 * MS < second <= 2.9 * MS


@pytest.mark.parametrize(
    ("text", "words"),
    [("0,1\n2", "row 2 of a matrix of 2 rows holds 1"), ("0,a\n1,0", ":1: not whole"), ("0,-1\n1,0", "negative")],
)
def test_matrices_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "matrix.csv"
    file.write_text(text)
    with pytest.raises(InvalidModelError, match=words):
        read_matrix(file)


def test_loss_and_duplication_for_those_who_ask() -> None:
    workload = Broadcasts(500, Constant(MS), senders=1)
    lossy = simulate("unordered", nodes=5, workload=workload, network=Network(loss=0.1))
    assert lossy.counters.lost == pytest.approx(200, abs=4 * 13.4)
    assert lossy.counters.deliveries == 2000 - lossy.counters.lost
    twice = simulate("unordered", nodes=5, workload=workload, network=Network(duplication=0.1))
    assert twice.counters.duplicated == pytest.approx(200, abs=4 * 13.4)
    assert twice.counters.deliveries == 2000
    assert twice.counters.events - 500 == 2000 + twice.counters.duplicated


def test_a_network_is_data() -> None:
    network = Network(
        Weibull(10 * MS), False, (Link("p0", "p1", Constant(100 * MS)),), bits_per_second=10_000_000, loss=0.5
    )
    assert msgspec.json.decode(msgspec.json.encode(network), type=Network) == network


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Network(links=(Link("p0", "x", Constant(1)),)), "'x'"),
        (Network(matrix=Matrix(((0,),))), "a matrix of 1 rows does not fit 2"),
    ],
)
def test_networks_that_do_not_fit(network: Network, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words):
        simulate("tcb", nodes=2, messages=1, network=network)


@pytest.mark.parametrize(
    "text",
    [
        '{"loss": 2}',
        '{"tick_ns": 0}',
        '{"bits_per_second": 0}',
        '{"processing_ns": -1}',
        '{"sites": {"count": 0, "across": {"model": "constant", "delay_ns": 1}}}',
        '{"rise": {"by_ns": -1, "at_ns": 0, "for_ns": 0}}',
    ],
)
def test_networks_that_cannot_be(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Network)


def test_messages_of_types_that_are_not_queued_only_propagate() -> None:
    """Document 002, section 5.6.1, with acknowledgements left out of the queues."""
    ends = {}
    for unqueued in ((), ("Ack",)):
        network = Network(Constant(100 * MS), processing_ns=MS, transmission_ns=MS, unqueued=unqueued)
        done = simulate("vcube-ps", nodes=2, network=network, workload=Broadcasts(1, Constant(0), senders=1))
        ends[unqueued] = done.queue.now
    assert ends == {(): 204 * MS, ("Ack",): 202 * MS}
    with pytest.raises(InvalidModelError, match="'Akc'"):
        simulate("vcube-ps", nodes=2, network=Network(unqueued=("Akc",)))
