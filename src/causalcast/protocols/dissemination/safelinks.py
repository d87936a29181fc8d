"""Safe links: what protocols share that deliver in the order in which messages arrive (001 section 3.2).

A link from A to B is *safe* if B has received, or will receive before anything else that A sends on it, all that A has
delivered. Every process forwards each message once on all of its safe links and on no other. Then first arrivals are in
causal order, whatever links and processes come and go: that a link is safe depends on nothing but the link.

Theory of operation. A link begins unsafe when the membership names a neighbour, and its *opener*, the sending side,
makes it safe in one of three ways:

* Control messages go to the other side over safe links only, each behind what its forwarder has delivered: what they
  say, and how the link is made safe then, is the protocol's (ping and pong of PC, alpha to rho of PRC). The way is the
  one over which the membership has just learnt of the neighbour, if there is one, or one that was searched for.
* A process that joins through a neighbour has delivered nothing: the link to its contact is safe at once. The contact's
  counts become its own, so that all that was before is old to it, and the link back is safe too; so do the messages
  that the contact keeps, or nobody could catch up from a group of newcomers.
* Where no safe way is found, the other side says what it has, a count per origin heard of lately, and is sent what it
  lacks (anti-entropy). This is what finds again what a crashed process took with it, and joins halves that were apart.
  It costs bytes in proportion to the origins heard of lately, once a link; 001 section 3.2 rejects it as the rule.

What is missing and nobody keeps any more (apart for longer than messages are kept) is skipped openly: the process tells
its application that it has left the group and is back, so nothing before that is owed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from causalcast.model import MembershipChanged, ProcessId, ProtocolViolationError
from causalcast.protocols.dissemination.ledger import Ledger
from causalcast.protocols.dissemination.retention import DEFAULT_RETENTION, Retention
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.ordering.path import PathMessage
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.port import BroadcastMessage, Port, Timer

LINK_TIMER: Final = "link.open"
AGE_TIMER: Final = "link.age"

WAY_NS: Final = 20_000_000_000
"""How long the first attempt over a way of safe links may take; each further one twice as long."""
SEARCH_NS: Final = 3_000_000_000
"""How long a search for a way may take; then the next attempt begins."""
ASK_NS: Final = 5_000_000_000
"""How long the first attempt by asking may take; each further one twice as long."""

MAX_WAYS: Final = 3
"""Attempts over ways of safe links (MAX_DISCOVERIES, maxRetry), before the other side is asked what it has."""

MAX_ATTEMPTS: Final = 8
"""Attempts of both kinds before the link is given up for another neighbour (SWITCH_NEIGHBOUR); the last one skips what
nobody keeps any more.
"""

BUFFER: Final = 1024
"""Messages that may gather while one attempt lasts (maxSize); one more, and the next attempt begins."""


class State(WireMessage, frozen=True, array_like=True, gc=False, tag=120):
    """To a joiner: what counts as delivered before it came."""

    counts: tuple[tuple[str, int], ...]


class Past(WireMessage, frozen=True, array_like=True, gc=False, tag=129):
    """To a joiner: one of the messages before it came, should somebody else lack it."""

    message: PathMessage


class Along(WireMessage, frozen=True, array_like=True, gc=False, tag=121):
    """A control message on its way over safe links."""

    kind: str
    number: int
    opener: str
    path: tuple[str, ...]
    """Everyone on the way, from whom it comes to whom it goes."""


class Broken(WireMessage, frozen=True, array_like=True, gc=False, tag=122):
    """To the opener: the way of that attempt is interrupted."""

    number: int


class Ask(WireMessage, frozen=True, array_like=True, gc=False, tag=123):
    """What have you got?"""

    number: int


class Have(WireMessage, frozen=True, array_like=True, gc=False, tag=124):
    """The answer: what came before this was sent on whatever link."""

    number: int
    counts: tuple[tuple[str, int], ...]


class Skip(WireMessage, frozen=True, array_like=True, gc=False, tag=125):
    """Up to here is lost: count it as delivered."""

    counts: tuple[tuple[str, int], ...]


class Opening(msgspec.Struct, eq=False, gc=False):
    """An outgoing link on its way to being safe."""

    route: tuple[ProcessId, ...]
    """The way over others that the membership knew."""
    number: int = 0
    """Of the attempt at hand; whatever carries another belongs to an abandoned one."""
    attempts: int = 0
    under_way: bool = False
    """Whether this attempt has a way, and its control messages are on it."""
    buffer: list[PathMessage] | None = None
    """What was delivered since the protocol began to gather."""


class SafeLinks(Dissemination):
    """The links of one process, and the common part of what travels on them."""

    __slots__ = ("_aging", "_ledger", "_membership", "_number", "_opening", "_port", "_retention", "_safe")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (State, Past, Along, Broken, Ask, Have, Skip)
    timers: ClassVar[tuple[str, ...]] = (LINK_TIMER, AGE_TIMER)
    transfers_state: ClassVar[bool] = True
    """A join is complete with the contact's `State`."""

    def __init__(self, port: Port, membership: Overlay, retention: Retention = DEFAULT_RETENTION) -> None:
        self._port = port
        self._membership = membership
        self._retention = retention
        self._ledger = Ledger(retention)
        self._aging = False
        self._number = 0
        self._safe: dict[ProcessId, None] = {}
        """Neighbours to whom the link is safe."""
        self._opening: dict[ProcessId, Opening] = {}
        """Neighbours to whom it is not yet."""

    # ------------------------------------------------------------------ what a protocol adds

    def _arrived(self, sender: ProcessId, message: PathMessage) -> None:
        """A message came over a link."""
        raise ProtocolViolationError(f"{sender!r} sent {message}")

    def _pass_on(self, message: PathMessage, sender: ProcessId | None) -> None:
        """Send a message that was just delivered on all safe links."""

    def _carries(self, sender: ProcessId) -> bool:
        """Whether the link from `sender` is safe as far as is known at this end."""
        return True

    def _control(self, message: Along) -> None:
        """A control message has come to its end, here."""

    def _begin(self, peer: ProcessId, opening: Opening, path: tuple[ProcessId, ...]) -> None:
        """Try to make the link safe along `path`, whose first link is safe."""

    def _search(self, peer: ProcessId, opening: Opening) -> bool:
        """Look for a way to `peer`; whether that is something this protocol does."""
        return False

    def _behind(self, peer: ProcessId, message: WireMessage) -> None:
        """Send on a safe link behind all that was delivered here."""
        self._port.send((peer,), message)

    def _will_receive(self, peer: ProcessId, number: int) -> None:
        """From now on `peer` is told of nothing that is here already."""

    def _at_once(self, peer: ProcessId) -> None:
        """The links to and from `peer` are safe without further ado, since one of the two has nothing."""

    def _catch_up(
        self, peer: ProcessId, number: int, messages: list[PathMessage], counts: tuple[tuple[str, int], ...]
    ) -> None:
        """The link becomes safe with these messages, which `peer` lacks; it has those of `counts`."""
        for message in messages:
            self._port.send((peer,), message)

    # ------------------------------------------------------------------ messages

    def broadcast(self, message: BroadcastMessage) -> None:
        assert isinstance(message, PathMessage)
        self._remember(message)
        self._pass_on(message, None)

    def _deliver(self, message: PathMessage, sender: ProcessId) -> None:
        """A new message: to the application, and on."""
        known = self._ledger.count(message.origin)
        if known and message.counter != known + 1:
            self._lapse()
        self.upward(message)
        self._remember(message)
        self._pass_on(message, sender)

    def _remember(self, message: PathMessage) -> None:
        self._ledger.add(message)
        self._age_later()
        full = None
        for peer, opening in self._opening.items():
            if opening.buffer is not None:
                opening.buffer.append(message)
                if len(opening.buffer) > BUFFER:
                    full = [*(full or ()), peer]
        for peer in full or ():
            self._attempt(peer)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message, or what makes links safe."""
        match message:
            case PathMessage(counter=counter):
                if counter < 1:
                    raise ProtocolViolationError(f"{sender!r} sent {message}: numbers begin with 1")
                self._arrived(sender, message)
            case Along():
                if self._carries(sender):
                    self._along(message)
                else:
                    self._tell_broken(message)
            case Ask(number):
                if sender in self._membership.neighbours and self._membership.member:
                    self._will_receive(sender, number)
                    self._port.send((sender,), Have(number, self._ledger.counts()))
            case Have(number, counts):
                self._answered(sender, number, counts)
            case Broken(number):
                self._interrupted(number)
            case _:
                self._take_over(sender, message)

    def _take_over(self, sender: ProcessId, message: WireMessage) -> None:
        """What others have and this process has not, and will not deliver."""
        match message:
            case State(counts):
                self._enter(sender, counts)
            case Past(past):
                self._ledger.keep(past)
                self._age_later()
            case Skip(counts):
                self._skip(counts)
            case _:
                super().receive(sender, message)

    def _interrupted(self, number: int) -> None:
        for peer, opening in self._opening.items():
            if opening.number == number:
                self._attempt(peer)
                break

    def _along(self, message: Along) -> None:
        path, me = message.path, self._port.name
        if me not in path:
            raise ProtocolViolationError(f"a control message for {path} came to {me!r}")
        place = path.index(me)
        if place == len(path) - 1:
            self._control(message)
        elif path[place + 1] in self._safe:
            self._behind(path[place + 1], message)
        else:
            self._tell_broken(message)

    def _tell_broken(self, message: Along) -> None:
        if message.opener == self._port.name:
            self.receive(self._port.name, Broken(message.number))
        else:
            self._port.send((message.opener,), Broken(message.number))

    # ------------------------------------------------------------------ neighbours

    def neighbour_up(self, peer: ProcessId) -> None:
        membership = self._membership
        self._forget(peer)
        if membership.joining == peer:
            if membership.member:
                self._port.send((peer,), State(self._ledger.counts()))
                for message in self._ledger.messages():
                    self._port.send((peer,), Past(message))
            self._at_once(peer)
            self._safe[peer] = None
            return
        self._opening[peer] = Opening(membership.route)
        self._attempt(peer)

    def neighbour_down(self, peer: ProcessId) -> None:
        self._forget(peer)

    def _forget(self, peer: ProcessId) -> None:
        """The links to and from `peer` are gone, with all that was kept for them."""
        self._safe.pop(peer, None)
        if self._opening.pop(peer, None) is not None:
            self._port.cancel_timer((LINK_TIMER, peer))

    def _attempt(self, peer: ProcessId) -> None:
        """The next attempt to make the link to `peer` safe."""
        opening = self._opening[peer]
        opening.buffer = None
        opening.under_way = False
        if not self._membership.member:
            # It has its contact's past, and is not sent all of it: first it has to be told.
            return
        opening.attempts += 1
        if opening.attempts > MAX_ATTEMPTS:
            opening.attempts = 0
            self._port.set_timer(WAY_NS, (LINK_TIMER, peer))
            self._membership.switch_neighbour(peer)
            return
        self._number += 1
        opening.number = self._number
        if opening.attempts == 1 and len(opening.route) > 1 and opening.route[1] in self._safe:
            self._try_way(peer, opening, opening.route)
            return
        self._port.set_timer(SEARCH_NS, (LINK_TIMER, peer))
        if opening.attempts > MAX_WAYS or not self._safe or not self._search(peer, opening):
            opening.attempts = max(opening.attempts, MAX_WAYS + 1)
            self._port.set_timer(ASK_NS << opening.attempts - MAX_WAYS - 1, (LINK_TIMER, peer))
            self._port.send((peer,), Ask(opening.number))

    def _try_way(self, peer: ProcessId, opening: Opening, path: tuple[ProcessId, ...]) -> None:
        self._port.set_timer(WAY_NS << opening.attempts - 1, (LINK_TIMER, peer))
        opening.under_way = True
        self._begin(peer, opening, path)

    def _opened(self, peer: ProcessId) -> Opening:
        """The link to `peer` is safe from now on."""
        self._port.cancel_timer((LINK_TIMER, peer))
        self._safe[peer] = None
        return self._opening.pop(peer)

    def _answered(self, sender: ProcessId, number: int, counts: tuple[tuple[str, int], ...]) -> None:
        opening = self._opening.get(sender)
        if opening is None or opening.number != number:
            return
        messages, gaps = self._ledger.lacking(counts)
        if gaps:
            if opening.attempts < MAX_ATTEMPTS:
                # What it lacks may be on its way to it: it is asked again later.
                return
            self._port.send((sender,), Skip(tuple(gaps)))
        self._opened(sender)
        self._catch_up(sender, number, messages, counts)

    def _enter(self, sender: ProcessId, counts: tuple[tuple[str, int], ...]) -> None:
        if self._membership.member or sender not in self._safe:
            return
        self._ledger.take_over(counts)
        self._age_later()
        self._membership.settle()
        for peer in list(self._opening):
            self._attempt(peer)

    # ------------------------------------------------------------------ loss

    def _skip(self, counts: tuple[tuple[str, int], ...]) -> None:
        lost = [(origin, counter) for origin, counter in counts if counter > self._ledger.count(origin)]
        if lost:
            self._lapse()
            self._ledger.take_over(lost)
            for peer in self._safe:
                self._behind(peer, Skip(tuple(lost)))

    def _lapse(self) -> None:
        """Messages are lost to this process: its application must know."""
        self._port.announce(MembershipChanged(left=(self._port.name,)))
        self._port.announce(MembershipChanged(joined=(self._port.name,)))

    # ------------------------------------------------------------------ time

    def _age_later(self) -> None:
        if not self._aging and self._retention.period_ns is not None:
            self._aging = True
            self._port.set_timer(self._retention.period_ns, AGE_TIMER)

    def timer(self, timer: Timer) -> None:
        """An attempt took too long, or a period is over."""
        if timer == AGE_TIMER:
            self._aging = False
            if self._ledger.age():
                self._age_later()
        elif isinstance(timer, tuple) and timer[1] in self._opening:
            self._attempt(timer[1])

    standing: ClassVar[frozenset[str]] = frozenset({"safe"})

    def tables(self) -> dict[str, int]:
        """Sizes of its tables; `safe` and `opening` are links, `buffered` the messages that wait for the latter."""
        buffered = sum(len(opening.buffer or ()) for opening in self._opening.values())
        return {
            "safe": len(self._safe),
            "opening": len(self._opening),
            "buffered": buffered,
            **self._ledger.tables(),
        }

    def is_safe(self, peer: ProcessId) -> bool:
        """Whether the link to `peer` carries messages."""
        return peer in self._safe
