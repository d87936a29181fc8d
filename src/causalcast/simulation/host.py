"""The simulated host of one process: its port, its application, and the queue of events between them."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Protocol

from causalcast.model import Delivered, Event, MembershipChanged, Message, ProcessId, Roster, Stable, Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.protocols import Process, Random, Timer, WireMessage
    from causalcast.simulation.simulator import Simulator


class Application(Protocol):
    """What runs at each process: it may broadcast whenever it is called, and schedule calls to itself."""

    def start(self, host: SimulatedHost) -> None:
        """Called once: at time 0, or when its process has become a member."""

    def receive(self, host: SimulatedHost, event: Event) -> None:
        """An event, after the process has been told that it is taken."""


class SimulatedHost:
    """One process in virtual time. It keeps the three rules of the port."""

    __slots__ = (
        "_application",
        "_random",
        "_simulator",
        "_take_random",
        "_taking",
        "_timers",
        "leaving",
        "name",
        "process",
        "queue",
        "sequence",
    )

    def __init__(self, name: ProcessId, simulator: Simulator, application: Application) -> None:
        self.name = name
        self.queue: deque[Event] = deque()
        self.sequence = 0
        self.leaving = False
        """Whether it was told to leave: its application broadcasts no more."""
        self.process: Process
        self._simulator = simulator
        self._application = application
        self._timers: dict[Timer, int] = {}
        self._taking = False
        # A source of randomness is 2.5 kB: only those who draw have one.
        self._random: random.Random | None = None
        self._take_random: random.Random | None = None

    # the port

    @property
    def random(self) -> Random:
        if self._random is None:
            self._random = random.Random(f"{self._simulator.seed}/{self.name}")
        return self._random

    def now_ns(self) -> int:
        return self._simulator.queue.now

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._simulator.send(self.name, destinations, message)

    def deliver(self, message: Message) -> None:
        if not self.queue:
            self._simulator.ready.append(self)
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        if not self.queue:
            self._simulator.ready.append(self)
        self.queue.append(Stable(tag, topic))

    def announce(self, event: Event) -> None:
        if not self.queue:
            self._simulator.ready.append(self)
        self.queue.append(event)

    def connect(self, peer: ProcessId) -> None:
        if self._simulator.sessions is not None:
            self._simulator.sessions.connect(self.name, peer)

    def disconnect(self, peer: ProcessId) -> None:
        if self._simulator.sessions is not None:
            self._simulator.sessions.disconnect(self.name, peer)

    def retire(self) -> None:
        """Only runs in which something happens to hosts have members that leave."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        due = self._simulator.time_after(delay_ns)
        self._timers[timer] = due
        self._simulator.queue.push(due, self.fire, timer, due)

    def cancel_timer(self, timer: Timer) -> None:
        self._timers.pop(timer, None)

    # what the application may do

    @property
    def roster(self) -> Roster:
        """All processes that ever are part of the run."""
        return self._simulator.roster

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """Broadcast now; returns the tag."""
        self._simulator.wire_bytes = 0
        tag = self.process.broadcast(payload, topic)
        self._simulator.log_broadcast(self, tag, payload, topic)
        return tag

    def subscribe(self, topic: str) -> None:
        """Ask for a topic."""
        self.process.subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more of a topic."""
        self.process.unsubscribe(topic)

    def preset(self, topic: str, subscribers: Sequence[ProcessId]) -> None:
        """Say, at every process and before anything is sent, who subscribes from the start."""
        self.process.preset(topic, subscribers)

    def call_after(self, delay_ns: int, call: Callable[[], None]) -> None:
        """Run `call` after `delay_ns` of virtual time."""
        self._simulator.queue.push(self._simulator.time_after(delay_ns), self.run, call)

    # the event loop's side

    def start(self) -> None:
        """Start the process, then its application."""
        self.process.start()
        self._application.start(self)

    def join(self, contact: ProcessId | None, _: None = None) -> None:
        """Start the process, which becomes a member through `contact`; without one it is the first."""
        self.process.start()
        if contact is None:
            self._application.start(self)
        else:
            self.process.join(contact)

    def hear_end(self, peer: ProcessId, _: None) -> None:
        """The session link to `peer` is down."""
        assert self._simulator.sessions is not None
        if self._simulator.sessions.heard(self.name, peer):
            self.process.link_down(peer)

    def run(self, call: Callable[[], None], _: None) -> None:
        """A call of the application is due."""
        call()

    def fire(self, timer: Timer, due: int) -> None:
        """A setting of a timer is due, unless it was replaced or cancelled meanwhile."""
        if self._timers.get(timer) == due:
            del self._timers[timer]
            self.process.timer(timer)

    def drain(self) -> None:
        """Hand queued events to the application, now or after its thinking time."""
        if self._taking:
            return
        self._taking = True
        thinking = self._simulator.thinking
        if thinking is not None:
            if self._take_random is None:
                self._take_random = random.Random(f"{self._simulator.seed}=application/{self.name}")
            delay = thinking.draw(self._take_random, self._simulator.network.tick_ns)
            self._simulator.queue.push(self._simulator.queue.now + delay, self.take_late)
            return
        while self.queue:
            self.take()
        self._taking = False

    def take_late(self, _: None, __: None) -> None:
        """The application, having thought, takes one event."""
        self.take()
        self._taking = False
        if self.queue:
            self.drain()

    def take(self) -> None:
        """The application takes the next event."""
        event = self.queue.popleft()
        self.process.take(event)
        self._simulator.log_event(self, event)
        if isinstance(event, MembershipChanged) and self.name in event.joined:
            self._application.start(self)
        self._application.receive(self, event)
