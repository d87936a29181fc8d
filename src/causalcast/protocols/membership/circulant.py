"""Static members who are neighbours of a few: each of those 1, 2, 4, ... places before and after it in the roster.

Everyone is known to all, as the orderings with tags want it; a tree over such neighbours sends each message n - 1 times
in all, and no process more than a few times. The distance of two members is at most half of log2(n), about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.membership.static import StaticMembership

if TYPE_CHECKING:
    from causalcast.model import Roster
    from causalcast.protocols.port import Port


class CirculantMembership(StaticMembership):
    """The roster as given, and the neighbours on its circle."""

    __slots__ = ()

    def __init__(self, port: Port, roster: Roster) -> None:
        super().__init__(port, roster)
        size, slot = len(roster), roster.slot(port.name)
        steps = [1 << power for power in range(size.bit_length()) if 1 << power < size]
        slots = {(slot + sign * step) % size for step in steps for sign in (1, -1)} - {slot}
        self._neighbours = tuple(roster.names[neighbour] for neighbour in sorted(slots))
