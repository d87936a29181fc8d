"""PRC-broadcast: each link carries each message once, so a process may forget a message that came over every link.

Source: document 000, sections 3.4 and 3.4.1: algorithms 1 to 10, the exchange of alpha, beta, pi and rho, after
Nedelec, Molli and Mostefaoui, "Causal broadcast: how to forget?" (OPODIS 2018), with pure eager flooding. Keeps P1, P2
and P3. Per message on the wire: its dot, on every safe link, once each way; where it would go back to whom it came from
an acknowledgement goes. Per link that is added: a search, four control messages over a safe way. Per process: the
messages expected, each with the links it is expected from, empty at rest; a buffer of names per link that is not safe
yet; and, for recovery (see `safelinks`), the messages of the last minutes and a count per origin heard of lately.

What is new is decided by what is expected alone: a message that no link is expected to bring is new. So the invariant
must really hold, however links come, break and come again:

* A link begins with a mark (`Begin`), at which its receiver knows what will come over it: what it has got since PI, of
  which the buffer of the other side holds the beginning. What arrives before the mark is a rest of an older link.
* What is sent to catch up with (see `safelinks`) is what the counts say, so all that the receiver gets after it has
  told them is expected from that link too; and what it has is not sent again, should it come to the sender only later.
* A first reception makes the message expected from every incoming link but the one it came over (algorithm 1;
  algorithms 11 and 14 leave that out), and each process sends it once on every outgoing one, as message or
  acknowledgement.

Other departures: messages carry dots, not time stamps; an abandoned exchange is told from the present one by its
number; REDISCOVERY goes straight to the opener; B_beta travels message by message behind the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

from causalcast.protocols.dissemination.safelinks import Along
from causalcast.protocols.dissemination.search import Search
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.dissemination.retention import Retention
    from causalcast.protocols.dissemination.safelinks import Opening
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.ordering.path import PathMessage
    from causalcast.protocols.port import Port


class Begin(WireMessage, frozen=True, array_like=True, gc=False, tag=131):
    """The link is safe; the first `burst` messages on it are those gathered since BETA."""

    number: int
    burst: int


class Ack(WireMessage, frozen=True, array_like=True, gc=False, tag=132):
    """That message is here; it does not come over this link."""

    origin: str
    counter: int


class Incoming(msgspec.Struct, eq=False, gc=False):
    """An incoming link on its way to being one."""

    number: int
    before: dict[tuple[str, int], None] = {}
    """B_alpha: what came between ALPHA and PI."""
    since: dict[tuple[str, int], None] | None = None
    """B_pi: what came since PI, or since the other side was told the counts; all of it will come over this link."""


class Burst(msgspec.Struct, eq=False, gc=False):
    """The beginning of an incoming link."""

    left: int
    known: dict[tuple[str, int], None]
    """B_alpha."""


class PRC(Search):
    """Link memory over flooding."""

    __slots__ = ("_ahead", "_bursts", "_expected", "_in", "_incoming")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (*Search.wire_types, Begin, Ack)

    def __init__(self, port: Port, membership: Overlay, retention: Retention | None = None) -> None:
        super().__init__(port, membership, retention)
        self._in: dict[ProcessId, int] = {}
        """Neighbours from whom every message comes over the link, once, and which attempt has made it so."""
        self._incoming: dict[ProcessId, Incoming] = {}
        """Neighbours from whom that will be so."""
        self._bursts: dict[ProcessId, Burst] = {}
        self._ahead: dict[ProcessId, dict[ProcessId, int]] = {}
        """Counts of neighbours that were ahead of this process when they were asked what they have."""
        self._expected: dict[MessageId, list[ProcessId]] = {}
        """Messages delivered here that are still to come over the links from these."""

    # ------------------------------------------------------------------ messages

    def _arrived(self, sender: ProcessId, message: PathMessage) -> None:
        if sender not in self._in:
            return
        name = (message.origin, message.counter)
        burst = self._bursts.get(sender)
        if burst is not None:
            burst.left -= 1
            if not burst.left:
                del self._bursts[sender]
            if name in burst.known:
                self._has(sender, name)
                return
        if name in self._expected:
            self._came(sender, name)
            self._again(sender, name)
        else:
            self._expect(name, sender)
            self._deliver(message, sender)

    def _came(self, sender: ProcessId, name: MessageId) -> None:
        """A message that is not new came over the link from `sender`, in one form or another."""
        links = self._expected.get(name)
        if links is not None and sender in links:
            links.remove(sender)
            if not links:
                del self._expected[name]

    def _again(self, sender: ProcessId, name: MessageId) -> None:
        """A message came that had come over another link before."""

    def _has(self, sender: ProcessId, name: MessageId) -> None:
        """`sender` shows that it has a message that was here before."""

    def _expect(self, name: MessageId, sender: ProcessId | None) -> None:
        """A new message, from `sender`, will come over the other links too."""
        links = [peer for peer in self._in if peer != sender]
        if links:
            self._expected[name] = links
        for incoming in self._incoming.values():
            (incoming.before if incoming.since is None else incoming.since)[name] = None

    def broadcast(self, message: PathMessage) -> None:  # type: ignore[override] # path stacks carry no others
        self._expect((message.origin, message.counter), None)
        super().broadcast(message)

    def _pass_on(self, message: PathMessage, sender: ProcessId | None) -> None:
        others = self._lacking(message, sender)
        if others:
            self._port.send(others, message)
        if sender is not None and sender in self._safe:
            self._port.send((sender,), Ack(message.origin, message.counter))

    def _lacking(self, message: PathMessage, sender: ProcessId | None) -> list[ProcessId]:
        """To whom a new message is sent: all but its sender, and those who had it before their link was safe."""
        others = [peer for peer in self._safe if peer != sender]
        for peer, ahead in list(self._ahead.items()):
            last = ahead.get(message.origin, 0)
            if message.counter <= last and peer in others:
                others.remove(peer)
            if message.counter >= last:
                ahead.pop(message.origin, None)
                if not ahead:
                    del self._ahead[peer]
        return others

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """An acknowledgement, the beginning of a link, or what all protocols over safe links share."""
        match message:
            case Ack(origin, counter):
                if sender in self._in:
                    self._came(sender, (origin, counter))
            case Begin(number, burst):
                self._begins(sender, number, burst)
            case _:
                super().receive(sender, message)

    # ------------------------------------------------------------------ links

    def _begin(self, peer: ProcessId, opening: Opening, path: tuple[ProcessId, ...]) -> None:
        self._along(Along("alpha", opening.number, self._port.name, path))

    def _carries(self, sender: ProcessId) -> bool:
        return sender in self._in

    def _control(self, message: Along) -> None:
        if message.kind in ("alpha", "pi"):
            self._from_opener(message)
        elif message.opener == self._port.name:
            self._at_opener(message)

    def _from_opener(self, message: Along) -> None:
        opener, number = message.opener, message.number
        incoming = self._incoming.get(opener)
        if message.kind == "alpha":
            latest = self._in.get(opener, -1) if incoming is None else incoming.number
            if opener not in self._membership.neighbours:
                # It is no neighbour yet, or not any more: asked over their own link it would say so.
                self._tell_broken(message)
                return
            if latest >= number:
                # One of an attempt that was abandoned since, held up on its way.
                return
            self._forget_incoming(opener)
            self._incoming[opener] = Incoming(number, {})
            self._along(Along("beta", number, opener, message.path[::-1]))
        elif incoming is not None and incoming.number == number and incoming.since is None:
            incoming.since = {}
            self._along(Along("rho", number, opener, message.path[::-1]))

    def _at_opener(self, message: Along) -> None:
        peer = message.path[0]
        opening = self._opening.get(peer)
        if opening is None or opening.number != message.number:
            return
        if message.kind == "beta" and opening.buffer is None:
            opening.buffer = []
            self._along(Along("pi", message.number, message.opener, message.path[::-1]))
        elif message.kind == "rho" and opening.buffer is not None:
            self._start_link(peer, message.number, opening.buffer)
            self._opened(peer)

    def _start_link(self, peer: ProcessId, number: int, messages: list[PathMessage]) -> None:
        self._port.send((peer,), Begin(number, len(messages)))
        for message in messages:
            self._port.send((peer,), message)

    def _begins(self, sender: ProcessId, number: int, burst: int) -> None:
        incoming = self._incoming.get(sender)
        if incoming is None or incoming.number != number or incoming.since is None:
            return
        del self._incoming[sender]
        self._in[sender] = number
        for name in incoming.since:
            self._expected.setdefault(name, []).append(sender)
        if burst:
            self._bursts[sender] = Burst(burst, incoming.before)

    def _will_receive(self, peer: ProcessId, number: int) -> None:
        self._forget_incoming(peer)
        self._incoming[peer] = Incoming(number, {}, {})

    def _catch_up(
        self, peer: ProcessId, number: int, messages: list[PathMessage], counts: tuple[tuple[str, int], ...]
    ) -> None:
        ahead = {origin: counter for origin, counter in counts if counter > self._ledger.count(origin)}
        if ahead:
            self._ahead[peer] = ahead
        self._start_link(peer, number, messages)

    def _at_once(self, peer: ProcessId) -> None:
        self._in[peer] = 0

    def _forget(self, peer: ProcessId) -> None:
        super()._forget(peer)
        self._ahead.pop(peer, None)
        self._forget_incoming(peer)

    def _forget_incoming(self, peer: ProcessId) -> None:
        self._incoming.pop(peer, None)
        self._bursts.pop(peer, None)
        if self._in.pop(peer, None) is not None:
            for name in [name for name, links in self._expected.items() if peer in links]:
                self._came(peer, name)

    standing = Search.standing | {"in"}

    def tables(self) -> dict[str, int]:
        held = sum(len(incoming.before) + len(incoming.since or ()) for incoming in self._incoming.values())
        return {
            **super().tables(),
            "in": len(self._in),
            "incoming": len(self._incoming),
            "held": held,
            "bursts": len(self._bursts),
            "ahead": len(self._ahead),
            "expected": len(self._expected),
        }
