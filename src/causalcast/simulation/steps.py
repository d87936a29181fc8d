"""The steps that a schedule is made of, and what applications see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from causalcast.model import Dot

if TYPE_CHECKING:
    from causalcast.model import ProcessId, Tag
    from causalcast.protocols import Timer


class TopicDot(NamedTuple):
    """The identity of a message of a topic: each topic has its own numbers."""

    origin: ProcessId
    counter: int
    topic: str

    def __str__(self) -> str:
        return f"{self.origin}:{self.counter}@{self.topic}"


MessageId: TypeAlias = Dot | TopicDot


def topic_of(message: MessageId) -> str:
    """Where it was published; empty: to the group."""
    return message.topic if isinstance(message, TopicDot) else ""


def message_id(tag: Tag, topic: str) -> MessageId:
    """The identity of the message of `tag`."""
    return TopicDot(tag.origin, tag.counter, topic) if topic else tag.dot


class LogEntry(NamedTuple):
    """What an application saw or did.

    `broadcast`, `deliver` and `stable` are about the message of `tag`. `joining` and `subscribing` are calls,
    complete with `join` and `subscribe`; `leave` and `unsubscribe` are calls too, for nothing is owed from then on;
    `unsubscribed` is the news that the latter is complete.
    `evict` is the news that `peer` was put out, `recover` a restart of the process itself.
    """

    kind: str
    tag: Tag | None = None
    payload: bytes = b""
    topic: str = ""
    peer: ProcessId = ""

    @property
    def message(self) -> MessageId:
        """The message that the entry is about."""
        assert self.tag is not None, f"{self.kind} is about no message"
        return message_id(self.tag, self.topic)


class Broadcast(NamedTuple):
    """Step: the application at `process` broadcasts `payload`, to a topic or to the group."""

    process: ProcessId
    payload: bytes = b""
    topic: str = ""


class Receive(NamedTuple):
    """Step: the `place`-th message in flight from `sender` to `receiver` arrives, or the end of the link between them.

    On a session link whatever comes before the end of a broken one can only be lost with it.
    """

    sender: ProcessId
    receiver: ProcessId
    place: int = 0


class Take(NamedTuple):
    """Step: the application at `process` receives its next event."""

    process: ProcessId


class Fire(NamedTuple):
    """Step: a timer of `process` comes due."""

    process: ProcessId
    timer: Timer


class Join(NamedTuple):
    """Step: `process`, which was absent, starts and joins through `contact`."""

    process: ProcessId
    contact: ProcessId


class Leave(NamedTuple):
    """Step: the application at `process` asks to leave."""

    process: ProcessId


class Suspect(NamedTuple):
    """Step: `process` is told that `peer` has crashed, rightly or wrongly."""

    process: ProcessId
    peer: ProcessId


class Trust(NamedTuple):
    """Step: `process` is told that its suspicion of `peer` was wrong."""

    process: ProcessId
    peer: ProcessId


class Subscribe(NamedTuple):
    """Step: the application at `process` asks for `topic`."""

    process: ProcessId
    topic: str


class Unsubscribe(NamedTuple):
    """Step: the application at `process` asks for no more of `topic`."""

    process: ProcessId
    topic: str


class Duplicate(NamedTuple):
    """Fault: the link repeats the `place`-th message in flight, behind all others that are in flight."""

    sender: ProcessId
    receiver: ProcessId
    place: int = 0


class Crash(NamedTuple):
    """Fault: `process` stops for ever. What it sent still arrives (of a session link: a prefix of it); what is sent to
    it does not.
    """

    process: ProcessId


class Restart(NamedTuple):
    """Fault: `process` crashes and is at once made again from its snapshot. Its timers are forgotten, the events that
    its application has not taken are not. Durable links only.
    """

    process: ProcessId


class Break(NamedTuple):
    """Fault: the session link that `process` keeps to `peer` breaks, and `process` notices now, `peer` later.

    What `peer` had in flight on it is lost, of what `process` had in flight a prefix arrives.
    """

    process: ProcessId
    peer: ProcessId


ApplicationStep = Broadcast | Join | Leave | Suspect | Trust | Subscribe | Unsubscribe
"""What a process is told to do from outside of the group."""

Step = ApplicationStep | Receive | Take | Fire | Duplicate | Crash | Restart | Break


class Closed(NamedTuple):
    """The end of a session link, in flight behind what was sent on it.

    A `graceful` end comes after all of that; one that is not may overtake it, and what it overtakes is lost. The
    `last` end of a process that is gone stays for ever: whoever connects later meets it again.
    """

    epoch: int
    graceful: bool
    last: bool = False


def parties(step: Step) -> tuple[ProcessId, ...]:
    """Every process that the step names."""
    match step:
        case Receive(sender, receiver) | Duplicate(sender, receiver):
            return sender, receiver
        case Join(process, other) | Suspect(process, other) | Trust(process, other) | Break(process, other):
            return process, other
    return (step.process,)


def actor(step: Step) -> ProcessId:
    """The process that takes the step."""
    return step.receiver if isinstance(step, Receive | Duplicate) else step.process
