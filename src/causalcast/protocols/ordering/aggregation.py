"""Causal delivery by what changed: the ordering under causal aggregation.

Source: document 002, algorithm 2 (CO_BROADCAST, CHECKDELIVERY) with Birman's compression (section 3.3.3), and causal
barriers in place of vectors (sections 2.2.3 and 6.2.1). A message names some of the messages before it: with
`ChangedVector` the last of each member whose entry changed since its source's last broadcast, with `DirectBarrier`
those that no other one of them follows. In both, the source's own previous message goes without saying: its counter
names it. A message is delivered after all that it names; what those name was before them.

Keeps P1, P2 and P3. Tags hold what the message names and no vector, so P4 is not promised. Per message on the wire:
its counter and 2 numbers per message named. Per process: a count per member, the entries changed since its last
broadcast (at most one per member), and the messages that wait.

Departures from the print: what counts as before a message is what its application had taken (document 004, section
3.7.1); line 31 means k != m'.s; a waiting message is filed under one that it misses, instead of scanning all that wait
at every delivery.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import Delivered, Message, ProtocolViolationError, Tag
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Roster
    from causalcast.protocols.layers import Dissemination
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port, Timer

COUNTER_LIMIT: Final = 1 << 53
"""No counter reaches it."""


class CausalMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=41):
    """A message with its number at its source, and those before it that it names."""

    counter: int
    past: tuple[int, ...]
    """Slot, counter, slot, counter, ...: at most one for each slot, the source's own left out."""
    payload: bytes


def check_message(message: BroadcastMessage, roster: Roster) -> int:
    """The slot of the source; raises `ProtocolViolationError` if no member of the group makes such a message."""
    slot = roster.slots.get(message.origin)
    if slot is None or not isinstance(message, CausalMessage):
        raise ProtocolViolationError(f"{message.origin!r} cannot have broadcast {message}")
    past = message.past
    named, members = past[::2], len(roster)
    if (
        not 0 < message.counter < COUNTER_LIMIT
        or len(past) % 2
        or len(set(named)) != len(named)
        or not all(0 <= other < members and other != slot for other in named)
        or not all(0 < counter < COUNTER_LIMIT for counter in past[1::2])
    ):
        raise ProtocolViolationError(f"{past} is nothing that {message.origin}:{message.counter} can name")
    return slot


class WaitTally:
    """What waiting cost a process so far. No part of the protocol's state: pickles as empty."""

    __slots__ = ("held_up", "most_waiting", "operations")

    def __init__(self) -> None:
        self.held_up = 0
        """Messages that had to wait at all (document 002, figure 4.9)."""
        self.most_waiting = 0
        """The most that ever waited at once (figure 4.6)."""
        self.operations = 0
        """Entries that decisions about delivery have looked at."""

    def __reduce__(self) -> tuple[type[WaitTally], tuple[()]]:
        return WaitTally, ()


