"""No order at all: the control, which the audit must catch.

Keeps P1 and P2. A message is delivered the moment it arrives. Its tag knows nothing of other members' messages, so
no stack with this ordering promises P4. Per message on the wire: one dot. Per process: a count per member, and the
counters above the first gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from causalcast.model import Message, ProtocolViolationError, Tag
from causalcast.protocols.ordering.meter import Meter
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import Port, Timer


class PlainMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=4):
    """A message with its dot."""

    counter: int
    payload: bytes


class UnorderedState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a process must not forget."""

    sent: int
    contiguous: list[int]
    beyond: list[list[int]]


class Unordered:
    """Delivery on arrival for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (PlainMessage,)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        roster = membership.roster
        self._port = port
        self._roster = roster
        self._dissemination = dissemination
        self._me = membership.name
        self._sent = 0
        self._contiguous = [0] * len(roster)
        self._beyond: list[set[int]] = [set() for _ in roster]
        self._meter = Meter()

    def start(self) -> None:
        """Nothing to do: a static group is complete from the start."""

    def broadcast(self, payload: bytes) -> Tag:
        """Send `payload`."""
        self._sent += 1
        self._dissemination.broadcast(PlainMessage(self._me, self._sent, payload))
        return self._tag(self._me, self._sent)

    def take(self, event: Event) -> None:
        """Nothing depends on what was taken."""

    def timer(self, timer: Timer) -> None:
        """No timers here."""

    def receive(self, message: BroadcastMessage) -> None:
        """Deliver on first arrival."""
        if not isinstance(message, PlainMessage):
            return
        slot = self._roster.slots.get(message.origin)
        if slot is None or message.origin == self._me or message.counter < 1:
            raise ProtocolViolationError(f"{message.origin}:{message.counter} is no message of another member")
        self._meter.count += 1
        beyond = self._beyond[slot]
        counter = message.counter
        if counter <= self._contiguous[slot] or counter in beyond:
            return
        beyond.add(counter)
        while self._contiguous[slot] + 1 in beyond:
            self._contiguous[slot] += 1
            beyond.remove(self._contiguous[slot])
        self._port.deliver(Message(message.payload, self._tag(message.origin, counter)))

    def _tag(self, origin: ProcessId, counter: int) -> Tag:
        slot = self._roster.slot(origin)
        counts = [0] * len(self._roster)
        counts[slot] = counter
        return Tag(origin, counter, (), tuple(counts), self._roster)

    def pending(self, origin: ProcessId) -> int:
        """Nothing waits."""
        self._roster.slot(origin)
        return 0

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0

    def words(self) -> int:
        """A word per count, and one per counter above a gap."""
        return len(self._contiguous) + sum(map(len, self._beyond))

    def entries(self, message: BroadcastMessage) -> int:
        """None: a message says nothing of others."""
        return 0

    @property
    def operations(self) -> int:
        """One per message received."""
        return self._meter.count

    def snapshot(self) -> bytes:
        """See `Recoverable`."""
        return _encode(UnorderedState(self._sent, self._contiguous, list(map(sorted, self._beyond))))

    def restore(self, snapshot: bytes) -> None:
        """See `Recoverable`."""
        state = _decode_state(snapshot)
        self._sent = state.sent
        self._contiguous = state.contiguous
        self._beyond = list(map(set, state.beyond))


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_state: Final = msgspec.msgpack.Decoder(UnorderedState).decode
