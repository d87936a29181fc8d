"""Stacks: membership, dissemination and ordering put together, and what the combination promises and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from causalcast.model import ProtocolViolationError, SnapshotError, UnsupportedByStackError
from causalcast.protocols.layers import BaseProcess
from causalcast.protocols.topics import TOPIC_TIMER, Topics, any_of, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import Event, ProcessId, Roster, Tag
    from causalcast.protocols.layers import Dissemination, Membership, Recoverable
    from causalcast.protocols.ordering import Ordering
    from causalcast.protocols.port import Port, Process, Timer, WireMessage

PROPERTIES: dict[str, str] = {
    "P1": "integrity: at most once, only what was broadcast, with the payload that was broadcast",
    "P2": "validity and agreement: every correct process delivers all it is entitled to",
    "P3": "causal order: no effect before its cause",
    "P4": "exact tags: before, after or concurrent exactly as it happened",
    "P5": "sound stability: nothing concurrent with a stable message comes later",
    "P6": "live stability: every message becomes stable everywhere",
    "P7": "bounded state: tables return to their base",
    "P8": "liveness after healing: nothing stays buffered for ever",
}


@dataclass(frozen=True, slots=True)
class Stack:
    """An entry of the registry: how to build one process of it, and what its users may rely on."""

    name: str
    summary: str
    membership: Callable[[Port, Roster], Membership]
    dissemination: Callable[[Port, Any], Dissemination]
    """Its second argument is what `membership` makes."""
    ordering: Callable[[Port, Any, Any], Ordering]
    """Its other arguments are what `membership` and `dissemination` make."""
    wire_types: tuple[type[WireMessage], ...]
    """All messages of all layers."""
    promises: frozenset[str]
    dynamic: bool
    """Whether members may come and go while it runs."""
    fifo_links: bool
    """Whether it needs links that keep order."""
    message_cost: str
    process_cost: str
    source: str
    session_links: bool = False
    """Whether it is made for session links rather than durable ones: see `port`."""
    topics: bool = False
    """Whether it carries topics."""
    topic_message: type[WireMessage] | None = None
    """Of a stack whose topics are groups of their own over the same links (see `topics`): what carries their messages;
    it is one of `wire_types` too.
    """
    suspects: bool = False
    """Whether its static members are told who is taken for crashed (`suspect`), and when that was wrong (`trust`)."""
    recovers: bool = False
    """Whether its processes can be made again from what they wrote down: the ordering is `Recoverable`."""

    def process(self, port: Port, roster: Roster) -> StackProcess:
        """One process of this stack, for the member that `port` names.

        `roster` holds the members the group starts with; of a process that will join, itself alone.
        """
        process = self.of_topic(port, roster)
        if self.topic_message is not None:
            process.carry(Topics(port, self, roster, self.topic_message))
        return process

    def of_topic(self, port: Port, roster: Roster) -> StackProcess:
        """The process of a topic that is a group of its own; `port` stands before that of the whole process."""
        membership = self.membership(port, roster)
        dissemination = self.dissemination(port, membership)
        return StackProcess(membership, dissemination, self.ordering(port, membership, dissemination))

    def recover(self, port: Port, roster: Roster, snapshot: bytes) -> Process:
        """The process of which `snapshot` was taken, as it was then; no `start` follows.

        Raises `UnsupportedByStackError` where nothing is written down, `SnapshotError` for other bytes.
        """
        if not self.recovers:
            raise UnsupportedByStackError(f"processes of {self.name!r} write nothing down: they cannot recover")
        process = self.process(port, roster)
        try:
            process.restore(snapshot)
        except msgspec.DecodeError as error:
            raise SnapshotError(f"this is no snapshot of a process of {self.name!r}: {error}") from None
        return process

    def decoder(self) -> msgspec.msgpack.Decoder[WireMessage]:
        """Decodes, and checks the types of, the wire messages of this stack and of no other."""
        return msgspec.msgpack.Decoder(any_of(self.wire_types))


class ProcessState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a process writes down: the state of its ordering, and the whole state of each topic."""

    ordering: bytes
    topics: dict[str, bytes]


