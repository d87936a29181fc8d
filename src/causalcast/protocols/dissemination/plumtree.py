"""Plumtree: payloads along a tree embedded in the overlay, announcements on its other links.

Source: document 000, sections 2.3 and 3.4.2, after Leitao, Pereira and Rodrigues, "Epidemic broadcast trees" (SRDS
2007). Keeps P1 and P2; orders nothing. Per message on the wire: its payload once a process and its identity on every
other link. Per process: a window of numbers per origin heard of lately (`seen`), the messages of the last minutes to
answer a GRAFT with, and who announced what is missing.

Departures from the paper: a new neighbour is told of the messages of the last minutes, so what was lost with a link or
with a process that crashed is found again (anti-entropy between neighbours); announcements are sent at once, and the
backlog of a new neighbour in parts that no frame limit minds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.dissemination.identity import identity
from causalcast.protocols.dissemination.retention import DEFAULT_RETENTION, Kept, Retention
from causalcast.protocols.dissemination.seen import Seen
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.port import BroadcastMessage, WireMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.layers import Membership
    from causalcast.protocols.port import Port, Timer

FIRST_WAIT_NS: Final = 500_000_000
"""How long an announced message may stay away before its first announcer is asked for it (TIMEOUT1)."""

NEXT_WAIT_NS: Final = 250_000_000
"""How long each announcer asked may take before the next one is (TIMEOUT2)."""

ANNOUNCED_AT_ONCE: Final = 256
"""Identities in one announcement, at most."""

MISSING_TIMER: Final = "plumtree.missing"
KEEP_TIMER: Final = "plumtree.keep"


class IHave(WireMessage, frozen=True, array_like=True, gc=False, tag=111):
    """These are here."""

    messages: tuple[tuple[str, int], ...]


class Graft(WireMessage, frozen=True, array_like=True, gc=False, tag=112):
    """Send this one, and what comes from now on."""

    stream: str
    number: int


class Prune(WireMessage, frozen=True, array_like=True, gc=False, tag=113):
    """Only announce what comes from now on."""


class Plumtree(Dissemination):
    """One process's part of the tree."""

    __slots__ = ("_eager", "_kept", "_lazy", "_missing", "_periods", "_port", "_retention", "_seen")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (IHave, Graft, Prune)
    timers: ClassVar[tuple[str, ...]] = (MISSING_TIMER, KEEP_TIMER)

    def __init__(self, port: Port, membership: Membership, retention: Retention = DEFAULT_RETENTION) -> None:
        self._port = port
        self._retention = retention
        self._eager: dict[ProcessId, None] = dict.fromkeys(membership.neighbours)
        self._lazy: dict[ProcessId, None] = {}
        self._seen = Seen()
        self._kept: Kept[BroadcastMessage] = Kept(retention)
        self._missing: dict[MessageId, list[ProcessId]] = {}
        """What was announced and is not here, with those announcers who were not asked for it yet."""
        self._periods = 0
        """So many have begun since there was something to remember; 0 while there is nothing."""

    def broadcast(self, message: BroadcastMessage) -> None:
        self._pass_on(identity(message), message, None)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message, or what neighbours say about messages."""
        match message:
            case BroadcastMessage():
                self._gossip(sender, message)
            case IHave(messages):
                self._announced(sender, messages)
            case Graft(stream, number):
                self._join_tree(sender)
                wanted = self._kept.get((stream, number))
                if wanted is not None:
                    self._port.send((sender,), wanted)
            case Prune():
                self._leave_tree(sender)
            case _:
                raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__}, which is none of Plumtree's")

    def _gossip(self, sender: ProcessId, message: BroadcastMessage) -> None:
        name = identity(message)
        if name in self._seen:
            if sender in self._eager:
                self._leave_tree(sender)
                self._port.send((sender,), Prune())
            return
        self._join_tree(sender)
        self.upward(message)
        if self._missing.pop(name, None) is not None:
            self._port.cancel_timer((MISSING_TIMER, name))
        self._pass_on(name, message, sender)

    def _pass_on(self, name: MessageId, message: BroadcastMessage, sender: ProcessId | None) -> None:
        self._remember(name, message)
        eager = [peer for peer in self._eager if peer != sender]
        if eager:
            self._port.send(eager, message)
        lazy = [peer for peer in self._lazy if peer != sender]
        if lazy:
            self._port.send(lazy, IHave((name,)))

    def _announced(self, sender: ProcessId, messages: tuple[MessageId, ...]) -> None:
        for name in messages:
            if name in self._seen:
                continue
            announcers = self._missing.get(name)
            if announcers is None:
                self._missing[name] = [sender]
                self._port.set_timer(FIRST_WAIT_NS, (MISSING_TIMER, name))
            elif sender not in announcers:
                announcers.append(sender)

    def timer(self, timer: Timer) -> None:
        if timer == KEEP_TIMER:
            self._age()
            return
        assert isinstance(timer, tuple)
        name = timer[1]
        announcers = self._missing.get(name)
        if announcers is None:
            return
        if not announcers:
            # Whoever had it is gone or had it no more; somebody else may still announce it.
            del self._missing[name]
            return
        peer = announcers.pop(0)
        self._join_tree(peer)
        self._port.send((peer,), Graft(*name))
        self._port.set_timer(NEXT_WAIT_NS if announcers else FIRST_WAIT_NS, timer)

    def neighbour_up(self, peer: ProcessId) -> None:
        """It begins in the tree, and hears of what it may have missed."""
        self._lazy.pop(peer, None)
        self._eager[peer] = None
        backlog = tuple(self._kept)
        for start in range(0, len(backlog), ANNOUNCED_AT_ONCE):
            self._port.send((peer,), IHave(backlog[start : start + ANNOUNCED_AT_ONCE]))

    def neighbour_down(self, peer: ProcessId) -> None:
        self._eager.pop(peer, None)
        self._lazy.pop(peer, None)
        for announcers in self._missing.values():
            if peer in announcers:
                announcers.remove(peer)

    def _join_tree(self, peer: ProcessId) -> None:
        if self._lazy.pop(peer, peer) is None:
            self._eager[peer] = None

    def _leave_tree(self, peer: ProcessId) -> None:
        if self._eager.pop(peer, peer) is None:
            self._lazy[peer] = None

    def _remember(self, name: MessageId, message: BroadcastMessage) -> None:
        self._seen.add(*name)
        self._kept.add(name, message)
        if not self._periods and self._retention.period_ns is not None:
            self._periods = 1
            self._port.set_timer(self._retention.period_ns, KEEP_TIMER)

    def _age(self) -> None:
        left = self._kept.age()
        if self._periods % self._retention.forget_after == 0:
            left = self._seen.age() or left
        self._periods = self._periods + 1 if left or len(self._seen) else 0
        if self._periods and self._retention.period_ns is not None:
            self._port.set_timer(self._retention.period_ns, KEEP_TIMER)

    def is_eager(self, peer: ProcessId) -> bool:
        """Whether `peer` is sent payloads, not announcements."""
        return peer in self._eager

    def tables(self) -> dict[str, int]:
        """Sizes of its tables."""
        return {"origins": len(self._seen), "kept": len(self._kept), "missing": len(self._missing)}
