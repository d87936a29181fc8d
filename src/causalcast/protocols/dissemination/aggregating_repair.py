"""Causal aggregation that goes on when members crash.

Source: document 002, section 6.2.2.1, leaves it open; this is ours. Algorithm 2 has no acknowledgements, and nothing
here adds any: while nobody is suspected not a byte more is sent. Who is suspected is skipped where trees are built: the
next of its cluster serves all of it, and where nobody of a cluster is trusted its members are sent everything
themselves. What was lost with one that crashed is found by comparison. Whoever is told of a suspicion tells all others
how far it has come (`Had`); who lacks some of that asks for it (`Lacking`), and is sent it (`Again`). What comes from
one that is suspected already goes from its receiver to all.

So a message that a live process has when it hears of the last crash is offered by it to everyone; one that comes later
has come along a tree without the crashed, or goes to all.

Keeps P1, and P2 under crashes in any number and under wrong suspicions, for those who live, if all of them are told of
each crash at last. Per suspicion n-2 messages of n counts by each process, and the messages that somebody lacks. Per
process the last messages of each member, `RECENT` to twice as many: who lacks more of one member waits for ever.

Once anything of this has happened to a process, a message that it knows and that comes again is sent on again: two who
suspect different members build different trees, and it may be relied on for more clusters than before. These shrink
from hop to hop, so that this ends. What is held for a child is let go when views change, and when what it waits for has
come and is not to go to that child from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.dissemination.aggregating_tree import AggregatingTree, Packet
from causalcast.protocols.membership.hypercube import everyone
from causalcast.protocols.membership.waves import members_of
from causalcast.protocols.ordering.aggregation import COUNTER_LIMIT, CausalMessage, check_message
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port

RECENT: Final = 1_024
"""How many messages of each member are kept at least, to be sent again."""


class Again(WireMessage, frozen=True, array_like=True, gc=False, tag=58):
    """Messages that may have come before, causes first."""

    messages: tuple[CausalMessage, ...]
    span: int
    """Into how many clusters of the receiver they are to go from there."""


class Had(WireMessage, frozen=True, array_like=True, gc=False, tag=59):
    """The sender has begun to suspect somebody, and has this."""

    counts: tuple[int, ...]
    """For each member, how many of its messages, without gaps."""
    beyond: tuple[int, ...]
    """Slot, counter, slot, counter, ...: and these after a gap."""


class Lacking(WireMessage, frozen=True, array_like=True, gc=False, tag=60):
    """The sender lacks something of what the receiver has: it has no more than this."""

    counts: tuple[int, ...]


class RepairedAggregatingTree(AggregatingTree):
    """Causal aggregation over the trees of those who are trusted."""

    wire_types = (Packet, Again, Had, Lacking)

    __slots__ = ("_disturbed", "_recent", "_spans")

    def __init__(self, port: Port, membership: VCube) -> None:
        super().__init__(port, membership)
        self._disturbed = False
        """Whether it was ever told of a suspicion, by its host or by what others sent."""
        self._recent: list[list[CausalMessage] | None] = [None] * len(membership.roster)
        """By slot: the last messages that came, its own among them."""
        self._spans: dict[tuple[int, int], int] = {}
        """Of messages not sent on yet that came for other clusters than usual: into how many they are to go."""

    # ------------------------------------------------------------------ what comes

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Raises `ProtocolViolationError`."""
        peer = self._membership.slot_of(sender)
        if isinstance(message, Packet) and not self._disturbed:
            super().receive(sender, message)
            return
        self._disturbed = True
        match message:
            case Packet(messages):
                self._come(sender, peer, messages, self._membership.cluster(peer) - 1)
            case Again(messages, span):
                if not 0 <= span <= self._membership.dimension:
                    raise ProtocolViolationError(f"{sender!r} sent messages on into {span} clusters")
                self._come(sender, peer, messages, span)
            case Had():
                self._compare(sender, message)
            case Lacking(counts):
                self._check_counts(sender, counts)
                self._answer(sender, peer, counts)
            case _:
                raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__} outside of a packet")

    def _come(self, sender: ProcessId, peer: int, messages: tuple[CausalMessage, ...], span: int) -> None:
        """Messages that may be known, to be sent on into so many clusters."""
        membership = self._membership
        slots = membership.roster.slots
        for each in messages:
            check_message(each, membership.roster)
            self._check(sender, each)
        new = [each for each in messages if self._lacks(slots[each.origin], each.counter)]
        known = [each for each in messages if not self._lacks(slots[each.origin], each.counter)]
        for each in new:
            self.upward(each)
        to_all = not membership.correct >> peer & 1
        for each in new:
            slot = slots[each.origin]
            self._beyond.setdefault(slot, {})[each.counter] = each
            self._spans[slot, each.counter] = 0 if to_all else span
        if to_all and new:
            for name in membership.roster.others(membership.name):
                self._offer(name, [each for each in new if name not in (each.origin, sender)])
        self._pass_on(known, span)
        ready: list[CausalMessage] = []
        for each in new:
            self._advance(slots[each.origin], ready)
        self._forward(ready)

    def _lacks(self, slot: int, counter: int) -> bool:
        return counter > self._received[slot] and counter not in self._beyond.get(slot, ())

    def _pass_on(self, messages: list[CausalMessage], span: int) -> None:
        """Send on what was sent on before, perhaps into fewer clusters."""
        if messages:
            for s in range(1, span + 1):
                self._send(s, messages)

    # ------------------------------------------------------------------ what goes on

    def _reach(self, message: CausalMessage, slot: int) -> int:
        return self._spans.get((slot, message.counter), self._height(slot)) if self._spans else self._height(slot)

    def _forward(self, ready: list[CausalMessage]) -> None:
        slots = self._membership.roster.slots
        for message in ready:
            slot = slots[message.origin]
            recent = self._recent[slot]
            if recent is None:
                recent = self._recent[slot] = []
            recent.append(message)
            if len(recent) > 2 * RECENT:
                del recent[:RECENT]
        super()._forward(ready)
        if not self._disturbed:
            return
        children = self._membership.children()
        for message in ready:
            slot = slots[message.origin]
            reach = self._reach(message, slot)
            self._spans.pop((slot, message.counter), None)
            for s in range(1, self._membership.dimension + 1):
                if s > reach:
                    # What waits for it here waits for what goes to the child another way.
                    self._let_go([(s, slot, message.counter)])
                elif children[s - 1] < 0:
                    self._send(s, [message])

    def _let_go(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Send what is held in these places, and what is held for the sake of that."""
        slots = self._membership.roster.slots
        for place in places:
            out: list[CausalMessage] = []
            for each in self._held.pop(place, ()):
                self._release(each, slots[each.origin], place[0], out)
            if out:
                self._send(place[0], out)

    def _send(self, s: int, messages: list[CausalMessage]) -> None:
        if not self._disturbed:
            super()._send(s, messages)
            return
        membership = self._membership
        names = membership.roster.names
        child = membership.children()[s - 1]
        if child >= 0:
            self._offer(names[child], messages, s - 1)
            return
        for slot in members_of(membership.block(s) & everyone(len(names))):
            self._offer(names[slot], [each for each in messages if each.origin != names[slot]])

    def _offer(self, name: ProcessId, messages: list[CausalMessage], span: int = 0) -> None:
        if messages:
            for packet in self._packets(messages):
                self._port.send((name,), Again(packet.messages, span))

    # ------------------------------------------------------------------ suspicions

    def neighbour_down(self, peer: ProcessId) -> None:
        """`peer` is suspected: go round it, and tell the others how far this process has come."""
        self._views_change()
        beyond = tuple(number for slot in self._beyond for counter in self._beyond[slot] for number in (slot, counter))
        membership = self._membership
        others = tuple(name for name in membership.roster.others(membership.name) if name != peer)
        if others:
            self._port.send(others, Had(tuple(self._received), beyond))

    def neighbour_up(self, peer: ProcessId) -> None:
        """That was wrong: `peer` has its place again."""
        self._views_change()

    def _views_change(self) -> None:
        self._disturbed = True
        self._heights = bytearray(len(self._membership.roster))
        self._let_go(list(self._held))

    def _compare(self, sender: ProcessId, had: Had) -> None:
        """Ask for what the sender has and this process lacks."""
        self._check_counts(sender, had.counts)
        beyond, members = had.beyond, len(self._membership.roster)
        if len(beyond) % 2 or not all(
            0 <= slot < members and 0 < counter < COUNTER_LIMIT
            for slot, counter in zip(beyond[::2], beyond[1::2], strict=True)
        ):
            raise ProtocolViolationError(f"{sender!r} cannot have {beyond}")
        if any(self._lacks(slot, counter) for slot, counter in enumerate(had.counts)) or any(
            map(self._lacks, beyond[::2], beyond[1::2])
        ):
            self._port.send((sender,), Lacking(tuple(self._received)))

    def _check_counts(self, sender: ProcessId, counts: Sequence[int]) -> None:
        membership = self._membership
        if (
            len(counts) != len(membership.roster)
            or not all(0 <= count < COUNTER_LIMIT for count in counts)
            or counts[membership.slot] > self._received[membership.slot]
        ):
            raise ProtocolViolationError(
                f"{sender!r} cannot have {counts} messages of {len(membership.roster)} members"
            )

    def _answer(self, sender: ProcessId, peer: int, counts: Sequence[int]) -> None:
        """Send what goes beyond `counts`."""
        for slot, recent in enumerate(self._recent):
            if slot != peer:
                kept = [*(recent or ()), *self._beyond.get(slot, {}).values()]
                self._offer(sender, [each for each in kept if each.counter > counts[slot]])

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {**super().tables(), "spans": len(self._spans)}
