"""CPTCast, causal Plumtree: payloads along a tree, announcements on the other links, in causal order on each.

Source: document 000, algorithms 2 to 15. Keeps P1, P2 and P3. Per message on the wire: its payload once a process, its
dot on every other safe link. Per link that is added: as PRC (see `prc`, whose link memory this builds on). Per process:
as PRC, and for each link the messages that wait behind one that was announced.

Theory of operation. Each safe link carries each message once: as payload (*eager*), as announcement (*lazy*), or as an
acknowledgement to somebody who has it. An announcement holds up its link, control messages included: what follows waits
until the other side has the message, either from elsewhere, which it says, or because it asked for it (GRAFT). So what
arrives on a link is in order, however the payloads came. A payload that came twice makes its link lazy (PRUNE).

Departures from the print:

* IHAVE is two messages, `Announce` and `Ack`: whoever gets an announcement of what it has must always say so, for it
  may have said nothing of that message on this link before (it was delivered before the link was safe), and the
  announcer's queue would wait for ever.
* A first reception makes the message expected from every link but those that brought or announced it; algorithms 11 and
  14 leave the marking out. A second announcer of a missing message is queued too; algorithm 12 takes the branch for
  known messages.
* checkWaiting removes the entry with the identifier it is about, not the head, and a queue that runs empty has no type.
* A GRAFT for what does not wait any more sends nothing: it was sent, or is known to be there.
* The announcement timer may find nobody left to ask; a link whose announcement goes unanswered for two periods of
  `STUCK_NS` is given up for another neighbour.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.protocols.dissemination.prc import PRC, Ack
from causalcast.protocols.ordering.path import PathMessage
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.dissemination.retention import Retention
    from causalcast.protocols.dissemination.safelinks import Opening
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.port import Port, Timer

FIRST_WAIT_NS: Final = 500_000_000
"""How long an announced message may stay away before its first announcer is asked for it (TIMEOUT1)."""

NEXT_WAIT_NS: Final = 250_000_000
"""How long each announcer asked may take before the next one is (TIMEOUT2)."""

STUCK_NS: Final = 30_000_000_000
"""An announcement that is not answered for one to two times as long is never going to be."""

MISSING_TIMER: Final = "cptcast.missing"
STUCK_TIMER: Final = "cptcast.stuck"


class Announce(WireMessage, frozen=True, array_like=True, gc=False, tag=133):
    """That message is here, and this link waits until you have it or ask for it."""

    origin: str
    counter: int


class Graft(WireMessage, frozen=True, array_like=True, gc=False, tag=134):
    """Send what you announced, and payloads from now on."""

    origin: str
    counter: int


class Prune(WireMessage, frozen=True, array_like=True, gc=False, tag=135):
    """Announce from now on."""


class CPTCast(PRC):
    """Link memory over a tree."""

    __slots__ = ("_grafted", "_lazy", "_missing", "_stuck", "_waiting")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (*PRC.wire_types, Announce, Graft, Prune)
    timers: ClassVar[tuple[str, ...]] = (*PRC.timers, MISSING_TIMER, STUCK_TIMER)

    def __init__(self, port: Port, membership: Overlay, retention: Retention | None = None) -> None:
        super().__init__(port, membership, retention)
        self._lazy: dict[ProcessId, None] = {}
        """Neighbours to whom messages are announced."""
        self._waiting: dict[ProcessId, deque[WireMessage]] = {}
        """For each link that is held up, the message that was announced and what waits behind it."""
        self._missing: dict[MessageId, list[ProcessId]] = {}
        """What was announced and is not here, with those announcers who were not asked for it yet."""
        self._grafted: dict[MessageId, list[ProcessId]] = {}
        """What is missing and was asked for, with those who were asked."""
        self._stuck: dict[ProcessId, WireMessage] | None = None
        """What held up each link when the timer was set; `None`: it is not."""

    # ------------------------------------------------------------------ outgoing

    def _pass_on(self, message: PathMessage, sender: ProcessId | None) -> None:
        name = (message.origin, message.counter)
        asked = self._grafted.pop(name, ())
        announcers = self._missing.pop(name, None)
        if announcers is not None:
            self._port.cancel_timer((MISSING_TIMER, name))
        told = [*(announcers or ()), *asked]
        if sender is not None:
            told.append(sender)
        others = self._lacking(message, sender)
        eager = []
        for peer in others:
            if peer in told:
                continue
            if peer in self._waiting:
                self._waiting[peer].append(message)
            elif peer in self._lazy:
                self._hold(peer, deque((message,)))
            else:
                eager.append(peer)
        if eager:
            self._port.send(eager, message)
        # Whoever announced it waits for an answer, whether this link carries messages yet or not.
        known = [peer for peer in dict.fromkeys(told) if peer in self._safe or peer != sender]
        if known:
            self._port.send(known, Ack(*name))

    def _behind(self, peer: ProcessId, message: WireMessage) -> None:
        if peer in self._waiting:
            self._waiting[peer].append(message)
        else:
            self._port.send((peer,), message)

    def _hold(self, peer: ProcessId, queue: deque[WireMessage]) -> None:
        """Announce the head of the queue, a message, which holds up the rest."""
        head = queue[0]
        assert isinstance(head, PathMessage)
        self._waiting[peer] = queue
        self._port.send((peer,), Announce(head.origin, head.counter))
        if self._stuck is None:
            self._watch()

    def _release(self, peer: ProcessId, queue: deque[WireMessage]) -> None:
        """Send what waits, up to the next message that is only announced."""
        del self._waiting[peer]
        while queue:
            if peer in self._lazy and isinstance(queue[0], PathMessage):
                self._hold(peer, queue)
                return
            self._port.send((peer,), queue.popleft())

    def _has(self, sender: ProcessId, name: MessageId) -> None:
        """`sender` has that message: it need not wait on the link there any more (checkWaiting)."""
        queue = self._waiting.get(sender)
        if queue is None:
            return
        for place, waiting in enumerate(queue):
            if isinstance(waiting, PathMessage) and (waiting.origin, waiting.counter) == name:
                del queue[place]
                if place:
                    self._port.send((sender,), Ack(*name))
                else:
                    self._release(sender, queue)
                return

    # ------------------------------------------------------------------ incoming

    def _arrived(self, sender: ProcessId, message: PathMessage) -> None:
        if sender in self._in:
            self._has(sender, (message.origin, message.counter))
            super()._arrived(sender, message)

    def _again(self, sender: ProcessId, name: MessageId) -> None:
        if sender in self._safe and sender not in self._lazy:
            self._lazy[sender] = None
            self._port.send((sender,), Prune())

    def _expect(self, name: MessageId, sender: ProcessId | None) -> None:
        super()._expect(name, sender)
        if sender is not None:
            self._lazy.pop(sender, None)
        for peer in self._missing.get(name, ()):
            self._came(peer, name)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """What neighbours say about messages, or what PRC receives."""
        match message:
            case Announce(origin, counter):
                if sender in self._in:
                    self._announced(sender, (origin, counter))
            case Ack(origin, counter):
                self._has(sender, (origin, counter))
                super().receive(sender, message)
            case Graft(origin, counter):
                self._wanted(sender, (origin, counter))
            case Prune():
                if sender in self._safe:
                    self._lazy[sender] = None
            case _:
                super().receive(sender, message)

    def _announced(self, sender: ProcessId, name: MessageId) -> None:
        if name in self._expected:
            self._came(sender, name)
            queue = self._waiting.get(sender)
            head = queue[0] if queue else None
            crossing = isinstance(head, PathMessage) and (head.origin, head.counter) == name
            self._has(sender, name)
            if not crossing:
                self._port.send((sender,), Ack(*name))
            return
        announcers = self._missing.get(name)
        if announcers is None:
            self._missing[name] = [sender]
            self._port.set_timer(FIRST_WAIT_NS, (MISSING_TIMER, name))
        elif sender not in announcers:
            if not announcers:
                # All before it were asked, and perhaps none of them is there any more.
                self._port.set_timer(NEXT_WAIT_NS, (MISSING_TIMER, name))
            announcers.append(sender)

    def _wanted(self, sender: ProcessId, name: MessageId) -> None:
        self._lazy.pop(sender, None)
        queue = self._waiting.get(sender)
        if queue is not None and isinstance(queue[0], PathMessage) and (queue[0].origin, queue[0].counter) == name:
            self._release(sender, queue)

    # ------------------------------------------------------------------ links and time

    def _forget(self, peer: ProcessId) -> None:
        super()._forget(peer)
        self._waiting.pop(peer, None)
        self._lazy.pop(peer, None)

    def _forget_incoming(self, peer: ProcessId) -> None:
        super()._forget_incoming(peer)
        for announcers in self._missing.values():
            if peer in announcers:
                announcers.remove(peer)
        for name, asked in list(self._grafted.items()):
            if peer in asked:
                asked.remove(peer)
                if not asked:
                    del self._grafted[name]

    def _opened(self, peer: ProcessId) -> Opening:
        self._lazy.pop(peer, None)
        return super()._opened(peer)

    def timer(self, timer: Timer) -> None:
        """A missing message, a link held up, or one of PRC's."""
        if timer == STUCK_TIMER:
            self._unstick()
        elif isinstance(timer, tuple) and timer[0] == MISSING_TIMER:
            self._ask_for(timer[1])
        else:
            super().timer(timer)

    def _ask_for(self, name: MessageId) -> None:
        announcers = self._missing.get(name)
        if announcers is None:
            return
        if not announcers:
            if name not in self._grafted:
                # All who announced it are gone; who brings it now announces it anew, or just brings it.
                del self._missing[name]
            return
        peer = announcers.pop(0)
        self._lazy.pop(peer, None)
        self._grafted.setdefault(name, []).append(peer)
        self._port.send((peer,), Graft(*name))
        self._port.set_timer(NEXT_WAIT_NS, (MISSING_TIMER, name))

    def _watch(self) -> None:
        self._stuck = {peer: queue[0] for peer, queue in self._waiting.items()}
        self._port.set_timer(STUCK_NS, STUCK_TIMER)

    def _unstick(self) -> None:
        before, self._stuck = self._stuck or {}, None
        for peer, head in before.items():
            queue = self._waiting.get(peer)
            if queue is not None and queue[0] is head:
                self._membership.switch_neighbour(peer)
        if self._waiting and self._stuck is None:
            self._watch()

    def is_eager(self, peer: ProcessId) -> bool:
        """Whether `peer` is sent payloads, not announcements."""
        return peer in self._safe and peer not in self._lazy

    standing = PRC.standing | {"lazy"}

    def tables(self) -> dict[str, int]:
        return {
            **super().tables(),
            "lazy": len(self._lazy),
            "waiting": sum(map(len, self._waiting.values())),
            "missing": len(self._missing),
            "grafted": len(self._grafted),
        }
