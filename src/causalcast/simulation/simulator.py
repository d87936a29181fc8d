"""The simulator: the protocols of a stack in virtual time, in one thread, from one seed.

Everything random comes from the seed, everything else from the order of events, so a run repeats to the byte. A
message is one object, shared by all who receive it.
"""

from __future__ import annotations

import gc
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from causalcast.model import (
    Delivered,
    Event,
    MembershipChanged,
    ProcessId,
    Roster,
    Stable,
    Subscribed,
    Tag,
    Unsubscribed,
)
from causalcast.protocols.stack import StackProcess
from causalcast.protocols.wire import FRAME_HEADER_BYTES
from causalcast.simulation.disturbance import Disturbances, DisturbedHost
from causalcast.simulation.faults import plan_faults
from causalcast.simulation.host import SimulatedHost
from causalcast.simulation.links import Links
from causalcast.simulation.network import Network
from causalcast.simulation.queue import CALL_PLACES, TimeQueue
from causalcast.simulation.sessions import Sessions
from causalcast.trace.schema import TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from causalcast.protocols import Stack, WireMessage
    from causalcast.simulation.faults import Fault
    from causalcast.simulation.host import Application
    from causalcast.simulation.models import Delay
    from causalcast.simulation.world import Step
    from causalcast.trace.writer import TraceSink

ARRIVAL_NS: Final = 1_000_000
"""How long after each other the members of the start join, where links are sessions."""

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


class Workload(Protocol):
    """What the applications of a run do."""

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Application:
        """The application at `name`."""


@dataclass(slots=True)
class Counters:
    """What happened in a run."""

    events: int = 0
    broadcasts: int = 0
    deliveries: int = 0
    stables: int = 0
    joins: int = 0
    leaves: int = 0
    sends: int = 0
    """Messages sent, one for each destination."""
    held: int = 0
    """Messages that a fault kept from arriving for a time."""
    lost: int = 0
    duplicated: int = 0


