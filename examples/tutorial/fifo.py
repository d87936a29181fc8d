"""FIFO: the messages of one member are delivered in the order in which it broadcast them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.model import Message, ProtocolViolationError, Tag
from causalcast.protocols import BroadcastMessage, Stack
from causalcast.protocols.dissemination import Direct
from causalcast.protocols.membership import StaticMembership
from causalcast.protocols.ordering import Ordering

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols import Port, Timer


class FifoMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=100):
    """What travels, besides its origin: how many its origin has broadcast, this one included."""

    counter: int
    payload: bytes


class Fifo(Ordering):
    """One process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (FifoMessage,)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        self._port = port
        self._dissemination = dissemination
        self._me = membership.name
        self._roster = membership.roster
        self._delivered = dict.fromkeys(self._roster, 0)
        self._waiting: dict[tuple[ProcessId, int], FifoMessage] = {}

    def start(self) -> None:
        """Nothing to prepare."""

    def broadcast(self, payload: bytes) -> Tag:
        self._delivered[self._me] += 1
        message = FifoMessage(self._me, self._delivered[self._me], payload)
        self._dissemination.broadcast(message)
        return self._tag(message)

    def receive(self, message: BroadcastMessage) -> None:
        if not isinstance(message, FifoMessage):
            return
        if message.origin == self._me or message.origin not in self._roster or message.counter < 1:
            raise ProtocolViolationError(f"{message.origin}:{message.counter} is no message of another member")
        if message.counter <= self._delivered[message.origin]:
            return
        self._waiting.setdefault((message.origin, message.counter), message)
        while ready := [each for each in self._waiting.values() if self._ready(each)]:
            for each in ready:
                del self._waiting[each.origin, each.counter]
                self._delivered[each.origin] = each.counter
                self._port.deliver(Message(each.payload, self._tag(each)))

    def _ready(self, message: FifoMessage) -> bool:
        return message.counter == self._delivered[message.origin] + 1

    def _tag(self, message: FifoMessage) -> Tag:
        counts = tuple(message.counter if name == message.origin else 0 for name in self._roster)
        return Tag(message.origin, message.counter, (), counts, self._roster)

    def take(self, event: Event) -> None:
        """Nothing depends on what the application has taken."""

    def timer(self, timer: Timer) -> None:
        """No timers are set."""

    def pending(self, origin: ProcessId) -> int:
        return sum(each.origin == origin for each in self._waiting.values())

    @property
    def unstable(self) -> int:
        return 0


STACK = Stack(
    name="fifo",
    summary="each member's messages in the order in which it broadcast them",
    membership=StaticMembership,
    dissemination=Direct,
    ordering=Fifo,
    wire_types=Fifo.wire_types,
    promises=frozenset({"P1", "P2"}),
    dynamic=False,
    fifo_links=False,
    message_cost="1 dot; n-1 sends",
    process_cost="O(n) counts, the messages that wait",
    source="the tutorial",
)
