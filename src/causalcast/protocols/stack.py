"""Stacks: membership, dissemination and ordering put together, and what the combination promises and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from causalcast.model import ProtocolViolationError
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import Event, ProcessId, Roster, Tag
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.ordering import Ordering
    from causalcast.protocols.port import Port, Timer, WireMessage

PROPERTIES: dict[str, str] = {
    "P1": "integrity: at most once, only what was broadcast, with the payload that was broadcast",
    "P2": "validity and agreement: every correct process delivers all it is entitled to",
    "P3": "causal order: no effect before its cause",
    "P4": "exact tags: before, after or concurrent exactly as it happened",
    "P5": "sound stability: nothing concurrent with a stable message comes later",
    "P6": "live stability: every message becomes stable everywhere",
    "P7": "bounded state: tables return to their base",
    "P8": "liveness after healing: nothing stays buffered for ever",
}


@dataclass(frozen=True, slots=True)
class Stack:
    """An entry of the registry: how to build one process of it, and what its users may rely on."""

    name: str
    summary: str
    membership: type[StaticMembership]
    dissemination: type[Direct]
    ordering: Callable[[Port, StaticMembership, Direct], Ordering]
    wire_types: tuple[type[WireMessage], ...]
    promises: frozenset[str]
    dynamic: bool
    """Whether members may come and go while it runs."""
    fifo_links: bool
    """Whether it needs links that keep order."""
    message_cost: str
    process_cost: str
    source: str

    def process(self, port: Port, roster: Roster) -> StackProcess:
        """One process of this stack, for the member that `port` names."""
        membership = self.membership(port.name, roster)
        dissemination = self.dissemination(port, membership)
        return StackProcess(dissemination, self.ordering(port, membership, dissemination))

    def decoder(self) -> msgspec.msgpack.Decoder[WireMessage]:
        """Decodes, and checks the types of, the wire messages of this stack and of no other."""
        union = self.wire_types[0]
        for other in self.wire_types[1:]:
            union = union | other  # type: ignore[assignment]
        return msgspec.msgpack.Decoder(union)


class StackProcess:
    """One process of a stack, as its host sees it; `Process` in `port` says what each call means."""

    __slots__ = ("dissemination", "ordering")

    def __init__(self, dissemination: Direct, ordering: Ordering) -> None:
        self.dissemination = dissemination
        self.ordering = ordering

    def start(self) -> None:
        self.ordering.start()

    def broadcast(self, payload: bytes) -> Tag:
        return self.ordering.broadcast(payload)

    def take(self, event: Event) -> None:
        self.ordering.take(event)

    def timer(self, timer: Timer) -> None:
        self.ordering.timer(timer)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if not isinstance(message, BroadcastMessage):
            raise ProtocolViolationError(f"{type(message).__name__} is no message of this stack")
        self.ordering.receive(self.dissemination.accept(sender, message))

    def pending(self, origin: ProcessId) -> int:
        return self.ordering.pending(origin)

    @property
    def unstable(self) -> int:
        return self.ordering.unstable
