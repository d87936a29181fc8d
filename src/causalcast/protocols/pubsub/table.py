"""The topics of one process, and what it tells of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import Delivered, Subscribed, TopicError
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.membership.hypercube import everyone
from causalcast.protocols.pubsub.messages import set_of
from causalcast.protocols.pubsub.tally import Tally
from causalcast.protocols.pubsub.topic import Topic
from causalcast.protocols.topics import MAX_TOPIC_BYTES, TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import Event, ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.membership.waves import Waves
    from causalcast.protocols.port import Port


class TopicTable(Dissemination):
    """The topics of one process."""

    __slots__ = ("_membership", "_port", "_topics", "_waves", "tally")

    def __init__(self, port: Port, membership: VCube, waves: Waves) -> None:
        self._port = port
        self._membership = membership
        self._waves = waves
        self._topics: dict[str, Topic] = {}
        self.tally = Tally(waves.sent)

    def taken(self, event: Event) -> None:
        """The application receives `event`."""
        if isinstance(event, Delivered):
            message = event.message
            topic = self._topics.get(message.topic)
            if topic is not None:
                topic.taken(message.tag)

    def pending(self, origin: ProcessId) -> int:
        """Publications of `origin` received and not delivered."""
        slot = self._membership.roster.slot(origin)
        return sum(each == slot for topic in self._topics.values() for each, _ in (*topic.waits, *topic.early))

    def _topic(self, name: str) -> Topic | None:
        topic = self._topics.get(name)
        if topic is None and not name:
            # Everybody subscribes, from the start, to the topic without a name: the group.
            members = len(self._membership.roster)
            topic = self._topics[name] = Topic(name, members, everyone(members))
        return topic

    def preset(self, name: str, subscribers: Sequence[ProcessId]) -> None:
        """These subscribe from the start, and everybody knows. Raises `TopicError`."""
        view = set_of(tuple(subscribers), self._membership.roster)
        if view >> self._membership.slot & 1:
            self._new(name, view)
            self._port.announce(Subscribed(name))

    def _new(self, name: str, view: int | None = None) -> Topic:
        if len(name.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES:
            raise TopicError(f"{name[:50]!r}... cannot name a topic: use at most {MAX_TOPIC_BYTES} bytes of UTF-8")
        if len(self._topics) >= TOPICS:
            raise TopicError(f"{name!r} would be topic number {TOPICS + 1:,}: a process has at most {TOPICS:,}")
        topic = self._topics[name] = Topic(name, len(self._membership.roster), view)
        return topic

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        sizes = {"waves": len(self._waves.active)}
        for topic in self._topics.values():
            for name, size in topic.tables().items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def words(self) -> int:
        """A word per publisher and entry of a barrier, and of each publication that waits its barrier."""
        return sum(
            len(topic.last) + len(topic.barrier) + sum(2 + len(each.past) for each in topic.undelivered())
            for topic in self._topics.values()
        )

    @property
    def operations(self) -> int:
        """Entries of barriers looked at so far."""
        return self.tally.operations
