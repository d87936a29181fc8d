"""Causal aggregation: the examples of document 002, sections 4.3 and 4.4.3, packets, variants, and random schedules."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols import stack
from causalcast.protocols.dissemination import aggregating_tree
from causalcast.protocols.dissemination.aggregating_tree import Packet, message_bytes
from causalcast.protocols.hypercube_stacks import HYPERCUBE_STACKS
from causalcast.protocols.ordering.aggregation import CausalMessage
from causalcast.simulation import Network, Normal, Uniform, process_names
from causalcast.simulation.simulator import Simulator
from causalcast.simulation.workload import Broadcasts
from causalcast.simulation.world import Receive, World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.protocols import Process

AGGREGATING = [each.name for each in HYPERCUBE_STACKS if each.name.startswith("causal-aggregation")]
MS = 1_000_000


class Node4:
    """Node 4 of 8: what it sends, packet by packet, as `receiver: source.counter ...`."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        names = [f"p{i}" for i in range(8)]
        self.world = World(stack("causal-aggregation"), names)
        self.process = self.world.processes["p4"]

    def receive(self, sender: int, message: CausalMessage) -> list[str]:
        before = {link: len(messages) for link, messages in self.world.in_flight.items()}
        self.process.receive(f"p{sender}", Packet((message,)))
        return [
            f"{link[1]}: {' '.join(f'{m.origin}.{m.counter}' for m in packet.messages)}"
            for link, messages in self.world.in_flight.items()
            if link[0] == "p4"
            for packet in messages[before[link] :]
        ]


def message(source: int, counter: int, past: Sequence[tuple[int, int]] = ()) -> CausalMessage:
    return CausalMessage(f"p{source}", counter, tuple(number for entry in past for number in entry), b"x")


def test_section_4_4_3_first_example() -> None:
    """m2,1 -> m2,2 -> m2,3 -> m0,1, and node 4 receives m2,2 last."""
    node = Node4()
    assert node.receive(6, message(2, 1)) == ["p5: p2.1"]
    assert node.receive(6, message(2, 3)) == []
    assert node.receive(0, message(0, 1, [(2, 3)])) == ["p6: p0.1"]
    assert node.receive(6, message(2, 2)) == ["p5: p2.2 p2.3 p0.1"]


def test_section_4_4_3_second_example_nothing_twice() -> None:
    """m2,1 -> m0,1 -> m0,2, received in the order m0,1, m0,2, m2,1."""
    node = Node4()
    assert node.receive(0, message(0, 1, [(2, 1)])) == ["p6: p0.1"]
    assert node.receive(0, message(0, 2)) == ["p6: p0.2"]
    assert node.receive(6, message(2, 1)) == ["p5: p2.1 p0.1 p0.2"]


def test_figure_4_2_node_4_does_not_wait_for_what_another_brings() -> None:
    """m2 -> m1 -> m0 by nodes 2, 1 and 0: m1 comes to node 5 before node 4."""
    node = Node4()
    assert node.receive(0, message(0, 1, [(1, 1), (2, 1)])) == ["p6: p0.1"]
    assert node.receive(6, message(2, 1)) == ["p5: p2.1 p0.1"]
    assert node.receive(5, message(1, 1, [(2, 1)])) == []


def test_with_a_barrier_alone_an_indirect_dependency_is_waited_for_too() -> None:
    """Section 4.4 has node i wait for m1 only; here m1 is itself held for m2, and m0 with it."""
    node = Node4()
    node.receive(0, message(0, 3, [(2, 2)]))
    assert node.receive(6, message(2, 2)) == []
    node.receive(0, message(0, 1))
    node.receive(0, message(0, 2))
    assert node.receive(6, message(2, 1)) == ["p5: p2.1 p2.2 p0.3"]


def test_a_packet_brings_a_source_further_and_is_sent_once() -> None:
    """Algorithm 2 as printed sends once per advance of vector_max (lines 17 to 22)."""
    node = Node4()
    for counter in (3, 2):
        assert node.receive(0, message(0, counter)) == []
    assert sorted(node.receive(0, message(0, 1))) == ["p5: p0.1 p0.2 p0.3", "p6: p0.1 p0.2 p0.3"]
    assert node.receive(0, message(0, 2)) == []


def test_packets_are_full_at_1500_bytes() -> None:
    node = Node4()
    for counter in range(30, 1, -1):
        node.receive(0, CausalMessage("p0", counter, (), bytes(50)))
    packets = [line for line in node.receive(0, CausalMessage("p0", 1, (), bytes(50))) if line.startswith("p5")]
    assert [line.count("p0.") for line in packets] == [26, 4]
    assert 20 + 26 * 56 <= 1_500 < 20 + 27 * 56


def test_section_4_5_3_the_smallest_packet_of_two_messages_has_136_bytes() -> None:
    first, second = CausalMessage("p0", 1, (), bytes(50)), CausalMessage("p1", 1, (0, 1), bytes(50))
    assert aggregating_tree.HEADER_BYTES + message_bytes(first) + message_bytes(second) == 136


def packets_of(simulator: Simulator) -> Counter[int]:
    found: Counter[int] = Counter()
    for host in simulator.hosts.values():
        found.update(host.process.dissemination.tally.by_messages)  # type: ignore[attr-defined]
    return found


