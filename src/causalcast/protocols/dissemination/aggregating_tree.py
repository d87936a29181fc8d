"""Causal aggregation: trees that hold back what a child cannot deliver yet, and send it with what it waits for.

Source: document 002, algorithm 2 (sections 4.3 and 4.4). A process holds back a message for one child while it is
itself still to receive, and to send to that child, a message that the held one names. When that comes, all that it
frees goes to the child in one packet, of at most 1,500 bytes with a header of 20. No timers: the child could not have
delivered what was held. Keeps P1 and P2 while nobody crashes; `aggregating_repair` is for those who do. Per broadcast
at most n-1 packets. Per process: a count per member, and the messages held.

`AggregatingTree` is over one tree per source, `AggregatingSingleTree` over one for all (section 4.5.6).

Departures from the print. `vector_max` is advanced as far as it goes before anything is aggregated, once per child for
all that became ready: as printed the same packet is sent once per advance (lines 17 to 22). A message is compared with
what it names, not with full vectors, which a compressed vector stands for: it is also held while one that it names is
held for the same child. With barriers that makes up for indirect dependencies, which the document gives as the reason
against them (section 4.4). A packet's messages each go to their own children, so the packet's sender decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.dissemination.single_tree import ROOT
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.ordering.aggregation import CausalMessage, check_message
from causalcast.protocols.port import BroadcastMessage, WireMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port

PACKET_BYTES: Final = 1_500
HEADER_BYTES: Final = 20
ID_BYTES: Final = 2
ENTRY_BYTES: Final = 4
"""Sizes as section 4.5 counts them: of a packet at most, of its header, of a source's identity, of a vector entry."""


class Packet(WireMessage, frozen=True, array_like=True, gc=False, tag=42):
    """Messages from a parent to a child, causes first."""

    messages: tuple[CausalMessage, ...]


