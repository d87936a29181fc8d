"""An overlay whose links the test draws, for the explorer: `Suspect` adds the link named, or removes it if it is there.

Processes from the start know the graph; those that join begin with their contact. Who loses a link to a crash or a
break takes links to everybody else it knows, so that the overlay stays in one piece. Timers that only say that time has
passed are left out: a search that may fire them at any time would see every attempt abandoned at every step.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from causalcast.protocols import STACKS
from causalcast.protocols.dissemination.cptcast import MISSING_TIMER as CPTCAST_MISSING
from causalcast.protocols.dissemination.plumtree import MISSING_TIMER as PLUMTREE_MISSING
from causalcast.protocols.dissemination.safelinks import LINK_TIMER
from causalcast.protocols.membership.overlay import Overlay
from causalcast.protocols.ordering.path import Path
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import Event, Message, ProcessId, Roster, Tag
    from causalcast.protocols import Port, Random, Stack, Timer

Edges = tuple[tuple[str, str], ...]


class Link(WireMessage, frozen=True, array_like=True, gc=False, tag=190):
    up: bool
    route: tuple[str, ...] = ()


class Join(WireMessage, frozen=True, array_like=True, gc=False, tag=191):
    """Let me in."""


class Answer(WireMessage, frozen=True, array_like=True, gc=False, tag=192):
    """You are."""


class Timeless:
    """A port whose clock stands still, but for so many settings of the links' timers."""

    def __init__(self, port: Port, link_timers: int) -> None:
        self.port = port
        self.left = link_timers

    @property
    def name(self) -> ProcessId:
        return self.port.name

    @property
    def random(self) -> Random:
        return self.port.random

    def now_ns(self) -> int:
        return 0

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self.port.send(destinations, message)

    def deliver(self, message: Message) -> None:
        self.port.deliver(message)

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.port.stable(tag, topic)

    def announce(self, event: Event) -> None:
        self.port.announce(event)

    def connect(self, peer: ProcessId) -> None:
        self.port.connect(peer)

    def disconnect(self, peer: ProcessId) -> None:
        self.port.disconnect(peer)

    def retire(self) -> None:
        self.port.retire()

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        word = timer[0] if isinstance(timer, tuple) else timer
        if word in (PLUMTREE_MISSING, CPTCAST_MISSING):
            self.port.set_timer(delay_ns, timer)
        elif word == LINK_TIMER and self.left:
            self.left -= 1
            self.port.set_timer(delay_ns, timer)

    def cancel_timer(self, timer: Timer) -> None:
        self.port.cancel_timer(timer)


class Drawn(Overlay):
    __slots__ = ("_contact", "_edges", "_failed", "_lazy", "_roster", "_routes")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (Link, Join, Answer)

    def __init__(
        self,
        port: Port,
        roster: Roster,
        edges: Edges,
        routes: dict[tuple[str, str], tuple[str, ...]],
        lazy: Edges = (),
    ) -> None:
        super().__init__(port)
        self._lazy = lazy
        self._roster = roster
        self._edges = edges if len(roster) > 1 else ()
        self._routes = routes
        self._failed: list[ProcessId] = []
        self._contact: ProcessId | None = None

    def start(self) -> None:
        for edge in self._edges:
            if self.name in edge:
                (peer,) = set(edge) - {self.name}
                self._port.connect(peer)
                self._neighbours[peer] = None
                above: Any = self.above
                if hasattr(above, "_at_once"):
                    above._at_once(peer)
                    above._safe[peer] = None
                    if edge in self._lazy:
                        above._lazy[peer] = None
                else:
                    above.neighbour_up(peer)

    def join(self, contact: ProcessId) -> None:
        self.member = False
        self._contact = contact
        self._port.connect(contact)
        self._port.send((contact,), Join())

    def suspect(self, peer: ProcessId) -> None:
        if peer in self._neighbours:
            self._port.send((peer,), Link(False))
            self._down(peer)
            self._port.disconnect(peer)
        else:
            self._link(peer)

    def _link(self, peer: ProcessId) -> None:
        route = self._routes.get((self.name, peer), ())
        self._port.connect(peer)
        self._port.send((peer,), Link(True, route[::-1]))
        self._up(peer, route=route)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        match message:
            case Link(up, route):
                if up and sender not in self._neighbours:
                    self._port.connect(sender)
                    self._up(sender, route=route)
                elif not up and sender in self._neighbours:
                    self._down(sender)
            case Join():
                self._port.connect(sender)
                self._port.send((sender,), Answer())
                self._up(sender, joining=True)
            case Answer():
                self._contact = None
                self._up(sender, joining=True)
                if not getattr(self.above, "transfers_state", False):
                    self.settle()

    def link_down(self, peer: ProcessId) -> None:
        if peer in self._neighbours:
            self._down(peer)
            if self._failed.count(peer) < 1:
                self._failed.append(peer)
                for name in self._roster.names:
                    if name not in self._neighbours and name != self.name and self._failed.count(name) < 2:
                        self._link(name)


def drawn(
    name: str,
    edges: Edges,
    routes: dict[tuple[str, str], tuple[str, ...]] | None = None,
    *,
    link_timers: int = 0,
    lazy: Edges = (),
    dissemination: Callable[..., Any] | None = None,
) -> Stack:
    """The stack called `name` over these links, some announcing; `dissemination` is a variant of its own."""
    entry = STACKS[name]
    layer: Any = dissemination or entry.dissemination
    types = layer.func.wire_types if isinstance(layer, partial) else layer.wire_types

    def timeless(port: Port, membership: Overlay) -> Any:
        return layer(Timeless(port, link_timers), membership)

    return replace(
        entry,
        name=f"{name}-drawn",
        membership=lambda port, roster: Drawn(port, roster, edges, routes or {}, lazy),
        dissemination=timeless,
        wire_types=(*Path.wire_types, *types, *Drawn.wire_types),
    )
