"""A world whose schedule the caller decides: every message, timer and taking of an event is a step of its own.

The same process objects as everywhere, with no clock at all. Tests and the explorer choose the steps, so every
interleaving can be reached; transcripts replay one interleaving and show it.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from causalcast.model import Delivered, Event, Message, ProcessId, Roster, Stable, Tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.protocols import Process, Random, Stack, Timer, WireMessage


class LogEntry(NamedTuple):
    """What an application saw: `kind` is `broadcast`, `deliver` or `stable`."""

    kind: str
    tag: Tag
    payload: bytes = b""


class Receive(NamedTuple):
    """Step: the `place`-th message in flight from `sender` to `receiver` arrives."""

    sender: ProcessId
    receiver: ProcessId
    place: int = 0


class Take(NamedTuple):
    """Step: the application at `process` receives its next event."""

    process: ProcessId


class Fire(NamedTuple):
    """Step: a timer of `process` comes due."""

    process: ProcessId
    timer: Timer


Step = Receive | Take | Fire


class WorldPort:
    """The port of one process: what it sends, queues and sets is kept until a step uses it."""

    def __init__(self, name: ProcessId, world: World) -> None:
        self.name = name
        self.random: Random = random.Random(f"{world.seed}/{name}")
        self.queue: deque[Event] = deque()
        self.timers: dict[Timer, None] = {}
        self._world = world

    def now_ns(self) -> int:
        return self._world.steps

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        for destination in destinations:
            self._world.in_flight[self.name, destination].append(message)

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag) -> None:
        self.queue.append(Stable(tag))

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        self.timers[timer] = None

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)


class World:
    """Processes of one stack, the messages between them, and what their applications have seen."""

    def __init__(self, stack: Stack, names: Iterable[ProcessId], *, seed: int = 0) -> None:
        self.roster = Roster(names)
        self.seed = seed
        self.steps = 0
        self.in_flight: dict[tuple[ProcessId, ProcessId], list[WireMessage]] = {
            (sender, receiver): [] for sender in self.roster for receiver in self.roster if sender != receiver
        }
        self.logs: dict[ProcessId, list[LogEntry]] = {name: [] for name in self.roster}
        self.ports = {name: WorldPort(name, self) for name in self.roster}
        self.processes: dict[ProcessId, Process] = {
            name: stack.process(port, self.roster) for name, port in self.ports.items()
        }
        for process in self.processes.values():
            process.start()

    def broadcast(self, name: ProcessId, payload: bytes = b"") -> Tag:
        """The application at `name` broadcasts."""
        self.steps += 1
        tag = self.processes[name].broadcast(payload)
        self.logs[name].append(LogEntry("broadcast", tag, payload))
        return tag

    def enabled(self, *, fifo: bool) -> list[Step]:
        """Every step that can be taken now, in a fixed order; with `fifo` only the head of each link can arrive."""
        steps: list[Step] = []
        for (sender, receiver), messages in self.in_flight.items():
            steps.extend(Receive(sender, receiver, place) for place in range(min(len(messages), 1 if fifo else 4)))
        for name, port in self.ports.items():
            if port.queue:
                steps.append(Take(name))
            steps.extend(Fire(name, timer) for timer in port.timers)
        return steps

    def do(self, step: Step) -> Event | WireMessage | None:
        """Take `step`; returns the event taken or the message received."""
        self.steps += 1
        if isinstance(step, Receive):
            message = self.in_flight[step.sender, step.receiver].pop(step.place)
            self.processes[step.receiver].receive(step.sender, message)
            return message
        if isinstance(step, Take):
            event = self.ports[step.process].queue.popleft()
            self.processes[step.process].take(event)
            if isinstance(event, Delivered):
                entry = LogEntry("deliver", event.message.tag, event.message.payload)
                self.logs[step.process].append(entry)
            elif isinstance(event, Stable):
                self.logs[step.process].append(LogEntry("stable", event.tag))
            return event
        del self.ports[step.process].timers[step.timer]
        self.processes[step.process].timer(step.timer)
        return None

    def settle(self, *, limit: int = 1_000_000) -> None:
        """Take enabled steps until none is left; raises `RuntimeError` after `limit` steps."""
        for _ in range(limit):
            steps = self.enabled(fifo=True)
            if not steps:
                return
            self.do(steps[0])
        raise RuntimeError(f"still busy after {limit:,} steps; first of what is left: {steps[0]}")
