"""CBCAST, causal delivery by version vectors.

Source: document 004, algorithm 1 (section 2.4.2.2), with the end-to-end rule of section 3.7.1: the vector of a
message counts what the application has taken. Keeps P1, P2, P3 and P4. Per message on the wire: one count per
member. Per process: a vector, and the messages that wait.

Departure from the print: a waiting message is filed under one dot it misses and looked at again when that dot is
delivered, instead of scanning the queue at every delivery; it moves at most once per member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from causalcast.model import Delivered, Message, ProtocolViolationError, Tag
from causalcast.protocols.ordering.meter import Meter
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import Port, Timer


class VectorMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=3):
    """A message with the version vector of its past and itself, in roster order."""

    counts: tuple[int, ...]
    payload: bytes


class CBCASTState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a process must not forget."""

    taken: list[int]
    delivered: list[int]
    waiting: list[tuple[int, int, list[VectorMessage]]]
    """Slot and count of a dot that is missing, and the messages filed under it."""


class CBCAST:
    """Causal delivery by version vectors for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (VectorMessage,)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        roster = membership.roster
        self._port = port
        self._roster = roster
        self._slots = roster.slots
        self._dissemination = dissemination
        self._me = membership.name
        self._my_slot = roster.slot(membership.name)
        self._taken = [0] * len(roster)
        self._delivered = [0] * len(roster)
        self._waiting: dict[tuple[int, int], list[VectorMessage]] = {}
        """Slot and count of a dot that is missing here, to the messages filed under it."""
        self._here: list[set[int]] = [set() for _ in roster]
        """For each slot, the counters of messages that wait."""
        self._meter = Meter()

    def start(self) -> None:
        """Nothing to do: a static group is complete from the start."""

    def broadcast(self, payload: bytes) -> Tag:
        """Send `payload` with the vector of what the application has taken."""
        taken = self._taken
        taken[self._my_slot] += 1
        self._delivered[self._my_slot] += 1
        counts = tuple(taken)
        tag = self._tag(self._me, self._my_slot, counts)
        self._dissemination.broadcast(VectorMessage(self._me, counts, payload))
        return tag

    def take(self, event: Event) -> None:
        """The application receives `event`: its vector moves now."""
        if isinstance(event, Delivered):
            tag = event.message.tag
            self._taken[self._slots[tag.origin]] = tag.counter

    def timer(self, timer: Timer) -> None:
        """No timers here."""

    def receive(self, message: BroadcastMessage) -> None:
        """Deliver the message and what waited for it, or file it under a dot it misses."""
        if not isinstance(message, VectorMessage):
            return
        slot = self._check(message)
        counter = message.counts[slot]
        if counter <= self._delivered[slot] or counter in self._here[slot]:
            return
        self._here[slot].add(counter)
        ready = [message]
        for candidate in ready:
            missing = self._missing(candidate)
            if missing is not None:
                self._waiting.setdefault(missing, []).append(candidate)
                continue
            slot = self._slots[candidate.origin]
            counter = candidate.counts[slot]
            self._delivered[slot] = counter
            self._here[slot].remove(counter)
            tag = self._tag(candidate.origin, slot, candidate.counts)
            self._port.deliver(Message(candidate.payload, tag))
            ready.extend(self._waiting.pop((slot, counter), ()))

    def _missing(self, message: VectorMessage) -> tuple[int, int] | None:
        """A dot that must be delivered before `message` and is not (algorithm 1, line 10); `None` if there is none."""
        counts = message.counts
        own = self._slots[message.origin]
        self._meter.count += len(counts)
        for slot, delivered in enumerate(self._delivered):
            needed = counts[slot] - 1 if slot == own else counts[slot]
            if needed > delivered:
                return slot, needed
        return None

    def _tag(self, origin: ProcessId, slot: int, counts: tuple[int, ...]) -> Tag:
        past = list(counts)
        past[slot] -= 1
        context = tuple(zip(self._roster.names, past, strict=True))
        if not all(past):
            context = tuple([dot for dot in context if dot[1]])
        return Tag(origin, counts[slot], context, counts, self._roster)

    def _check(self, message: VectorMessage) -> int:
        """The slot of its origin. Raises `ProtocolViolationError` on what no correct member sends."""
        slot = self._check_vector(message.origin, message.counts)
        if message.counts[slot] < 1:
            raise ProtocolViolationError(f"{message.counts} of {message.origin!r} does not count the message itself")
        return slot

    def _check_vector(self, origin: ProcessId, counts: tuple[int, ...]) -> int:
        slot = self._slots.get(origin)
        if slot is None:
            raise ProtocolViolationError(f"{origin!r} is not a member of this group")
        if slot == self._my_slot:
            raise ProtocolViolationError(f"a message of {origin!r} came back to {origin!r}: is the name used twice?")
        if len(counts) != len(self._roster) or min(counts) < 0:
            raise ProtocolViolationError(f"{counts} of {origin!r} is no vector of this group")
        if counts[self._my_slot] > self._taken[self._my_slot]:
            raise ProtocolViolationError(
                f"{origin}:{counts[slot]} depends on {self._me}:{counts[self._my_slot]}, which cannot be"
            )
        return slot

    def pending(self, origin: ProcessId) -> int:
        """Messages of `origin` received and not delivered."""
        return len(self._here[self._roster.slot(origin)])

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {"waiting": sum(map(len, self._here))}

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0

    def words(self) -> int:
        """004 section 8.3.1.2: the received and the delivered vector, and vector and origin of each that waits."""
        size = len(self._roster)
        return 2 * size + (size + 1) * sum(map(len, self._here))

    def entries(self, message: BroadcastMessage) -> int:
        """The counts of its vector."""
        return len(message.counts) if isinstance(message, VectorMessage) else 0

    @property
    def operations(self) -> int:
        """A vector's length for each time that a message is held against what is delivered."""
        return self._meter.count

    def snapshot(self) -> bytes:
        """See `Recoverable`."""
        waiting = [(slot, count, messages) for (slot, count), messages in self._waiting.items()]
        return _encode(CBCASTState(self._taken, self._delivered, waiting))

    def restore(self, snapshot: bytes) -> None:
        """See `Recoverable`."""
        state = _decode_state(snapshot)
        self._taken = state.taken
        self._delivered = state.delivered
        for slot, count, messages in state.waiting:
            self._waiting[slot, count] = messages
            for message in messages:
                origin = self._slots[message.origin]
                self._here[origin].add(message.counts[origin])


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_state: Final = msgspec.msgpack.Decoder(CBCASTState).decode
