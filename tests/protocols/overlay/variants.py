"""Mistakes of the printed listings, and of middleware that people built, put back: each in a variant of one class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from causalcast.protocols.dissemination.cptcast import Announce, CPTCast
from causalcast.protocols.dissemination.pc import PC, Pong
from causalcast.protocols.dissemination.plumtree import Plumtree
from causalcast.protocols.dissemination.prc import PRC, Ack
from causalcast.protocols.dissemination.safelinks import Broken
from causalcast.protocols.ordering.path import PathMessage

if TYPE_CHECKING:
    from collections import deque

    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.port import WireMessage


class NothingIsMarked(PRC):
    """000, algorithms 11 and 14: a first reception does not make the message expected from the other links."""

    def _expect(self, name: MessageId, sender: ProcessId | None) -> None:
        for incoming in self._incoming.values():
            (incoming.before if incoming.since is None else incoming.since)[name] = None


class ANewLinkExpectsNothing(PRC):
    """000, algorithm 1 on a dynamic overlay (figure 3.2): what came while the link was made is not expected from it."""

    def _begins(self, sender: ProcessId, number: int, burst: int) -> None:
        incoming = self._incoming.get(sender)
        if incoming is not None and incoming.since is not None:
            incoming.since.clear()
        super()._begins(sender, number, burst)


class BufferBetaIsForgotten(PRC):
    """000, algorithm 14 line 3: the loop over the keys of sBuffers puts the message into none of them."""

    def _remember(self, message: PathMessage) -> None:
        for opening in self._opening.values():
            opening.buffer = None if opening.buffer is None else []
        super()._remember(message)
        for opening in self._opening.values():
            if opening.buffer:
                opening.buffer = []


class BufferAlphaIsIgnored(PRC):
    """000, algorithm 10: what came between ALPHA and PI counts as new when B_beta brings it."""

    def _begins(self, sender: ProcessId, number: int, burst: int) -> None:
        incoming = self._incoming.get(sender)
        if incoming is not None:
            incoming.before.clear()
        super()._begins(sender, number, burst)


class ABrokenWayIsNotMended(PRC):
    """000, algorithm 5: without REDISCOVERY, a way that breaks leaves its link unsafe for ever."""

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        if not isinstance(message, Broken):
            super().receive(sender, message)


class AllButTheAnnouncersAreTold(CPTCast):
    """000, algorithm 12: a second announcer of a missing message is not queued; the branch for known messages runs."""

    def _announced(self, sender: ProcessId, name: MessageId) -> None:
        if name not in self._expected and name in self._missing:
            self._came(sender, name)
            self._has(sender, name)
            return
        super()._announced(sender, name)


class TheTimerFindsTheQueueEmpty(CPTCast):
    """000, algorithm 12: poll() of an empty queue."""

    def _ask_for(self, name: MessageId) -> None:
        if name in self._missing and not self._missing[name]:
            raise IndexError("the queue of announcers is empty")
        super()._ask_for(name)


class TheHeadIsRemoved(CPTCast):
    """000, algorithm 13 lines 23 to 25: the head of `waiting` goes, not the entry with that identifier."""

    def _has(self, sender: ProcessId, name: MessageId) -> None:
        queue = self._waiting.get(sender)
        if queue is None:
            return
        waiting = [(message.origin, message.counter) if isinstance(message, PathMessage) else None for message in queue]
        if name in waiting[1:]:
            queue.popleft()
            self._port.send((sender,), Ack(*name))
            if not queue:
                del self._waiting[sender]
        else:
            super()._has(sender, name)


class NothingWaits(CPTCast):
    """000, figure 3.4: without `waiting`, messages overtake one that was only announced."""

    def _hold(self, peer: ProcessId, queue: deque[WireMessage]) -> None:
        announced: dict[MessageId, PathMessage] = self.__dict__.setdefault("announced", {})
        head = queue[0]
        assert isinstance(head, PathMessage)
        announced[head.origin, head.counter] = head
        self._port.send((peer,), Announce(head.origin, head.counter))

    def _wanted(self, sender: ProcessId, name: MessageId) -> None:
        self._lazy.pop(sender, None)
        self._port.send((sender,), self.__dict__["announced"][name])


class AGraftIsAnsweredTwice(CPTCast):
    """000, algorithm 13: a GRAFT sends all that waits, whatever it asks for, and what it asks for again."""

    def _wanted(self, sender: ProcessId, name: MessageId) -> None:
        queue = self._waiting.get(sender)
        head = queue[0] if queue else None
        super()._wanted(sender, name)
        if head is not None:
            self._port.send((sender,), head)


class AnyPongOpens(PC):
    """001, algorithm 2: a pong of an abandoned ping opens the link (figure 6 says it must not)."""

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        opening = self._opening.get(sender)
        if isinstance(message, Pong) and opening is not None:
            opening.buffer = opening.buffer or []
            message = Pong(opening.number)
        super().receive(sender, message)


class NothingIsBuffered(PC):
    """001, algorithm 2 without line 25: what was delivered during the ping never comes."""

    def _remember(self, message: PathMessage) -> None:
        super()._remember(message)
        for opening in self._opening.values():
            if opening.buffer:
                opening.buffer = []


class NoPing(PC):
    """001, figure 3: a new link is used at once."""

    def _attempt(self, peer: ProcessId) -> None:
        self._opened(peer)


class AJoinerKnowsNothing(PC):
    """001, algorithm 1: `received` is empty at first, and an old message is new to who has just joined."""

    def _enter(self, sender: ProcessId, counts: tuple[tuple[str, int], ...]) -> None:
        super()._enter(sender, ())


class AClosedLinkLeavesItsBuffer(PC):
    """001, algorithm 3: close() forgets the retries, not the buffer."""

    def neighbour_down(self, peer: ProcessId) -> None:
        self._safe.pop(peer, None)


class AGraftIsForgotten(Plumtree):
    """USERS 18: the GRAFT is lost and never repeated, nor another announcer asked."""

    def timer(self, timer: Any) -> None:
        name = timer[1]
        if name in self._missing:
            self._missing[name].clear()
        super().timer(timer)
