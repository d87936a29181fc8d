"""Static full membership: everyone is known from the start, and stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.model import ProcessId, Roster


class StaticMembership:
    """The roster as given; the neighbours of a process are all others."""

    def __init__(self, name: ProcessId, roster: Roster) -> None:
        self.name = name
        self.roster = roster
        self.neighbours = roster.others(name)