class StackProcess(BaseProcess):
    """One process of a stack, as its host sees it; `Process` in `port` says what each call means."""

    __slots__ = ("_receivers", "_topics", "dissemination", "membership", "ordering")

    def __init__(self, membership: Membership, dissemination: Dissemination, ordering: Ordering) -> None:
        self.membership = membership
        self.dissemination = dissemination
        self.ordering = ordering
        membership.above = dissemination
        dissemination.upward = ordering.receive
        self._receivers = dict.fromkeys((*ordering.wire_types, *dissemination.wire_types), dissemination.receive)
        self._receivers.update(dict.fromkeys(membership.wire_types, membership.receive))
        self._topics: Topics | None = None

    def carry(self, topics: Topics) -> None:
        """Let it have topics."""
        self._topics = topics
        self._receivers[topics.message] = topics.receive

    def start(self) -> None:
        self.membership.start()
        self.dissemination.start()
        self.ordering.start()

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        if topic:
            return self._the_topics(topic).of(topic).broadcast(payload)
        return self.ordering.broadcast(payload)

    def take(self, event: Event) -> None:
        topics = self._topics
        if topics is not None and topics.processes and (topic := topic_of(event)):
            topics.of(topic).take(event)
        else:
            self.ordering.take(event)

    def timer(self, timer: Timer) -> None:
        word = timer[0] if isinstance(timer, tuple) else timer
        if word == TOPIC_TIMER and self._topics is not None:
            self._topics.timer(timer)
        elif word in self.membership.timers:
            self.membership.timer(timer)
        elif word in self.dissemination.timers:
            self.dissemination.timer(timer)
        else:
            self.ordering.timer(timer)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        receive = self._receivers.get(type(message))
        if receive is None:
            raise ProtocolViolationError(f"{type(message).__name__} is no message of this stack")
        receive(sender, message)

    @property
    def receiver(self) -> Callable[[ProcessId, WireMessage], None]:
        """What a host may call instead of `receive`: one layer, where it takes all messages of the stack."""
        return self.receive

    def pending(self, origin: ProcessId) -> int:
        pending, topics = self.ordering.pending(origin), self._topics
        return pending + topics.pending(origin) if topics is not None and topics.processes else pending

    @property
    def unstable(self) -> int:
        unstable, topics = self.ordering.unstable, self._topics
        return unstable + topics.unstable if topics is not None and topics.processes else unstable

    @property
    def standing(self) -> frozenset[str]:
        return self.membership.standing | self.dissemination.standing

    def tables(self) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for part in (self.membership, self.dissemination, self.ordering, self._topics):
            tables: Callable[[], dict[str, int]] = getattr(part, "tables", dict)
            for name, size in tables().items():
                sizes[name] = sizes.get(name, 0) + size
        return sizes

    def join(self, contact: ProcessId) -> None:
        self.membership.join(contact)

    def leave(self) -> None:
        self.membership.leave()

    def suspect(self, peer: ProcessId) -> None:
        self.membership.suspect(peer)

    def trust(self, peer: ProcessId) -> None:
        self.membership.trust(peer)

    def link_down(self, peer: ProcessId) -> None:
        self.membership.link_down(peer)

    def subscribe(self, topic: str) -> None:
        self._the_topics(topic).subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        if self._topics is None:
            super().unsubscribe(topic)
        else:
            raise UnsupportedByStackError(f"everyone is subscribed to every topic of this stack, so to {topic!r} too")

    def _the_topics(self, topic: str) -> Topics:
        if self._topics is None:
            raise UnsupportedByStackError(f"this stack has no topics, so there is no {topic!r}")
        return self._topics

    def snapshot(self) -> bytes:
        if not hasattr(self.ordering, "snapshot"):
            return super().snapshot()
        topics = {} if self._topics is None else self._topics.snapshots()
        return _encode(ProcessState(cast("Recoverable", self.ordering).snapshot(), topics))

    def restore(self, snapshot: bytes) -> None:
        """Take up from `snapshot`, instead of `start`."""
        state = _decode_state(snapshot)
        cast("Recoverable", self.ordering).restore(state.ordering)
        if state.topics:
            assert self._topics is not None
            self._topics.restore(state.topics)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_state: Final = msgspec.msgpack.Decoder(ProcessState).decode
