"""What a member of `tcb-dynamic` notes of itself and of each other one."""

from __future__ import annotations

from typing import Final

import msgspec

PRESENT, LEFT, EVICTED = range(3)

JOINING: Final = "joining"
INSTALLED: Final = "installed"
MEMBER: Final = "member"
LEAVING: Final = "leaving"
OUT: Final = "out"


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
