"""Dissemination over VCube trees that are repaired when members crash, or are taken for crashed.

Source: document 002, section 6.2.2.1, leaves it open; the acknowledged waves are those of its section 5.5.3 (see
`waves`). The source numbers its messages, and knows one to be everywhere when its wave is acknowledged. It tells all
members up to which number that is so, with its next message or when the next round of the diagnosis begins. Until then
each keeps the message.
If its source is suspected meanwhile, all who keep it hand it to one heir, the first trusted member in the order of the
source's clusters, which brings it to everyone; if the heir is suspected, to the next.

Keeps P1, and P2 under crashes in any number and under wrong suspicions, if those who crash are suspected at last. Per
broadcast n-1 copies and n-1 acknowledgements, n-1 short messages per burst; per suspected member one copy more. Per
process: a count per member, and the messages that are not known to be everywhere.

`RepairedSingleTree` has one tree for all sources: every source hands its messages to the first trusted member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.membership.hypercube import everyone, first_child
from causalcast.protocols.membership.waves import Wave, Waves
from causalcast.protocols.port import BroadcastMessage, WireMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.membership.diagnosis import DiagnosedVCube
    from causalcast.protocols.port import Port

NUMBER_LIMIT: Final = 1 << 53


class TreeCopy(WireMessage, frozen=True, array_like=True, gc=False):
    """A message on its way down a tree. For each ordering a subclass adds the `message`, with its type."""

    number: int
    """Its place among what its source broadcast, from 1."""
    complete: int
    """Up to which number the source's messages are everywhere."""
    handed: bool
    """Whether the receiver is to bring it to everyone in the place of its source."""


class TreeAck(WireMessage, frozen=True, array_like=True, gc=False, tag=48):
    """Everybody whom the sender served has the message."""

    origin: str
    number: int
    handed: bool
    """Whether that is everybody."""


class Complete(WireMessage, frozen=True, array_like=True, gc=False, tag=49):
    """The sender's messages up to this number are everywhere."""

    number: int


