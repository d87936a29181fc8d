"""What one process keeps of one topic: who subscribes, what is delivered, what waits.

Source: document 002, section 5.5.1 and algorithm 4 (UPDATE, CHECKDELIVERY, CHECKCB), corrected.

* A change of a subscription has a number; of two about one process the later counts, whatever arrives first. As
  printed UPDATE forgets the numbers of those who left, and an old SUB record brings them back.
* `last` stands for `last_delvs` and `first_rec` in one: the counter up to which publications of a publisher are
  delivered here or were before the subscription. With it CHECKCB (lines 95 to 98) waits for exactly what surely comes.
* A waiting publication is filed under one that it misses, instead of scanning all at every delivery.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from itertools import islice
from operator import lt
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from causalcast.protocols.pubsub.messages import SUB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from causalcast.model import ProcessId, Tag
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.pubsub.messages import Publication

Operation: TypeAlias = "Publication | int"
"""A publication, or SUB or UNS."""

RETAINED: Final = 1_024
"""Of the publications to a topic a process keeps the last ones, for subscribers that it learns of late."""


class Stage(IntEnum):
    """Where a process's own subscription is."""

    OUT = 0
    ASKING_ALL = 1
    """SUB is on its way: others may count it in, and it does not know yet whom to send to."""
    COUNTING = 2
    """All know; now it asks what was published before that."""
    IN = 3
    LEAVING = 4
    """UNS is queued or on its way: it still sends on, and delivers nothing."""


