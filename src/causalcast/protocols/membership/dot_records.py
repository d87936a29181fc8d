"""What a member of `tcb-dynamic` notes of itself and of each other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from causalcast.model import ProcessId

PRESENT, LEFT, EVICTED = range(3)

JOINING: Final = "joining"
INSTALLED: Final = "installed"
MEMBER: Final = "member"
LEAVING: Final = "leaving"
OUT: Final = "out"


class Directory(Protocol):
    """What a host knows of where members are reached. Joins carry it, so that whoever has a join can reach the joiner.

    Addresses are the hosts' own: nothing here reads them. A host that reaches everybody by name has none.
    """

    def where(self, name: ProcessId) -> str:
        """Where `name` is reached; empty if that is not known."""

    def learn(self, name: ProcessId, address: str) -> None:
        """`name` is reached there."""


class Other(msgspec.Struct, eq=False):
    """What this process knows of another one."""

    status: int = PRESENT
    by: str = ""
    """Through whom it joined; empty: it was there from the start."""
    open: bool = False
    """Whether it is sent what this process broadcasts: it knows this one, and has not left or been evicted."""
    left_taken: bool = False
    forgetting: bool = False
    """Whether a `ForgetDot` that names it is delivered."""
