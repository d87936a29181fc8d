"""Two small stacks whose members come, go and recover: one over session links, one over durable ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from causalcast.model import MembershipChanged, Message, Roster, Tag
from causalcast.protocols import BaseProcess, BroadcastMessage, Stack, WireMessage, stack

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols import Port, Process, Timer


class Hello(WireMessage, frozen=True, array_like=True, gc=False, tag="hello"):
    """Whoever gets it answers with all it knows."""


class Known(WireMessage, frozen=True, array_like=True, gc=False, tag="known"):
    names: tuple[str, ...]


class Bye(WireMessage, frozen=True, array_like=True, gc=False, tag="bye"):
    """The sender leaves."""


class Note(BroadcastMessage, frozen=True, array_like=True, gc=False, tag="note"):
    counter: int
    payload: bytes


class Gossip(BaseProcess):
    """Everyone knows everyone they have heard of, and says what it hears to nobody else."""

    def __init__(self, port: Port, roster: Roster) -> None:
        self.port = port
        self.known: dict[ProcessId, None] = {}
        self.down: list[ProcessId] = []
        self.suspected: list[ProcessId] = []
        self.sent = 0
        self.fired = 0
        self.joined = False
        self.members = roster

    def start(self) -> None:
        self.port.set_timer(1_000_000, "beat")

    def join(self, contact: ProcessId) -> None:
        self.port.connect(contact)
        self.port.send([contact], Hello())

    def leave(self) -> None:
        self.port.send(list(self.known), Bye())
        self.port.announce(MembershipChanged(left=(self.port.name,)))
        self.port.retire()

    def suspect(self, peer: ProcessId) -> None:
        self.suspected.append(peer)

    def link_down(self, peer: ProcessId) -> None:
        self.known.pop(peer, None)
        self.down.append(peer)

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        self.sent += 1
        self.port.send(list(self.known), Note(self.port.name, self.sent, payload))
        return Tag(self.port.name, self.sent, (), (), self.members)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        match message:
            case Hello():
                self.port.send([sender], Known((self.port.name, *self.known)))
                self.meet((sender,))
            case Known(names):
                new = [name for name in names if name not in self.known and name != self.port.name]
                self.meet(names)
                self.port.send([name for name in new if name != sender], Known((self.port.name,)))
                if not self.joined:
                    self.joined = True
                    self.port.announce(MembershipChanged(joined=(self.port.name,)))
            case Bye():
                self.known.pop(sender, None)
                self.port.disconnect(sender)
            case Note(origin, counter, payload):
                self.port.deliver(Message(payload, Tag(origin, counter, (), (), self.members)))

    def meet(self, names: tuple[ProcessId, ...]) -> None:
        for name in names:
            if name != self.port.name and name not in self.known:
                self.known[name] = None
                self.port.connect(name)

    def timer(self, timer: Timer) -> None:
        self.fired += 1

    def take(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int:
        return 0

    @property
    def unstable(self) -> int:
        return 0


class GossipStack(Stack):
    def process(self, port: Port, roster: Roster) -> Gossip:  # type: ignore[override] # no layers
        return Gossip(port, roster)


def _fields() -> dict[str, object]:
    base = stack("unordered")
    return {name: getattr(base, name) for name in base.__dataclass_fields__}


GOSSIP = GossipStack(
    **{
        **_fields(),
        "name": "gossip",
        "wire_types": (Hello, Known, Bye, Note),
        "dynamic": True,
        "session_links": True,
        "topics": False,
        "topic_message": None,
        "recovers": False,
    }  # type: ignore[arg-type]
)
DURABLE_GOSSIP = replace(GOSSIP, name="durable-gossip", session_links=False)


class Kept(msgspec.Struct, array_like=True):
    sent: int
    heard: dict[str, int]


class Counting(BaseProcess):
    """FIFO over durable links; it writes down what it has sent and heard, and sets its timer again when it recovers."""

    def __init__(self, port: Port, roster: Roster) -> None:
        self.port = port
        self.roster = roster
        self.kept = Kept(0, {})
        self.restored = 0
        self.fired: list[int] = []

    def start(self) -> None:
        self.port.set_timer(50_000_000, "beat")

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        self.kept.sent += 1
        self.port.send(self.roster.others(self.port.name), Note(self.port.name, self.kept.sent, payload))
        return Tag(self.port.name, self.kept.sent, (), (), self.roster)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        assert isinstance(message, Note)
        assert message.counter == self.kept.heard.get(sender, 0) + 1
        self.kept.heard[sender] = message.counter
        self.port.deliver(Message(message.payload, Tag(sender, message.counter, (), (), self.roster)))

    def timer(self, timer: Timer) -> None:
        self.fired.append(self.port.now_ns())

    def take(self, event: Event) -> None: ...

    def pending(self, origin: ProcessId) -> int:
        return 0

    @property
    def unstable(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.kept)


class CountingStack(Stack):
    def process(self, port: Port, roster: Roster) -> Counting:  # type: ignore[override] # no layers
        return Counting(port, roster)

    def recover(self, port: Port, roster: Roster, snapshot: bytes) -> Process:
        process = Counting(port, roster)
        process.kept = msgspec.msgpack.decode(snapshot, type=Kept)
        process.restored += 1
        process.start()
        return process


COUNTING = CountingStack(
    **{
        **_fields(),
        "name": "counting",
        "wire_types": (Note,),
        "fifo_links": True,
        "topics": False,
        "topic_message": None,
        "recovers": True,
    }  # type: ignore[arg-type]
)
