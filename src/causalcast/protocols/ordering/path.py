"""Order by path: a message is delivered the moment its dissemination hands it over, which does so in causal order.

Source: document 001, section 3.2 (Definition 6 and Lemma 4): where every message takes only safe links, the order of
first arrival is causal. The ordering then is nobody's work: it numbers messages and passes them on. Keeps what the
dissemination keeps. Per message on the wire: one dot. Per process: one counter.

A tag says who and which number; it cannot be compared, for nothing travels that would tell before from concurrent
(001 section 5). A broadcast follows everything that this process has handed to its application's queue, taken or not:
more than the application has seen may count as its cause, which no receiver can tell from the right order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import Message, ProtocolViolationError, Roster, Tag
from causalcast.protocols.ordering import Ordering
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols.layers import Dissemination
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.port import Port, Timer

NOBODY: Final = Roster(())


class PathMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=110):
    """A message with its dot."""

    counter: int
    payload: bytes


class Path(Ordering):
    """Numbers what is broadcast, delivers what arrives."""

    __slots__ = ("_dissemination", "_membership", "_port", "_sent")

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (PathMessage,)

    def __init__(self, port: Port, membership: Overlay, dissemination: Dissemination) -> None:
        self._port = port
        self._membership = membership
        self._dissemination = dissemination
        self._sent = 0

    def start(self) -> None:
        """Nothing to do."""

    def broadcast(self, payload: bytes) -> Tag:
        """Send `payload`; raises `NotAMemberError` before the join is complete."""
        self._membership.check_member()
        self._sent += 1
        message = PathMessage(self._port.name, self._sent, payload)
        self._dissemination.broadcast(message)
        return Tag(message.origin, message.counter, (), (), NOBODY)

    def receive(self, message: BroadcastMessage) -> None:
        """Deliver: what is new and in order is the dissemination's to know."""
        if not isinstance(message, PathMessage) or message.counter < 1:
            raise ProtocolViolationError(f"{message} is no message of this ordering")
        self._port.deliver(Message(message.payload, Tag(message.origin, message.counter, (), (), NOBODY)))

    def take(self, event: Event) -> None:
        """Nothing depends on what was taken."""

    def timer(self, timer: Timer) -> None:
        """No timers here."""

    def pending(self, origin: ProcessId) -> int:
        """Nothing waits."""
        return 0

    def entries(self, message: BroadcastMessage) -> int:
        """None: a message says nothing of others."""
        return 0

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0
