"""What a host must not forget, as bytes: the process, the links' buffers, and the events not taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

import msgspec

from causalcast.model import Delivered, MembershipChanged, Message, Stable, Subscribed, Tag, Unsubscribed
from causalcast.protocols.ordering.tcb_dynamic_tag import DottedTag, View
from causalcast.runtime.book import Entry
from causalcast.runtime.life import LifeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from causalcast.model import Event, ProcessId, RawDot, Roster
    from causalcast.runtime.link import Link

Context = tuple[tuple[str, int], ...]


class QueuedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """A `Delivered`, or without payload a `Stable`."""

    topic: str
    origin: str
    counter: int
    context: Context
    counts: tuple[int, ...]
    payload: bytes | None
    version: int | None
    """Of the view that its tag was made in, where members come and go."""


class QueuedMembership(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A `MembershipChanged`."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    evicted: tuple[str, ...]


class QueuedSubscription(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A `Subscribed` or `Unsubscribed`."""

    topic: str
    begins: bool


QueuedEvent = QueuedMessage | QueuedMembership | QueuedSubscription


class LinkSnapshot(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What must not be forgotten of a link."""

    incarnation: int
    """Of the peer; 0 before it was met."""
    first_number: int
    frames: list[int]
    """Places, in a list that all links share, of the frames not acknowledged."""
    expected: int
    departed: bool


class MovingState(msgspec.Struct, frozen=True, array_like=True):
    """What a host of members that come and go has besides."""

    book: list[Entry]
    """Where members are reached, the least recently used first."""
    pieces: dict[str, list[bytes]]
    """By peer, what has come of a message that is longer than a frame."""
    gone: dict[str, int]
    """Links that have ended for good, and the code that tells why."""
    loose: dict[str, int]
    """Links that are to end, likewise."""
    life: LifeState


class HostState(msgspec.Struct, frozen=True, array_like=True):
    """A host between two inputs."""

    process: bytes
    frames: list[bytes]
    """Of all links; those that carry the same message under the same number share one."""
    links: dict[str, LinkSnapshot]
    queue: list[QueuedEvent]
    rows: int
    """Of the trace so far."""
    views: dict[int, tuple[str, ...]]
    """Of the messages in the queue, by version."""
    moving: MovingState | None
    """Where members come and go."""


class Sent(NamedTuple):
    """A broadcast, as the trace tells it."""

    tag: Tag
    topic: str
    payload_bytes: int
    overhead_bytes: int


class Past(NamedTuple):
    """What the application did and saw between the last snapshot and the end of the last life."""

    rows: int
    """Of its trace at the snapshot."""
    steps: list[tuple[int, Sent | Event | None]]
    """With the time, in ns since the epoch; `None`: a recovery."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(HostState).decode


def encode_state(
    process: bytes, links: Mapping[ProcessId, Link], queue: Sequence[Event], rows: int, moving: MovingState | None
) -> bytes:
    """The snapshot of a host."""
    places: dict[int, int] = {}
    frames: list[bytes] = []

    def place(frame: bytes) -> int:
        known = places.setdefault(id(frame), len(frames))
        if known == len(frames):
            frames.append(frame)
        return known

    kept = {peer: link.snapshot(place) for peer, link in links.items()}
    views = {view.version: view.names for view in map(_view, queue) if view is not None}
    return _encode(HostState(process, frames, kept, [_queued(event) for event in queue], rows, views, moving))


def decode_state(state: bytes) -> HostState:
    """Raises `msgspec.DecodeError`."""
    return _decode(state)


def _queued(event: Event) -> QueuedEvent:
    match event:
        case Delivered(message):
            return _message(message.tag, message.topic, message.payload)
        case Stable(tag, topic):
            return _message(tag, topic, None)
        case MembershipChanged(joined, left, evicted):
            return QueuedMembership(joined, left, evicted)
        case Subscribed(topic):
            return QueuedSubscription(topic, begins=True)
        case Unsubscribed(topic):
            return QueuedSubscription(topic, begins=False)
        case _:
            assert_never(event)


def _message(tag: Tag, topic: str, payload: bytes | None) -> QueuedMessage:
    context: tuple[RawDot, ...] = tag.context
    version = tag.roster.version if isinstance(tag.roster, View) else None
    return QueuedMessage(topic, tag.origin, tag.counter, context, tag.counts, payload, version)


def _view(event: Event) -> View | None:
    match event:
        case Delivered(Message(tag=tag)) | Stable(tag):
            return tag.roster if isinstance(tag.roster, View) else None
    return None


def events(state: HostState, members: Roster) -> Iterator[Event]:
    """The events that were not taken again; `members` are those of the group, where they are fixed."""
    rosters = {"": members}
    views = {version: View(names, "", version) for version, names in state.views.items()}
    for queued in state.queue:
        match queued:
            case QueuedMessage(topic, origin, counter, context, counts, payload, version):
                if version is not None:
                    tag: Tag = DottedTag(origin, counter, context, counts, views[version])
                else:
                    if topic not in rosters:
                        rosters[topic] = members.of_topic(topic)
                    tag = Tag(origin, counter, context, counts, rosters[topic])
                yield Stable(tag, topic) if payload is None else Delivered(Message(payload, tag, topic))
            case QueuedMembership(joined, left, evicted):
                yield MembershipChanged(joined, left, evicted)
            case QueuedSubscription(topic, begins):
                yield Subscribed(topic) if begins else Unsubscribed(topic)
