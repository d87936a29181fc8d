"""One process fed step by step: its port, and what each step does to it.

What a process does is a function of its own inputs in their order, whatever the others do in between: its clock counts
its own steps, and what it knows of its links it knows from what came over them.

**Session links.** Each side of a link counts its *epochs*: how many times, as far as it knows, the link between the
two was closed. What is sent carries the sender's count. To close it, or to see it break, ends an epoch, and puts a
`Closed` of that epoch in flight behind what was sent in it. On arrival it ends the receiver's epoch too, and
`link_down` is called if the receiver had said `connect` in it; if the receiver has ended that epoch itself meanwhile
the two cancel out. What arrives from an epoch that the receiver has ended is lost with it, as on a closed socket. A
process that is gone, crashed or retired, leaves a `Closed` that stays: it is met as often as anybody connects.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from causalcast.model import (
    Delivered,
    Event,
    MembershipChanged,
    Message,
    NotAMemberError,
    ProcessId,
    Roster,
    Stable,
    Subscribed,
    Tag,
    TopicError,
    Unsubscribed,
)
from causalcast.simulation.steps import (
    Break,
    Broadcast,
    Closed,
    Fire,
    Join,
    Leave,
    LogEntry,
    Receive,
    Restart,
    Step,
    Subscribe,
    Suspect,
    Take,
    Trust,
    Unsubscribe,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.protocols import Process, Random, Stack, Timer, WireMessage


class InEpoch(NamedTuple):
    """A message on a session link that has been closed before."""

    epoch: int
    message: WireMessage


InFlight: TypeAlias = "WireMessage | InEpoch | Closed"

Carry: TypeAlias = "Callable[[ProcessId, Sequence[ProcessId], InFlight], None]"
"""Takes what the process of that name sends to others."""


class RefusedError(Exception):
    """The application asked for what is not possible now; nothing has changed."""


class WorldPort:
    """The port of one process: what it queues and sets is kept until a step uses it; `carry` takes what it sends."""

    def __init__(self, name: ProcessId, seed: int, carry: Carry, peers: Sequence[ProcessId] | None = None) -> None:
        """`peers` are all other processes where links are session links, `None` where they are durable."""
        self.name = name
        self.queue: deque[Event] = deque()
        self.timers: dict[Timer, None] = {}
        self.steps = 0
        self.clock_was_read = False
        self.drawn: random.Random | None = None
        """The source of randomness, once the process has asked for it."""
        self.connected: dict[ProcessId, None] = {}
        """To whom this process keeps a session link."""
        self.epochs: dict[ProcessId, int] = {}
        """How often the session link to each was closed; none: never."""
        self.retired = False
        self.gone = False
        """Whether it has crashed or retired: nothing reaches it, and it sends nothing."""
        self._seed = seed
        self._carry = carry
        self._peers = peers

    @property
    def random(self) -> Random:
        if self.drawn is None:
            self.drawn = random.Random(f"{self._seed}/{self.name}")
        return self.drawn

    def now_ns(self) -> int:
        self.clock_was_read = True
        return self.steps

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if self.gone:
            return
        if not self.epochs:
            self._carry(self.name, destinations, message)
            return
        for destination in destinations:
            epoch = self.epochs.get(destination, 0)
            self._carry(self.name, (destination,), InEpoch(epoch, message) if epoch else message)

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.queue.append(Stable(tag, topic))

    def announce(self, event: Event) -> None:
        self.queue.append(event)

    def connect(self, peer: ProcessId) -> None:
        if self._peers is not None and not self.gone:
            self.connected[peer] = None

    def disconnect(self, peer: ProcessId) -> None:
        if self._peers is not None and not self.gone:
            self._end_epoch(peer, graceful=True)

    def retire(self) -> None:
        self.retired = True

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        if not self.gone:
            self.timers[timer] = None

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    # the world's side

    @property
    def links(self) -> tuple[object, object] | None:
        """All that decides what the process's session links will do; `None` if it has none."""
        return None if self._peers is None else (sorted(self.connected), sorted(self.epochs.items()))

    def go(self, *, graceful: bool) -> None:
        """The process is gone: whoever keeps a link to it will be told, after all that it sent if `graceful`."""
        self.timers.clear()
        self.gone = True
        if self._peers:
            self._carry(self.name, self._peers, Closed(0, graceful, last=True))

    def broken(self, peer: ProcessId) -> None:
        """The link to `peer` breaks under this process, which keeps one."""
        self._end_epoch(peer, graceful=False)

    def _end_epoch(self, peer: ProcessId, *, graceful: bool) -> None:
        epoch = self.epochs.get(peer, 0)
        self.connected.pop(peer, None)
        self.epochs[peer] = epoch + 1
        self._carry(self.name, (peer,), Closed(epoch, graceful))

    def told(self, peer: ProcessId, closed: Closed) -> bool:
        """The end of a link has arrived: whether the process has to be told."""
        if not closed.last:
            if closed.epoch < self.epochs.get(peer, 0):
                return False
            self.epochs[peer] = closed.epoch + 1
        if peer not in self.connected:
            return False
        del self.connected[peer]
        return True

    def lost(self, peer: ProcessId, epoch: int) -> bool:
        """Whether what `peer` sent in that epoch is lost."""
        return epoch < self.epochs.get(peer, 0)


