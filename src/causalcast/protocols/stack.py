"""Stacks: membership, dissemination and ordering put together, and what the combination promises and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec

from causalcast.model import ProtocolViolationError, UnsupportedByStackError
from causalcast.protocols.layers import BaseProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import Event, ProcessId, Roster, Tag
    from causalcast.protocols.layers import Dissemination, Membership, Recoverable
    from causalcast.protocols.ordering import Ordering
    from causalcast.protocols.port import Port, Process, Timer, WireMessage

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
    membership: Callable[[Port, Roster], Membership]
    dissemination: Callable[[Port, Any], Dissemination]
    """Its second argument is what `membership` makes."""
    ordering: Callable[[Port, Any, Any], Ordering]
    """Its other arguments are what `membership` and `dissemination` make."""
    wire_types: tuple[type[WireMessage], ...]
    """All messages of all layers."""
    promises: frozenset[str]
    dynamic: bool
    """Whether members may come and go while it runs."""
    fifo_links: bool
    """Whether it needs links that keep order."""
    message_cost: str
    process_cost: str
    source: str
    session_links: bool = False
    """Whether it is made for session links rather than durable ones: see `port`."""
    topics: bool = False
    """Whether it carries topics."""
    recovers: bool = False
    """Whether its processes can be made again from what they wrote down: the ordering is `Recoverable`."""

    def process(self, port: Port, roster: Roster) -> StackProcess:
        """One process of this stack, for the member that `port` names.

        `roster` holds the members the group starts with; of a process that will join, itself alone.
        """
        membership = self.membership(port, roster)
        dissemination = self.dissemination(port, membership)
        return StackProcess(membership, dissemination, self.ordering(port, membership, dissemination))

    def recover(self, port: Port, roster: Roster, snapshot: bytes) -> Process:
        """The process of which `snapshot` was taken, as it was then; no `start` follows.

        Raises `UnsupportedByStackError` where nothing is written down.
        """
        if not self.recovers:
            raise UnsupportedByStackError(f"processes of {self.name!r} write nothing down: they cannot recover")
        process = self.process(port, roster)
        process.restore(snapshot)
        return process

    def decoder(self) -> msgspec.msgpack.Decoder[WireMessage]:
        """Decodes, and checks the types of, the wire messages of this stack and of no other."""
        union = self.wire_types[0]
        for other in self.wire_types[1:]:
            union = union | other  # type: ignore[assignment]
        return msgspec.msgpack.Decoder(union)


class StackProcess(BaseProcess):
    """One process of a stack, as its host sees it; `Process` in `port` says what each call means."""

    __slots__ = ("_receivers", "dissemination", "membership", "ordering")

    def __init__(self, membership: Membership, dissemination: Dissemination, ordering: Ordering) -> None:
        self.membership = membership
        self.dissemination = dissemination
        self.ordering = ordering
        membership.above = dissemination
        dissemination.upward = ordering.receive
        self._receivers = dict.fromkeys((*ordering.wire_types, *dissemination.wire_types), dissemination.receive)
        self._receivers.update(dict.fromkeys(membership.wire_types, membership.receive))

    def start(self) -> None:
        self.membership.start()
        self.dissemination.start()
        self.ordering.start()

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        if topic:
            raise UnsupportedByStackError(f"this stack has no topics: publish to {topic!r} with one that has")
        return self.ordering.broadcast(payload)

    def take(self, event: Event) -> None:
        self.ordering.take(event)

    def timer(self, timer: Timer) -> None:
        word = timer[0] if isinstance(timer, tuple) else timer
        if word in self.membership.timers:
            self.membership.timer(timer)
        elif word in self.dissemination.timers:
            self.dissemination.timer(timer)
        else:
            self.ordering.timer(timer)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        receive = self._receivers.get(type(message))
        if receive is None:
            raise ProtocolViolationError(f"{type(message).__name__} is no message of this stack")
        receive(sender, message)

    def pending(self, origin: ProcessId) -> int:
        return self.ordering.pending(origin)

    @property
    def unstable(self) -> int:
        return self.ordering.unstable

    def join(self, contact: ProcessId) -> None:
        self.membership.join(contact)

    def leave(self) -> None:
        self.membership.leave()

    def suspect(self, peer: ProcessId) -> None:
        self.membership.suspect(peer)

    def link_down(self, peer: ProcessId) -> None:
        self.membership.link_down(peer)

    def snapshot(self) -> bytes:
        if not hasattr(self.ordering, "snapshot"):
            return super().snapshot()
        return cast("Recoverable", self.ordering).snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Take up from `snapshot`, instead of `start`."""
        cast("Recoverable", self.ordering).restore(snapshot)
