"""Topics: each has a process of the stack of its own, over the links and timers they share.

A topic is a group with the same members: its causal order, tags and stability know nothing of other topics, and what
it keeps is its own. Everyone is subscribed to every topic. A topic begins with its first message, here or from others,
and is not forgotten: its counters must not start again.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import Delivered, Message, ProtocolViolationError, Stable, Subscribed, TopicError
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, ProcessId, Roster, Tag
    from causalcast.protocols.port import Port, Random, Timer
    from causalcast.protocols.stack import Stack, StackProcess

TOPICS: Final = 65_536
"""At most so many topics at a process."""

MAX_TOPIC_BYTES: Final = 255
"""Of a topic's name in UTF-8."""

TOPIC_TIMER: Final = "topic"
"""The first word of timers of topics; then come the topic and the timer."""


def any_of(wire_types: Sequence[type[WireMessage]]) -> type[WireMessage]:
    """The union of these types, as msgspec takes it."""
    return reduce(or_, wire_types)


def topical(wire_types: Sequence[type[WireMessage]]) -> type[WireMessage]:
    """The message that carries one of `wire_types` of a topic."""
    message: type[WireMessage] = msgspec.defstruct(  # type: ignore[assignment] # the base says it
        "TopicMessage",
        [("topic", str), ("message", any_of(wire_types))],
        bases=(WireMessage,),
        module=__name__,
        frozen=True,
        array_like=True,
        gc=False,
        tag=90,
    )
    return message


class TopicPort:
    """What the process of one topic sees of its host."""

    __slots__ = ("_message", "_port", "topic")

    def __init__(self, port: Port, topic: str, message: type[WireMessage]) -> None:
        self.topic = topic
        self._port = port
        self._message = message

    @property
    def name(self) -> ProcessId:
        return self._port.name

    @property
    def random(self) -> Random:
        return self._port.random

    def now_ns(self) -> int:
        return self._port.now_ns()

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._port.send(destinations, self._message(self.topic, message))

    def deliver(self, message: Message) -> None:
        self._port.deliver(Message(message.payload, message.tag, self.topic))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self._port.stable(tag, self.topic)

    def announce(self, event: Event) -> None:
        self._port.announce(event)

    def connect(self, peer: ProcessId) -> None:
        self._port.connect(peer)

    def disconnect(self, peer: ProcessId) -> None:
        self._port.disconnect(peer)

    def retire(self) -> None:
        """A topic ends with the process."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        self._port.set_timer(delay_ns, (TOPIC_TIMER, self.topic, timer))

    def cancel_timer(self, timer: Timer) -> None:
        self._port.cancel_timer((TOPIC_TIMER, self.topic, timer))


def topic_of(event: Event) -> str:
    """The topic of what an application takes; empty: of the group itself, or of all."""
    match event:
        case Delivered(message):
            return message.topic
        case Stable(_, topic):
            return topic
    return ""


class Topics:
    """The topics of one process."""

    __slots__ = ("_port", "_roster", "_stack", "message", "processes")

    def __init__(self, port: Port, stack: Stack, roster: Roster, message: type[WireMessage]) -> None:
        self.message = message
        self._port = port
        self._stack = stack
        self._roster = roster
        self.processes: dict[str, StackProcess] = {}
        """By topic, those that have begun."""

    def of(self, topic: str) -> StackProcess:
        """The process of `topic`, which begins now if it is new. Raises `TopicError`."""
        process = self.processes.get(topic)
        if process is None:
            if not topic or len(topic.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES:
                raise TopicError(f"{topic!r} cannot name a topic: use 1 to {MAX_TOPIC_BYTES} bytes of UTF-8")
            if len(self.processes) >= TOPICS:
                raise TopicError(f"{topic!r} would be topic number {TOPICS + 1:,}: a process has at most {TOPICS:,}")
            process = self.processes[topic] = self._process(topic)
            process.start()
        return process

    def _process(self, topic: str) -> StackProcess:
        port = TopicPort(self._port, topic, self.message)
        return self._stack.of_topic(port, self._roster.of_topic(topic))

    def subscribe(self, topic: str) -> None:
        """Everyone is subscribed: the subscription is complete at once."""
        self.of(topic)
        self._port.announce(Subscribed(topic))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message of a topic arrived."""
        try:
            process = self.of(message.topic)  # type: ignore[attr-defined]
        except TopicError as error:
            raise ProtocolViolationError(str(error)) from None
        process.receive(sender, message.message)  # type: ignore[attr-defined]

    def timer(self, timer: Timer) -> None:
        """A timer of a topic is due."""
        assert isinstance(timer, tuple)
        self.processes[timer[1]].timer(timer[2])

    def pending(self, origin: ProcessId) -> int:
        """Of all topics together."""
        return sum(process.pending(origin) for process in self.processes.values())

    @property
    def unstable(self) -> int:
        """Of all topics together."""
        return sum(process.unstable for process in self.processes.values())

    def tables(self) -> dict[str, int]:
        """Of all topics together."""
        sizes: dict[str, int] = {}
        for process in self.processes.values():
            for name, size in process.tables().items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def snapshots(self) -> dict[str, bytes]:
        """By topic, what its process must not forget."""
        return {topic: process.snapshot() for topic, process in self.processes.items()}

    def restore(self, snapshots: Mapping[str, bytes]) -> None:
        """Take up from there."""
        for topic, snapshot in snapshots.items():
            process = self.processes[topic] = self._process(topic)
            process.restore(snapshot)