class RepairedTree(Dissemination):
    """Acknowledged waves over the tree of each source."""

    copy: ClassVar[Any]
    """The class of its copies; it is one of `wire_types` too."""

    __slots__ = (
        "_beyond",
        "_complete",
        "_done",
        "_given",
        "_handed",
        "_kept",
        "_known",
        "_membership",
        "_number",
        "_port",
        "_received",
        "_told",
        "waves",
    )

    def __init__(self, port: Port, membership: DiagnosedVCube) -> None:
        self._port = port
        self._membership = membership
        membership.on_round = self._tell
        self.waves = Waves(port, membership, self)
        self._number = 0
        self._complete = 0
        """Its own messages up to this number are everywhere."""
        self._told = 0
        """Up to where the others know."""
        self._done: set[int] = set()
        """Its own messages above `_complete` that are everywhere."""
        self._received = [0] * len(membership.roster)
        """How many messages of each member have come, without gaps."""
        self._beyond: dict[int, set[int]] = {}
        """By slot: the numbers that have come after a gap."""
        self._kept: dict[tuple[int, int], Any] = {}
        """By slot and number: copies not known to be everywhere."""
        self._known: dict[int, int] = {}
        """By slot: up to which number its messages are known to be everywhere."""
        self._handed: dict[tuple[int, int], int] = {}
        """To which heir a copy has been handed."""
        self._given: dict[tuple[int, int], list[int]] = {}
        """Of copies that it brings to everyone as heir: who handed them."""

    # ------------------------------------------------------------------ down

    def broadcast(self, message: BroadcastMessage) -> None:
        self._number += 1
        membership = self._membership
        copy = self.copy(self._number, self._complete, False, message)
        self._told = self._complete
        self._received[membership.slot] = self._number
        self._keep((membership.slot, self._number), copy)
        self._begin((membership.slot, self._number), copy)

    def _begin(self, key: tuple[int, int], copy: TreeCopy) -> None:
        """Bring its own message to everyone."""
        self._spread(key, copy, None, self._membership.dimension)

    def _spread(self, key: tuple[int, int], copy: TreeCopy, parent: int | None, height: int) -> None:
        self.waves.spread((0, *key, ""), copy, parent, height)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Raises `ProtocolViolationError`."""
        peer = self._membership.slot_of(sender)
        match message:
            case TreeCopy():
                self._arrived(peer, message)
            case TreeAck(origin, number, handed):
                self._acknowledged(peer, origin, number, handed)
            case Complete(number):
                self._known_complete(peer, number)
            case _:
                raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__} outside of a copy")

    def _arrived(self, peer: int, copy: Any) -> None:
        membership = self._membership
        slot = membership.roster.slots.get(copy.message.origin)
        if slot is None or not 0 < copy.number < NUMBER_LIMIT or not 0 <= copy.complete < copy.number:
            raise ProtocolViolationError(f"no member broadcast {copy}")
        key = (slot, copy.number)
        if slot == membership.slot:
            if copy.number > self._number:
                raise ProtocolViolationError(f"{copy} was never broadcast: is the name {membership.name!r} used twice?")
        elif self._is_new(slot, copy.number):
            # Up first: what is no message of this stack is refused there, and goes no further.
            self.upward(copy.message)
            self._note(slot, copy.number)
            if copy.number > self._known.get(slot, 0):
                self._keep(key, copy)
        if slot != membership.slot:
            self._known_complete(slot, copy.complete)
        if copy.handed:
            self._given.setdefault(key, []).append(peer)
            self._spread(key, self.copy(copy.number, copy.complete, False, copy.message), None, membership.dimension)
        else:
            self._spread(key, copy, peer, membership.cluster(peer) - 1)
        if not membership.correct >> slot & 1 and key in self._kept:
            self._hand(key)
        self._watch()

    def _is_new(self, slot: int, number: int) -> bool:
        return number > self._received[slot] and number not in self._beyond.get(slot, ())

    def _note(self, slot: int, number: int) -> None:
        beyond = self._beyond.setdefault(slot, set())
        beyond.add(number)
        while self._received[slot] + 1 in beyond:
            self._received[slot] += 1
            beyond.remove(self._received[slot])
        if not beyond:
            del self._beyond[slot]

    def _keep(self, key: tuple[int, int], copy: TreeCopy) -> None:
        self._kept[key] = copy
        self._watch()

    # ------------------------------------------------------------------ up

    def _acknowledged(self, peer: int, origin: str, number: int, handed: bool) -> None:
        slot = self._membership.roster.slots.get(origin)
        if slot is None or not 0 < number < NUMBER_LIMIT:
            raise ProtocolViolationError(f"nobody broadcast {origin}:{number}")
        if handed:
            if self._handed.get((slot, number)) == peer:
                self._everywhere((slot, number))
        else:
            wave = self.waves.acknowledged((0, slot, number, ""), peer)
            if wave is not None:
                self.waves.settle(wave, peer)
        self._watch()

    def audience(self, wave: Wave) -> int:
        return everyone(len(self._membership.roster))

    def firsts(self, wave: Wave) -> tuple[int, ...]:
        return self._membership.children()

    def trusted(self, wave: Wave) -> int:
        return self._membership.correct

    def served(self, wave: Wave, parents: tuple[int, ...]) -> None:
        self._acknowledge(wave.key[1:3], parents, handed=False)

    def ended(self, wave: Wave) -> None:
        key = wave.key[1:3]
        if wave.height == self._membership.dimension:
            self._acknowledge(key, self._given.pop(key, []), handed=True)
            self._everywhere(key)

    def _acknowledge(self, key: tuple[int, int], peers: Sequence[int], *, handed: bool) -> None:
        if peers:
            names = self._membership.roster.names
            self._port.send(tuple(names[peer] for peer in peers), TreeAck(names[key[0]], key[1], handed))

    def _everywhere(self, key: tuple[int, int]) -> None:
        """Everyone has it, or it is on its way to those suspected."""
        self._kept.pop(key, None)
        self._handed.pop(key, None)
        if key[0] == self._membership.slot and key[1] > self._complete:
            self._done.add(key[1])
            while self._complete + 1 in self._done:
                self._complete += 1
                self._done.remove(self._complete)

    def _tell(self) -> None:
        """A round begins, and no message came to tell it with."""
        if self._complete > self._told:
            self._told = self._complete
            others = self._membership.roster.others(self._membership.name)
            if others:
                self._port.send(others, Complete(self._complete))

    def _known_complete(self, slot: int, number: int) -> None:
        if not 0 <= number < NUMBER_LIMIT:
            raise ProtocolViolationError(f"{number} is no number of a message")
        if number <= self._known.get(slot, 0):
            return
        self._known[slot] = number
        for key in [key for key in self._kept if key[0] == slot and key[1] <= number]:
            del self._kept[key]
            self._handed.pop(key, None)
        self._watch()

    # ------------------------------------------------------------------ crashes

    def _watch(self) -> None:
        """Whether it needs to know who crashes."""
        self._membership.watch(bool(self._kept or self.waves.active))

    def neighbour_down(self, peer: ProcessId) -> None:
        slot = self._membership.roster.slot(peer)
        self.waves.suspected(slot)
        for key in [key for key in self._kept if key[0] == slot or self._handed.get(key) == slot]:
            self._hand(key)
        self._watch()

    def _hand(self, key: tuple[int, int]) -> None:
        """Give a kept copy to the heir of its source, or be the heir."""
        heir = self._heir(key[0])
        membership = self._membership
        copy = self._kept[key]
        if heir == membership.slot:
            self._handed.pop(key, None)
            self._spread(key, copy, None, membership.dimension)
        elif self._handed.get(key) != heir:
            self._handed[key] = heir
            handed = self.copy(copy.number, copy.complete, True, copy.message)
            self._port.send((membership.roster.names[heir],), handed)

    def _heir(self, slot: int) -> int:
        """The first trusted member in the order of the clusters of `slot`."""
        membership = self._membership
        present = membership.correct & ~(1 << slot)
        for s in range(1, membership.dimension + 1):
            first = first_child(slot, s, present)
            if first is not None:
                return first
        return membership.slot

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {
            "waves": len(self.waves.active),
            "kept": len(self._kept),
            "handed": len(self._handed),
            "given": len(self._given),
            "done": len(self._done),
            "beyond": len(self._beyond),
        }


class RepairedSingleTree(RepairedTree):
    """Acknowledged waves over the tree of the first trusted member, for all sources."""

    __slots__ = ()

    def _begin(self, key: tuple[int, int], copy: TreeCopy) -> None:
        self._hand(key)

    def _heir(self, slot: int) -> int:
        correct = self._membership.correct
        return (correct & -correct).bit_length() - 1
