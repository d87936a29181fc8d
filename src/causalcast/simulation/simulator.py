"""The simulator: the protocols of a stack in virtual time, in one thread, from one seed.

Everything random comes from the seed, everything else from the order of events, so a run repeats to the byte. The
hosts keep the three rules of the port: one call at a time, `take` before the application sees an event, timers as
data.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from causalcast.model import Delivered, Event, Message, ProcessId, Roster, Stable, Tag
from causalcast.protocols.wire import FRAME_HEADER_BYTES
from causalcast.simulation.network import Network
from causalcast.simulation.queue import TimeQueue
from causalcast.trace.schema import TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from causalcast.protocols import Process, Random, Stack, Timer, WireMessage
    from causalcast.simulation.network import Delay
    from causalcast.trace.writer import TraceSink

PROGRESS_EVENTS = 100_000
"""About so many events happen between two reports of progress."""


@contextmanager
def _cyclic_garbage_left_alone() -> Iterator[None]:
    """No cyclic collection while events run: it would visit every message in flight again and again.

    Protocols break their own cycles, so what they drop is freed at once.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Application(Protocol):
    """What runs at each process: it may broadcast whenever it is called, and schedule calls to itself."""

    def start(self, host: SimulatedHost) -> None:
        """Called once, at time 0."""

    def receive(self, host: SimulatedHost, event: Event) -> None:
        """An event, after the process has been told that it is taken."""


@dataclass(slots=True)
class Counters:
    """What happened in a run."""

    events: int = 0
    broadcasts: int = 0
    deliveries: int = 0
    stables: int = 0
    sends: int = 0


