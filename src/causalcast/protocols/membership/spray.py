"""Spray: partial views that grow and shrink with the logarithm of the group, without anybody knowing its size.

Source: document 001, section 4, after Nedelec, Tanke, Frey, Molli and Mostefaoui, "An adaptive peer-sampling protocol
for building networks of browsers" (World Wide Web, 2017). A joiner's contact has each of its arcs' ends take an arc to
the joiner, so a view of about ln(n) arcs grows with n. In each round a process and the end of its oldest arc exchange
half of their views; a name may come twice, and stays: the number of arcs is what adapts. Half of the views' arcs change
hands in an exchange, and no arc comes or goes by it. Per process: its arcs, and whose arcs lead here.

When a peer is lost each arc to it is replaced by a second one to another neighbour, but for one in |view| of them: the
inverse of what a join adds. Samples and partners leave links out that are not safe (as the authors' simulation does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.membership.arcs import ArcParameters, Arcs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port


class Spray(Arcs):
    """One process's arcs, oldest first; the age of an arc is its place."""

    __slots__ = ("_view",)

    def __init__(self, port: Port, roster: Roster, parameters: ArcParameters | None = None) -> None:
        super().__init__(port, parameters or ArcParameters())
        self._view: list[ProcessId] = []

    def _arcs(self) -> Sequence[ProcessId]:
        return self._view

    def _add(self, peer: ProcessId) -> None:
        self._view.append(peer)

    def _remove(self, peer: ProcessId) -> bool:
        if peer not in self._view:
            return False
        self._view.remove(peer)
        return True

    def _failed(self, peer: ProcessId) -> None:
        lost = self._view.count(peer)
        self._view = [name for name in self._view if name != peer]
        size = len(self._view) + lost
        for _ in range(lost):
            if self._view and self._port.random.random() >= 1 / size:
                self._view.append(self._one_of(self._view))
        if not self._view and self._theirs:
            self._take(self._one_of(tuple(self._theirs)), ())

    def _partner(self) -> ProcessId | None:
        return next((peer for peer in self._view if self._usable(peer)), None)

    def _sample(self, partner: ProcessId, *, reply: bool) -> list[ProcessId]:
        half = (len(self._view) + 1) // 2
        usable = [peer for peer in self._view if self._usable(peer)]
        if reply:
            # What is on offer elsewhere is given away twice otherwise, and arcs multiply with the delay of messages.
            for name in self._on_offer:
                if name in usable:
                    usable.remove(name)
            return self._port.random.sample(usable, min(half, len(usable)))
        usable.remove(partner)
        return [partner, *self._port.random.sample(usable, min(half - 1, len(usable)))]
