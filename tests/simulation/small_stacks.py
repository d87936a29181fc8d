"""Stacks as small as can be, with one process class each and no layers: what the explorer's steps are tried on."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec

from causalcast.model import (
    Event,
    MembershipChanged,
    Message,
    NotAMemberError,
    ProcessId,
    Roster,
    Subscribed,
    Tag,
    Unsubscribed,
)
from causalcast.protocols import STACKS, Stack, WireMessage
from causalcast.protocols.layers import BaseProcess

if TYPE_CHECKING:
    from causalcast.protocols import Port, Process, Timer

NO_ROSTER = Roster(())


class Note(WireMessage, frozen=True, array_like=True, gc=False, tag=1):
    """A message of the application."""

    origin: str
    counter: int
    payload: bytes
    topic: str = ""


class Hello(WireMessage, frozen=True, array_like=True, gc=False, tag=2):
    """Let me in."""


class Welcome(WireMessage, frozen=True, array_like=True, gc=False, tag=3):
    """You are in; these have been here."""

    seen: tuple[tuple[str, int], ...]


class Want(WireMessage, frozen=True, array_like=True, gc=False, tag=4):
    """I subscribe."""

    topic: str
    number: int


class Noted(WireMessage, frozen=True, array_like=True, gc=False, tag=5):
    """I know that you subscribe."""

    topic: str
    number: int


class Out(WireMessage, frozen=True, array_like=True, gc=False, tag=6):
    """That process is put out; these are all of its messages that I have."""

    name: str
    notes: tuple[Note, ...]


class Small(BaseProcess):
    """Sends each message to all others, and delivers on arrival what it has not seen."""

    def __init__(self, port: Port, roster: Roster) -> None:
        self.port = port
        self.me = port.name
        self.peers = list(roster.others(port.name))
        self.sent: dict[str, int] = {}
        self.seen: dict[tuple[str, int, str], None] = {}

    def start(self) -> None:
        """Nothing to do."""

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        counter = self.sent[topic] = self.sent.get(topic, 0) + 1
        self.seen[self.me, counter, topic] = None
        self.spread(Note(self.me, counter, payload, topic))
        return Tag(self.me, counter, (), (), NO_ROSTER)

    def spread(self, note: Note, sender: ProcessId = "") -> None:
        self.port.send([peer for peer in self.peers if peer not in (sender, note.origin)], note)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        assert isinstance(message, Note)
        self.accept(message)

    def accept(self, note: Note) -> bool:
        key = (note.origin, note.counter, note.topic)
        if key in self.seen:
            return False
        self.seen[key] = None
        self.seen = dict(sorted(self.seen.items()))
        tag = Tag(note.origin, note.counter, (), (), NO_ROSTER)
        self.port.deliver(Message(note.payload, tag, note.topic))
        return True

    def timer(self, timer: Timer) -> None:
        """There are none."""

    def take(self, event: Event) -> None:
        """Nothing depends on it."""

    def pending(self, origin: ProcessId) -> int:
        return 0

    @property
    def unstable(self) -> int:
        return 0


class Overlay(Small):
    """Floods over session links. Members from the start are all linked; a joiner has a link to its contact."""

    def __init__(self, port: Port, roster: Roster) -> None:
        super().__init__(port, roster)
        self.member = len(roster) > 1

    def start(self) -> None:
        for peer in self.peers:
            self.port.connect(peer)

    def join(self, contact: ProcessId) -> None:
        self.port.connect(contact)
        self.port.send([contact], Hello())

    def leave(self) -> None:
        if not self.member:
            raise NotAMemberError(self.me)
        self.member = False
        self.port.announce(MembershipChanged(left=(self.me,)))
        self.port.retire()

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        if not self.member:
            raise NotAMemberError(self.me)
        return super().broadcast(payload, topic)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if isinstance(message, Hello):
            self.welcome(sender)
        elif isinstance(message, Welcome):
            self.peers.append(sender)
            self.seen.update(dict.fromkeys((*each, "") for each in message.seen))
            self.member = True
            self.port.announce(MembershipChanged(joined=(self.me,)))
        else:
            assert isinstance(message, Note)
            if self.accept(message):
                self.spread(message, sender)

    def welcome(self, sender: ProcessId) -> None:
        self.port.connect(sender)
        self.peers.append(sender)
        self.port.send([sender], Welcome(tuple((origin, counter) for origin, counter, _ in self.seen)))

    def link_down(self, peer: ProcessId) -> None:
        if peer in self.peers:
            self.peers.remove(peer)


class HastyOverlay(Overlay):
    """Takes itself for a member before its contact knows of it."""

    def join(self, contact: ProcessId) -> None:
        super().join(contact)
        self.peers.append(contact)
        self.member = True
        self.port.announce(MembershipChanged(joined=(self.me,)))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if not isinstance(message, Welcome):
            super().receive(sender, message)


class DirectOverlay(Overlay):
    """Does not flood: what a broken link loses, nobody brings."""

    def spread(self, note: Note, sender: ProcessId = "") -> None:
        if note.origin == self.me:
            super().spread(note, sender)


class DeafOverlay(Overlay):
    """Does not hear that links end, and goes on sending; its table of neighbours grows by that."""

    def link_down(self, peer: ProcessId) -> None:
        """Nothing."""

    def tables(self) -> dict[str, int]:
        return {"neighbours for nothing": sum(peer not in self.port.connected for peer in self.peers)}  # type: ignore[attr-defined]


class Publisher(Small):
    """Topics: a subscription is complete when all others know of it, and publications go to those who subscribed."""

    def __init__(self, port: Port, roster: Roster) -> None:
        super().__init__(port, roster)
        self.asked = 0
        self.wanted: dict[str, list[ProcessId]] = {}
        self.mine: dict[str, tuple[int, int]] = {}
        """Of each topic subscribed to, the number of the subscription, and how many do not know of it yet."""

    def subscribe(self, topic: str) -> None:
        self.asked += 1
        self.mine[topic] = self.asked, len(self.peers)
        self.port.send(self.peers, Want(topic, self.asked))

    def unsubscribe(self, topic: str) -> None:
        self.mine.pop(topic, None)
        self.port.announce(Unsubscribed(topic))

    def spread(self, note: Note, sender: ProcessId = "") -> None:
        self.port.send(self.wanted.get(note.topic, []), note)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if isinstance(message, Want):
            names = self.wanted.setdefault(message.topic, [])
            names[:] = sorted({*names, sender})
            self.port.send([sender], Noted(message.topic, message.number))
        elif isinstance(message, Noted):
            number, left = self.mine.get(message.topic, (0, 0))
            if message.number == number:
                self.mine[message.topic] = number, left - 1
                if left == 1:
                    self.port.announce(Subscribed(message.topic))
        else:
            assert isinstance(message, Note)
            if message.topic in self.mine:
                self.accept(message)


class HastyPublisher(Publisher):
    """Says that a subscription is complete before anybody knows of it."""

    def subscribe(self, topic: str) -> None:
        super().subscribe(topic)
        self.port.announce(Subscribed(topic))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if not isinstance(message, Noted):
            super().receive(sender, message)


class LaxPublisher(Publisher):
    """Takes the answer to an earlier subscription for one to this."""

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if isinstance(message, Noted) and message.topic in self.mine:
            message = Noted(message.topic, self.mine[message.topic][0])
        super().receive(sender, message)


class Lasting(Small):
    """Remembers across a restart what it has sent and seen."""

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.sent, list(self.seen)))

    def restore(self, snapshot: bytes) -> None:
        self.sent, seen = msgspec.msgpack.decode(snapshot, type=tuple[dict[str, int], list[tuple[str, int, str]]])
        self.seen = dict.fromkeys(seen)


class Forgetful(Lasting):
    """Forgets what it has seen."""

    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        self.seen.clear()


class Club(Small):
    """Puts out whom anybody suspects; all hand on what they have of it, so that all survivors have the same."""

    resends = True

    def __init__(self, port: Port, roster: Roster) -> None:
        super().__init__(port, roster)
        self.notes: dict[str, list[Note]] = {}
        self.out: list[ProcessId] = []

    def suspect(self, peer: ProcessId) -> None:
        if peer in self.peers:
            self.put_out(peer)

    def put_out(self, peer: ProcessId) -> None:
        self.peers.remove(peer)
        self.out.append(peer)
        self.port.announce(MembershipChanged(evicted=(peer,)))
        self.port.send(self.peers, Out(peer, tuple(self.notes.get(peer, ())) if self.resends else ()))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if isinstance(message, Out):
            if message.name == self.me:
                return
            for note in message.notes:
                self.keep(note)
            if message.name in self.peers:
                self.put_out(message.name)
        elif isinstance(message, Note) and message.origin not in self.out:
            self.keep(message)

    def keep(self, note: Note) -> None:
        if self.accept(note):
            self.notes.setdefault(note.origin, []).append(note)


class SilentClub(Club):
    """Nobody hands on what it has of whom was put out."""

    resends = False


@dataclass(frozen=True, slots=True)
class SmallStack(Stack):
    kind: type[Small] = Small

    def process(self, port: Port, roster: Roster) -> Process:  # type: ignore[override]
        return self.kind(port, roster)

    def recover(self, port: Port, roster: Roster, snapshot: bytes) -> Process:
        process = self.kind(port, roster)
        process.restore(snapshot)  # type: ignore[attr-defined]
        return process


def small(kind: type[Small], **settings: Any) -> SmallStack:
    base = STACKS["unordered"]
    inherited = {each.name: getattr(base, each.name) for each in fields(Stack)}
    changed = {
        "name": kind.__name__.lower(),
        "wire_types": (Note, Hello, Welcome, Want, Noted, Out),
        "dynamic": issubclass(kind, Overlay | Club),
        "session_links": issubclass(kind, Overlay),
        "topics": issubclass(kind, Publisher),
        "topic_message": None,
        "recovers": issubclass(kind, Lasting),
    }
    return SmallStack(**{**inherited, **changed, "kind": kind, **settings})