class Simulator:
    """Runs one group in virtual time.

    `thinking` is how long an application takes over each event, `None` no time. `record` is called with each step in
    its order, as a `world.World` of the same stack, names and seed takes it.
    """

    def __init__(  # noqa: PLR0913 - each is a parameter of the experiment
        self,
        stack: Stack,
        names: Sequence[ProcessId],
        workload: Workload,
        *,
        network: Network | None = None,
        seed: int = 0,
        thinking: Delay | None = None,
        faults: Sequence[Fault] = (),
        trace: TraceSink | None = None,
        record: Callable[[Step], None] | None = None,
    ) -> None:
        self.stack = stack
        self.members = Roster(names)
        """Those of the start."""
        faults, joiners = plan_faults(faults, self.members, stack, seed)
        self.roster = Roster((*names, *joiners)) if joiners else self.members
        """All who are ever part of the run."""
        self.seed = seed
        self.network = network or Network()
        self.thinking = thinking
        self.counters = Counters()
        self.queue = TimeQueue()
        self.links = Links(self.network, self.roster, self.queue, seed)
        self.ready: list[SimulatedHost] = []
        """The host whose queue of events has begun to fill: it is drained once its process has returned."""
        self.wire_bytes = 0
        """Of the latest message sent, where that matters: with a trace or a bandwidth."""
        self._trace = trace
        self._sizes_matter = trace is not None or self.network.bits_per_second is not None
        self._tags_promised = "P4" in stack.promises
        self._encode = msgspec.msgpack.Encoder().encode
        self._disturbances: Disturbances | None = None
        self.hosts: dict[ProcessId, SimulatedHost] = {}
        self.sessions = Sessions(self) if stack.session_links else None
        applications = ((name, workload.application(name, self.members, seed)) for name in self.roster)
        if faults or record or self.network.loss or self.network.duplication:
            self._disturbances = Disturbances(self, faults, record)
            for name, application in applications:
                disturbed = DisturbedHost(name, self, application)
                self._disturbances.add(disturbed)
                self.hosts[name] = disturbed
        else:
            self.hosts.update((name, SimulatedHost(name, self, application)) for name, application in applications)
        for name in self.members:
            self.hosts[name].process = stack.process(self.hosts[name], self.members)
        self._arrivals: dict[ProcessId, Callable[[ProcessId, WireMessage], None]] = {}

    def run(self, *, until_ns: int | None = None, progress: Callable[[Simulator], None] | None = None) -> Counters:
        """Run until nothing is left to happen, or `until_ns`; `progress` is called now and then. Once a simulator."""
        if self._disturbances is not None:
            self._disturbances.schedule()
        for name in self.members:
            process = self.hosts[name].process
            self._arrivals[name] = process.receiver if isinstance(process, StackProcess) else process.receive
        if self.sessions is None:
            for name in self.members:
                self.hosts[name].start()
                self.drain()
        else:
            self._join_in_turn()
        ready = self.ready
        counters = self.counters
        report_at = PROGRESS_EVENTS
        with _cyclic_garbage_left_alone():
            for bucket in self.queue.buckets(until_ns):
                calls = iter(bucket)
                for call, first, second in zip(calls, calls, calls, strict=True):
                    call(first, second)
                    while ready:
                        ready.pop().drain()
                counters.events += len(bucket) // CALL_PLACES
                if progress is not None and counters.events >= report_at:
                    report_at = counters.events + PROGRESS_EVENTS
                    progress(self)
        return counters

    def _join_in_turn(self) -> None:
        """Members who know each other by session links come one by one, each through any of those before it."""
        source = random.Random(f"{self.seed}=contacts")
        for place, name in enumerate(self.members):
            contact = self.members.names[int(source.random() * place)] if place else None
            self.queue.push(place * ARRIVAL_NS, self.hosts[name].join, contact)

    def drain(self) -> None:
        """Hand what was just queued to its application."""
        while self.ready:
            self.ready.pop().drain()

    def time_after(self, delay_ns: int) -> int:
        """The first tick at or after `delay_ns` from now."""
        tick = self.network.tick_ns
        return -(-(self.queue.now + delay_ns) // tick) * tick

    def send(self, sender: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        """Put one shared message on its way to each destination."""
        self.counters.sends += len(destinations)
        if self._sizes_matter:
            self.wire_bytes = len(self._encode(message)) + FRAME_HEADER_BYTES
        if self._disturbances is None and self.links.carry(sender, destinations, self._arrivals, message):
            return
        times = self.links.arrivals(sender, destinations, self.wire_bytes, message)
        if self._disturbances is not None:
            self._disturbances.send(sender, destinations, times, message)
        elif len(times) == 1:
            self.queue.push(times[0], self._arrivals[destinations[0]], sender, message)
        else:
            self.queue.push_each(times, map(self._arrivals.__getitem__, destinations), sender, message)

    def log_broadcast(self, host: SimulatedHost, tag: Tag, payload: bytes, topic: str) -> None:
        """Count and trace a broadcast."""
        self.counters.broadcasts += 1
        if self._trace is not None:
            self.log(
                host,
                "broadcast",
                origin=tag.origin,
                counter=tag.counter,
                topic=topic or None,
                payload_bytes=len(payload),
                overhead_bytes=max(self.wire_bytes - len(payload), 0),
                context=tag.context if self._tags_promised else None,
            )

    def log_event(self, host: SimulatedHost, event: Event) -> None:
        """Count and trace what an application took."""
        if isinstance(event, Delivered):
            self.counters.deliveries += 1
            if self._trace is not None:
                message = event.message
                tag, size = message.tag, len(message.payload)
                name = message.topic or None
                self.log(host, "deliver", origin=tag.origin, counter=tag.counter, topic=name, payload_bytes=size)
            return
        match event:
            case Stable(tag, topic):
                self.counters.stables += 1
                if self._trace is not None:
                    self.log(host, "stable", origin=tag.origin, counter=tag.counter, topic=topic or None)
            case MembershipChanged(joined, left, evicted):
                if host.name in joined:
                    self.counters.joins += 1
                    self.log(host, "join")
                if host.name in left:
                    self.counters.leaves += 1
                    self.log(host, "leave")
                for peer in evicted:
                    self.log(host, "evict", peer=peer)
            case Subscribed(topic):
                self.log(host, "subscribe", topic=topic)
            case Unsubscribed(topic):
                self.log(host, "unsubscribe", topic=topic)

    def log(self, host: SimulatedHost, event: str, **fields: Any) -> None:
        """Trace an event of a process, if there is a trace."""
        if self._trace is not None:
            host.sequence += 1
            self._trace.write(
                TraceEvent(process=host.name, seq=host.sequence, event=event, time_ns=self.queue.now, **fields)
            )
