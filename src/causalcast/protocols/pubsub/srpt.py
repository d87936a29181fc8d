"""SRPT: topic-based publish/subscribe over a single tree per topic, the baseline of VCube-PS.

Source: document 002, sections 5.3 and 5.6.7. Each topic has a root, drawn from its name. PUB, SUB and UNS are handed to
the root, which numbers them and sends them down its VCube tree: SUB and UNS to all nodes of the tree, PUB where there
are subscribers, over relays that do not subscribe. In SRPT-S every process is a node of the tree. In SRPT-B only the
brokers are, the first ones of the roster; the others are spread over them evenly, and a broker hands publications to
those of its own that subscribe.

Causal order needs no barrier: all publications of a topic take the same way, a publication is handed to the root after
what its publisher has taken came from there, and links are numbered per topic, so that each is a queue. Keeps P1, P2
and P3 per topic while nobody crashes: the root is what all depends on. A subscription is complete when its SUB comes
back to where it was asked for: everybody on the way knows it then, and what the root sends later follows it.

Per publication: the hand-over, a copy per subscriber and relay (and per broker), no acknowledgements. The root sends
log2(n) copies of everything. Per process and topic: the set of subscribers, two counters per link used.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from causalcast.model import (
    Delivered,
    Message,
    NotAMemberError,
    ProtocolViolationError,
    Subscribed,
    Tag,
    TopicError,
    Unsubscribed,
)
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.membership.hypercube import cluster, dimension, everyone, first_child
from causalcast.protocols.port import WireMessage
from causalcast.protocols.pubsub.messages import PUB, SUB, UNS, check_number, check_topic, set_of, slot_of
from causalcast.protocols.topics import MAX_TOPIC_BYTES, TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import Event, ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port


class Routed(WireMessage, frozen=True, array_like=True, gc=False, tag=54):
    """A PUB, SUB or UNS on its way to the root, down the tree, or from a broker to its subscriber."""

    kind: int
    origin: str
    topic: str
    counter: int
    """Of a PUB: its number among those of its publisher on the topic."""
    link: int
    """Its number on the link that it comes over, per topic."""
    payload: bytes


@lru_cache(maxsize=65_536)
def root_of(topic: str, nodes: int) -> int:
    """The slot of a topic's root: as good as random, the same everywhere."""
    return zlib.crc32(topic.encode(errors="surrogatepass")) % nodes


class TreeTopic:
    """One topic at one process."""

    __slots__ = ("asked", "inbound", "members", "outbound", "own", "published", "queued", "served", "view")

    def __init__(self, view: int, members: int, *, subscribed: bool, served: int) -> None:
        self.view = view
        """At a node of the tree: the nodes with subscribers."""
        self.members = members
        """There too: all subscribers."""
        self.served = served
        """At a broker: those of its own that subscribe."""
        self.own = subscribed
        """Whether this process delivers."""
        self.asked = subscribed
        """Whether its application's last word was to subscribe."""
        self.published = 0
        self.inbound: dict[int, int] = {}
        """By sender: up to which number of its link all has come."""
        self.outbound: dict[int, int] = {}
        self.queued: dict[tuple[int, int], Routed] = {}
        """By sender and number: what overtook something on its link."""