def message_bytes(message: CausalMessage) -> int:
    """The size of a message as section 4.5.3 counts it: source, own entry and entries named, payload."""
    return ID_BYTES + ENTRY_BYTES * (1 + len(message.past) // 2) + len(message.payload)


class Tally:
    """What a process sent (tables 4.1 to 4.3, figure 4.7). No part of the protocol's state: pickles as empty."""

    __slots__ = ("by_bytes", "by_messages", "full")

    def __init__(self) -> None:
        self.by_messages: dict[int, int] = {}
        """Packets by how many messages are in them."""
        self.by_bytes: dict[int, int] = {}
        """Packets by their bytes, header included."""
        self.full = 0
        """Packets sent because the next message did not fit."""

    def __reduce__(self) -> tuple[type[Tally], tuple[()]]:
        return Tally, ()

    def count(self, messages: int, size: int) -> None:
        """A packet is sent."""
        self.by_messages[messages] = self.by_messages.get(messages, 0) + 1
        self.by_bytes[size] = self.by_bytes.get(size, 0) + 1


class AggregatingTree(Dissemination):
    """Causal aggregation over the tree of each source."""

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (Packet,)

    __slots__ = ("_beyond", "_heights", "_held", "_held_dots", "_membership", "_port", "_received", "tally")

    def __init__(self, port: Port, membership: VCube) -> None:
        self._port = port
        self._membership = membership
        members = len(membership.roster)
        self._received = [0] * members
        """`vector_max`: how many messages of each member have come, without gaps."""
        self._beyond: dict[int, dict[int, CausalMessage]] = {}
        """By slot and counter: messages that came before one of the same source that is missing."""
        self._heights = bytearray(members)
        """How many clusters this process serves in the tree of each member, plus one; 0 before it is asked for."""
        self._held: dict[tuple[int, int, int], list[CausalMessage]] = {}
        """By cluster and missing message: what is held for the cluster's child until that has gone there."""
        self._held_dots: set[tuple[int, int, int]] = set()
        """Cluster, slot and counter of each message held."""
        self.tally = Tally()

    def _height(self, slot: int) -> int:
        """How many clusters this process serves in the tree of `slot`."""
        known = self._heights[slot]
        if not known:
            known = self._heights[slot] = self._membership.height(slot) + 1
        return known - 1

    def broadcast(self, message: BroadcastMessage) -> None:
        assert isinstance(message, CausalMessage)
        self._accept(self._membership.slot, (message,))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Pass a packet's messages up, and send on what can go; raises `ProtocolViolationError`."""
        membership = self._membership
        membership.slot_of(sender)
        if not isinstance(message, Packet) or not message.messages:
            raise ProtocolViolationError(f"{sender!r} sent a message outside of a packet, or none in it: {message}")
        for each in message.messages:
            check_message(each, membership.roster)
            self._check(sender, each)
        for each in message.messages:
            if each.origin != membership.name:
                self.upward(each)
        slots = membership.roster.slots
        for each in message.messages:
            slot = slots[each.origin]
            beyond = self._beyond.setdefault(slot, {})
            if each.counter > self._received[slot]:
                beyond[each.counter] = each
        ready: list[CausalMessage] = []
        for each in message.messages:
            slot = slots[each.origin]
            self._advance(slot, ready)
        self._forward(ready)

    def _check(self, sender: ProcessId, message: CausalMessage) -> None:
        if message.origin == self._membership.name:
            raise ProtocolViolationError(f"{sender!r} sent a message back to its source: {message}")

    def _advance(self, slot: int, ready: list[CausalMessage]) -> None:
        """Raise `vector_max` as far as it goes (lines 17 and 18)."""
        beyond = self._beyond.get(slot)
        if beyond is None:
            return
        counter = self._received[slot] + 1
        while counter in beyond:
            ready.append(beyond.pop(counter))
            counter += 1
        self._received[slot] = counter - 1
        if not beyond:
            del self._beyond[slot]

    def _accept(self, slot: int, messages: Iterable[CausalMessage]) -> None:
        """Messages of a source that came in order."""
        ready = list(messages)
        self._received[slot] = ready[-1].counter
        self._forward(ready)

    def _forward(self, ready: list[CausalMessage]) -> None:
        """For each child, send or hold (CHECKAGG, lines 24 to 29)."""
        slots = self._membership.roster.slots
        children = self._membership.children()
        going: dict[int, list[CausalMessage]] = {}
        steps = [
            (message, slots[message.origin], s)
            for message in ready
            for s in range(1, self._reach(message, slots[message.origin]) + 1)
            if children[s - 1] >= 0
        ]
        if len(ready) > 1:
            # None has gone yet, whichever of them comes first.
            self._held_dots.update((s, slot, message.counter) for message, slot, s in steps)
        for message, slot, s in steps:
            blocking = self._blocking(message, slot, s)
            if blocking is not None:
                self._held.setdefault((s, *blocking), []).append(message)
                self._held_dots.add((s, slot, message.counter))
            else:
                self._release(message, slot, s, going.setdefault(s, []))
        for s, messages in going.items():
            self._send(s, messages)

    def _reach(self, message: CausalMessage, slot: int) -> int:
        """Into how many clusters this message of `slot` is to go from here."""
        return self._height(slot)

    def _release(self, message: CausalMessage, slot: int, s: int, out: list[CausalMessage]) -> None:
        """`message` can go to the child of cluster `s`, and with it what was held for it."""
        slots = self._membership.roster.slots
        freed = [message]
        for each in freed:
            slot = slots[each.origin]
            if each is not message:
                blocking = self._blocking(each, slot, s)
                if blocking is not None:
                    self._held.setdefault((s, *blocking), []).append(each)
                    continue
            if self._held_dots:
                self._held_dots.discard((s, slot, each.counter))
            out.append(each)
            if self._held:
                freed.extend(self._held.pop((s, slot, each.counter), ()))

    def _blocking(self, message: CausalMessage, slot: int, s: int) -> tuple[int, int] | None:
        """A message named by `message` that is to go to the child of cluster `s` from here and has not."""
        received, held = self._received, self._held_dots
        if held and (s, slot, message.counter - 1) in held:
            return slot, message.counter - 1
        past = iter(message.past)
        for named, counter in zip(past, past, strict=True):
            if (received[named] < counter or (held and (s, named, counter) in held)) and self._serves(named, s):
                return named, counter
        return None

    def _serves(self, slot: int, s: int) -> bool:
        """Whether the child of cluster `s` receives the messages of `slot` from here."""
        return s <= self._height(slot)

    def _send(self, s: int, messages: list[CausalMessage]) -> None:
        """Send `messages` to the child of cluster `s`, in as few packets as they fit into."""
        membership = self._membership
        destination = (membership.roster.names[membership.children()[s - 1]],)
        for packet in self._packets(messages):
            self._port.send(destination, packet)

    def _packets(self, messages: list[CausalMessage]) -> Iterator[Packet]:
        """These messages in as few packets as they fit into."""
        start, size = 0, HEADER_BYTES
        for end, message in enumerate(messages):
            more = message_bytes(message)
            if end > start and size + more > PACKET_BYTES:
                self.tally.full += 1
                self.tally.count(end - start, size)
                yield Packet(tuple(messages[start:end]))
                start, size = end, HEADER_BYTES
            size += more
        self.tally.count(len(messages) - start, size)
        yield Packet(tuple(messages[start:]))

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {"held": len(self._held), "held_dots": len(self._held_dots), "beyond": len(self._beyond)}


class AggregatingSingleTree(AggregatingTree):
    """Causal aggregation over the tree of the first member; a source hands its messages to it."""

    __slots__ = ()

    def broadcast(self, message: BroadcastMessage) -> None:
        assert isinstance(message, CausalMessage)
        membership = self._membership
        if membership.slot == ROOT:
            self._accept(ROOT, (message,))
            return
        self.tally.count(1, HEADER_BYTES + message_bytes(message))
        self._port.send((membership.roster.names[ROOT],), Packet((message,)))

    def _height(self, slot: int) -> int:
        return super()._height(ROOT)

    def _check(self, sender: ProcessId, message: CausalMessage) -> None:
        """Its own message comes back from the root, for its children's sake."""
        if message.origin == self._membership.name and self._membership.slot == ROOT:
            super()._check(sender, message)
        if self._membership.slot == ROOT and message.origin != sender:
            raise ProtocolViolationError(f"{sender!r} sent a message of {message.origin!r} to the root")

    def _serves(self, slot: int, s: int) -> bool:
        # A child has its own messages before they come back to it.
        return slot != self._membership.children()[s - 1] and super()._serves(slot, s)
