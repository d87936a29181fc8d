"""What publish/subscribe processes say to each other (document 002, section 5.5.1), and what of it cannot be."""

from __future__ import annotations

from functools import cached_property, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from causalcast.model import Message, ProtocolViolationError, Tag
from causalcast.protocols.port import BroadcastMessage, WireMessage
from causalcast.protocols.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import ProcessId, Roster

PUB: Final = 0
SUB: Final = 1
UNS: Final = 2
ASK: Final = 3
KINDS: Final = (PUB, SUB, UNS, ASK)
"""Kinds of waves: a publication, a subscription, its end, and the question of where publishers are."""

NUMBER_LIMIT: Final = 1 << 53
"""No counter reaches it."""


class Publication(BroadcastMessage, frozen=True, array_like=True, gc=True, dict=True, tag=43):
    """PUB: a message to a topic, with its causal barrier.

    What there is to work out of it is kept beside it, where the same object comes to many processes.
    """

    topic: str
    counter: int
    """Its number among what its publisher published to the topic."""
    past: tuple[int, ...]
    """The barrier, as slot, counter, slot, counter, ..."""
    payload: bytes

    @cached_property
    def counters(self) -> tuple[int, ...]:
        """Those of the barrier."""
        return self.past[1::2]

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The barrier, as slot and counter together."""
        return tuple(zip(self.past[::2], self.counters, strict=True))

    @cached_property
    def places(self) -> dict[int, int]:
        """By slot, its place in `pairs`; the first one."""
        return {slot: place for place, (slot, _) in reversed(tuple(enumerate(self.pairs)))}

    @cached_property
    def first_ones(self) -> int:
        """The set of those whose first publication the barrier names."""
        found = 0
        for slot, counter in self.pairs:
            if counter == 1:
                found |= 1 << slot
        return found

    @cached_property
    def later_ones(self) -> tuple[int, ...]:
        """The counters of the barrier other than 1."""
        return tuple([counter for counter in self.counters if counter != 1])

    @cached_property
    def look_up(self) -> Callable[[Sequence[int]], tuple[int, ...]]:
        """Of a list by slot, the places where the barrier names a counter of `later_ones`."""
        named = [slot for slot, counter in self.pairs if counter != 1]
        if len(named) > 1:
            return cast("Callable[[Sequence[int]], tuple[int, ...]]", itemgetter(*named))
        return lambda numbers: tuple(numbers[slot] for slot in named)

    @cached_property
    def acknowledged(self) -> Ack:
        """What says that it has come, and nothing else."""
        return Ack(PUB, self.origin, self.topic, self.counter, (), (), ())

    def message(self, roster: Roster) -> Message:
        """As an application gets it, in the group with this roster."""
        beside: dict[str, Any] = self.__dict__
        known: Message | None = beside.get("_message")
        if known is not None and known.tag.roster is roster:
            return known
        names = map(roster.names.__getitem__, self.past[::2])
        tag = Tag(self.origin, self.counter, tuple(zip(names, self.counters, strict=True)), (), roster)
        made = beside["_message"] = Message(self.payload, tag, self.topic)
        return made


class Notice(WireMessage, frozen=True, array_like=True, gc=False, tag=44):
    """SUB, UNS or ASK of a process."""

    kind: int
    origin: str
    topic: str
    number: int
    """Its number among the origin's notices: it tells waves apart, and later changes of a subscription from earlier."""
    missing: tuple[int, ...]
    """Of an ASK: slots of those who may not know that the origin subscribes, and do not answer for themselves; if there
    are any, everybody answers with all that was delivered."""


class Ack(WireMessage, frozen=True, array_like=True, gc=False, tag=45):
    """ACK: a wave has reached the whole cluster that the sender served, and what was gathered there."""

    kind: int
    origin: str
    topic: str
    number: int
    """With `kind` and `origin`: which wave."""
    found: tuple[int, ...]
    """Of a SUB: slot, number of its last change, 1 if it is subscribed, ... Of an ASK: slot, counter, ..."""
    missing: tuple[int, ...]
    """Slots of those who were not waited for."""
    waiting: tuple[Publication, ...]
    """Of an ASK: publications that are not delivered where they have come."""


class Decline(WireMessage, frozen=True, array_like=True, gc=False, tag=46):
    """The sender is no subscriber and has no view of the topic: somebody else must serve its cluster."""

    kind: int
    origin: str
    topic: str
    number: int
    """With `kind` and `origin`: which wave."""
    change: int
    """Number of the sender's last change of its subscription."""


class Handover(WireMessage, frozen=True, array_like=True, gc=False, tag=47):
    """The publisher is suspected: bring its publication to everyone in its place."""

    publication: Publication


class Since(WireMessage, frozen=True, array_like=True, gc=False, tag=55):
    """To one who was not waited for: the sender's subscription is complete."""

    topic: str
    change: int
    """Number of the sender's last change of its subscription."""
    last: tuple[int, ...]
    """Slot, counter, ...: everything of that publisher up to it was before the subscription or is delivered."""
    words: tuple[int, ...]
    """All that the sender knows of subscriptions: slot, number of the last change, 1 if subscribed, ..."""


