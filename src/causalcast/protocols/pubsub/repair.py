"""What becomes of publications and subscriptions while members are suspected, rightly or wrongly.

Document 002, section 6.2.2.1, leaves it open; this is ours. Two things can go wrong, and each has its remedy.

**A publisher stops in the middle.** Its publication is brought to everyone by its heir, the first trusted subscriber in
the order of its clusters, to whom all who have it hand it: the latest one when the publisher is suspected, and each one
that comes later. Those before are everywhere already, or it would not have published again.

**A subscription is completed without waiting for a member**, because somebody suspected that one. If it lives it may
not know of the subscriber yet, what it publishes does not go there, and it sends on past it. So the new subscriber S

* names those who were not waited for when it asks everybody (`Notice.missing`). Everybody then treats them as suspected
  for this topic: they are sent what is published and not relied on to send it on, and what they publish goes through
  their heir, who knows S.
* counts them as subscribers until they decline.
* tells each of them, once it is complete, since when it subscribes (`Since`). Who lives answers with all that it knows
  of subscriptions (`Aware`), preceded by what it has published and received since (`Missed`, at most the last
  `RETAINED`). Then S asks everybody again, with fewer names.
* asks everybody again, too, if publications of those of them that it suspects wait for others of theirs. If nobody has
  these, they are gone with their publishers, or were everywhere before the subscription: what waits for them is set
  aside, and not delivered unless they come after all.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.membership.hypercube import everyone, first_child
from causalcast.protocols.membership.waves import members_of
from causalcast.protocols.pubsub.messages import (
    ASK,
    PUB,
    Aware,
    Handover,
    Missed,
    Since,
    check_entries,
    check_number,
    check_publication,
    check_topic,
)
from causalcast.protocols.pubsub.table import TopicTable
from causalcast.protocols.pubsub.topic import Stage, Topic

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.membership.waves import Wave
    from causalcast.protocols.pubsub.messages import Place, Publication

_IN: Final = Stage.IN
"""Looked at for every publication that comes."""


class RepairedTopics(TopicTable):
    """The topics of one process, and what it does about those suspected."""

    __slots__ = ()

    @abstractmethod
    def _ask(self, topic: Topic) -> None:
        """Ask everybody how far publishers are, and say who may not know of this process."""

    @abstractmethod
    def _arrived(self, topic: Topic, publication: Publication, dot: tuple[int, int]) -> None:
        """A publication, not known before, for the application; `dot` is the publisher's slot and its counter."""

    # ------------------------------------------------------------------ what comes

    def _publication(self, publication: Publication, place: Place, parent: int | None, height: int) -> None:
        """A publication has come: send it on into so many clusters."""
        topic = self._topics.get(publication.topic) or self._topic(publication.topic)
        if topic is None or not topic.viewing:
            self.tally.false_positives += 1
            if parent is not None:
                self._decline(place.key, topic, parent)
            return
        fresh = self._note(topic, publication, place)
        if height or parent is None or topic.stage is not _IN or place.key in self._waves.active:
            self._waves.spread(place.key, publication, parent, height)
        else:
            # As `spread` would: nobody is below.
            self.tally.acks += 1
            self._port.send((self._membership.roster.names[parent],), publication.acknowledged)
        if fresh and (topic.unaware or self._membership.suspects):
            slot = place.slot
            if not topic.relied_on(self._membership) >> slot & 1:
                self._hand(topic, publication, slot)

    @abstractmethod
    def _decline(self, key: tuple[int, int, int, str], topic: Topic | None, parent: int) -> None:
        """Say that this process is no subscriber."""

    def _note(self, topic: Topic, publication: Publication, place: Place) -> bool:
        """Whether it has come for the first time, as far as this process can tell."""
        _, slot, dot, _ = place
        counter, last = dot[1], topic.last[slot]
        if counter > last and slot == self._membership.slot:
            raise ProtocolViolationError(
                f"{publication} was never published: is the name {publication.origin!r} used twice?"
            )
        latest = topic.kept[slot]
        fresh = latest is None or latest.counter < counter
        if fresh:
            topic.kept[slot] = publication
            topic.retain(publication, self._membership.slots)
        if topic.stage is _IN:
            if counter > last and not ((topic.waits or topic.aside) and topic.waits_or_set_aside(dot)):
                if not fresh:
                    fresh = True
                    topic.retain(publication, self._membership.slots)
                self._arrived(topic, publication, dot)
        elif topic.stage in {Stage.ASKING_ALL, Stage.COUNTING}:
            if counter > last:
                topic.early[dot] = publication
        else:
            self.tally.false_positives += 1
        return fresh

    # ------------------------------------------------------------------ publishers that are suspected

    def neighbour_down(self, peer: ProcessId) -> None:
        slot = self._membership.roster.slot(peer)
        for topic in self._topics.values():
            topic.joining.pop(slot, None)
        self._waves.suspected(slot)
        for topic in self._topics.values():
            self._hand_over(topic)
            self._look_for_lost(topic)

    def neighbour_up(self, peer: ProcessId) -> None:
        slot = self._membership.roster.slot(peer)
        for topic in self._topics.values():
            topic.finished.pop(slot, None)

    def _hand_over(self, topic: Topic) -> None:
        """See that the last publications of those suspected come to everyone."""
        membership = self._membership
        suspected = everyone(len(membership.roster)) & ~membership.correct
        if not suspected or not topic.viewing:
            return
        for slot in members_of(suspected):
            publication = topic.kept[slot]
            if publication is not None and publication.counter > topic.finished.get(slot, 0):
                self._hand(topic, publication, slot)

    def _hand(self, topic: Topic, publication: Publication, slot: int) -> None:
        """Give a publication of `slot` to its heir, or be the heir."""
        heir = self._heir(topic, slot)
        if heir == self._membership.slot:
            key = (PUB, slot, publication.counter, topic.name)
            self._waves.spread(key, publication, None, self._membership.dimension)
        elif heir is not None:
            self._send(heir, Handover(publication))

    def _heir(self, topic: Topic, slot: int) -> int | None:
        """The first subscriber that is relied on, in the order of the publisher's clusters."""
        membership = self._membership
        present = topic.relied_on(membership) & topic.view & ~(1 << slot)
        for s in range(1, membership.dimension + 1):
            first = first_child(slot, s, present)
            if first is not None:
                return first
        return None

    def _handed(self, handover: Handover) -> None:
        publication = handover.publication
        place = check_publication(publication, self._membership.roster)
        topic = self._topic(publication.topic)
        if topic is None or publication.counter != topic.finished.get(place.slot, 0):
            self._publication(publication, place, None, self._membership.dimension)

    # ------------------------------------------------------------------ subscribers that were not waited for

    def _tell(self, topic: Topic) -> None:
        """The subscription is complete: tell those who may not know of it."""
        for slot in members_of(topic.unaware.get(self._membership.slot, 0)):
            self._send(slot, Since(topic.name, topic.change, topic.delivered(), topic.words()))

    def _since(self, since: Since, peer: int) -> None:
        """Who was not waited for subscribes: count it in, and send what it cannot have got."""
        check_topic(since.topic)
        check_number(since.change)
        check_entries(since.last, 2, self._membership.roster)
        check_entries(since.words, 3, self._membership.roster)
        topic = self._topic(since.topic)
        lost: tuple[int, ...] = ()
        if topic is not None:
            self._learn(topic, since.words)
            if topic.viewing:
                topic.changed(peer, since.change, True)
            slots = self._membership.roster.slots
            after = dict(zip(since.last[::2], since.last[1::2], strict=True))
            topic.forget(slots)
            lost = tuple(each for entry in enumerate(topic.forgotten) if entry[1] for each in entry)
            for publication in topic.retained:
                if publication.counter > after.get(slots[publication.origin], 0) and slots[publication.origin] != peer:
                    self._send(peer, Missed(publication))
        own = (self._membership.slot, topic.change if topic else 0, int(topic is not None and topic.member))
        known = topic.words() if topic is not None and topic.viewing else ()
        self._send(peer, Aware(since.topic, since.change, lost, (*known, *own)))

    def _aware(self, aware: Aware, peer: int) -> None:
        """One who was not waited for is there after all."""
        check_topic(aware.topic)
        check_number(aware.change)
        check_entries(aware.lost, 2, self._membership.roster)
        check_entries(aware.words, 3, self._membership.roster)
        own = self._membership.slot
        topic = self._topic(aware.topic)
        if topic is None or topic.stage is not Stage.IN or topic.change != aware.change:
            return
        self._learn(topic, aware.words)
        for slot, counter in zip(aware.lost[::2], aware.lost[1::2], strict=True):
            for each in topic.lost(slot, counter, self._membership.roster.slots):
                self._deliver(each)
        unaware = topic.unaware.get(own, 0)
        if unaware >> peer & 1:
            topic.not_reached(own, unaware & ~(1 << peer))
            self._ask(topic)

    def _learn(self, topic: Topic, words: tuple[int, ...]) -> None:
        if topic.viewing:
            for place in range(0, len(words), 3):
                if words[place] != self._membership.slot:
                    topic.changed(words[place], words[place + 1], bool(words[place + 2]))

    def _missed(self, missed: Missed) -> None:
        publication = missed.publication
        place = check_publication(publication, self._membership.roster)
        topic = self._topic(publication.topic)
        if topic is not None and topic.viewing:
            self._note(topic, publication, place)

    def _lost(self, topic: Topic) -> list[tuple[int, int]]:
        """What others wait for and may be lost: of those suspected that do not answer."""
        doubtful = topic.unaware.get(self._membership.slot, 0) & ~self._membership.correct
        if not doubtful:
            return []
        return [missing for missing in topic.waiting if doubtful >> missing[0] & 1 and missing not in topic.waits]

    def _look_for_lost(self, topic: Topic) -> None:
        """Ask who has what may be lost."""
        asking = (ASK, self._membership.slot, topic.asking, topic.name)
        if topic.stage is Stage.IN and asking not in self._waves.active and self._lost(topic):
            self._ask(topic)

    def _asked_again(self, topic: Topic, wave: Wave) -> None:
        """All have said what they have: set aside what waits for what nobody has."""
        found = wave.found or {}
        waiting = wave.waiting or {}
        slots = self._membership.roster.slots
        doubtful = topic.unaware.get(self._membership.slot, 0) & ~self._membership.correct
        gone = self._lost(topic)
        for slot, counter in gone:
            origins = {slots[each.origin] for each in topic.waiting[slot, counter]}
            if (
                found.get(slot, 0) < counter
                and (slot, counter) not in waiting
                and all(doubtful >> origin & 1 for origin in origins)
            ):
                gone.extend(each for each in topic.set_aside(slot, counter, slots) if each in topic.waiting)

    # ------------------------------------------------------------------ inside

    def _deliver(self, publication: Publication) -> None:
        self._port.deliver(publication.message(self._membership.roster))

    def _send(self, slot: int, message: Handover | Since | Aware | Missed) -> None:
        self._port.send((self._membership.roster.names[slot],), message)
