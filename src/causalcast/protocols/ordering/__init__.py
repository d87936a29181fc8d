"""When a message may be delivered, and how it is tagged."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from causalcast.protocols.ordering.cbcast import CBCAST
from causalcast.protocols.ordering.tcb import TCB
from causalcast.protocols.ordering.unordered import Unordered

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols.port import BroadcastMessage, Timer

__all__ = ["CBCAST", "TCB", "Ordering", "Unordered"]


class Ordering(Protocol):
    """What an ordering layer answers; see `Process` for the meaning of each call."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]]

    def start(self) -> None: ...

    def broadcast(self, payload: bytes) -> Tag: ...

    def receive(self, message: BroadcastMessage) -> None: ...

    def timer(self, timer: Timer) -> None: ...

    def take(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int: ...

    @property
    def unstable(self) -> int: ...
