"""What publications to topics cost, and how long they take (document 002, section 5.6.1).

A *PUB* is a message between processes that carries a publication; in SRPT the one from the publisher to the root is the
*hand-over*, and no part of the tree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from math import log, log2
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from causalcast.lab.errors import MeasurementError
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.model import Delivered
from causalcast.protocols.pubsub.messages import PUB, Publication
from causalcast.protocols.pubsub.srpt import SRPT, Routed, root_of
from causalcast.protocols.pubsub.vcube_ps import VCubePS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from causalcast.model import Event, Message, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator

Key: TypeAlias = tuple[str, str, int]
"""Topic, publisher, counter."""


def publication(message: WireMessage) -> Key | None:
    """Which publication `message` carries."""
    if isinstance(message, Publication) or (isinstance(message, Routed) and message.kind == PUB):
        return message.topic, message.origin, message.counter
    return None


class _OfTopics(Probe):
    """What these probes share: they look at stacks with topics of their own."""

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._names = simulator.roster.names
        layers: list[Any] = [getattr(host.process, "dissemination", None) for host in simulator.hosts.values()]
        if not all(isinstance(layer, SRPT | VCubePS) for layer in layers):
            raise MeasurementError(f"{simulator.stack.name!r} has no trees of topics to look at")
        self._layers: list[SRPT | VCubePS] = layers

    def _is_handover(self, key: Key, process: ProcessId, destinations: Sequence[ProcessId]) -> bool:
        layer = self._layers[0]
        if isinstance(layer, VCubePS) or process != key[1]:
            return False
        return destinations[0] == self._names[root_of(key[0], layer.nodes)]


class Publications(_OfTopics):
    """PUBs, and the time from a publication to its being taken, topic by topic."""

    metrics: ClassVar = (
        Metric("publication_latency_ns", "ns", "from a publication to its being taken by each other application"),
        Metric("publications", "messages", "publications"),
        Metric("pub_copies", "messages", "PUBs in trees, and from brokers to their subscribers"),
        Metric("handovers", "messages", "PUBs from a publisher to the root of the topic"),
        Metric("false_positives", "messages", "PUBs received by processes that do not subscribe"),
        Metric("false_positive_percent", "%", "the same, of all PUBs"),
    )

    def __init__(self) -> None:
        self._times: dict[Key, int] = {}
        self._latency: Counter[float] = Counter()
        self._copies = 0
        self._handovers = 0

    def published(self, process: ProcessId, tag: Tag, topic: str) -> None:
        self._times[topic, tag.origin, tag.counter] = self._simulator.queue.now

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        kind = type(message)
        if kind is Publication:
            self._copies += len(destinations)
        if kind is not Routed:
            return
        key = publication(message)
        if key is None:
            return
        if self._is_handover(key, process, destinations):
            self._handovers += 1
        else:
            self._copies += len(destinations)

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered):
            message = event.message
            tag = message.tag
            self._latency[self._simulator.queue.now - self._times[message.topic, tag.origin, tag.counter]] += 1

    def result(self) -> Mapping[str, Measured]:
        wrong = sum(layer.tally.false_positives if isinstance(layer, VCubePS) else layer.false_positives
                    for layer in self._layers)  # fmt: skip
        sends = self._copies + self._handovers
        return {
            "publication_latency_ns": Histogram(self._latency),
            "publications": float(len(self._times)),
            "pub_copies": float(self._copies),
            "handovers": float(self._handovers),
            "false_positives": float(wrong),
            "false_positive_percent": 100 * wrong / sends if sends else None,
        }


class Trees(_OfTopics):
    """The trees that publications travel along. Keeps an entry for each process and publication: for few of these."""

    metrics: ClassVar = (
        Metric("hops", "hops", "between a publisher and each who takes the publication, the hand-over among them"),
        Metric("levels", "hops", "of the longest way from the root of a tree"),
        Metric("relays", "processes", "of each publication: who get it, take it not, and have not published it"),
    )

    def __init__(self) -> None:
        self._depths: dict[Key, dict[ProcessId, int]] = {}
        """Of each publication, the hops from the root of its tree; less than 0 is before the root."""
        self._handed: set[Key] = set()
        self._hops: Counter[float] = Counter()
        self._taken: Counter[Key] = Counter()

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        key = publication(message)
        if key is None:
            return
        depths = self._depths.setdefault(key, {})
        if self._is_handover(key, process, destinations):
            self._handed.add(key)
            depths[destinations[0]] = 0
            return
        below = depths.setdefault(process, 0) + 1
        depths.update((name, below) for name in destinations if name not in depths)

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered):
            message = event.message
            key = message.topic, message.tag.origin, message.tag.counter
            self._taken[key] += 1
            self._hops[self._depths[key][process] + (key in self._handed)] += 1

    def result(self) -> Mapping[str, Measured]:
        relays = Counter(
            float(len(depths) - (key[1] in depths) - self._taken[key]) for key, depths in self._depths.items()
        )
        return {
            "hops": Histogram(self._hops),
            "levels": float(max((max(depths.values()) for depths in self._depths.values()), default=0)),
            "relays": Histogram(relays),
        }


class _Queued(_OfTopics):
    """What looks at send queues; needs a network whose copies take a fixed time there."""

    def __init__(self) -> None:
        self._free: dict[ProcessId, int] = {}
        """When the queue of a process is empty."""

    def begin(self, simulator: Simulator) -> None:
        super().begin(simulator)
        network = simulator.network
        if not network.transmission_ns or network.bits_per_second is not None:
            raise MeasurementError("queues are counted in networks with a transmission_ns and no bits_per_second")
        self._service = network.transmission_ns
        self._processing = network.processing_ns
        self._unqueued = frozenset(network.unqueued)

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if self._unqueued and type(message).__name__ in self._unqueued:
            return
        enters = self._simulator.queue.now + self._processing
        free = max(self._free.get(process, 0), enters)
        self._free[process] = free + len(destinations) * self._service
        key = publication(message)
        if key is not None:
            self._enter(key, process, destinations, free - enters)

    @abstractmethod
    def _enter(self, key: Key, process: ProcessId, destinations: Sequence[ProcessId], wait_ns: int) -> None:
        """Copies of a publication enter the queue; the first waits so long, each other a transmission longer."""


class Queues(_Queued):
    """The send queues, as long as each PUB of a tree finds them.

    A PUB counts itself; of several copies that are sent at once each finds those before it.
    """

    metrics: ClassVar = (
        Metric("queue_length", "messages", "of each process, the mean length; 0 where it sends no PUB in a tree"),
        Metric("longest_queue", "messages", "the greatest length found"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[ProcessId, list[int]] = {}
        """Of each process, how many PUBs, and the lengths that they found, added up."""
        self._longest = 0

    def _enter(self, key: Key, process: ProcessId, destinations: Sequence[ProcessId], wait_ns: int) -> None:
        if self._is_handover(key, process, destinations):
            return
        copies, before = len(destinations), -(-wait_ns // self._service)
        found = self._found.setdefault(process, [0, 0])
        found[0] += copies
        found[1] += copies * before + copies * (copies + 1) // 2
        self._longest = max(self._longest, before + copies)

    def result(self) -> Mapping[str, Measured]:
        means: Counter[float] = Counter(lengths / times for times, lengths in self._found.values())
        silent = len(self._names) - len(self._found)
        if silent:
            means[0] = silent
        return {"queue_length": Histogram(means), "longest_queue": float(self._longest)}


class Ways(_Queued):
    """The time in send queues on the whole way of a publication. Keeps an entry for each process and publication."""

    metrics: ClassVar = (
        Metric("queue_wait_ns", "ns", "in the queues of all who send a PUB on, from its publisher to where it arrives"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._so_far: dict[tuple[ProcessId, Key], int] = {}
        self._waits: Counter[float] = Counter()

    def _enter(self, key: Key, process: ProcessId, destinations: Sequence[ProcessId], wait_ns: int) -> None:
        wait_ns += self._so_far.get((process, key), 0)
        for destination in destinations:
            self._so_far[destination, key] = wait_ns
            self._waits[wait_ns] += 1
            wait_ns += self._service

    def result(self) -> Mapping[str, Measured]:
        return {"queue_wait_ns": Histogram(self._waits)}


class Reception(_OfTopics):
    """How long publications that have come wait for those before them (section 5.6.4)."""

    metrics: ClassVar = (
        Metric("causal_wait_ns", "ns", "from a publication's first arrival at a process to its delivery there"),
        Metric("taken_before", "publications", "taken by a process since its last publication, when it publishes"),
    )

    def __init__(self) -> None:
        self._taken: Counter[tuple[ProcessId, str]] = Counter()
        self._before: Counter[float] = Counter()
        self._arrived: dict[tuple[ProcessId, Key], int] = {}
        self._waits: Counter[float] = Counter()

    def received(self, process: ProcessId, sender: ProcessId, message: WireMessage) -> None:
        key = publication(message)
        if key is not None:
            self._arrived.setdefault((process, key), self._simulator.queue.now)

    def delivered(self, process: ProcessId, message: Message) -> None:
        arrived = self._arrived[process, (message.topic, message.tag.origin, message.tag.counter)]
        self._waits[self._simulator.queue.now - arrived] += 1

    def published(self, process: ProcessId, tag: Tag, topic: str) -> None:
        self._before[self._taken.pop((process, topic), 0)] += 1

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered):
            self._taken[process, event.message.topic] += 1

    def result(self) -> Mapping[str, Measured]:
        return {"causal_wait_ns": Histogram(self._waits), "taken_before": Histogram(self._before)}


class Brokers(_OfTopics):
    """The two parts of the way of a publication in SRPT-B: to the broker, and from there to the subscriber."""

    metrics: ClassVar = (
        Metric("tree_ns", "ns", "from a publication to its broker's sending it on, for each subscriber"),
        Metric("broker_ns", "ns", "from there to its being taken by the subscriber: B-S"),
        Metric("served", "subscribers", "of each broker that has sent anybody anything"),
    )

    def __init__(self) -> None:
        self._published: dict[Key, int] = {}
        self._passed: dict[tuple[ProcessId, Key], int] = {}
        """When a broker has sent a publication to a subscriber."""
        self._served: dict[ProcessId, set[ProcessId]] = {}
        self._tree: Counter[float] = Counter()
        self._last: Counter[float] = Counter()

    def begin(self, simulator: Simulator) -> None:
        super().begin(simulator)
        layer = self._layers[0]
        nodes = layer.nodes if isinstance(layer, SRPT) else len(self._names)
        self._clients = frozenset(self._names[nodes:])

    def published(self, process: ProcessId, tag: Tag, topic: str) -> None:
        self._published[topic, tag.origin, tag.counter] = self._simulator.queue.now

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        key = publication(message)
        if key is not None and destinations[0] in self._clients:
            self._passed[destinations[0], key] = self._simulator.queue.now
            self._served.setdefault(process, set()).add(destinations[0])

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered) and process in self._clients:
            message = event.message
            key = message.topic, message.tag.origin, message.tag.counter
            passed = self._passed.pop((process, key))
            self._tree[passed - self._published[key]] += 1
            self._last[self._simulator.queue.now - passed] += 1

    def result(self) -> Mapping[str, Measured]:
        served = Counter(float(len(clients)) for clients in self._served.values())
        return {"tree_ns": Histogram(self._tree), "broker_ns": Histogram(self._last), "served": Histogram(served)}


def churn_percent_per_second(median_session_s: float) -> float:
    """Percent of the subscribers who go in a second, by their median session: 100 ln 2 / median (Rhea et al. 2004)."""
    return 100 * log(2) / median_session_s


def churn_percent_per_minute(median_session_s: float) -> float:
    """The same in a minute."""
    return 60 * churn_percent_per_second(median_session_s)


def root_load(nodes: int, subscribers: int, churn: float, interval_ms: float) -> float:
    """How much of its time the root of an SRPT topic transmits, each message for 1 ms.

    It sends log2(n) copies of each publication, SUB and UNS; `churn` percent of the subscribers go in a second, and as
    many come.
    """
    messages = 1000 / interval_ms + 2 * subscribers * churn / 100
    return messages * log2(nodes) / 1000


TOPIC_CALCULATIONS: Final[dict[str, Callable[..., Measured]]] = {
    function.__name__: function for function in (churn_percent_per_second, churn_percent_per_minute, root_load)
}