class Fed(NamedTuple):
    """What a step at one process did there, as far as its application sees it, and the process from now on."""

    process: Process
    entries: tuple[LogEntry, ...] = ()
    event: Event | None = None


def arrivals(in_flight: Sequence[Any], connected: bool) -> list[int]:
    """The places in a session link's queue from which something can arrive next."""
    places = []
    for place, item in enumerate(in_flight):
        if isinstance(item, Closed):
            if item.last and not place and not connected:
                break
            if not place or not item.graceful:
                places.append(place)
        elif not place:
            places.append(place)
    return places


def feed(
    stack: Stack, members: Roster, process: Process, port: WorldPort, step: Step, item: InFlight | None = None
) -> Fed:
    """Let `process` take `step`, one of its own; a `Receive` comes with what arrives.

    `members` are those that the process started with. Raises `RefusedError` if an application asks for what its
    process refuses.
    """
    port.steps += 1
    fed = _feed(stack, members, process, port, step, item)
    if port.retired and not port.gone:
        port.go(graceful=True)
    return fed


def _feed(stack: Stack, members: Roster, process: Process, port: WorldPort, step: Step, item: InFlight | None) -> Fed:
    match step:
        case Receive(sender=sender):
            _receive(process, port, sender, item)
        case Take():
            event = port.queue.popleft()
            process.take(event)
            return Fed(process, _seen(port.name, event), event)
        case Fire(timer=timer):
            del port.timers[timer]
            process.timer(timer)
        case Break(peer=peer):
            port.broken(peer)
            process.link_down(peer)
        case Restart():
            snapshot = process.snapshot()
            port.timers.clear()
            return Fed(stack.recover(port, members, snapshot), (LogEntry("recover"),))
        case Join(contact=contact):
            process.start()
            process.join(contact)
            return Fed(process, (LogEntry("joining"),))
        case _:
            try:
                entry = _ask(process, step)
                return Fed(process, () if entry is None else (entry,))
            except (NotAMemberError, TopicError) as error:
                port.steps -= 1
                raise RefusedError(str(error)) from None
    return Fed(process)


def _receive(process: Process, port: WorldPort, sender: ProcessId, item: InFlight | None) -> None:
    match item:
        case None:
            raise TypeError(f"nothing arrives from {sender!r}")
        case Closed():
            if port.told(sender, item):
                process.link_down(sender)
        case InEpoch(epoch, message):
            if not port.lost(sender, epoch):
                process.receive(sender, message)
        case _:
            if not port.epochs or not port.lost(sender, 0):
                process.receive(sender, item)


def _ask(process: Process, step: Step) -> LogEntry | None:
    match step:
        case Broadcast(payload=payload, topic=topic):
            return LogEntry("broadcast", process.broadcast(payload, topic), payload, topic)
        case Leave():
            process.leave()
            return LogEntry("leave")
        case Subscribe(topic=topic):
            process.subscribe(topic)
            return LogEntry("subscribing", topic=topic)
        case Unsubscribe(topic=topic):
            process.unsubscribe(topic)
            return LogEntry("unsubscribe", topic=topic)
        case Suspect(peer=peer):
            process.suspect(peer)
            return None
        case Trust(peer=peer):
            process.trust(peer)
            return None
    raise TypeError(f"{step} is not taken by a process")


def _seen(name: ProcessId, event: Event) -> tuple[LogEntry, ...]:
    match event:
        case Delivered(message):
            return (LogEntry("deliver", message.tag, message.payload, message.topic),)
        case Stable(tag, topic):
            return (LogEntry("stable", tag, topic=topic),)
        case Subscribed(topic):
            return (LogEntry("subscribe", topic=topic),)
        case Unsubscribed(topic):
            return (LogEntry("unsubscribed", topic=topic),)
        case MembershipChanged(joined=joined, evicted=evicted):
            own = (LogEntry("join"),) if name in joined else ()
            return (*own, *(LogEntry("evict", peer=peer) for peer in evicted))
    return ()
