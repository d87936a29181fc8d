"""PC-broadcast: a new link carries messages once a ping over safe links has proved it safe.

Source: document 001, algorithms 2 and 3 (sections 3.2 and 3.3), figures 4 to 6. Keeps P1, P2 and P3, with constant
metadata per message and no waiting at the receiver. Per message on the wire: its dot, on every safe link, once or
twice. Per link that is added: a ping of a few hops and a pong. Per process: a count per origin heard of lately, the
messages of the last minutes, and a buffer per link that is not safe yet.

The ping goes over the neighbour that introduced the two (2 hops for Spray, as the authors' simulation has it), not by
broadcast; the pong goes straight back. Departures from the print:

* The pong counts only if it carries the number of the attempt at hand (figure 6): algorithm 2 alone takes any pong, and
  a late one of an abandoned ping would open a link whose buffer began after what the ping vouches for.
* A joiner takes over its contact's counts: with an empty `received` an old message that is still on its way would be
  delivered after its effects (see the errata).
* After a ping without an answer, or a full buffer, the other side is asked what it has (see `safelinks`), again and
  again, before the link is closed: one that is only pinged, as in algorithm 3, would leave a process whose links all
  broke cut off for ever.
* `received` is a count per origin: links are FIFO and carry every message, so there are no gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.protocols.dissemination.safelinks import Along, SafeLinks
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.safelinks import Opening
    from causalcast.protocols.ordering.path import PathMessage


class Pong(WireMessage, frozen=True, array_like=True, gc=False, tag=130):
    """The ping of that number arrived."""

    number: int


class PC(SafeLinks):
    """Safe links by ping and pong."""

    __slots__ = ()

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (*SafeLinks.wire_types, Pong)

    def _arrived(self, sender: ProcessId, message: PathMessage) -> None:
        if message.origin != self._port.name and message.counter > self._ledger.count(message.origin):
            self._deliver(message, sender)

    def _pass_on(self, message: PathMessage, sender: ProcessId | None) -> None:
        others = [peer for peer in self._safe if peer != sender]
        if others:
            self._port.send(others, message)

    def _begin(self, peer: ProcessId, opening: Opening, path: tuple[ProcessId, ...]) -> None:
        opening.buffer = []
        self._behind(path[1], Along("ping", opening.number, self._port.name, path))

    def _control(self, message: Along) -> None:
        self._port.send((message.opener,), Pong(message.number))

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A pong, or what all protocols over safe links share."""
        if not isinstance(message, Pong):
            super().receive(sender, message)
            return
        opening = self._opening.get(sender)
        if opening is not None and opening.number == message.number and opening.buffer is not None:
            for buffered in opening.buffer:
                self._port.send((sender,), buffered)
            self._opened(sender)
