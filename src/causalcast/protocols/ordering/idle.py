"""When an idle member speaks of what it has taken, so that others can tell what is stable (document 004, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from causalcast.protocols.port import Port, Timer

PHANTOM_DELAY_NS: Final = 50_000_000
"""How long a member stays silent about what it has taken: also the shortest time between two of its phantoms."""


class Idle:
    """Asks for a phantom once something has been taken for `PHANTOM_DELAY_NS` and no broadcast has spoken of it."""

    __slots__ = ("_news", "_port", "_timer")

    def __init__(self, port: Port, timer: str) -> None:
        self._port = port
        self._timer = timer
        self._news = False
        """Something was taken that was not spoken of: the timer is set."""

    def took(self) -> None:
        """The application has taken a message."""
        if not self._news:
            self._news = True
            self._port.set_timer(PHANTOM_DELAY_NS, self._timer)

    def spoke(self) -> None:
        """A broadcast says all that was taken."""
        if self._news:
            self._news = False
            self._port.cancel_timer(self._timer)

    def must_speak(self, timer: Timer) -> bool:
        """A timer is due: whether a phantom must be sent now, which says all that was taken."""
        if timer != self._timer:
            return False
        news, self._news = self._news, False
        return news

    @property
    def state(self) -> bool:
        """To be written down."""
        return self._news

    def restore(self, state: bool) -> None:
        """Take up from `state`; a timer that was set runs from the beginning."""
        if state:
            self.took()
