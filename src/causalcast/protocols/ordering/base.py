"""What every ordering layer answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from causalcast.model import UnsupportedByStackError

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols.port import BroadcastMessage, Timer


class Ordering(Protocol):
    """What an ordering layer answers; see `Process` for the meaning of each call.

    An ordering that inherits from this need not say what it costs: whoever asks gets `UnsupportedByStackError`.
    """

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]]

    def start(self) -> None: ...

    def broadcast(self, payload: bytes) -> Tag: ...

    def receive(self, message: BroadcastMessage) -> None: ...

    def timer(self, timer: Timer) -> None: ...

    def take(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int: ...

    @property
    def unstable(self) -> int: ...

    def words(self) -> int:
        """Words of metadata in memory now, counted as document 004 does (section 8.3.1): payloads are left out."""
        raise UnsupportedByStackError(f"{type(self).__name__} does not count its words")

    def entries(self, message: BroadcastMessage) -> int:
        """Entries of metadata in one of its wire messages, as document 004 plots them (section 8.4).

        Causal predecessors where dots travel, counts where vectors do; 0 for a message of another layer.
        """
        raise UnsupportedByStackError(f"{type(self).__name__} does not count the entries of {type(message).__name__}")

    @property
    def operations(self) -> int:
        """Words of metadata that decisions about delivery and stability have looked at so far; see `Meter`."""
        raise UnsupportedByStackError(f"{type(self).__name__} does not count its operations")
