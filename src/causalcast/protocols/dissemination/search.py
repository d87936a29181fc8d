"""The search for a way of safe links between two processes that have just become neighbours (000, DISCOVERY).

Document 000 floods the whole overlay from one end, and back from the other. Here both ends flood at once, and only so
far that each reaches about `REACH` processes; who hears of both knows a way. Two random sets of that many out of 10,000
have about six in common, and about a thousand messages are sent instead of twice the links of the overlay.

To ask the other end what it has instead (see `safelinks`) costs two messages with a count per origin heard of lately:
less, in bytes too, than those thousand messages, unless the origins are thousands. So with fewer than `FEW_ORIGINS`
nothing is searched for, and the exchange over safe ways serves the links whose way the membership knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.protocols.dissemination.safelinks import SafeLinks
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.retention import Retention
    from causalcast.protocols.dissemination.safelinks import Opening
    from causalcast.protocols.membership.overlay import Overlay
    from causalcast.protocols.port import Port, Timer

FEW_ORIGINS: Final = 1_000
"""With fewer origins heard of lately the other end is asked what it has, without a search."""

REACH: Final = 250
"""How many processes each end of a search reaches, about."""

SEARCHES: Final = 512
"""Of so many searches a process remembers where they came from (`traversals` of the print), the latest."""

FORGET_NS: Final = 30_000_000_000
"""After this time, and at most twice as long, a search is forgotten."""

SEARCH_TIMER: Final = "search.age"


class Seek(WireMessage, frozen=True, array_like=True, gc=False, tag=126):
    """One end's search, on its way out."""

    opener: str
    number: int
    target: str
    hops: int
    path: tuple[str, ...]
    """From one end to the sender."""


class Help(WireMessage, frozen=True, array_like=True, gc=False, tag=127):
    """To the other end: search too."""

    number: int


class Found(WireMessage, frozen=True, array_like=True, gc=False, tag=128):
    """To the opener: this is a way."""

    number: int
    target: str
    path: tuple[str, ...]


class Search(SafeLinks):
    """Safe links whose ways are searched for."""

    __slots__ = ("_forgetting", "_traversals")

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (*SafeLinks.wire_types, Seek, Help, Found)
    timers: ClassVar[tuple[str, ...]] = (*SafeLinks.timers, SEARCH_TIMER)

    def __init__(self, port: Port, membership: Overlay, retention: Retention | None = None) -> None:
        if retention is None:
            super().__init__(port, membership)
        else:
            super().__init__(port, membership, retention)
        self._traversals: dict[tuple[ProcessId, int], dict[ProcessId, tuple[ProcessId, ...]]] = {}
        """Of each search, by its opener and number, the way from either end to here."""
        self._forgetting: list[tuple[ProcessId, int]] | None = None
        """Searches that were known when the timer was set; `None`: it is not."""

    def _search(self, peer: ProcessId, opening: Opening) -> bool:
        if self._ledger.origins < FEW_ORIGINS:
            return False
        self._port.send((peer,), Help(opening.number))
        self._seek(Seek(self._port.name, opening.number, peer, self._hops(), ()), None)
        return True

    def _hops(self) -> int:
        """How far a search must go to reach `REACH` processes."""
        reached = degree = len(self._safe)
        hops = 1
        while reached < REACH and hops < REACH and degree > 1:
            reached *= max(degree - 1, 1)
            hops += 1
            if degree == 2:
                reached += 2
        return hops

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A search, or what all protocols over safe links share."""
        match message:
            case Seek():
                self._seek(message, sender)
            case Help(number):
                if sender in self._membership.neighbours:
                    self._seek(Seek(sender, number, self._port.name, self._hops(), ()), None)
            case Found(number, target, path):
                opening = self._opening.get(target)
                wanted = opening is not None and opening.number == number and not opening.under_way
                if opening is not None and wanted and self._usable(path, target):
                    self._try_way(target, opening, path)
            case _:
                super().receive(sender, message)

    def _usable(self, path: tuple[ProcessId, ...], target: ProcessId) -> bool:
        return len(path) > 2 and path[0] == self._port.name and path[-1] == target and path[1] in self._safe

    def _seek(self, message: Seek, sender: ProcessId | None) -> None:
        me = self._port.name
        path = (*message.path, me)
        end = path[0]
        key = (message.opener, message.number)
        ways = self._traversals.get(key)
        if ways is None:
            if len(self._traversals) >= SEARCHES:
                del self._traversals[next(iter(self._traversals))]
            ways = self._traversals[key] = {}
            self._forget_later()
        if end in ways or me in message.path:
            return
        ways[end] = path
        if message.opener in ways and message.target in ways:
            way = _without_loops((*ways[message.opener], *reversed(ways[message.target][:-1])))
            found = Found(message.number, message.target, way)
            if message.opener == me:
                self.receive(me, found)
            else:
                self._port.send((message.opener,), found)
        elif message.hops > 0:
            nexts = [peer for peer in self._safe if peer != sender]
            if nexts:
                onward = Seek(message.opener, message.number, message.target, message.hops - 1, path)
                self._port.send(nexts, onward)

    def _forget_later(self) -> None:
        if self._forgetting is None:
            self._forgetting = list(self._traversals)
            self._port.set_timer(FORGET_NS, SEARCH_TIMER)

    def timer(self, timer: Timer) -> None:
        """A search is old, or one of the links' own timers."""
        if timer != SEARCH_TIMER:
            super().timer(timer)
            return
        for key in self._forgetting or ():
            self._traversals.pop(key, None)
        self._forgetting = None
        if self._traversals:
            self._forget_later()

    def tables(self) -> dict[str, int]:
        return {**super().tables(), "traversals": len(self._traversals)}


def _without_loops(way: tuple[ProcessId, ...]) -> tuple[ProcessId, ...]:
    places: dict[ProcessId, None] = {}
    for name in way:
        if name in places:
            names = list(places)
            places = dict.fromkeys(names[: names.index(name) + 1])
        else:
            places[name] = None
    return tuple(places)
