"""A world whose schedule the caller decides: every broadcast, message, timer and taking of an event is a step.

The same process objects as everywhere. Tests, transcripts and replayed schedules choose the steps, so every
interleaving can be reached; the explorer feeds single processes through the same `feed` and reaches them all.

Time is local: a process's clock counts its own steps. What a process does is therefore a function of its own inputs
in their order, whatever the others do in between, and two runs that differ only in how they interleave steps of
different processes are the same run for each of them.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from causalcast.model import CausalcastError, Delivered, Event, Message, ProcessId, Roster, Stable, Tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from causalcast.protocols import Process, Random, Stack, Timer, WireMessage

REORDERING_WINDOW = 4
"""Of how many messages in flight on one link `World.enabled` lets any arrive next."""


class LogEntry(NamedTuple):
    """What an application saw: `kind` is `broadcast`, `deliver` or `stable`."""

    kind: str
    tag: Tag
    payload: bytes = b""


class Broadcast(NamedTuple):
    """Step: the application at `process` broadcasts `payload`."""

    process: ProcessId
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


class Duplicate(NamedTuple):
    """Fault: the link repeats the `place`-th message in flight, behind all others that are in flight."""

    sender: ProcessId
    receiver: ProcessId
    place: int = 0


class Crash(NamedTuple):
    """Fault: `process` stops for ever. What it sent still arrives; what is sent to it does not."""

    process: ProcessId


Step = Broadcast | Receive | Take | Fire | Duplicate | Crash


class ImpossibleStepError(CausalcastError, ValueError):
    """A step that cannot be taken now."""


class WorldPort:
    """The port of one process: what it queues and sets is kept until a step uses it; `carry` takes what it sends."""

    def __init__(
        self, name: ProcessId, seed: int, carry: Callable[[ProcessId, Sequence[ProcessId], WireMessage], None]
    ) -> None:
        self.name = name
        self.queue: deque[Event] = deque()
        self.timers: dict[Timer, None] = {}
        self.steps = 0
        self.clock_was_read = False
        self.drawn: random.Random | None = None
        """The source of randomness, once the process has asked for it."""
        self._seed = seed
        self._carry = carry

    @property
    def random(self) -> Random:
        if self.drawn is None:
            self.drawn = random.Random(f"{self._seed}/{self.name}")
        return self.drawn

    def now_ns(self) -> int:
        self.clock_was_read = True
        return self.steps

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._carry(self.name, destinations, message)

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag) -> None:
        self.queue.append(Stable(tag))

    def announce(self, event: Event) -> None:
        self.queue.append(event)

    def connect(self, peer: ProcessId) -> None:
        """Links are durable here, and stand already."""

    def disconnect(self, peer: ProcessId) -> None:
        """Links are durable here, and stay."""

    def retire(self) -> None:
        """Members are fixed here."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        self.timers[timer] = None

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)


class Fed(NamedTuple):
    """What a step at one process did there, as far as its application sees it."""

    entry: LogEntry | None = None
    event: Event | None = None


def feed(process: Process, port: WorldPort, step: Step, message: WireMessage | None = None) -> Fed:
    """Let `process` take `step`, one of its own; a `Receive` comes with the message. Faults are not for processes."""
    port.steps += 1
    match step:
        case Receive(sender=sender):
            assert message is not None
            process.receive(sender, message)
        case Take():
            event = port.queue.popleft()
            process.take(event)
            if isinstance(event, Delivered):
                return Fed(LogEntry("deliver", event.message.tag, event.message.payload), event)
            return Fed(LogEntry("stable", event.tag) if isinstance(event, Stable) else None, event)
        case Broadcast(payload=payload):
            return Fed(LogEntry("broadcast", process.broadcast(payload), payload))
        case Fire(timer=timer):
            del port.timers[timer]
            process.timer(timer)
        case _:
            raise TypeError(f"{step} is not taken by a process")
    return Fed()


