"""A second simulator, as simple as can be: one heap of tuples, one function for each thing that happens.

It shares with the first the data (networks, faults, workloads), the random models and the protocols; what happens
when is written again from their descriptions.
"""

from __future__ import annotations

import heapq
import random
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from causalcast.model import Delivered, Event, Message, Roster, Tag
from causalcast.model import Stable as StableEvent
from causalcast.protocols import stack
from causalcast.protocols.wire import FRAME_HEADER_BYTES
from causalcast.simulation import Crash, Cut, Flap, Partition, Pause, process_names
from causalcast.simulation.network import Network
from causalcast.trace import TraceEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.protocols import Process, WireMessage
    from causalcast.simulation import Delay, Fault, Workload


class NaiveHost:
    def __init__(self, naive: Naive, name: str) -> None:
        self.naive, self.name, self.roster = naive, name, naive.roster
        self.random = random.Random(f"{naive.seed}/{name}")
        self.take_random = random.Random(f"{naive.seed}=application/{name}")
        self.events: list[Event] = []
        self.timers: dict[Any, int] = {}
        self.pauses, self.crashed, self.busy, self.rows = 0, False, False, 0
        self.leaving = False
        self.postponed: list[Callable[[], None]] = []
        self.process: Process

    def now_ns(self) -> int:
        return self.naive.now

    def send(self, destinations: Sequence[str], message: WireMessage) -> None:
        self.naive.send(self.name, destinations, message)

    def deliver(self, message: Message) -> None:
        self.events.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.events.append(StableEvent(tag, topic))

    def announce(self, event: Any) -> None:
        self.events.append(event)

    def connect(self, peer: Any) -> None: ...

    def disconnect(self, peer: Any) -> None: ...

    def retire(self) -> None: ...

    def set_timer(self, delay_ns: int, timer: Any) -> None:
        due = self.naive.tick_after(delay_ns)
        self.timers[timer] = due

        def fire() -> None:
            if self.timers.get(timer) == due:
                del self.timers[timer]
                self.process.timer(timer)
                self.drain()

        self.at(due, fire)

    def cancel_timer(self, timer: Any) -> None:
        self.timers.pop(timer, None)

    def broadcast(self, payload: bytes) -> Tag:
        self.naive.size = 0
        tag = self.process.broadcast(payload)
        overhead = max(self.naive.size - len(payload), 0)
        self.log("broadcast", tag, payload_bytes=len(payload), overhead_bytes=overhead, context=self.naive.context(tag))
        self.drain()
        return tag

    def call_after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self.at(self.naive.tick_after(delay_ns), call)

    def at(self, time: int, call: Callable[[], None]) -> None:
        """Something that this process does itself: nothing if it has crashed, later if it is paused then."""
        self.naive.at(time, lambda: self.now_or_later(call))

    def now_or_later(self, call: Callable[[], None]) -> None:
        if self.pauses and not self.crashed:
            self.postponed.append(call)
        elif not self.crashed:
            call()

    def resume(self) -> None:
        self.pauses -= 1
        if self.pauses == 0:
            calls, self.postponed = self.postponed, []
            for call in calls:
                self.now_or_later(call)

    def receive(self, sender: str, message: WireMessage) -> None:
        self.process.receive(sender, message)
        self.drain()

    def drain(self) -> None:
        if self.busy or not self.events:
            return
        self.busy = True
        if self.naive.thinking is None:
            while self.events:
                self.take()
            self.busy = False
        else:
            delay = self.naive.thinking.draw(self.take_random, self.naive.network.tick_ns)
            self.at(self.naive.now + delay, self.take_late)

    def take_late(self) -> None:
        self.take()
        self.busy = False
        self.drain()

    def take(self) -> None:
        event = self.events.pop(0)
        self.process.take(event)
        if isinstance(event, Delivered):
            self.log("deliver", event.message.tag, payload_bytes=len(event.message.payload))
        elif isinstance(event, StableEvent):
            self.log("stable", event.tag)
        self.application.receive(self, event)

    def log(self, event: str, tag: Tag, **fields: Any) -> None:
        self.rows += 1
        row = TraceEvent(self.name, self.rows, event, tag.origin, tag.counter, time_ns=self.naive.now, **fields)
        self.naive.trace.append(row)

    def start(self, workload: Workload) -> None:
        self.application: Any = workload.application(self.name, self.roster, self.naive.seed)
        self.process.start()
        self.application.start(self)


