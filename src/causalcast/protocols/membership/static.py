"""Static full membership: everyone is known from the start, and stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.layers import Membership

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port


class StaticMembership(Membership):
    """The roster as given; the neighbours of a process are all others."""

    __slots__ = ("_neighbours", "name", "roster")

    def __init__(self, port: Port, roster: Roster) -> None:
        self.name = port.name
        self.roster = roster
        self._neighbours = roster.others(port.name)

    @property
    def neighbours(self) -> Sequence[ProcessId]:
        return self._neighbours