class SimulatedHost:
    """One process, its port, its application and the queue between them."""

    __slots__ = (
        "_application",
        "_simulator",
        "_taking",
        "_timers",
        "name",
        "process",
        "queue",
        "random",
        "sequence",
        "take_random",
    )

    def __init__(self, name: ProcessId, simulator: Simulator, application: Application) -> None:
        self.name = name
        self.random: Random = random.Random(f"{simulator.seed}/process/{name}")
        self.take_random = random.Random(f"{simulator.seed}/application/{name}")
        self.queue: deque[Event] = deque()
        self.sequence = 0
        self.process: Process
        self._simulator = simulator
        self._application = application
        self._timers: dict[Timer, int] = {}
        self._taking = False

    # the port

    def now_ns(self) -> int:
        return self._simulator.queue.now

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._simulator.send(self, destinations, message)

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag) -> None:
        self.queue.append(Stable(tag))

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        due = self._simulator.queue.now + delay_ns
        self._timers[timer] = due
        self._simulator.queue.push(due, self.fire, (timer, due))

    def cancel_timer(self, timer: Timer) -> None:
        self._timers.pop(timer, None)

    # what the application may do

    def broadcast(self, payload: bytes) -> Tag:
        """Broadcast now; returns the tag."""
        tag = self.process.broadcast(payload)
        self._simulator.log_broadcast(self, tag, payload)
        self.drain()
        return tag

    def call_after(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Run `call` after `delay_ns` of virtual time."""
        self._simulator.queue.push(self._simulator.queue.now + delay_ns, lambda _: call())

    # the event loop's side

    def arrive(self, packet: tuple[ProcessId, WireMessage]) -> None:
        """A message arrives from its sender."""
        self.process.receive(*packet)
        if self.queue:
            self.drain()

    def fire(self, setting: tuple[Timer, int]) -> None:
        """A setting of a timer is due, unless it was replaced or cancelled meanwhile."""
        timer, due = setting
        if self._timers.get(timer) == due:
            del self._timers[timer]
            self.process.timer(timer)
            self.drain()

    def drain(self) -> None:
        """Hand queued events to the application, now or after its thinking time."""
        thinking = self._simulator.thinking
        if thinking is not None:
            if self.queue and not self._taking:
                self._taking = True
                delay = thinking.draw(self.take_random)
                self._simulator.queue.push(self._simulator.queue.now + delay, self.take_late)
            return
        if self._taking:
            return
        self._taking = True
        while self.queue:
            self._take_one()
        self._taking = False

    def take_late(self, _: None) -> None:
        """The application, having thought, takes one event."""
        self._take_one()
        self._taking = False
        self.drain()

    def _take_one(self) -> None:
        event = self.queue.popleft()
        self.process.take(event)
        self._simulator.log_event(self, event)
        self._application.receive(self, event)


class Simulator:
    """Runs one group in virtual time. `thinking` is how long an application takes over each event, `None` no time."""

    def __init__(
        self,
        stack: Stack,
        names: Sequence[ProcessId],
        application: Callable[[ProcessId], Application],
        *,
        network: Network | None = None,
        seed: int = 0,
        thinking: Delay | None = None,
        trace: TraceSink | None = None,
    ) -> None:
        self.stack = stack
        self.roster = Roster(names)
        self.seed = seed
        self.network = network or Network()
        self.thinking = thinking
        self.counters = Counters()
        self.queue = TimeQueue()
        self._trace = trace
        self._tags_promised = "P4" in stack.promises
        self._encoder = msgspec.msgpack.Encoder()
        self._overhead = 0
        self._random = random.Random(f"{seed}/network")
        self._link_free: dict[tuple[ProcessId, ProcessId], int] = {}
        self._applications = {name: application(name) for name in self.roster}
        self.hosts = {name: SimulatedHost(name, self, self._applications[name]) for name in self.roster}
        self._arrivals = {name: host.arrive for name, host in self.hosts.items()}
        for host in self.hosts.values():
            host.process = stack.process(host, self.roster)

    def run(self, *, until_ns: int | None = None, progress: Callable[[Simulator], None] | None = None) -> Counters:
        """Run until nothing is left to happen, or `until_ns`; `progress` is called now and then."""
        for name, host in self.hosts.items():
            host.process.start()
            self._applications[name].start(host)
        queue = self.queue
        counters = self.counters
        report_at = PROGRESS_EVENTS
        with _cyclic_garbage_left_alone():
            for bucket in queue.buckets():
                if until_ns is not None and queue.now > until_ns:
                    break
                calls = iter(bucket)
                for call, argument in zip(calls, calls, strict=True):
                    call(argument)
                counters.events += len(bucket) // 2
                if progress is not None and counters.events >= report_at:
                    report_at = counters.events + PROGRESS_EVENTS
                    progress(self)
        return counters

    def send(self, sender: SimulatedHost, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        """Put one shared message on its way to each destination."""
        name = sender.name
        now = self.queue.now
        network = self.network
        self.counters.sends += len(destinations)
        if self._trace is not None:
            self._overhead = len(self._encoder.encode(message)) + FRAME_HEADER_BYTES
        packet = (name, message)
        push = self.queue.push
        arrivals = self._arrivals
        for destination in destinations:
            arrival = now + network.draw(name, destination, self._random)
            if network.fifo:
                link = (name, destination)
                arrival = max(arrival, self._link_free.get(link, 0))
                self._link_free[link] = arrival
            push(arrival, arrivals[destination], packet)

    def log_broadcast(self, host: SimulatedHost, tag: Tag, payload: bytes) -> None:
        """Count and trace a broadcast."""
        self.counters.broadcasts += 1
        if self._trace is not None:
            host.sequence += 1
            self._trace.write(
                TraceEvent(
                    process=host.name,
                    seq=host.sequence,
                    event="broadcast",
                    origin=tag.origin,
                    counter=tag.counter,
                    time_ns=self.queue.now,
                    payload_bytes=len(payload),
                    overhead_bytes=max(self._overhead - len(payload), 0),
                    context=tag.context if self._tags_promised else None,
                )
            )

    def log_event(self, host: SimulatedHost, event: Event) -> None:
        """Count and trace what an application took."""
        if isinstance(event, Delivered):
            self.counters.deliveries += 1
            tag, kind, size = event.message.tag, "deliver", len(event.message.payload)
        elif isinstance(event, Stable):
            self.counters.stables += 1
            tag, kind, size = event.tag, "stable", None
        else:
            return
        if self._trace is not None:
            host.sequence += 1
            self._trace.write(
                TraceEvent(
                    process=host.name,
                    seq=host.sequence,
                    event=kind,
                    origin=tag.origin,
                    counter=tag.counter,
                    time_ns=self.queue.now,
                    payload_bytes=size,
                )
            )