class Topic:
    """One topic at one process."""

    __slots__ = (
        "_barrier",
        "_begun",
        "_firsts",
        "_firsts_of",
        "_taken",
        "aside",
        "asked",
        "asking",
        "busy",
        "change",
        "changes",
        "early",
        "finished",
        "forgotten",
        "joining",
        "kept",
        "last",
        "member",
        "name",
        "queue",
        "retained",
        "stage",
        "unaware",
        "view",
        "viewing",
        "waiting",
        "waits",
    )

    def __init__(self, name: str, members: int, view: int | None = None) -> None:
        """With a `view` the process is subscribed from the start, with those."""
        self.name = name
        self.stage = Stage.OUT if view is None else Stage.IN
        self.view = view or 0
        """The set of subscribers that it knows of."""
        self.viewing = view is not None
        """Whether it keeps a view: from its SUB until nothing is on its way through it after its UNS."""
        self.member = view is not None
        """What its last change said."""
        self.changes: dict[int, int] = {}
        """By slot: the number of the last change known of its subscription."""
        self.change = 0
        """Of its own."""
        self.last = [0] * members
        """By publisher: everything up to this counter is delivered here, or was before the subscription. `reach` says
        more."""
        self._begun = 0
        """The set of those whose `last` is not 0: most of what a first publication needs is there in one look."""
        self.kept: list[Publication | None] = [None] * members
        """By publisher: its latest one. Those before it are everywhere, or it would not have published again."""
        self.retained: list[Publication] = []
        """The last ones that came, and its own; `forget` leaves the last `RETAINED`, at twice that by itself."""
        self.forgotten: list[int] = []
        """By publisher: the last one that was retained and is not any more; empty if there is none."""
        self.unaware: dict[int, int] = {}
        """By slot of a subscriber: the set of those who may not know of it, for they were not waited for. They are sent
        what is published, and not relied on to send it on."""
        self.asked: dict[int, int] = {}
        """By slot: the number of the ASK that said so last."""
        self.asking = 0
        """Number of the ASK that its subscription waits for."""
        self.finished: dict[int, int] = {}
        """By suspected publisher: up to which counter this process has brought its publications to everyone."""
        self._barrier: dict[ProcessId, int] = {}
        self._taken: list[Tag] = []
        """What the application has taken and `_barrier` does not know yet, at most one for each member."""
        self.waiting: dict[tuple[int, int], list[Publication]] = {}
        """By a missing publication: those filed under it."""
        self.waits: set[tuple[int, int]] = set()
        """All that wait, by slot and counter."""
        self.aside: dict[tuple[int, int], dict[tuple[int, int], Publication]] = {}
        """By a missing publication that nobody has: those filed under it, at most what was on its way from publishers
        that are gone."""
        self.early: dict[tuple[int, int], Publication] = {}
        """What came while the subscription was not complete."""
        self.joining: dict[int, dict[int, int]] = {}
        """By slot of one whose subscription is between SUB and ASK: what was delivered here since the SUB."""
        self.queue: deque[Operation] = deque()
        self.busy = False
        """Whether a wave of its own is on its way: the next one waits for its end."""
        self._firsts: tuple[int, ...] | None = None
        self._firsts_of = 0

    def __getstate__(self) -> tuple[None, dict[str, Any]]:
        """With nothing put off: two that differ only in that are the same."""
        self._settle()
        return None, {name: getattr(self, name) for name in self.__slots__}

    @property
    def intended(self) -> bool:
        """Whether the application's last word was to subscribe."""
        for operation in reversed(self.queue):
            if isinstance(operation, int):
                return operation == SUB
        return self.stage in {Stage.ASKING_ALL, Stage.COUNTING, Stage.IN}

    # ------------------------------------------------------------------ who subscribes

    def changed(self, slot: int, number: int, subscribed: bool) -> None:
        """UPDATE (lines 81 to 87): a process subscribes, or no longer."""
        if number > self.changes.get(slot, -1):
            self.changes[slot] = number
            self.view = self.view | 1 << slot if subscribed else self.view & ~(1 << slot)
            if not subscribed:
                self.unaware.pop(slot, None)
            self._firsts = None

    def assume(self, members: int) -> None:
        """These have not said whether they subscribe: they are sent what is published until they decline."""
        self.view |= members
        self._firsts = None

    def not_reached(self, slot: int, members: int) -> None:
        """These may not know that `slot` subscribes."""
        self.unaware.pop(slot, None)
        if members:
            self.unaware[slot] = members
        self._firsts = None

    def words(self) -> tuple[int, ...]:
        """All that is known of subscriptions: slot, number of the last change, 1 if subscribed, ..."""
        return tuple(each for slot, number in self.changes.items() for each in (slot, number, self.view >> slot & 1))

    def begin(self, slot: int) -> None:
        """Forget the view: only this process is known to subscribe."""
        self.view = 1 << slot
        self.viewing = self.member = True
        self.changes.clear()
        self.unaware.clear()
        self.asked.clear()
        self._firsts = None

    def end(self) -> None:
        """The view serves nobody any more."""
        self.view = 0
        self.viewing = False
        self.changes.clear()
        self.unaware.clear()
        self.asked.clear()
        self._firsts = None

    def relied_on(self, membership: VCube) -> int:
        """The set of those who are relied on to send publications on."""
        relied_on = membership.correct
        for members in self.unaware.values():
            relied_on &= ~members
        return relied_on

    def firsts(self, membership: VCube) -> tuple[int, ...]:
        """For each cluster of this process the first subscriber that is relied on, or -1."""
        if self._firsts is None or self._firsts_of != membership.correct:
            self._firsts_of = membership.correct
            self._firsts = membership.firsts(self.view & self.relied_on(membership) if self.unaware else self.view)
        return self._firsts

    # ------------------------------------------------------------------ what is delivered

    def waits_or_set_aside(self, dot: tuple[int, int]) -> bool:
        """Whether this publication has come and is not delivered."""
        return dot in self.waits or (bool(self.aside) and any(dot in filed for filed in self.aside.values()))

    def arrived(
        self, publication: Publication, dot: tuple[int, int], slots: dict[ProcessId, int]
    ) -> Sequence[Publication]:
        """What can be delivered now that `publication`, not known before, has come."""
        missing = self._missing(publication)
        if missing is not None:
            self.waits.add(dot)
            filed = self.waiting.get(missing)
            if filed is None:
                self.waiting[missing] = [publication]
            else:
                filed.append(publication)
            return ()
        self._delivered(publication, dot[0])
        if not (self.waiting or self.aside):
            return (publication,)
        freed = self._freed(dot)
        return (publication, *self._deliverable(freed, slots)) if freed else (publication,)

    def reach(self, slot: int, counter: int) -> None:
        """Everything of this publisher up to `counter` is delivered, or was before the subscription."""
        self.last[slot] = counter
        self._begun |= 1 << slot

    def retain(self, publication: Publication, slots: dict[ProcessId, int]) -> None:
        """Keep it for subscribers that this process learns of late."""
        retained = self.retained
        retained.append(publication)
        if len(retained) >= 2 * RETAINED:
            self.forget(slots)

    def forget(self, slots: dict[ProcessId, int]) -> None:
        """Of what is retained, all but the last `RETAINED`."""
        retained, forgotten = self.retained, self.forgotten
        if len(retained) > RETAINED and not forgotten:
            forgotten.extend([0] * len(self.last))
        for oldest in retained[:-RETAINED]:
            slot = slots[oldest.origin]
            forgotten[slot] = max(forgotten[slot], oldest.counter)
        del retained[:-RETAINED]

    def delivered(self) -> tuple[int, ...]:
        """Slot, counter, ...: up to where publications are delivered, or were before the subscription."""
        return tuple(each for entry in enumerate(self.last) if entry[1] for each in entry)

    def lost(self, slot: int, counter: int, slots: dict[ProcessId, int]) -> Iterator[Publication]:
        """What can be delivered now that nothing of `slot` up to `counter` will come any more."""
        if counter > self.last[slot]:
            self.reach(slot, counter)
            missing = [each for each in (*self.waiting, *self.aside) if each[0] == slot and each[1] <= counter]
            yield from self._deliverable([freed for key in missing for freed in self._freed(key)], slots)

    def set_aside(self, slot: int, counter: int, slots: dict[ProcessId, int]) -> list[tuple[int, int]]:
        """Expect no longer that what waits for this publication can be delivered; returns its slots and counters."""
        waiting = self.waiting.pop((slot, counter))
        moved = {(slots[each.origin], each.counter): each for each in waiting}
        self.aside.setdefault((slot, counter), {}).update(moved)
        self.waits.difference_update(moved)
        return list(moved)

    def _deliverable(self, ready: list[tuple[Publication, int]], slots: dict[ProcessId, int]) -> Iterator[Publication]:
        """Of these, all of which wait, what can be delivered, and what that sets free. Beside each is the slot of the
        one that it waited for.
        """
        for each, came in ready:
            missing = self._missing(each, each.places[came] + 1)
            if missing is not None:
                self.waiting.setdefault(missing, []).append(each)
                continue
            slot = slots[each.origin]
            self.waits.remove((slot, each.counter))
            if each.counter <= self.last[slot]:
                ready.extend(self._freed((slot, each.counter)))
                continue
            yield self._delivered(each, slot)
            ready.extend(self._freed((slot, each.counter)))

    def _delivered(self, publication: Publication, slot: int) -> Publication:
        self.last[slot] = publication.counter
        self._begun |= 1 << slot
        if self.joining:
            for recent in self.joining.values():
                recent[slot] = publication.counter
        return publication

    def _freed(self, dot: tuple[int, int]) -> list[tuple[Publication, int]]:
        freed = self.waiting.pop(dot, None) or []
        if self.aside:
            aside = self.aside.pop(dot, {})
            self.waits.update(aside)
            freed += aside.values()
        return [(each, dot[0]) for each in freed]

    def _missing(self, publication: Publication, start: int = 0) -> tuple[int, int] | None:
        """CHECKCB: a publication of the barrier that will come and is not delivered yet. What the barrier has before
        the place `start` is: who waits has been here before, and what is delivered stays so.
        """
        if not publication.past:
            return None
        first_ones, last = publication.first_ones, self.last
        if first_ones & self._begun == first_ones:
            later_ones = publication.later_ones
            if not later_ones:
                return None
            delivered = publication.look_up(last)
            if delivered == later_ones or not any(map(lt, delivered, later_ones)):
                return None
        for pair in islice(publication.pairs, start, None):
            slot, counter = pair
            if last[slot] < counter:
                return pair
        return None

    def started(self, before: Iterable[tuple[int, int]]) -> list[Publication]:
        """The subscription is complete: `before` is what was published until then. What came since, to be looked at."""
        for slot, counter in before:
            if counter > self.last[slot]:
                self.reach(slot, counter)
        early, self.early = self.early, {}
        return [publication for (slot, counter), publication in early.items() if counter > self.last[slot]]

    def stopped(self) -> None:
        """Nothing is delivered any more."""
        self.waiting.clear()
        self.waits.clear()
        self.early.clear()
        self.aside.clear()

    def undelivered(self) -> tuple[Publication, ...]:
        """All that has come and is not delivered."""
        waiting = (publication for filed in self.waiting.values() for publication in filed)
        return (*waiting, *self.early.values())

    # ------------------------------------------------------------------ what is published

    def taken(self, tag: Tag) -> None:
        """The application has taken the publication of this tag: its own will depend on it (line 94)."""
        taken = self._taken
        taken.append(tag)
        if len(taken) > len(self.last):
            self._settle()

    @property
    def barrier(self) -> dict[ProcessId, int]:
        """What the next publication directly depends on. It outlives a subscription: the application remembers."""
        if self._taken:
            self._settle()
        return self._barrier

    def _settle(self) -> None:
        barrier = self._barrier
        for tag in self._taken:
            named = dict(tag.context)
            for origin in named.keys() & barrier.keys():
                if barrier[origin] == named[origin]:
                    del barrier[origin]
            barrier[tag.origin] = tag.counter
        self._taken.clear()

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {
            "waiting": len(self.waiting),
            "waits": len(self.waits),
            "early": len(self.early),
            "joining": len(self.joining),
            "queue": len(self.queue),
        }
