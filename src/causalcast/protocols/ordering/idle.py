"""When an idle member speaks of what it has taken, so that others can tell what is stable (document 004, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from causalcast.protocols.port import Port, Timer

PHANTOM_DELAY_NS: Final = 50_000_000
"""How long a member stays silent about what it has taken: also the shortest time between two of its phantoms."""


class IdleState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What must not be forgotten."""

    news: bool
    """Something was taken that was not spoken of."""
    timer_set: bool


class Idle:
    """Asks for a phantom `PHANTOM_DELAY_NS` after something was taken, if no broadcast has spoken of it meanwhile."""

    __slots__ = ("_news", "_port", "_timer", "_timer_set")

    def __init__(self, port: Port, timer: str) -> None:
        self._port = port
        self._timer = timer
        self._timer_set = False
        self._news = False

    def took(self) -> None:
        """The application has taken a message."""
        self._news = True
        if not self._timer_set:
            self._timer_set = True
            self._port.set_timer(PHANTOM_DELAY_NS, self._timer)

    def spoke(self) -> None:
        """A message or phantom says all that was taken."""
        self._news = False

    def must_speak(self, timer: Timer) -> bool:
        """A timer is due: whether a phantom must be sent now."""
        if timer != self._timer:
            return False
        self._timer_set = False
        return self._news

    @property
    def state(self) -> IdleState:
        """To be written down."""
        return IdleState(self._news, self._timer_set)

    def restore(self, state: IdleState) -> None:
        """Take up from `state`; a timer that was set runs from the beginning."""
        self._news = state.news
        self._timer_set = state.timer_set
        if state.timer_set:
            self._port.set_timer(PHANTOM_DELAY_NS, self._timer)
