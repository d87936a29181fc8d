"""R-broadcast: everyone passes each message on to all neighbours, once.

Source: document 001, algorithm 1. Keeps P1, and P2 while no link breaks with messages on it. Causal on a static
overlay of FIFO links only (001, Theorem 1; Friedman and Manor): a new link is a shortcut, so on a growing overlay it
breaks P3 (001, figure 3), and is here as the control that a checker must catch. Per message on the wire: its dot, on
every link, once or twice. Per process: a window of numbers per origin heard of lately (see `seen`).

Departures from the print: a message does not go back to whom it came from; `received` is a window, not a set that
grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.dissemination.retention import DEFAULT_RETENTION, Retention
from causalcast.protocols.dissemination.seen import Seen
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.ordering.path import PathMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.port import BroadcastMessage, Port, Timer, WireMessage


AGE_TIMER: Final = "flood.age"


class Flood(Dissemination):
    """Passes on what is new."""

    __slots__ = ("_age_ns", "_aging", "_neighbours", "_port", "_seen")

    timers: ClassVar[tuple[str, ...]] = (AGE_TIMER,)

    def __init__(self, port: Port, membership: Overlay, retention: Retention = DEFAULT_RETENTION) -> None:
        self._port = port
        period = retention.period_ns
        self._age_ns = None if period is None else period * retention.forget_after
        self._neighbours: list[ProcessId] = list(membership.neighbours)
        self._seen = Seen()
        self._aging = False

    def broadcast(self, message: BroadcastMessage) -> None:
        assert isinstance(message, PathMessage)
        self._new(message)
        self._port.send(self._neighbours.copy(), message)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Deliver and pass on a message that was not here before."""
        if not isinstance(message, PathMessage) or message.counter < 1:
            raise ProtocolViolationError(f"{sender!r} sent {message}, which is no message of a flood")
        if self._new(message):
            self.upward(message)
            others = [peer for peer in self._neighbours if peer != sender]
            if others:
                self._port.send(others, message)

    def _new(self, message: PathMessage) -> bool:
        if not self._aging and self._age_ns is not None:
            self._aging = True
            self._port.set_timer(self._age_ns, AGE_TIMER)
        return self._seen.add(message.origin, message.counter)

    def timer(self, timer: Timer) -> None:
        self._aging = self._seen.age()
        if self._aging and self._age_ns is not None:
            self._port.set_timer(self._age_ns, AGE_TIMER)

    def neighbour_up(self, peer: ProcessId) -> None:
        if peer not in self._neighbours:
            self._neighbours.append(peer)

    def neighbour_down(self, peer: ProcessId) -> None:
        if peer in self._neighbours:
            self._neighbours.remove(peer)

    def tables(self) -> dict[str, int]:
        """Sizes of its tables."""
        return {"origins": len(self._seen)}