class Aware(WireMessage, frozen=True, array_like=True, gc=False, tag=56):
    """The answer to `Since`: from now on the sender counts the subscriber in."""

    topic: str
    change: int
    """The one that it answers."""
    lost: tuple[int, ...]
    """Slot, counter, ...: of that publisher everything up to it is no longer there to be sent again."""
    words: tuple[int, ...]
    """All that the sender knows of subscriptions, its own among them."""


class Missed(WireMessage, frozen=True, array_like=True, gc=False, tag=57):
    """A publication that came to the sender, and perhaps not to the receiver, of which it did not know."""

    publication: Publication


def slot_of(origin: str, roster: Roster) -> int:
    """The slot of a member; raises `ProtocolViolationError` for a stranger."""
    slot = roster.slots.get(origin)
    if slot is None:
        raise ProtocolViolationError(f"{origin!r} is not a member of this group")
    return slot


@lru_cache(maxsize=8)
def set_of(members: tuple[ProcessId, ...], roster: Roster) -> int:
    """Their slots as a set; one object for all processes of a group. Raises `NotAMemberError` for a stranger."""
    found = 0
    for name in members:
        found |= 1 << roster.slot(name)
    return found


def check_topic(topic: str) -> None:
    """Raises `ProtocolViolationError` for a name that no topic can have."""
    if 4 * len(topic) > MAX_TOPIC_BYTES and len(topic.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES:
        raise ProtocolViolationError(f"{topic[:50]!r}... cannot name a topic: it has more than {MAX_TOPIC_BYTES} bytes")


def check_number(*numbers: int) -> None:
    """Raises `ProtocolViolationError` for what cannot count anything."""
    for number in numbers:
        if not 0 <= number < NUMBER_LIMIT:
            raise ProtocolViolationError(f"{number} is no number of a message")


def check_slots(slots: tuple[int, ...], roster: Roster) -> None:
    """Raises `ProtocolViolationError` for a slot that nobody has."""
    if slots and not 0 <= min(slots) <= max(slots) < len(roster):
        raise ProtocolViolationError(f"{slots} are no slots of {len(roster)} members")


def check_entries(numbers: tuple[int, ...], size: int, roster: Roster) -> None:
    """Raises `ProtocolViolationError` for what is not made of so many numbers at a time, the first of them a slot."""
    if len(numbers) % size:
        raise ProtocolViolationError(f"{numbers} say nothing of members")
    check_slots(numbers[::size], roster)
    check_number(*numbers)


class Place(NamedTuple):
    """Where a publication belongs in a group, worked out once for all who get the same object."""

    roster: Roster
    slot: int
    """Of the publisher."""
    dot: tuple[int, int]
    """That slot and the counter."""
    key: tuple[int, int, int, str]
    """Of its wave."""


def check_publication(publication: Publication, roster: Roster) -> Place:
    """Raises `ProtocolViolationError` for what nobody publishes."""
    beside: dict[str, Any] = publication.__dict__
    place: Place | None = beside.get("_place")
    if place is not None and place.roster is roster:
        return place
    slot, counter = _check_barrier(publication, roster), publication.counter
    place = beside["_place"] = Place(roster, slot, (slot, counter), (PUB, slot, counter, publication.topic))
    return place


def _check_barrier(publication: Publication, roster: Roster) -> int:
    slot = slot_of(publication.origin, roster)
    check_topic(publication.topic)
    past = publication.past
    if not past and 0 < publication.counter < NUMBER_LIMIT:
        return slot
    named, counters = past[::2], past[1::2]
    if (
        not 0 < publication.counter < NUMBER_LIMIT
        or len(named) != len(counters)
        or (past and not (0 < min(counters) <= max(counters) < NUMBER_LIMIT))
        or (past and not (0 <= min(named) <= max(named) < len(roster)))
        or (slot in named and counters[named.index(slot)] >= publication.counter)
    ):
        raise ProtocolViolationError(f"{past} is no barrier of {publication.origin}:{publication.counter}")
    return slot


def check_ack(ack: Ack, roster: Roster) -> int:
    """The slot of the wave's source; raises `ProtocolViolationError` for what nobody acknowledges."""
    check_number(ack.number)
    check_topic(ack.topic)
    if ack.kind == PUB and not (ack.found or ack.missing or ack.waiting):
        return slot_of(ack.origin, roster)
    places = {SUB: 3, ASK: 2}.get(ack.kind)
    if ack.kind not in KINDS or (ack.found and (places is None or len(ack.found) % places)):
        raise ProtocolViolationError(f"{ack} acknowledges nothing")
    if places:
        check_slots(ack.found[::places], roster)
        check_number(*ack.found)
        check_slots(ack.missing, roster)
        for publication in ack.waiting:
            check_publication(publication, roster)
            if publication.topic != ack.topic:
                raise ProtocolViolationError(f"{publication} is not of the topic {ack.topic!r}")
    elif ack.missing or ack.waiting:
        check_slots(ack.missing, roster)
    return slot_of(ack.origin, roster)