def model(name: str, nodes: int, seed: int) -> Simulator:
    """The timing of section 4.5.1, links that reorder, everybody busy."""
    network = Network(Uniform(25 * MS, 175 * MS), fifo=False, processing_ns=MS, transmission_ns=MS)
    return Simulator(
        stack(name), process_names(nodes), Broadcasts(3, Uniform(0, 200 * MS), 50), network=network, seed=seed
    )


@pytest.mark.parametrize("name", AGGREGATING)
@pytest.mark.parametrize("nodes", [2, 7, 16, 29])
def test_everything_is_delivered_and_nothing_is_left(name: str, nodes: int) -> None:
    simulator = model(name, nodes, nodes)
    done = simulator.run()
    assert done.deliveries == 3 * nodes * (nodes - 1)
    for host in simulator.hosts.values():
        ordering, dissemination = host.process.ordering, host.process.dissemination  # type: ignore[attr-defined]
        assert not any(ordering.tables().values())
        assert not hasattr(dissemination, "tables") or not any(dissemination.tables().values())


def test_each_message_crosses_each_of_the_links_once_and_bundles_save_packets() -> None:
    nodes = 32
    off = model("causal-aggregation-off", nodes, 1)
    assert off.run().sends == 3 * nodes * (nodes - 1)
    fewer = []
    for name in ("causal-aggregation", "causal-aggregation-barriers", "causal-aggregation-bundling"):
        simulator = model(name, nodes, 1)
        sends = simulator.run().sends
        packets = packets_of(simulator)
        assert sum(size * number for size, number in packets.items()) == 3 * nodes * (nodes - 1)
        assert sum(packets.values()) == sends
        fewer.append(sends)
    assert max(fewer) < 0.97 * 3 * nodes * (nodes - 1)


def test_a_single_tree_has_fewer_messages_to_wait_for() -> None:
    """Section 4.5.6: one tree, fewer delayed messages."""

    def held_up(name: str) -> int:
        simulator = model(name, 32, 2)
        simulator.run()
        return sum(host.process.ordering.tally.held_up for host in simulator.hosts.values())  # type: ignore[attr-defined]

    assert held_up("causal-aggregation-single-tree") < 0.5 * held_up("causal-aggregation")


def test_over_a_single_tree_only_the_roots_message_is_aggregated() -> None:
    """Any other goes down after what it names: it went up after that had come down."""
    found = 0
    for seed in (1, 2, 3):
        simulator = Simulator(
            stack("causal-aggregation-single-tree"),
            process_names(64),
            Broadcasts(1, Normal(1_000 * MS, 130 * MS), 50),
            network=Network(Normal(100 * MS, 25 * MS), fifo=False, processing_ns=MS, transmission_ns=MS, tick_ns=MS),
            seed=seed,
        )
        packets: list[Packet] = []
        send = simulator.send

        def keep(sender: str, to: Sequence[str], sent: Any, packets: list[Packet] = packets, send: Any = send) -> None:
            packets.append(sent)
            send(sender, to, sent)

        simulator.send = keep  # type: ignore[method-assign]
        simulator.run()
        root = simulator.roster.names[0]
        several = [packet for packet in packets if len(packet.messages) > 1]
        assert all(root in {each.origin for each in packet.messages} for packet in several)
        found += len(several)
    assert found


def test_a_vector_names_what_changed_and_a_barrier_what_is_direct() -> None:
    for name, second in (("causal-aggregation", (0, 1, 1, 1)), ("causal-aggregation-barriers", (1, 1))):
        world = World(stack(name), ["p0", "p1", "p2"])
        world.broadcast("p0")
        world.settle()
        world.broadcast("p1")
        world.settle()
        world.broadcast("p2")
        (packet,) = world.in_flight["p2", "p0"]
        assert isinstance(packet, Packet)
        assert packet.messages[0].past == second
        world.settle()
        world.broadcast("p2")
        assert world.in_flight["p2", "p0"][0].messages[0].past == ()  # type: ignore[attr-defined]


def test_two_processes_that_bundle_for_each_other_are_freed_by_the_timer() -> None:
    """p1 keeps back what p2 waits for, and p2 what p1 waits for: only time ends it."""
    simulator = model("causal-aggregation-bundling", 64, 5)
    assert simulator.run().deliveries == 3 * 64 * 63


def test_long_random_schedules_with_duplicates() -> None:
    for name in AGGREGATING:
        for seed in range(6):
            draw = random.Random(seed)
            names = [f"p{i}" for i in range(3 + seed)]
            world = World(stack(name), names)
            left = 25
            while left or not world.quiescent:
                steps = world.enabled(fifo=False)
                if left and (not steps or draw.random() < 0.15):
                    left -= 1
                    world.broadcast(draw.choice(names), f"{left}".encode())
                    continue
                step = draw.choice(steps)
                result: Any = world.do(step)
                if isinstance(step, Receive) and draw.random() < 0.1:
                    world.in_flight[step.sender, step.receiver].append(result)
            for process in world.processes.values():
                check_empty(process)


def check_empty(process: Process) -> None:
    for layer in (process.ordering, process.dissemination):  # type: ignore[attr-defined]
        if hasattr(layer, "tables"):
            assert not any(layer.tables().values()), layer.tables()
