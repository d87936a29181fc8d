"""The simulator's speed and memory: plain flooding beside two other engines, and stacks of the registry.

Flooding: 10,000 processes on a random digraph of out-degree 17, 20 messages from 20 processes at time 0, links of 5 to
15 ms that reorder, in ticks of 0.1 ms: 3,400,000 arrivals. The same graph and the same delays on

* the simulator: process objects written against the port, as any protocol is, with deliveries to an application;
* a heap of tuples: one bare loop with nothing of a simulator around it;
* SimPy: a call-back for each arrival.

Each engine runs in a process of its own. Memory is the growth of the resident set from before the processes are made
to the peak of the run. Run with `python -m benchmarks.bench_simulate`.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from time import process_time
from typing import TYPE_CHECKING, Any

import simpy

from benchmarks.report import Case, write
from causalcast.model import Event, Message, ProcessId, Roster, Tag
from causalcast.protocols import BaseProcess, BroadcastMessage, Port, Stack, Timer, WireMessage
from causalcast.protocols.dissemination import Direct
from causalcast.protocols.membership import StaticMembership
from causalcast.protocols.ordering import Unordered
from causalcast.simulation import Network, SimulatedHost, Simulator, Uniform, process_names, simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEGREE = 17
TICK_NS = 100_000
DELAY = Uniform(5_000_000, 15_000_000)


@dataclass(frozen=True, slots=True)
class Load:
    nodes: int
    messages: int

    def neighbours(self) -> list[list[int]]:
        source = Random(1)
        return [source.sample(range(self.nodes), DEGREE) for _ in range(self.nodes)]

    def origins(self) -> range:
        return range(0, self.nodes, self.nodes // self.messages)[: self.messages]

    @property
    def arrivals(self) -> int:
        return self.nodes * self.messages * DEGREE


class FloodMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=100):
    counter: int
    identity: int
    """Of the dot, as one number: the message identifier of Plumtree and its like."""
    payload: bytes


class Flooding(BaseProcess):
    """Forwards what is new to all its neighbours, and delivers it at once."""

    __slots__ = ("_neighbours", "_port", "_roster", "_seen", "_sent")

    def __init__(self, port: Port, roster: Roster, neighbours: tuple[ProcessId, ...]) -> None:
        self._port = port
        self._roster = roster
        self._neighbours = neighbours
        self._seen: set[int] = set()
        self._sent = 0

    def start(self) -> None: ...

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        self._sent += 1
        identity = self._roster.slot(self._port.name) << 32 | self._sent
        message = FloodMessage(self._port.name, self._sent, identity, payload)
        self._seen.add(identity)
        self._port.send(self._neighbours, message)
        return Tag(message.origin, message.counter, (), (), self._roster)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        assert isinstance(message, FloodMessage)
        identity = message.identity
        if identity in self._seen:
            return
        self._seen.add(identity)
        self._port.send(self._neighbours, message)
        self._port.deliver(Message(message.payload, Tag(message.origin, message.counter, (), (), self._roster)))

    def timer(self, timer: Timer) -> None: ...

    def take(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int:
        return 0

    @property
    def unstable(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class FloodingStack(Stack):
    """Flooding over an overlay that is given: no process knows more of the roster than its neighbours."""

    neighbours: dict[ProcessId, tuple[ProcessId, ...]]

    def process(self, port: Port, roster: Roster) -> Flooding:  # type: ignore[override] # no layers
        return Flooding(port, roster, self.neighbours[port.name])


class OneEach:
    """The given processes broadcast once, at the start; as an application, it takes what it is given."""

    def __init__(self, origins: Sequence[ProcessId]) -> None:
        self._origins = frozenset(origins)

    def application(self, name: ProcessId, roster: Roster, seed: int) -> OneEach:
        return self

    def start(self, host: SimulatedHost) -> None:
        if host.name in self._origins:
            host.broadcast(b"")

    def receive(self, host: SimulatedHost, event: Event) -> None: ...


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def causalcast(load: Load) -> Callable[[], int]:
    names = process_names(load.nodes)
    stack = FloodingStack(
        name="flooding",
        summary="",
        membership=StaticMembership,
        dissemination=Direct,
        ordering=Unordered,
        wire_types=(FloodMessage,),
        promises=frozenset({"P1", "P2"}),
        dynamic=False,
        fifo_links=False,
        message_cost="",
        process_cost="",
        source="",
        neighbours={names[node]: tuple(names[to] for to in ends) for node, ends in enumerate(load.neighbours())},
    )

    def run() -> int:
        workload = OneEach([names[node] for node in load.origins()])
        simulator = Simulator(stack, names, workload, network=Network(DELAY, fifo=False, tick_ns=TICK_NS))
        counters = simulator.run()
        assert counters.deliveries == load.messages * (load.nodes - 1)
        return counters.events

    return run


def tuple_heap(load: Load) -> Callable[[], int]:
    graph = load.neighbours()

    def run() -> int:
        source = Random(2)
        seen = [0] * load.nodes
        heap = [(0, number, node, number) for number, node in enumerate(load.origins())]
        pushed = len(heap)
        popped = 0
        while heap:
            now, _, node, message = heappop(heap)
            popped += 1
            if seen[node] >> message & 1:
                continue
            seen[node] |= 1 << message
            for neighbour, delay in zip(graph[node], DELAY.draw_many(source, TICK_NS, DEGREE), strict=True):
                heappush(heap, (now + delay, pushed, neighbour, message))
                pushed += 1
        return popped

    return run


def on_simpy(load: Load) -> Callable[[], int]:
    graph = load.neighbours()
    arrived = 0

    class Node:
        __slots__ = ("number", "seen")

        def __init__(self, number: int) -> None:
            self.number = number
            self.seen = 0

        def receive(self, event: Any) -> None:
            nonlocal arrived
            arrived += 1
            message = event._value
            if self.seen >> message & 1:
                return
            self.seen |= 1 << message
            for neighbour, delay in zip(graph[self.number], DELAY.draw_many(source, TICK_NS, DEGREE), strict=True):
                simpy.Timeout(environment, delay, message).callbacks.append(nodes[neighbour].receive)

    source = Random(2)
    environment = simpy.Environment()
    nodes: list[Node] = []

    def run() -> int:
        nodes.extend(map(Node, range(load.nodes)))
        for message, node in enumerate(load.origins()):
            simpy.Timeout(environment, 0, message).callbacks.append(nodes[node].receive)
        environment.run()
        return arrived

    return run


ENGINES: dict[str, Callable[[Load], Callable[[], int]]] = {
    "causalcast": causalcast,
    "tuple heap": tuple_heap,
    "simpy": on_simpy,
}


def measure(engine: str, load: Load) -> dict[str, float]:
    """The figures of one engine; the caller is a process of its own."""
    run = ENGINES[engine](load)
    before = peak_bytes()
    start = process_time()
    events = run()
    spent = process_time() - start
    return {
        "events": events,
        "cpu_seconds": spent,
        "events_per_cpu_second": events / spent,
        "bytes_per_node": (peak_bytes() - before) / load.nodes,
    }


def measure_apart(engine: str, load: Load) -> dict[str, float]:
    """The figures of one engine, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_simulate", "--engine", engine]
    command += ["--nodes", str(load.nodes), "--messages", str(load.messages)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def flooding(load: Load) -> list[Case]:
    measured = {engine: measure_apart(engine, load) for engine in ENGINES}
    ours = measured["causalcast"]
    for engine, figures in measured.items():
        if engine != "causalcast":
            figures["causalcast_is_faster_by"] = ours["events_per_cpu_second"] / figures["events_per_cpu_second"]
    return [
        Case(f"flooding, {load.nodes:,} nodes, {load.messages} messages: {engine}", figures)
        for engine, figures in measured.items()
    ]


def stacks(quick: bool) -> list[Case]:
    cases = []
    for stack_name, nodes, messages in (("tcb", 8, 1600), ("tcb", 128, 2), ("unordered", 128, 8)):
        messages_each = max(messages // (4 if quick else 1), 1)
        start = process_time()
        counters = simulate(stack_name, nodes=nodes, messages=messages_each, seed=1).counters
        spent = process_time() - start
        cases.append(
            Case(
                f"{stack_name}, {nodes} members, {messages_each} broadcasts each",
                {"events": counters.events, "cpu_seconds": spent, "events_per_cpu_second": counters.events / spent},
            )
        )
    return cases


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 messages instead of 20, a quarter of the broadcasts")
    parser.add_argument("--engine", choices=ENGINES, help="print the figures of this engine as JSON, and nothing else")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--messages", type=int)
    arguments = parser.parse_args()
    load = Load(arguments.nodes, arguments.messages or (2 if arguments.quick else 20))
    if arguments.engine is not None:
        print(json.dumps(measure(arguments.engine, load)))
        return
    write("simulate", [*flooding(load), *stacks(arguments.quick)])


if __name__ == "__main__":
    main()
