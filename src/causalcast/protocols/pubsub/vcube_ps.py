"""VCube-PS: topic-based publish/subscribe in causal order, over one tree of subscribers per publisher.

Source: document 002, chapter 5, algorithms 3 and 4, corrected. SUB goes to all processes, whose acknowledgements say
who subscribes; UNS and PUB go to subscribers. A process starts its next PUB, SUB or UNS on a topic when the last one
is acknowledged by all. Keeps, per topic, P1, P2 and P3. Per publication one copy and one acknowledgement per
subscriber, at most log2(n) by one process, and a causal barrier; per subscription four messages per process. Per
process and topic: two words per member, the barrier, what waits, what is on its way.

**When a subscription is complete.** When all have acknowledged the SUB, everybody who builds a tree counts the new
subscriber in. What was published before may or may not reach it. So it asks everybody (ASK), whose answers say how far
each publisher was, and what was delivered since the SUB came past: together they are closed under causality. What is at
or below is from before the subscription, and is dropped; what is above surely comes, and is waited for.

**Departures from the print**, each with the schedule in the errata. CHECKCB's rule of the first message from a
publisher loses causal order or waits for ever, see above. A process that counts as a subscriber before its own view is
complete holds what it is to send on until it is. Who has left and forgotten its view declines what is sent to it, and
the sender takes the next of the cluster. Acknowledgements of a SUB carry what each process says of itself, not views
of others. The barrier is made when the application publishes, from what it has taken (document 004, section 3.7.1).

**Crashes** are not in the document. `suspect` says who is taken for crashed, and `trust` that it was a mistake; nothing
here finds that out, and until it is said what is sent to a crashed member is waited for. Waves take the next of a
cluster (see `waves`); what becomes of publications and subscriptions says `repair`. A suspicion that is wrong costs
copies, and no message unless more than `RETAINED` are published past a new subscriber before those who do not know of
it do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.model import (
    NotAMemberError,
    ProtocolViolationError,
    Subscribed,
    Tag,
    Unsubscribed,
)
from causalcast.protocols.membership.hypercube import everyone
from causalcast.protocols.membership.waves import Wave, Waves, members_of
from causalcast.protocols.pubsub.messages import (
    ASK,
    PUB,
    SUB,
    UNS,
    Ack,
    Aware,
    Decline,
    Handover,
    Missed,
    Notice,
    Publication,
    Since,
    check_ack,
    check_number,
    check_publication,
    check_slots,
    check_topic,
    slot_of,
)
from causalcast.protocols.pubsub.repair import RepairedTopics
from causalcast.protocols.pubsub.topic import Stage, Topic

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.membership.waves import Key
    from causalcast.protocols.port import Port, WireMessage


_ASKING_ALL: Final = Stage.ASKING_ALL
_OUT: Final = Stage.OUT


class VCubePS(RepairedTopics):
    """The topics of one process."""

    wire_types = (Publication, Notice, Ack, Decline, Handover, Since, Aware, Missed)

    __slots__ = ("_asked", "_notices", "_running")

    def __init__(self, port: Port, membership: VCube) -> None:
        super().__init__(port, membership, Waves(port, membership, self))
        self._notices = 0
        self._asked: dict[int, int] = {}
        """By slot: the number of the last ASK answered. A SUB before it that comes again is over."""
        self._running = False

    # ------------------------------------------------------------------ the application (algorithm 3)

    def subscribe(self, name: str) -> None:
        """SUBSCRIBE; nothing happens if it is asked for already. Raises `TopicError`."""
        topic = self._topic(name)
        if topic is None:
            topic = self._new(name)
        if not topic.intended:
            topic.queue.append(SUB)
            self._next(topic)

    def unsubscribe(self, name: str) -> None:
        """UNSUBSCRIBE; nothing happens if it does not subscribe."""
        topic = self._topic(name)
        if topic is None or not topic.intended:
            return
        topic.queue.append(UNS)
        if topic.stage is Stage.IN:
            topic.stage = Stage.LEAVING
            topic.stopped()
        self._next(topic)

    def publish(self, name: str, payload: bytes) -> Tag:
        """PUBLISH. Raises `NotAMemberError`: only subscribers publish."""
        topic = self._topic(name)
        if topic is None or not topic.intended:
            raise NotAMemberError(
                f"{self._membership.name!r} does not subscribe to {name!r}: subscribe to publish to it"
            )
        membership = self._membership
        counter = topic.last[membership.slot] + 1
        slots = membership.roster.slots
        barrier = topic.barrier
        past = tuple(number for origin, last in barrier.items() for number in (slots[origin], last))
        publication = Publication(membership.name, name, counter, past, payload)
        tag = publication.message(membership.roster).tag
        barrier.clear()
        barrier[membership.name] = counter
        topic.reach(membership.slot, counter)
        self.tally.published(len(past) // 2)
        topic.queue.append(publication)
        self._next(topic)
        return tag

    # ------------------------------------------------------------------ its own waves (START_MSG_PROPAGATION)

    def _next(self, topic: Topic) -> None:
        """Start what is queued, one after the other."""
        if self._running:
            return
        self._running = True
        membership = self._membership
        while topic.queue and not topic.busy:
            operation = topic.queue.popleft()
            topic.busy = True
            if isinstance(operation, Publication):
                topic.retain(operation, membership.slots)
                key = check_publication(operation, membership.roster).key
                self._waves.spread(key, operation, None, membership.dimension)
                continue
            self._notices += 1
            topic.change = self._notices
            if operation == SUB:
                topic.stage = Stage.ASKING_ALL
                topic.begin(membership.slot)
            else:
                topic.stage = Stage.LEAVING
                topic.member = False
            self._notify(operation, topic, topic.change, ())
        self._running = False

    def _notify(self, kind: int, topic: Topic, number: int, missing: tuple[int, ...]) -> None:
        membership = self._membership
        notice = Notice(kind, membership.name, topic.name, number, missing)
        found = {membership.slot: topic.last[membership.slot]} if kind == ASK else {}
        self._waves.spread((kind, membership.slot, number, topic.name), notice, None, membership.dimension, found, {})

    def _ask(self, topic: Topic) -> None:
        self._notices += 1
        topic.asking = self._notices
        missing = topic.unaware.get(self._membership.slot, 0)
        self._notify(ASK, topic, self._notices, tuple(members_of(missing)) if missing else ())

    def _own_ended(self, wave: Wave, topic: Topic) -> None:
        """A wave of its own is acknowledged by all."""
        kind, own, number, _ = wave.key
        missing = wave.missing & ~(1 << own)
        if kind == SUB:
            for slot, word in (wave.found or {}).items():
                topic.changed(slot, word >> 1, bool(word & 1))
            topic.not_reached(own, missing)
            topic.assume(missing & ~sum(1 << slot for slot in topic.changes))
            topic.stage = Stage.COUNTING
            self._waves.resume(topic.name)
            self._ask(topic)
            return
        if kind == ASK:
            if number != topic.asking:
                return
            if topic.stage is Stage.IN:
                self._asked_again(topic, wave)
            if topic.stage is not Stage.COUNTING:
                return
            unaware = topic.unaware.get(own, 0)
            if missing & ~unaware:
                topic.not_reached(own, unaware | missing)
                self._ask(topic)
                return
            self._complete(topic, wave)
        elif kind == UNS:
            topic.stage = Stage.OUT
            self._port.announce(Unsubscribed(topic.name))
        topic.busy = False
        self._next(topic)

    def _complete(self, topic: Topic, wave: Wave) -> None:
        """The subscription is complete: what is not from before it can be delivered."""
        roster = self._membership.roster
        for publication in (wave.waiting or {}).values():
            topic.early.setdefault(check_publication(publication, roster).dot, publication)
        arrived = topic.started((wave.found or {}).items())
        self._port.announce(Subscribed(topic.name))
        if UNS in topic.queue:
            topic.stage = Stage.LEAVING
            return
        topic.stage = Stage.IN
        for publication in arrived:
            self._arrived(topic, publication, check_publication(publication, roster).dot)
        self._tell(topic)

    # ------------------------------------------------------------------ waves of all (HANDLE_RECEIVED_MSG)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Raises `ProtocolViolationError`."""
        membership = self._membership
        own = membership.slot
        peer = membership.slots.get(sender, own)
        if peer == own:
            membership.slot_of(sender)
        match message:
            case Ack():
                self._acknowledged(peer, message)
            case Publication():
                place = check_publication(message, membership.roster)
                self._publication(message, place, peer, (own ^ peer).bit_length() - 1)
            case Notice():
                self._notice(message, peer)
            case Decline():
                self._declined(message, peer)
            case Handover():
                self._handed(message)
            case Since():
                self._since(message, peer)
            case Aware():
                self._aware(message, peer)
            case Missed():
                self._missed(message)
            case _:
                raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__}")

    def _arrived(self, topic: Topic, publication: Publication, dot: tuple[int, int]) -> None:
        """CHECKDELIVERY, for one that was not known."""
        roster, slots = self._membership.roster, self._membership.slots
        self.tally.operations += 1 + len(publication.past) // 2
        ready = topic.arrived(publication, dot, slots)
        for each in ready:
            self._port.deliver(each.message(roster))
        if not ready:
            self.tally.waited += 1
        if topic.unaware:
            self._look_for_lost(topic)

    def _notice(self, notice: Notice, peer: int) -> None:
        slot = slot_of(notice.origin, self._membership.roster)
        check_topic(notice.topic)
        check_number(notice.number)
        check_slots(notice.missing, self._membership.roster)
        if notice.kind not in {SUB, UNS, ASK} or slot == self._membership.slot:
            raise ProtocolViolationError(f"{notice} is no notice of another member")
        key = (notice.kind, slot, notice.number, notice.topic)
        topic = self._topic(notice.topic)
        height = self._membership.cluster(peer) - 1
        if notice.kind == UNS:
            if topic is None or not topic.viewing:
                self._decline(key, topic, peer)
                return
            topic.changed(slot, notice.number, False)
            self._waves.spread(key, notice, peer, height)
            self._hand_over(topic)
            return
        found: dict[int, int] = {}
        waiting: dict[tuple[int, int], Publication] = {}
        missing = 0
        if notice.kind == ASK:
            self._asked[slot] = max(notice.number, self._asked.get(slot, 0))
        if topic is not None:
            if notice.kind == SUB:
                self._word(topic, slot, notice.number, found)
                missing = topic.unaware.get(self._membership.slot, 0)
            else:
                self._answer(topic, slot, notice, found, waiting)
        self._waves.spread(key, notice, peer, height, found, waiting, missing)

    def _word(self, topic: Topic, slot: int, number: int, found: dict[int, int]) -> None:
        """`slot` subscribes: note it, and say whether this process does."""
        if topic.viewing:
            topic.changed(slot, number, True)
        if number > self._asked.get(slot, 0) and self._membership.correct >> slot & 1:
            topic.joining[slot] = {}
        found[self._membership.slot] = topic.change << 1 | topic.member

    def _answer(
        self, topic: Topic, slot: int, ask: Notice, found: dict[int, int], waiting: dict[tuple[int, int], Publication]
    ) -> None:
        """How far publishers are, as far as `slot` does not learn it from themselves."""
        own = self._membership.slot
        since = topic.joining.pop(slot, None)
        if topic.viewing and ask.number > max(topic.asked.get(slot, 0), topic.changes.get(slot, 0)):
            topic.asked[slot] = ask.number
            topic.not_reached(slot, sum(1 << each for each in ask.missing if each != own))
        if since is not None and not ask.missing and self._membership.correct >> slot & 1:
            found.update(since)
        else:
            found.update((each, counter) for each, counter in enumerate(topic.last) if counter)
        if topic.last[own]:
            found[own] = topic.last[own]
        slots = self._membership.roster.slots
        waiting.update(((slots[each.origin], each.counter), each) for each in topic.undelivered())

    def _decline(self, key: Key, topic: Topic | None, parent: int) -> None:
        kind, slot, number, name = key
        names = self._membership.roster.names
        self._port.send(
            (names[parent],), Decline(kind, names[slot], name, number, topic.change if topic is not None else 0)
        )

    def _declined(self, decline: Decline, peer: int) -> None:
        slot = slot_of(decline.origin, self._membership.roster)
        check_number(decline.number, decline.change)
        if decline.kind not in {PUB, UNS}:
            raise ProtocolViolationError(f"{decline} declines what goes to everyone")
        check_topic(decline.topic)
        wave = self._waves.acknowledged((decline.kind, slot, decline.number, decline.topic), peer)
        topic = self._topic(decline.topic)
        if topic is not None and topic.viewing:
            topic.changed(peer, decline.change, False)
        if wave is not None:
            self._waves.again(wave, peer)

    # ------------------------------------------------------------------ acknowledgements

    def _acknowledged(self, peer: int, ack: Ack) -> None:
        if not (ack.found or ack.missing or ack.waiting):
            # What names a wave on its way here needs no further look.
            key = (ack.kind, self._membership.slots.get(ack.origin, -1), ack.number, ack.topic)
            if self._waves.settled(key, peer):
                return
        slot = check_ack(ack, self._membership.roster)
        wave = self._waves.acknowledged((ack.kind, slot, ack.number, ack.topic), peer)
        if wave is None:
            self._late(ack, slot)
            return
        if ack.found and wave.found is not None:
            _gather(wave.found, ack)
        if ack.waiting and wave.waiting is not None:
            slots = self._membership.roster.slots
            wave.waiting.update(((slots[each.origin], each.counter), each) for each in ack.waiting)
        for missing in ack.missing:
            wave.missing |= 1 << missing
        self._waves.settle(wave, peer)

    def _late(self, ack: Ack, slot: int) -> None:
        """Somebody was suspected by mistake: what it says of itself still counts for who asked."""
        if ack.kind != SUB or not ack.found:
            return
        membership = self._membership
        if slot != membership.slot:
            self._port.send((membership.roster.names[slot],), ack)
            return
        topic = self._topic(ack.topic)
        if topic is not None and topic.viewing:
            words: dict[int, int] = {}
            _gather(words, ack)
            for each, word in words.items():
                topic.changed(each, word >> 1, bool(word & 1))

    def audience(self, wave: Wave) -> int:
        if wave.key[0] in {SUB, ASK}:
            return everyone(len(self._membership.roster))
        return self._topics[wave.key[3]].view

    def firsts(self, wave: Wave) -> tuple[int, ...] | None:
        kind, _, _, name = wave.key
        if kind in {SUB, ASK}:
            return self._membership.children()
        topic = self._topics[name]
        return None if topic.stage is _ASKING_ALL else topic.firsts(self._membership)

    def trusted(self, wave: Wave) -> int:
        if wave.key[0] in {SUB, ASK}:
            return self._membership.correct
        return self._topics[wave.key[3]].relied_on(self._membership)

    def served(self, wave: Wave, parents: tuple[int, ...]) -> None:
        names = self._membership.roster.names
        message = wave.message
        if wave.found or wave.waiting or wave.missing or not isinstance(message, Publication):
            ack = self._ack(wave)
        else:
            ack = message.acknowledged
        self._port.send(tuple([names[each] for each in parents]), ack)
        self.tally.acks += len(parents)

    def ended(self, wave: Wave) -> None:
        kind, slot, number, name = wave.key
        topic = self._topics.get(name)
        if topic is None:
            return
        if wave.height == self._membership.dimension:
            if slot == self._membership.slot:
                self._own_ended(wave, topic)
            elif kind == PUB:
                topic.finished[slot] = number
        if topic.stage is _OUT and topic.viewing and not self._waves.of_topic(topic.name):
            topic.end()

    def _ack(self, wave: Wave) -> Ack:
        kind, slot, number, _ = wave.key
        found: tuple[int, ...] = ()
        if wave.found:
            if kind == SUB:
                found = tuple(each for at, word in wave.found.items() for each in (at, word >> 1, word & 1))
            else:
                found = tuple(each for entry in wave.found.items() for each in entry)
        missing = tuple(members_of(wave.missing)) if wave.missing else ()
        waiting = tuple(wave.waiting.values()) if wave.waiting else ()
        return Ack(kind, self._membership.roster.names[slot], wave.key[3], number, found, missing, waiting)


def _gather(found: dict[int, int], ack: Ack) -> None:
    numbers = ack.found
    if ack.kind == SUB:
        for place in range(0, len(numbers), 3):
            word = numbers[place + 1] << 1 | (numbers[place + 2] & 1)
            found[numbers[place]] = max(word, found.get(numbers[place], 0))
    else:
        for place in range(0, len(numbers), 2):
            found[numbers[place]] = max(numbers[place + 1], found.get(numbers[place], 0))
