"""Cyclon: views of fixed size whose oldest arc is exchanged with its end in each round.

Source: document 000, section 2.2.1, after Voulgaris, Gavidia and van Steen, "Cyclon: inexpensive membership management
for unstructured P2P overlays" (2005); the other membership that 000 section 5.2 asks for. A round gives the oldest arc
and a few more to the end of that arc, which takes one to here instead, and gets a few back. What comes back fills the
room that there is, then the places of what went. Per process: the arcs of its view, and whose arcs lead here.

A joiner is introduced as in Spray, by the ends of its contact's arcs, each of which puts out its oldest arc for it if
its view is full (the paper walks at random instead). Its own view, like one that lost arcs, is filled by exchanges, or
from those who have arcs to here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.membership.arcs import ArcParameters, Arcs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port


class Cyclon(Arcs):
    """One process's arcs, oldest first; at most one to each peer."""

    __slots__ = ("_view",)

    def __init__(self, port: Port, roster: Roster, parameters: ArcParameters | None = None) -> None:
        super().__init__(port, parameters or ArcParameters())
        self._view: dict[ProcessId, None] = {}

    def _arcs(self) -> Sequence[ProcessId]:
        return tuple(self._view)

    def _add(self, peer: ProcessId) -> None:
        if peer in self._view:
            return
        if len(self._view) >= self.of.view:
            self._give(next(iter(self._view)))
        self._view[peer] = None

    def _remove(self, peer: ProcessId) -> bool:
        return self._view.pop(peer, peer) is None

    def _failed(self, peer: ProcessId) -> None:
        self._view.pop(peer, None)
        others = [name for name in self._theirs if name not in self._view]
        if others and len(self._view) < self.of.view // 2:
            self._take(self._one_of(others), ())

    def _partner(self) -> ProcessId | None:
        return next((peer for peer in self._view if self._usable(peer)), None)

    def _sample(self, partner: ProcessId, *, reply: bool) -> list[ProcessId]:
        usable = [peer for peer in self._view if self._usable(peer) and peer != partner]
        if reply:
            return self._port.random.sample(usable, min(self.of.exchanged, len(usable)))
        return [partner, *self._port.random.sample(usable, min(self.of.exchanged - 1, len(usable)))]

    def _trade(self, partner: ProcessId, given: Sequence[ProcessId], names: Sequence[ProcessId]) -> None:
        if partner in given:
            self._give(partner)
        places = [name for name in given if name != partner]
        for name in names:
            if name == self.name or name in self._view:
                continue
            if len(self._view) >= self.of.view:
                if not places:
                    return
                self._give(places.pop())
            self._take_from(partner, name)
