"""What only a member of a group whose members come and go over durable links is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.model import CausalcastError, UnsupportedByStackError
from causalcast.runtime.limits import EVICT_AFTER_LEAST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.protocols import Stack
    from causalcast.runtime.address import Address


class ImpatienceError(CausalcastError, ValueError):
    """A failure detector that would take members for crashed that have nothing to say."""


class Dynamics(NamedTuple):
    """See `causalcast.open`."""

    advertise: Address | None = None
    give_state: Callable[[], bytes] | None = None
    take_state: Callable[[bytes], None] | None = None
    evict_after: float | None = None

    def check(self, stack: Stack) -> None:
        """Raise `UnsupportedByStackError` where `stack` has no use for it, `ImpatienceError` for too short a time."""
        given = [name for name, value in self._asdict().items() if value is not None]
        if given and not (stack.dynamic and not stack.session_links):
            raise UnsupportedByStackError(f"{given[0]} is for `tcb-dynamic`: {stack.name!r} has no use for it")
        if self.evict_after is not None and not self.evict_after >= EVICT_AFTER_LEAST_S:
            raise ImpatienceError(
                f"evict_after is {EVICT_AFTER_LEAST_S:g} seconds at least, not {self.evict_after:g}: a member that is "
                "well may say nothing for a while"
            )


NO_DYNAMICS: Final = Dynamics()