class Listed(ABC):
    """What both ways to name the past have in common."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (CausalMessage,)

    __slots__ = (
        "_broadcasts",
        "_delivered",
        "_dissemination",
        "_here",
        "_membership",
        "_port",
        "_waiting",
        "_waits",
        "tally",
    )

    def __init__(self, port: Port, membership: VCube, dissemination: Dissemination) -> None:
        self._port = port
        self._membership = membership
        self._dissemination = dissemination
        self._broadcasts = 0
        self._delivered = [0] * len(membership.roster)
        self._here: dict[int, set[int]] = {}
        """By slot: the counters of messages that wait."""
        self._waiting: dict[tuple[int, int], list[CausalMessage]] = {}
        """By a message that is missing: those filed under it."""
        self._waits = 0
        self.tally = WaitTally()

    def start(self) -> None:  # noqa: B027
        """Nothing to do: a static group is complete from the start."""

    def timer(self, timer: Timer) -> None:  # noqa: B027
        """No timers here."""

    def take(self, event: Event) -> None:
        """The application receives `event`: it is before whatever it broadcasts from now on."""
        if isinstance(event, Delivered):
            self._taken(event.message.tag)

    @abstractmethod
    def _taken(self, tag: Tag) -> None:
        """The application has taken this message."""

    @abstractmethod
    def _past(self) -> tuple[int, ...]:
        """What the next message names; begins anew."""

    def broadcast(self, payload: bytes) -> Tag:
        """Send `payload` with what is before it."""
        self._broadcasts += 1
        membership = self._membership
        self._delivered[membership.slot] = self._broadcasts
        message = CausalMessage(membership.name, self._broadcasts, self._past(), payload)
        tag = self._tag(message)
        self._dissemination.broadcast(message)
        return tag

    def receive(self, message: BroadcastMessage) -> None:
        """Deliver the message and what waited for it, or file it under one that it misses."""
        slot = self._check(message)
        assert isinstance(message, CausalMessage)
        counter = message.counter
        here = self._here.get(slot)
        if counter <= self._delivered[slot] or (here is not None and counter in here):
            return
        missing = self._missing(message, slot)
        if missing is not None:
            self._here.setdefault(slot, set()).add(counter)
            self._waiting.setdefault(missing, []).append(message)
            self._waits += 1
            self.tally.held_up += 1
            self.tally.most_waiting = max(self.tally.most_waiting, self._waits)
            return
        self._deliver(message, slot)
        if not self._waiting:
            return
        freed = self._waiting.pop((slot, counter), [])
        for waiting in freed:
            slot = self._membership.roster.slots[waiting.origin]
            missing = self._missing(waiting, slot)
            if missing is not None:
                self._waiting.setdefault(missing, []).append(waiting)
                continue
            self._waits -= 1
            mine = self._here[slot]
            mine.remove(waiting.counter)
            if not mine:
                del self._here[slot]
            self._deliver(waiting, slot)
            freed.extend(self._waiting.pop((slot, waiting.counter), ()))

    def _deliver(self, message: CausalMessage, slot: int) -> None:
        self._delivered[slot] = message.counter
        self._port.deliver(Message(message.payload, self._tag(message)))

    def _missing(self, message: CausalMessage, slot: int) -> tuple[int, int] | None:
        """One that must be delivered before `message` and is not."""
        delivered = self._delivered
        self.tally.operations += 1 + len(message.past) // 2
        if delivered[slot] < message.counter - 1:
            return slot, message.counter - 1
        past = iter(message.past)
        for named, counter in zip(past, past, strict=True):
            if delivered[named] < counter:
                return named, counter
        return None

    def _tag(self, message: CausalMessage) -> Tag:
        roster = self._membership.roster
        names = roster.names
        past = iter(message.past)
        context = tuple((names[named], counter) for named, counter in zip(past, past, strict=True))
        return Tag(message.origin, message.counter, context, (), roster)

    def _check(self, message: BroadcastMessage) -> int:
        membership = self._membership
        slot = check_message(message, membership.roster)
        if slot == membership.slot:
            raise ProtocolViolationError(f"{message} came back to its source")
        assert isinstance(message, CausalMessage)
        past = message.past
        for place in range(0, len(past), 2):
            if past[place] == membership.slot and past[place + 1] > self._broadcasts:
                raise ProtocolViolationError(f"{message} names a message that {membership.name!r} never broadcast")
        return slot

    def pending(self, origin: ProcessId) -> int:
        """Messages of `origin` received and not delivered."""
        return len(self._here.get(self._membership.roster.slot(origin), ()))

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0

    def words(self) -> int:
        """A word per member, and of each message that waits its source, counter and entries."""
        waiting = (message for messages in self._waiting.values() for message in messages)
        return len(self._delivered) + sum(2 + len(message.past) for message in waiting)

    def entries(self, message: BroadcastMessage) -> int:
        """The entries that a message carries, its own included (figures 3.1 and 4.3)."""
        return 1 + len(message.past) // 2 if isinstance(message, CausalMessage) else 0

    @property
    def operations(self) -> int:
        """An entry each, for each time that a message is held against what is delivered."""
        return self.tally.operations

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {"waiting": len(self._waiting), "here": len(self._here)}


class ChangedVector(Listed):
    """Vectors, of which a message carries what changed since its source's last broadcast (Birman's compression)."""

    __slots__ = ("_changed",)

    def __init__(self, port: Port, membership: VCube, dissemination: Dissemination) -> None:
        super().__init__(port, membership, dissemination)
        self._changed: dict[int, int] = {}

    def _taken(self, tag: Tag) -> None:
        self._changed[self._membership.roster.slots[tag.origin]] = tag.counter

    def _past(self) -> tuple[int, ...]:
        past = tuple(number for entry in self._changed.items() for number in entry)
        self._changed.clear()
        return past


class DirectBarrier(Listed):
    """Causal barriers: a message carries its direct dependencies."""

    __slots__ = ("_barrier",)

    def __init__(self, port: Port, membership: VCube, dissemination: Dissemination) -> None:
        super().__init__(port, membership, dissemination)
        self._barrier: dict[ProcessId, int] = {}

    def _taken(self, tag: Tag) -> None:
        barrier = self._barrier
        for origin, counter in tag.context:
            if barrier.get(origin) == counter:
                del barrier[origin]
        barrier[tag.origin] = tag.counter

    def _past(self) -> tuple[int, ...]:
        slots = self._membership.roster.slots
        past = tuple(number for origin, counter in self._barrier.items() for number in (slots[origin], counter))
        self._barrier.clear()
        return past
