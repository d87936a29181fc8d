"""What memberships that know only a part of the group have in common: a view of neighbours over session links."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.model import MembershipChanged, NotAMemberError
from causalcast.protocols.layers import Membership

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.port import Port

DEFAULT_SIZE = 10_000
"""How many members to expect where nothing is said: the size that documents 000 and 001 are made for."""


class Overlay(Membership):
    """Neighbourhood is mutual: whoever has a neighbour is one of its neighbours, but for what is under way.

    A join is complete when its contact has answered or, if the dissemination above transfers state, with that state.
    """

    __slots__ = ("_neighbours", "_port", "joining", "member", "name", "route")

    def __init__(self, port: Port) -> None:
        self.name = port.name
        self._port = port
        self._neighbours: dict[ProcessId, None] = {}
        self.member = True
        """Whether this process is a member now: one that knows nobody and joins nobody is the first."""
        self.joining: ProcessId | None = None
        """While `neighbour_up` runs: that neighbour if one of the two joins the group through the other."""
        self.route: tuple[ProcessId, ...] = ()
        """While `neighbour_up` runs: a way to that neighbour over others, from here to there, if one is known."""

    @property
    def neighbours(self) -> Sequence[ProcessId]:
        return tuple(self._neighbours)

    def check_member(self) -> None:
        """Raise `NotAMemberError` before the join is complete and after the leave."""
        if not self.member:
            raise NotAMemberError(f"{self.name!r} is not a member now: wait until its join is complete")

    def settle(self) -> None:
        """The join is complete."""
        if not self.member:
            self.member = True
            self._port.announce(MembershipChanged(joined=(self.name,)))

    def switch_neighbour(self, peer: ProcessId) -> None:
        """Part with `peer` and take another in its place (000, SWITCH_NEIGHBOUR); where there is no other, keep it."""

    standing: ClassVar[frozenset[str]] = frozenset({"neighbours", "lost"})

    def tables(self) -> dict[str, int]:
        """Sizes of its tables."""
        return {"neighbours": len(self._neighbours)}

    def _up(self, peer: ProcessId, *, joining: bool = False, route: tuple[ProcessId, ...] = ()) -> None:
        self._neighbours[peer] = None
        self.joining = peer if joining else None
        self.route = route
        self.above.neighbour_up(peer)
        self.joining = None
        self.route = ()

    def _down(self, peer: ProcessId) -> None:
        del self._neighbours[peer]
        self.above.neighbour_down(peer)

    def _retire(self) -> None:
        self.member = False
        self._port.announce(MembershipChanged(left=(self.name,)))
        self._port.retire()