class World:
    """Processes of one stack, the messages between them, and what their applications have seen."""

    def __init__(self, stack: Stack, names: Iterable[ProcessId], *, seed: int = 0) -> None:
        self.stack = stack
        self.roster = Roster(names)
        self.seed = seed
        self.in_flight: dict[tuple[ProcessId, ProcessId], list[WireMessage]] = {
            (sender, receiver): [] for sender in self.roster for receiver in self.roster if sender != receiver
        }
        self.logs: dict[ProcessId, list[LogEntry]] = {name: [] for name in self.roster}
        self.crashed: set[ProcessId] = set()
        self.schedule: list[Step] = []
        """Every step so far."""
        self.ports = {name: WorldPort(name, seed, self._carry) for name in self.roster}
        self.processes: dict[ProcessId, Process] = {
            name: stack.process(port, self.roster) for name, port in self.ports.items()
        }
        for process in self.processes.values():
            process.start()

    def _carry(self, sender: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        for destination in destinations:
            if destination not in self.crashed:
                self.in_flight[sender, destination].append(message)

    def broadcast(self, name: ProcessId, payload: bytes = b"") -> Tag:
        """The application at `name` broadcasts."""
        self.do(Broadcast(name, payload))
        return self.logs[name][-1].tag

    def enabled(self, *, fifo: bool) -> list[Step]:
        """Every step but broadcasts and faults that can be taken now, in a fixed order.

        With `fifo` only the head of each link can arrive, otherwise any of its first `REORDERING_WINDOW`.
        """
        window = 1 if fifo else REORDERING_WINDOW
        steps: list[Step] = []
        for (sender, receiver), messages in self.in_flight.items():
            steps.extend(Receive(sender, receiver, place) for place in range(min(len(messages), window)))
        for name, port in self.ports.items():
            if name in self.crashed:
                continue
            if port.queue:
                steps.append(Take(name))
            steps.extend(Fire(name, timer) for timer in port.timers)
        return steps

    def possible(self, step: Step) -> str | None:
        """Why `step` cannot be taken now; `None` if it can."""
        names = (step.sender, step.receiver) if isinstance(step, Receive | Duplicate) else (step.process,)
        for name in names:
            if name not in self.roster:
                return f"{name!r} is no member"
        if names[-1] in self.crashed:
            return f"{names[-1]!r} has crashed"
        match step:
            case Receive(sender, receiver, place) | Duplicate(sender, receiver, place):
                messages = self.in_flight.get((sender, receiver))
                if messages is None:
                    return f"there is no link from {sender!r} to itself"
                if not 0 <= place < len(messages):
                    return f"of {len(messages)} messages from {sender!r} to {receiver!r} none has place {place}"
            case Take(name) if not self.ports[name].queue:
                return f"no event is queued at {name!r}"
            case Fire(name, timer) if timer not in self.ports[name].timers:
                return f"{name!r} has not set the timer {timer}"
        return None

    def do(self, step: Step) -> Event | WireMessage | None:
        """Take `step`; returns the event taken or the message received. Raises `ImpossibleStepError`."""
        reason = self.possible(step)
        if reason is not None:
            raise ImpossibleStepError(f"{step}: {reason}")
        self.schedule.append(step)
        match step:
            case Receive(sender, receiver, place):
                message = self.in_flight[sender, receiver].pop(place)
                feed(self.processes[receiver], self.ports[receiver], step, message)
                return message
            case Duplicate(sender, receiver, place):
                messages = self.in_flight[sender, receiver]
                messages.append(messages[place])
                return messages[place]
            case Crash(name):
                self.crash(name)
                return None
        fed = feed(self.processes[step.process], self.ports[step.process], step)
        if fed.entry is not None:
            self.logs[step.process].append(fed.entry)
        return fed.event

    def crash(self, name: ProcessId) -> None:
        """`name` stops for ever, whether by a step or because it failed."""
        self.crashed.add(name)
        for (_, receiver), messages in self.in_flight.items():
            if receiver == name:
                messages.clear()

    @property
    def quiescent(self) -> bool:
        """Whether nothing is left to do but broadcasts and faults."""
        return not self.enabled(fifo=True)

    def settle(self, *, limit: int = 1_000_000) -> None:
        """Take enabled steps until none is left; raises `RuntimeError` after `limit` steps."""
        for _ in range(limit):
            steps = self.enabled(fifo=True)
            if not steps:
                return
            self.do(steps[0])
        raise RuntimeError(f"still busy after {limit:,} steps; first of what is left: {steps[0]}")
