"""VCube-PS: the figures of document 002, sections 5.3 to 5.5, and random schedules of SUB, UNS, PUB, crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.model import Delivered, NotAMemberError, Subscribed, TopicError
from causalcast.protocols import stack
from causalcast.protocols.pubsub.messages import PUB, Ack, Publication
from causalcast.protocols.pubsub.topic import Topic
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.simulation.world import Receive, Subscribe, Take, Unsubscribe, World
from tests.protocols.vcube.worlds import Run, sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.protocols import Stack

NAMES = [f"p{i}" for i in range(8)]
PS = stack("vcube-ps")


def world(subscribers: Iterable[int], topic: str = "t", members: int = 8) -> World:
    """A world where these subscribe to `topic`, completely."""
    made = World(PS, NAMES[:members])
    for slot in subscribers:
        made.do(Subscribe(NAMES[slot], topic))
        made.settle()
    return made


def tree_of(made: World, publisher: int, topic: str = "t") -> dict[int, list[int]]:
    """The copies that a publication travels as, sender to receivers, in order of sending."""
    made.broadcast(NAMES[publisher], b"x", topic)
    found: dict[int, list[int]] = {}
    while any(made.in_flight.values()):
        for (sender, receiver), messages in made.in_flight.items():
            for message in list(messages):
                if isinstance(message, Publication):
                    found.setdefault(NAMES.index(sender), []).append(NAMES.index(receiver))
                made.do(Receive(sender, receiver))
    return found


def test_figure_5_4_left_everyone_subscribes() -> None:
    assert tree_of(world(range(8)), 0) == {0: [1, 2, 4], 2: [3], 4: [5, 6], 6: [7]}


def test_figure_5_4_right_five_subscribers() -> None:
    tree = tree_of(world([0, 2, 3, 5, 7]), 2)
    assert {sender: sorted(receivers) for sender, receivers in tree.items()} == {2: [0, 3, 7], 7: [5]}


def layer(made: World, slot: int) -> VCubePS:
    process: Any = made.processes[NAMES[slot]]
    return process.dissemination  # type: ignore[no-any-return]


def test_figure_5_2_no_relays() -> None:
    made = world([0, 1, 3, 5, 6])
    assert sum(map(len, tree_of(made, 0).values())) == 4
    assert [layer(made, slot).tally.false_positives for slot in range(8)] == [0] * 8


def test_figure_5_3_causal_barriers_and_the_late_subscriber() -> None:
    made = world([0, 1, 2], members=4)
    first = made.broadcast("p0", b"m0", "t")
    made.do(Receive("p0", "p1"))
    made.do(Take("p1"))
    second = made.broadcast("p1", b"m1", "t")
    other = made.broadcast("p2", b"m2", "t")
    assert second.context == (first.dot,)
    assert other.context == ()
    # p3 subscribes while m1,t,1 and m2,t,1 are under way, and publishes nothing before them.
    made.settle()
    third = made.broadcast("p1", b"m3", "t")
    assert sorted(third.context) == [("p1", 1), ("p2", 1)]
    made.settle()
    made.do(Subscribe("p3", "t"))
    made.settle()
    fourth = made.broadcast("p1", b"m4", "t")
    made.settle()
    assert [entry.tag for entry in made.logs["p3"] if entry.kind == "deliver"] == [fourth]


def test_figure_5_5_a_subscriber_learns_who_subscribes() -> None:
    made = world([1, 4, 5, 6])
    made.do(Subscribe("p0", "t"))
    acks = []
    while not any(isinstance(event, Subscribed) for event in made.ports["p0"].queue):
        (sender, receiver), messages = next((link, each) for link, each in made.in_flight.items() if each)
        if isinstance(messages[0], Ack) and receiver == "p0" and messages[0].kind == 1:
            found = messages[0].found
            acks.append((sender, sorted(found[place] for place in range(0, len(found), 3) if found[place + 2])))
        made.do(Receive(sender, receiver))
    assert sorted(acks) == [("p1", [1]), ("p2", []), ("p4", [4, 5, 6])]
    assert layer(made, 0)._topics["t"].view == 0b1110011


def test_only_subscribers_publish_and_topics_have_names() -> None:
    made = world([0])
    with pytest.raises(NotAMemberError, match="subscribe to publish"):
        made.processes["p1"].broadcast(b"x", "t")
    with pytest.raises(TopicError, match="at most 255 bytes"):
        made.processes["p1"].subscribe("t" * 256)


def test_a_subscriber_whose_view_is_not_complete_holds_what_it_is_to_send_on() -> None:
    """p4 subscribes, p0 counts it in and publishes: p4 serves p5, of which it does not know yet."""
    made = world([0, 5])
    made.do(Subscribe("p4", "t"))
    made.do(Receive("p4", "p0"))
    made.broadcast("p0", b"x", "t")
    for place, message in enumerate(made.in_flight["p0", "p4"]):
        if isinstance(message, Publication):
            made.do(Receive("p0", "p4", place))
    assert not any(isinstance(message, Publication) for message in made.in_flight["p4", "p5"])
    made.settle()
    assert [entry.payload for entry in made.logs["p5"] if entry.kind == "deliver"] == [b"x"]


def test_who_has_left_declines_and_the_next_of_its_cluster_takes_over() -> None:
    made = world([0, 4, 5])
    made.broadcast("p0", b"first", "t")
    # p0 counts p4 in while its publication is under way and p4 leaves.
    made.do(Unsubscribe("p4", "t"))
    late = made.in_flight["p0", "p4"].pop()
    made.settle()
    made.in_flight["p0", "p4"].append(late)
    made.settle()
    assert [entry.payload for entry in made.logs["p5"] if entry.kind == "deliver"] == [b"first"]


def test_the_next_publication_waits_for_the_acknowledgements_of_the_last() -> None:
    made = world([0, 1])
    made.broadcast("p0", b"1", "t")
    made.broadcast("p0", b"2", "t")
    assert [message.payload for message in made.in_flight["p0", "p1"]] == [b"1"]
    made.do(Receive("p0", "p1"))
    made.do(Receive("p1", "p0"))
    assert [message.payload for message in made.in_flight["p0", "p1"]] == [b"2"]


def test_everybody_belongs_to_the_group() -> None:
    made = World(PS, NAMES)
    made.broadcast("p3", b"x")
    made.settle()
    assert all(any(entry.kind == "deliver" for entry in made.logs[name]) for name in NAMES if name != "p3")
    assert not any(sizes(made.processes["p3"]).values())


def test_what_is_counted() -> None:
    made = world(range(8))
    before = [dict(layer(made, slot).tally.sent.by_kind) for slot in range(8)]
    made.broadcast("p0", b"x", "t")
    made.settle()
    after = [layer(made, slot).tally.sent.by_kind for slot in range(8)]
    assert sum(each.get(PUB, 0) for each in after) - sum(each.get(PUB, 0) for each in before) == 7
    assert layer(made, 0).tally.barriers == {0: 1}


CASES = {
    "churn": {"actions": 25},
    "two topics, slow applications": {"actions": 30, "topics": ("t", "u"), "late": 0.8},
    "repeating links": {"actions": 25, "duplicates": True},
    "the group": {"actions": 15, "topics": ("",)},
    "one crash": {"actions": 25, "crashes": 1},
    "two crashes": {"actions": 25, "crashes": 2},
    "a crash and repeating links": {"actions": 25, "crashes": 1, "duplicates": True},
}


@pytest.mark.parametrize("case", list(CASES))
def test_random_schedules_keep_what_is_promised(case: str) -> None:
    settings: Any = CASES[case]
    for seed in range(40):
        assert Run(PS, seed, members=2 + seed % 7, **settings).run() == [], seed


def test_a_wrong_suspicion_loses_nothing_where_subscriptions_do_not_change() -> None:
    for seed in range(40):
        run = Run(PS, seed, members=2 + seed % 7, actions=15, topics=("",), crashes=seed % 2, wrong=3)
        assert run.run() == [], seed


def test_an_old_record_of_a_subscription_brings_nobody_back() -> None:
    """UPDATE (lines 81 to 87) as printed forgets the number of an UNS."""
    topic = Topic("t", 4, 0b1111)
    topic.changed(3, 5, False)
    topic.changed(3, 4, True)
    assert topic.view == 0b0111


# Mistakes of the print, put back: each must be found.


def with_layer(made: type[VCubePS]) -> Stack:
    return replace(PS, dissemination=made)


class FirstReceived(VCubePS):
    """CHECKCB, line 97: what is before the first publication received of a publisher is not waited for; nobody asks."""

    __slots__ = ()

    def _complete(self, topic: Any, wave: Any) -> None:
        wave.found, wave.waiting = {}, {}
        super()._complete(topic, wave)


class SendsOnAtOnce(VCubePS):
    """A process that counts as a subscriber sends on before its view is complete."""

    __slots__ = ()

    def firsts(self, wave: Any) -> tuple[int, ...] | None:
        found = super().firsts(wave)
        return self._topics[wave.key[3]].firsts(self._membership) if found is None else found


class AcknowledgesAtOnce(VCubePS):
    """SUB is taken for complete without waiting for those below."""

    __slots__ = ()

    def _notice(self, notice: Any, peer: int) -> None:
        super()._notice(notice, peer)
        for wave in list(self._waves.active.values()):
            if wave.parents and wave.key[0] == 1:
                parents, wave.parents = wave.parents, ()
                self.served(wave, parents)


class DoesNotWait(VCubePS):
    """Section 5.5.4: what comes first of a publisher is delivered, whatever of others it depends on is on its way."""

    __slots__ = ()

    def _arrived(self, topic: Any, publication: Publication, dot: tuple[int, int]) -> None:
        past = publication.past
        for slot, counter in zip(past[::2], past[1::2], strict=True):
            if topic.kept[slot] is None:
                topic.reach(slot, max(counter, topic.last[slot]))
        super()._arrived(topic, publication, dot)


class AnswersWhereItSubscribes(VCubePS):
    """SENDACKS: who does not subscribe does not acknowledge a SUB."""

    __slots__ = ()

    def _ack(self, wave: Any) -> Any:
        topic = self._topics.get(wave.key[3])
        ack = super()._ack(wave)
        return ack if topic is not None or ack.kind != 1 else Ack(ack.kind, ack.origin, ack.topic, 0, (), (), ())


class BarrierOfTheFirst(VCubePS):
    """Lines 22 to 25: only the first publication of a process gets a barrier."""

    __slots__ = ()

    def publish(self, name: str, payload: bytes) -> Any:
        topic = self._topic(name)
        if topic is not None and topic.last[self._membership.slot]:
            topic.barrier.clear()
        return super().publish(name, payload)


MISTAKES = [
    FirstReceived,
    DoesNotWait,
    SendsOnAtOnce,
    AcknowledgesAtOnce,
    AnswersWhereItSubscribes,
    BarrierOfTheFirst,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.__name__ for each in MISTAKES])
def test_a_mistake_of_the_print_is_found(mistake: type[VCubePS]) -> None:
    for seed in range(300):
        topics = ("t",) if seed % 4 else ("",)
        found = Run(with_layer(mistake), seed, members=3 + seed % 6, actions=25, topics=topics).run()
        if found:
            assert {violation.property for violation in found} & {"P2", "P3", "P8"}
            return
    pytest.fail("300 schedules, and nothing found")


def test_a_delivery_says_its_topic() -> None:
    made = world([0, 1])
    made.broadcast("p0", b"x", "t")
    made.do(Receive("p0", "p1"))
    (event,) = made.ports["p1"].queue
    assert isinstance(event, Delivered)
    assert event.message.topic == "t"
