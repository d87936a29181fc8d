"""VV, the version-vector twin of TCB: tagged causal delivery with a delivery queue.

Source: document 004, algorithms 2 (client) and 3 (middleware), sections 4.3 and 8.3.1.2. Keeps P1 to P4. Per message on
the wire: one count per member. Per process: vectors, and the messages that wait. It is `cbcast` with the queue of the
print, which is looked through from the start after every delivery: the baseline of chapter 8.

`ClassicalVV` is two-level tagging (section 3.5.1, measured in 8.4.1): the middleware makes a vector of its own for each
message, of what it has *delivered*, and delivers by it; the application adds the vector of what it has *taken*, which
makes the tags. The first is over-ordered: a message waits for what lay untaken in its sender's queue.

Departure from the print: a repeated message is known by its counter. The print counts receptions (algorithm 3 and line
24 of 7), which takes a message that overtook an earlier one for that one, and drops the earlier one.
"""

from __future__ import annotations

from operator import gt
from typing import TYPE_CHECKING, ClassVar

from causalcast.model import Message, ProtocolViolationError, Tag, UnsupportedByStackError
from causalcast.protocols.ordering.cbcast import CBCAST, VectorMessage

if TYPE_CHECKING:
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import BroadcastMessage, Port


class TwoVectorMessage(VectorMessage, frozen=True, array_like=True, gc=False, tag=5):
    """A message with the middleware's vector in `counts`, and the application's."""

    seen: tuple[int, ...]


class VV(CBCAST):
    """End-to-end vectors and a delivery queue for one process."""

    _vectors: ClassVar[int] = 1
    """How many a message carries."""

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        super().__init__(port, membership, dissemination)
        self._queue: list[VectorMessage] = []

    def receive(self, message: BroadcastMessage) -> None:
        """Deliver the message and what waited for it, or queue it (algorithm 3, receive)."""
        if not isinstance(message, VectorMessage):
            return
        slot = self._check(message)
        counter = message.counts[slot]
        if counter <= self._delivered[slot] or counter in self._here[slot]:
            return
        self._here[slot].add(counter)
        if not self._deliverable(message):
            self._queue.append(message)
            return
        self._deliver(message)
        while self._queue:
            before, self._queue = self._queue, []
            for each in before:
                if self._deliverable(each):
                    self._deliver(each)
                else:
                    self._queue.append(each)
            if len(self._queue) == len(before):
                break

    def _deliverable(self, message: VectorMessage) -> bool:
        """Whether all that the message depends on is delivered: only its own count is ahead, by one."""
        counts, slot = message.counts, self._slots[message.origin]
        self._meter.count += len(counts)
        return counts[slot] == self._delivered[slot] + 1 and sum(map(gt, counts, self._delivered)) == 1

    def _deliver(self, message: VectorMessage) -> None:
        slot = self._slots[message.origin]
        counter = message.counts[slot]
        self._delivered[slot] = counter
        self._here[slot].remove(counter)
        tag = self._tag(message.origin, slot, self._seen(message))
        self._port.deliver(Message(message.payload, tag))
        self._delivered_one(slot, tag)

    def _seen(self, message: VectorMessage) -> tuple[int, ...]:
        """The vector of what its application had taken, and itself."""
        return message.counts

    def _delivered_one(self, slot: int, tag: Tag) -> None:
        """A message of the member of `slot` was just delivered; nothing becomes stable here."""

    def words(self) -> int:
        """004 section 8.3.1.2: the received and the delivered vector, and vector and origin of each that waits.

        With two vectors a message, the application's vector is counted too. (The client's of algorithm 2 is not.)
        """
        size = len(self._roster)
        return (1 + self._vectors) * size + (self._vectors * size + 1) * len(self._queue)

    def entries(self, message: BroadcastMessage) -> int:
        """The counts of its vectors."""
        return self._vectors * super().entries(message)

    def snapshot(self) -> bytes:
        """Raises `UnsupportedByStackError`: that of `CBCAST` does not hold the queue."""
        raise UnsupportedByStackError(f"{type(self).__name__} writes nothing down: it cannot recover")


class ClassicalVV(VV):
    """The middleware's vectors for delivery, the application's for tags, for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (TwoVectorMessage,)
    _vectors: ClassVar[int] = 2

    def broadcast(self, payload: bytes) -> Tag:
        """Send `payload` with the vector of what the middleware has delivered and of what the application has taken."""
        slot = self._my_slot
        self._taken[slot] += 1
        self._delivered[slot] += 1
        seen = tuple(self._taken)
        tag = self._tag(self._me, slot, seen)
        self._dissemination.broadcast(TwoVectorMessage(self._me, tuple(self._delivered), payload, seen))
        return tag

    def _seen(self, message: VectorMessage) -> tuple[int, ...]:
        assert isinstance(message, TwoVectorMessage)
        return message.seen

    def _check(self, message: VectorMessage) -> int:
        slot = super()._check(message)
        counts, seen = message.counts, self._seen(message)
        if len(seen) != len(counts) or min(seen) < 0 or seen[slot] != counts[slot] or any(map(gt, seen, counts)):
            raise ProtocolViolationError(
                f"{message.origin}:{counts[slot]} says that its application took {seen} of {counts} delivered"
            )
        return slot
