"""A world whose schedule the caller decides: every broadcast, message, timer and taking of an event is a step.

The same process objects as everywhere. Tests, transcripts and replayed schedules choose the steps, so every
interleaving can be reached; the explorer feeds single processes through the same `feed` and reaches them all.

Time is local: a process's clock counts its own steps. What a process does is therefore a function of its own inputs
in their order, whatever the others do in between, and two runs that differ only in how they interleave steps of
different processes are the same run for each of them.

**Who is there.** `names` are the members from the start; `joiners` are absent until their step `Join`. An absent
process is as one that is slow to start: what is sent to it waits, and a link to it is not refused. (Lost messages
would make the join and every send to the joiner depend on each other's order, though no process could know it.) A
process that has retired takes the events that are queued, and nothing else; what is sent to it, or to one that has
crashed, is lost.

**Session links** are those of `feeding`: they keep order and repeat nothing, end with `Closed` in flight, and break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from causalcast.model import CausalcastError, Event, ProcessId, Roster, Tag, UnsupportedByStackError
from causalcast.simulation.feeding import InEpoch, InFlight, RefusedError, WorldPort, arrivals, feed
from causalcast.simulation.steps import (
    ApplicationStep,
    Break,
    Broadcast,
    Closed,
    Crash,
    Duplicate,
    Fire,
    Join,
    Leave,
    LogEntry,
    Receive,
    Restart,
    Step,
    Subscribe,
    Suspect,
    Take,
    Trust,
    Unsubscribe,
    actor,
    parties,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.protocols import Process, Stack, WireMessage

__all__ = [
    "Break",
    "Broadcast",
    "Crash",
    "Duplicate",
    "Fire",
    "ImpossibleStepError",
    "Join",
    "Leave",
    "LogEntry",
    "Receive",
    "Restart",
    "Step",
    "Subscribe",
    "Suspect",
    "Take",
    "Trust",
    "Unsubscribe",
    "World",
    "tells_its_tables",
]

REORDERING_WINDOW = 4
"""Of how many messages in flight on one link `World.enabled` lets any arrive next."""


class ImpossibleStepError(CausalcastError, ValueError):
    """A step that cannot be taken now."""


class World:
    """Processes of one stack, the messages between them, and what their applications have seen."""

    def __init__(
        self, stack: Stack, names: Iterable[ProcessId], joiners: Iterable[ProcessId] = (), *, seed: int = 0
    ) -> None:
        self.stack = stack
        self.members = Roster(names)
        """The members from the start."""
        self.absent = set(joiners)
        """Those that have not joined yet."""
        self.roster = Roster([*self.members, *sorted(self.absent)])
        """All processes."""
        self.seed = seed
        self.in_flight: dict[tuple[ProcessId, ProcessId], list[Any]] = {
            (sender, receiver): [] for sender in self.roster for receiver in self.roster if sender != receiver
        }
        """`WireMessage`s; on session links also the ends of links, and messages with the epoch they were sent in."""
        self.logs: dict[ProcessId, list[LogEntry]] = {name: [] for name in self.roster}
        self.entries: list[tuple[ProcessId, LogEntry]] = []
        """What is in the logs, in the order in which it happened."""
        self.crashed: set[ProcessId] = set()
        self.schedule: list[Step] = []
        """Every step so far."""
        self.ports = {
            name: WorldPort(name, seed, self._carry, self.roster.others(name) if stack.session_links else None)
            for name in self.roster
        }
        self.processes: dict[ProcessId, Process] = {
            name: stack.process(port, self._started_with(name)) for name, port in self.ports.items()
        }
        for name in self.members:
            self.processes[name].start()

    def _started_with(self, name: ProcessId) -> Roster:
        return self.members if name in self.members else Roster([name])

    def _carry(self, sender: ProcessId, destinations: Sequence[ProcessId], item: InFlight) -> None:
        for destination in destinations:
            if not self.ports[destination].gone:
                self.in_flight[sender, destination].append(item)

    def broadcast(self, name: ProcessId, payload: bytes = b"", topic: str = "") -> Tag:
        """The application at `name` broadcasts."""
        self.do(Broadcast(name, payload, topic))
        return cast("Tag", self.logs[name][-1].tag)

    def enabled(self, *, fifo: bool) -> list[Step]:
        """Every step but those of `ApplicationStep` and faults that can be taken now, in a fixed order.

        With `fifo`, and on session links, only the head of each link can arrive, otherwise any of its first
        `REORDERING_WINDOW`. The end of a broken session link can overtake what is before it.
        """
        window = 1 if fifo else REORDERING_WINDOW
        steps: list[Step] = []
        for (sender, receiver), items in self.in_flight.items():
            if items and receiver not in self.absent:
                steps.extend(Receive(sender, receiver, place) for place in self._arrivals(sender, receiver, window))
        for name, port in self.ports.items():
            if name in self.crashed or name in self.absent:
                continue
            if port.queue:
                steps.append(Take(name))
            steps.extend(Fire(name, timer) for timer in port.timers)
        return steps

    def _arrivals(self, sender: ProcessId, receiver: ProcessId, window: int) -> Sequence[int]:
        items = self.in_flight[sender, receiver]
        if self.stack.session_links:
            return arrivals(items, sender in self.ports[receiver].connected)
        return range(min(len(items), window))

    def possible(self, step: Step) -> str | None:
        """Why `step` cannot be taken now; `None` if it can.

        What an application asks for may still be refused by its process, which only `do` finds out.
        """
        named = parties(step)
        for name in named:
            if name not in self.roster:
                return f"{name!r} is no member"
        name = actor(step)
        if name in self.crashed:
            return f"{name!r} has crashed"
        if (name in self.absent) != isinstance(step, Join):
            return f"{name!r} has not joined yet" if name in self.absent else f"{name!r} is there already"
        if self.ports[name].gone and not isinstance(step, Take):
            return f"{name!r} has left"
        if len(named) == 2 and named[0] == named[1]:
            return f"there is no link from {name!r} to itself"
        return self._lacks(step) or self._unsupported(step)

    def _lacks(self, step: Step) -> str | None:
        port = self.ports[actor(step)]
        match step:
            case Receive(sender, receiver, place) | Duplicate(sender, receiver, place):
                return self._cannot_arrive(sender, receiver, place)
            case Take(name) if not port.queue:
                return f"no event is queued at {name!r}"
            case Fire(name, timer) if timer not in port.timers:
                return f"{name!r} has not set the timer {timer}"
            case Break(name, peer) if peer not in port.connected:
                return f"{name!r} keeps no session link to {peer!r}"
        return None

    def _unsupported(self, step: Step) -> str | None:
        stack = self.stack
        match step:
            case Join() | Leave() if not stack.dynamic:
                return f"the members of {stack.name!r} are fixed"
            case Suspect() if not (stack.dynamic or stack.suspects):
                return f"the members of {stack.name!r} are fixed"
            case Trust() if not stack.suspects:
                return f"processes of {stack.name!r} take no suspicion back"
            case Subscribe() | Unsubscribe() if not stack.topics:
                return f"the stack {stack.name!r} has no topics"
            case Restart() if not stack.recovers or stack.session_links:
                return f"processes of {stack.name!r} cannot recover"
            case Duplicate() if stack.session_links:
                return "session links repeat nothing"
        return None

    def _cannot_arrive(self, sender: ProcessId, receiver: ProcessId, place: int) -> str | None:
        items = self.in_flight[sender, receiver]
        if not 0 <= place < len(items):
            return f"of {len(items)} messages from {sender!r} to {receiver!r} none has place {place}"
        if self.stack.session_links and place not in self._arrivals(sender, receiver, 1):
            return f"what has place {place} from {sender!r} to {receiver!r} cannot arrive next"
        return None

    def do(self, step: Step) -> Event | WireMessage | None:
        """Take `step`; returns the event taken or the message received. Raises `ImpossibleStepError`."""
        reason = self.possible(step)
        if reason is not None:
            raise ImpossibleStepError(f"{step}: {reason}")
        self.schedule.append(step)
        item: InFlight | None = None
        match step:
            case Receive(sender, receiver, place):
                item = self._arrived(self.in_flight[sender, receiver], place)
            case Duplicate(sender, receiver, place):
                items = self.in_flight[sender, receiver]
                items.append(items[place])
                return _message(items[place])
            case Crash(name):
                self.crash(name)
                return None
            case Join(name):
                self.absent.remove(name)
        name = actor(step)
        port = self.ports[name]
        try:
            fed = feed(self.stack, self._started_with(name), self.processes[name], port, step, item)
        except (RefusedError, UnsupportedByStackError) as refused:
            if not isinstance(step, ApplicationStep):
                raise
            self.schedule.pop()
            raise ImpossibleStepError(f"{step}: {refused}") from None
        self.processes[name] = fed.process
        if port.gone:
            self._forget(name)
        for entry in fed.entries:
            self.logs[name].append(entry)
            self.entries.append((name, entry))
        return fed.event or _message(item)

    def _arrived(self, items: list[InFlight], place: int) -> InFlight:
        item = items[place]
        if self.stack.session_links:
            # What the end of a broken link overtakes is lost; the end of a process that is gone stays.
            del items[: place if isinstance(item, Closed) and item.last else place + 1]
        else:
            del items[place]
        return item

    def crash(self, name: ProcessId) -> None:
        """`name` stops for ever, whether by a step or because it failed."""
        self.crashed.add(name)
        self.ports[name].go(graceful=False)
        self._forget(name)

    def _forget(self, name: ProcessId) -> None:
        for (_, receiver), items in self.in_flight.items():
            if receiver == name:
                items.clear()

    @property
    def quiescent(self) -> bool:
        """Whether nothing is left to do but `ApplicationStep`s and faults."""
        return not self.enabled(fifo=True)

    def settle(self, *, limit: int = 1_000_000) -> None:
        """Take enabled steps until none is left; raises `RuntimeError` after `limit` steps."""
        for _ in range(limit):
            steps = self.enabled(fifo=True)
            if not steps:
                return
            self.do(steps[0])
        raise RuntimeError(f"still busy after {limit:,} steps; first of what is left: {steps[0]}")


def _message(item: InFlight | None) -> WireMessage | None:
    if isinstance(item, InEpoch):
        return item.message
    return None if isinstance(item, Closed) else item


def tells_its_tables(stack: Stack) -> bool:
    """Whether processes of this stack say anything of their tables, so that P7 can be checked."""
    return bool(World(stack, ("p0", "p1")).processes["p0"].tables())