class SRPT(Dissemination):
    """The topics of one process; every process is a node of the trees (SRPT-S)."""

    wire_types = (Routed,)

    __slots__ = ("_membership", "_port", "_topics", "false_positives", "nodes", "operations", "sent")

    def __init__(self, port: Port, membership: VCube, brokers: int | None = None) -> None:
        self._port = port
        self._membership = membership
        self.nodes = len(membership.roster) if brokers is None else max(1, min(brokers, len(membership.roster)))
        """How many processes, the first ones, are nodes of the trees."""
        self._topics: dict[str, TreeTopic] = {}
        self.false_positives = 0
        """Publications received for nobody here."""
        self.operations = 0
        """Messages looked at."""
        self.sent = 0

    # ------------------------------------------------------------------ the application

    def subscribe(self, name: str) -> None:
        """Ask the root, through its broker; nothing happens if that is done already. Raises `TopicError`."""
        if len(name.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES or len(self._topics) >= TOPICS:
            raise TopicError(f"{name[:50]!r} cannot name a topic, or is one too many")
        topic = self._topic(name)
        if not topic.asked:
            topic.asked = True
            self._hand(SUB, name, topic, 0, b"")

    def preset(self, name: str, subscribers: Sequence[ProcessId]) -> None:
        """These subscribe from the start, and every node of the tree knows."""
        roster, slot = self._membership.roster, self._membership.slot
        members = set_of(tuple(subscribers), roster)
        own = bool(members >> slot & 1)
        if slot < self.nodes:
            view = self._nodes_of(members)
            topic = TreeTopic(view, members, subscribed=own, served=self._flock(slot) & members)
        else:
            topic = TreeTopic(0, 0, subscribed=own, served=0)
        self._topics[name] = topic
        if own:
            self._port.announce(Subscribed(name))

    def unsubscribe(self, name: str) -> None:
        """Tell the root; nothing happens if it does not subscribe."""
        topic = self._topics.get(name) or self._topic(name)
        if topic.asked:
            topic.asked = topic.own = False
            self._hand(UNS, name, topic, 0, b"")

    def publish(self, name: str, payload: bytes) -> Tag:
        """Hand a publication to the root. Raises `NotAMemberError`: only subscribers publish."""
        topic = self._topics.get(name) or self._topic(name)
        if not topic.asked:
            raise NotAMemberError(
                f"{self._membership.name!r} does not subscribe to {name!r}: subscribe to publish to it"
            )
        topic.published += 1
        self._hand(PUB, name, topic, topic.published, payload)
        return self._tag(self._membership.name, topic.published)

    def taken(self, event: Event) -> None:
        """All order is the root's."""
        assert not isinstance(event, Delivered) or event.message.tag.counter

    def pending(self, origin: ProcessId) -> int:
        """Publications of `origin` that overtook something."""
        self._membership.roster.slot(origin)
        return sum(each.origin == origin for topic in self._topics.values() for each in topic.queued.values())

    def _tag(self, origin: ProcessId, counter: int) -> Tag:
        return Tag(origin, counter, (), (), self._membership.roster)

    def _topic(self, name: str) -> TreeTopic:
        topic = self._topics.get(name)
        if topic is None:
            everybody = not name
            topic = TreeTopic(
                everyone(self.nodes) if everybody else 0,
                everyone(len(self._membership.roster)) if everybody else 0,
                subscribed=everybody,
                served=self._flock(self._membership.slot) if everybody else 0,
            )
            self._topics[name] = topic
        return topic

    def _nodes_of(self, members: int) -> int:
        """The nodes that serve any of these."""
        view = members & everyone(self.nodes)
        rest = members >> self.nodes
        while rest:
            view |= rest & everyone(self.nodes)
            rest >>= self.nodes
        return view

    def _broker(self, slot: int) -> int:
        """The node that serves a process."""
        return slot if slot < self.nodes else (slot - self.nodes) % self.nodes

    def _flock(self, node: int) -> int:
        """The set of those that a node serves, itself among them."""
        if node >= self.nodes:
            return 0
        found = 1 << node
        for slot in range(self.nodes + node, len(self._membership.roster), self.nodes):
            found |= 1 << slot
        return found

    # ------------------------------------------------------------------ the way

    def _hand(self, kind: int, name: str, topic: TreeTopic, counter: int, payload: bytes) -> None:
        root = root_of(name, self.nodes)
        routed = Routed(kind, self._membership.name, name, counter, 0, payload)
        if root == self._membership.slot:
            self._down(routed, topic, dimension(self.nodes))
        else:
            self._send(root, routed, topic)

    def _send(self, slot: int, routed: Routed, topic: TreeTopic) -> None:
        number = topic.outbound[slot] = topic.outbound.get(slot, 0) + 1
        self.sent += 1
        copy = Routed(routed.kind, routed.origin, routed.topic, routed.counter, number, routed.payload)
        self._port.send((self._membership.roster.names[slot],), copy)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Raises `ProtocolViolationError`."""
        peer = self._membership.slot_of(sender)
        if not isinstance(message, Routed) or message.kind not in {PUB, SUB, UNS}:
            raise ProtocolViolationError(f"{sender!r} sent {message}")
        slot_of(message.origin, self._membership.roster)
        check_topic(message.topic)
        check_number(message.counter, message.link)
        topic = self._topic(message.topic)
        come = topic.inbound.get(peer, 0)
        if message.link <= come:
            return
        topic.queued[peer, message.link] = message
        while (following := topic.queued.pop((peer, come + 1), None)) is not None:
            come += 1
            topic.inbound[peer] = come
            self._arrived(peer, following, topic)

    def _arrived(self, peer: int, routed: Routed, topic: TreeTopic) -> None:
        self.operations += 1
        me = self._membership.slot
        if me >= self.nodes:
            self._local(routed, topic)
        elif me == root_of(routed.topic, self.nodes):
            self._down(routed, topic, dimension(self.nodes))
        else:
            self._down(routed, topic, cluster(me, peer) - 1)

    def _down(self, routed: Routed, topic: TreeTopic, height: int) -> None:
        """Send on below, and to those it serves."""
        membership = self._membership
        me = membership.slot
        origin = membership.roster.slots[routed.origin]
        serves = self._broker(origin) == me
        if routed.kind != PUB:
            self._changed(topic, origin, subscribed=routed.kind == SUB)
        present = everyone(self.nodes)
        for s in range(1, height + 1):
            child = first_child(me, s, present)
            if child is not None and (routed.kind != PUB or topic.view & membership.block(s)):
                self._send(child, routed, topic)
        if routed.kind == PUB:
            self._serve(routed, topic)
        elif serves:
            if routed.kind == SUB:
                topic.served |= 1 << origin
            else:
                topic.served &= ~(1 << origin)
            if origin == me:
                self._local(routed, topic)
            else:
                self._send(origin, routed, topic)

    def _changed(self, topic: TreeTopic, origin: int, *, subscribed: bool) -> None:
        node = self._broker(origin)
        topic.members = topic.members | 1 << origin if subscribed else topic.members & ~(1 << origin)
        interested = subscribed or topic.members & self._flock(node)
        topic.view = topic.view | 1 << node if interested else topic.view & ~(1 << node)

    def _serve(self, routed: Routed, topic: TreeTopic) -> None:
        me = self._membership.slot
        served = topic.served
        if not served or (served == 1 << me and not topic.own):
            self.false_positives += 1
        if served >> me & 1:
            served ^= 1 << me
            self._local(routed, topic)
        while served:
            low = served & -served
            served ^= low
            self._send(low.bit_length() - 1, routed, topic)

    def _local(self, routed: Routed, topic: TreeTopic) -> None:
        """It has come to a subscriber."""
        own = routed.origin == self._membership.name
        if routed.kind == PUB:
            if topic.own and not own:
                self._port.deliver(Message(routed.payload, self._tag(routed.origin, routed.counter), routed.topic))
        elif own and routed.kind == SUB:
            topic.own = topic.asked
            self._port.announce(Subscribed(routed.topic))
        elif own:
            self._port.announce(Unsubscribed(routed.topic))

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {"queued": sum(len(topic.queued) for topic in self._topics.values())}

    def words(self) -> int:
        """Two words per link used, and the sets."""
        return sum(2 + len(topic.inbound) + len(topic.outbound) for topic in self._topics.values())


class BrokeredSRPT(SRPT):
    """SRPT-B: a part of the processes are brokers (section 5.6.7: 256 of 4,096, or 32, or 2,048)."""

    share: ClassVar = 16
    """Of so many processes one is a broker."""

    __slots__ = ()

    def __init__(self, port: Port, membership: VCube) -> None:
        super().__init__(port, membership, len(membership.roster) // self.share)


class FewBrokersSRPT(BrokeredSRPT):
    """SRPT-B with few brokers."""

    share = 128
    __slots__ = ()


class ManyBrokersSRPT(BrokeredSRPT):
    """SRPT-B with a broker for each other process."""

    share = 2
    __slots__ = ()
