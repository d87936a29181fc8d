"""The `tcb` core alone: deliveries per CPU second at one member, and 10,000 arrivals in reverse order.

What one member of a group does is recorded in the simulator, its arrivals are shuffled within each origin's window,
and the record is replayed into a fresh process, without network or host. Run with `python -m benchmarks.bench_core`.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.report import Case, write
from causalcast.model import Delivered, Event, Message, Roster, Stable, Tag
from causalcast.protocols import BaseProcess, Random, stack
from causalcast.simulation import NS_PER_MS, Broadcasts, Network, Simulator, Uniform, World, process_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.protocols import Process, Timer, WireMessage

TCB = stack("tcb")


class QueuePort:
    """A port that keeps events and drops the rest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.random: Random = random.Random(0)
        self.queue: deque[Event] = deque()

    def now_ns(self) -> int:
        return 0

    def send(self, destinations: Sequence[str], message: WireMessage) -> None: ...

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.queue.append(Stable(tag, topic))

    def announce(self, event: Event) -> None:
        self.queue.append(event)

    def connect(self, peer: str) -> None: ...

    def disconnect(self, peer: str) -> None: ...

    def retire(self) -> None: ...

    def set_timer(self, delay_ns: int, timer: Timer) -> None: ...

    def cancel_timer(self, timer: Timer) -> None: ...


class Recorder(BaseProcess):
    """Stands before a process and writes down each call to it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.calls: list[tuple[str, tuple[object, ...]]] = []

    def start(self) -> None:
        self._process.start()

    def receive(self, sender: str, message: WireMessage) -> None:
        self.calls.append(("receive", (sender, message)))
        self._process.receive(sender, message)

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        self.calls.append(("broadcast", (payload,)))
        return self._process.broadcast(payload)

    def take(self, event: Event) -> None:
        self.calls.append(("take", ()))
        self._process.take(event)

    def timer(self, timer: Timer) -> None:
        self.calls.append(("timer", (timer,)))
        self._process.timer(timer)

    def pending(self, origin: str) -> int:
        return self._process.pending(origin)

    @property
    def unstable(self) -> int:
        return self._process.unstable


def record(members: int, messages: int) -> tuple[list[str], list[tuple[str, tuple[object, ...]]]]:
    """The calls to the first of `members`: links reorder, delays of 1 to 50 ms, a broadcast every 10 ms on average."""
    names = process_names(members)
    workload = Broadcasts(messages, Uniform(5 * NS_PER_MS, 15 * NS_PER_MS))
    network = Network(Uniform(NS_PER_MS, 50 * NS_PER_MS), fifo=False)
    simulator = Simulator(TCB, names, workload, network=network)
    recorder = Recorder(simulator.hosts[names[0]].process)
    simulator.hosts[names[0]].process = recorder
    simulator.run()
    return names, recorder.calls


def replay(names: list[str], calls: list[tuple[str, tuple[object, ...]]]) -> tuple[float, int]:
    """CPU seconds and deliveries of a fresh process that is given `calls`."""
    port = QueuePort(names[0])
    process = TCB.process(port, Roster(names))
    queue = port.queue
    methods = {name: getattr(process, name) for name in ("receive", "broadcast", "timer")}
    deliveries = 0
    start = process_time()
    for name, arguments in calls:
        if name == "take":
            event = queue.popleft()
            deliveries += type(event) is Delivered
            process.take(event)
        else:
            methods[name](*arguments)
    return process_time() - start, deliveries


def reverse(count: int) -> float:
    """CPU seconds for `count` messages of one chain that arrive last first."""
    world = World(TCB, ["a", "b", "c"])
    for _ in range(count):
        world.broadcast("a")
    messages = world.in_flight["a", "b"][::-1]
    process = world.processes["b"]
    start = process_time()
    for message in messages:
        process.receive("a", message)
    spent = process_time() - start
    assert len(world.ports["b"].queue) == count
    return spent


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    quick = parser.parse_args().quick
    cases = []
    for members, messages in ((8, 2000), (32, 100), (128, 5)):
        names, calls = record(members, max(messages // (10 if quick else 1), 2))
        spent, deliveries = min(replay(names, calls) for _ in range(3))
        cases.append(
            Case(
                f"{members} members, shuffled arrival",
                {
                    "deliveries": deliveries,
                    "cpu_seconds": spent,
                    "deliveries_per_cpu_second": deliveries / spent,
                    "microseconds_per_delivery": spent / deliveries * 1e6,
                },
            )
        )
    for count in (2_500, 10_000):
        spent = min(reverse(count) for _ in range(3))
        cases.append(
            Case(
                f"{count:,} arrivals in reverse order",
                {"deliveries": count, "cpu_seconds": spent, "microseconds_per_delivery": spent / count * 1e6},
            )
        )
    write("core", cases)


if __name__ == "__main__":
    main()