class Naive:
    def __init__(
        self,
        stack_name: str,
        nodes: int,
        workload: Workload,
        *,
        network: Network | None = None,
        seed: int = 0,
        thinking: Delay | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.stack = stack(stack_name)
        self.roster = Roster(process_names(nodes))
        self.workload, self.network, self.seed = workload, network or Network(), seed
        self.thinking, self.faults = thinking, faults
        self.now, self.size = 0, 0
        self.trace: list[TraceEvent] = []
        self.delays, self.fates = random.Random(f"{seed}=network"), random.Random(f"{seed}=loss")
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = count()
        self.sent_until = dict.fromkeys(self.roster, 0)
        self.latest: dict[tuple[str, str], int] = {}
        self.links: dict[tuple[str, str], list[dict[str, Any]]] = {}
        """Every copy sent over a link that has not been given to its receiver, in order."""
        self.held: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.active: list[Fault] = []
        self.hosts = {name: NaiveHost(self, name) for name in self.roster}
        for host in self.hosts.values():
            host.process = self.stack.process(host, self.roster)

    def run(self) -> list[TraceEvent]:
        for fault in self.faults:
            self.plan(fault)
        for host in self.hosts.values():
            host.start(self.workload)
        while self.heap:
            self.now, _, call = heapq.heappop(self.heap)
            call()
        return self.trace

    def context(self, tag: Tag) -> Any:
        return tag.context if "P4" in self.stack.promises else None

    def tick_after(self, delay: int) -> int:
        return self.round_up(self.now + delay)

    def round_up(self, time: int) -> int:
        tick = self.network.tick_ns
        return time if time % tick == 0 else time + tick - time % tick

    def at(self, time: int, call: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (time, next(self.numbers), call))

    def propagation(self, link: tuple[str, str]) -> int:
        delay: Delay = self.network.delay
        sites = self.network.sites
        if sites is not None:
            one, other = (self.roster.slot(name) % sites.count for name in link)
            delay = delay if one == other else sites.across
        if self.network.matrix is not None:
            delay = self.network.exceptions(link[0], self.roster)[link[1]]
        for exception in self.network.links:
            if (exception.sender, exception.receiver) == link:
                delay = exception.delay
        return delay.draw(self.delays, self.network.tick_ns) + self.risen()

    def risen(self) -> int:
        rise = self.network.rise
        if rise is None or self.now < rise.at_ns:
            return 0
        passed = min(self.now - rise.at_ns, rise.for_ns)
        added = rise.by_ns * passed // rise.for_ns if rise.for_ns else rise.by_ns
        return added - added % self.network.tick_ns

    def send(self, sender: str, destinations: Sequence[str], message: WireMessage) -> None:
        network = self.network
        self.size = len(msgspec.msgpack.encode(message)) + FRAME_HEADER_BYTES
        service = network.transmission_ns
        if network.bits_per_second:
            bits = self.size * 8 * 1_000_000_000
            service += bits // network.bits_per_second + (bits % network.bits_per_second > 0)
        arrivals = []
        for destination in destinations:
            leaves = max(self.now + network.processing_ns, self.sent_until[sender])
            if network.processing_ns or service:
                leaves = self.sent_until[sender] = leaves + service
            arrivals.append(self.round_up(leaves + self.propagation((sender, destination))))
        arrivals = [self.in_order((sender, to), time) for to, time in zip(destinations, arrivals, strict=True)]
        for destination, time in zip(destinations, arrivals, strict=True):
            link = (sender, destination)
            lost = bool(network.loss) and self.fates.random() < network.loss
            twice = bool(network.duplication) and self.fates.random() < network.duplication
            if not lost:
                self.launch(link, message, time)
            if twice:
                self.launch(link, message, None)

    def in_order(self, link: tuple[str, str], time: int) -> int:
        if self.network.fifo:
            time = self.latest[link] = max(time, self.latest.get(link, 0))
        return time

    def again(self, link: tuple[str, str]) -> int:
        return self.in_order(link, self.now + self.propagation(link))

    def launch(self, link: tuple[str, str], message: WireMessage, time: int | None) -> None:
        if time is None:
            time = self.again(link)
        copy = {"link": link, "message": message, "here": False}
        self.links.setdefault(link, []).append(copy)
        if self.is_cut(link):
            self.hold(copy)
        else:
            self.at(time, lambda: self.arrive(copy))

    def arrive(self, copy: dict[str, Any]) -> None:
        link = copy["link"]
        if self.is_cut(link):
            self.hold(copy)
            return
        copy["here"] = True
        waiting = self.links[link]
        host = self.hosts[link[1]]
        for one in list(waiting):
            if one["here"]:
                waiting.remove(one)
                host.now_or_later(lambda one=one: host.receive(link[0], one["message"]))  # type: ignore[misc]
            elif self.network.fifo:
                break

    def hold(self, copy: dict[str, Any]) -> None:
        if not self.hosts[copy["link"][0]].crashed:
            self.held.setdefault(copy["link"], []).append(copy)

    def is_cut(self, link: tuple[str, str]) -> bool:
        for fault in self.active:
            if isinstance(fault, Partition):
                sides = [next((i for i, group in enumerate(fault.groups) if name in group), -1) for name in link]
                if sides[0] != sides[1]:
                    return True
            if isinstance(fault, Cut) and link == (fault.sender, fault.receiver):
                return True
            if isinstance(fault, Flap) and set(link) == {fault.one, fault.other}:
                return True
        return False

    def plan(self, fault: Fault) -> None:
        if isinstance(fault, Crash):
            self.at(self.tick_after(fault.at_ns), lambda: self.crash(fault.process))
        elif isinstance(fault, Pause):
            host = self.hosts[fault.process]

            def pause() -> None:
                host.pauses += 1

            self.at(self.tick_after(fault.at_ns), pause)
            self.at(self.tick_after(fault.at_ns + fault.for_ns), host.resume)
        elif isinstance(fault, Flap):
            for time in range(fault.times):
                start = fault.at_ns + time * (fault.down_ns + fault.up_ns)
                self.cut(fault, start, start + fault.down_ns)
        elif isinstance(fault, Partition | Cut):
            self.cut(fault, fault.at_ns, fault.at_ns + fault.for_ns)

    def cut(self, fault: Fault, start: int, end: int) -> None:
        self.at(self.tick_after(start), lambda: self.active.append(fault))
        self.at(self.tick_after(end), lambda: self.heal(fault))

    def heal(self, fault: Fault) -> None:
        self.active.remove(fault)
        for link in list(self.held):
            if not self.is_cut(link):
                for copy in self.held.pop(link):
                    self.at(self.again(link), lambda copy=copy: self.arrive(copy))  # type: ignore[misc]

    def crash(self, name: str) -> None:
        host = self.hosts[name]
        if not host.crashed:
            host.crashed = True
            host.rows += 1
            self.trace.append(TraceEvent(name, host.rows, "crash", time_ns=self.now))
            for link in [link for link in self.held if link[0] == name]:
                del self.held[link]
