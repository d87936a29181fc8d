"""Stacks whose layers carry topics themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from causalcast.model import ProtocolViolationError
from causalcast.protocols.pubsub.messages import Publication
from causalcast.protocols.stack import Stack, StackProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import Event, ProcessId, Roster, Tag
    from causalcast.protocols.layers import Dissemination, Membership
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.ordering import Ordering
    from causalcast.protocols.port import BroadcastMessage, Port, Timer, WireMessage


class TopicLayer(Protocol):
    """What a dissemination that carries topics answers; see `Process` in `port` for the meaning."""

    def subscribe(self, name: str) -> None: ...

    def unsubscribe(self, name: str) -> None: ...

    def preset(self, name: str, subscribers: Sequence[ProcessId]) -> None: ...

    def publish(self, name: str, payload: bytes) -> Tag: ...

    def taken(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int: ...

    def words(self) -> int: ...

    @property
    def operations(self) -> int: ...


class TopicOrdering:
    """The ordering of a stack whose dissemination delivers in order: it passes on what its application does."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = ()

    __slots__ = ("topics",)

    def __init__(self, _: Port, __: VCube, topics: TopicLayer) -> None:
        self.topics = topics

    def start(self) -> None:
        """Nothing to do: nobody subscribes by itself."""

    def timer(self, timer: Timer) -> None:
        """No timers here."""

    def broadcast(self, payload: bytes) -> Tag:
        """Publish to the group."""
        return self.topics.publish("", payload)

    def receive(self, message: BroadcastMessage) -> None:
        """Nothing comes up this way."""
        raise ProtocolViolationError(f"{type(message).__name__} belongs to no topic")

    def take(self, event: Event) -> None:
        """The application receives `event`."""
        self.topics.taken(event)

    def pending(self, origin: ProcessId) -> int:
        """Publications of `origin` received and not delivered."""
        return self.topics.pending(origin)

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0

    def words(self) -> int:
        """Words of metadata in memory now."""
        return self.topics.words()

    def entries(self, message: BroadcastMessage) -> int:
        """Entries of the causal barrier in a publication."""
        return len(message.past) // 2 if isinstance(message, Publication) else 0

    @property
    def operations(self) -> int:
        """Entries of barriers that decisions about delivery have looked at."""
        return self.topics.operations


class TopicProcess(StackProcess):
    """One process of such a stack."""

    __slots__ = ("_taken",)

    def __init__(self, membership: Membership, dissemination: Dissemination, ordering: Ordering) -> None:
        super().__init__(membership, dissemination, ordering)
        self._taken = self._layer.taken

    @property
    def _layer(self) -> TopicLayer:
        return cast("TopicOrdering", self.ordering).topics

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        return self._layer.publish(topic, payload)

    @property
    def receiver(self) -> Callable[[ProcessId, WireMessage], None]:
        alone = self._topics is None and set(self._receivers.values()) == {self.dissemination.receive}
        return self.dissemination.receive if alone else self.receive

    def take(self, event: Event) -> None:
        self._taken(event)

    def subscribe(self, topic: str) -> None:
        self._layer.subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        self._layer.unsubscribe(topic)

    def preset(self, topic: str, subscribers: Sequence[ProcessId]) -> None:
        self._layer.preset(topic, subscribers)


class TopicStack(Stack):
    """An entry of the registry for such a stack."""

    def of_topic(self, port: Port, roster: Roster) -> StackProcess:
        membership = self.membership(port, roster)
        dissemination = self.dissemination(port, membership)
        return TopicProcess(membership, dissemination, self.ordering(port, membership, dissemination))
