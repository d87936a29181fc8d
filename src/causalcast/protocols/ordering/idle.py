"""When an idle member speaks of what it has taken, so that others can tell what is stable (document 004, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from causalcast.protocols.port import Port, Timer

PHANTOM_DELAY_NS: Final = 50_000_000
"""How long a member of a small group stays silent about what it has taken."""

PHANTOM_SHARE_NS: Final = 10_000_000
"""How much each member adds to that where it is more: a whole group sends at most 100 phantoms a second."""


class Idle:
    """Asks for a phantom once something has been taken for a time and no broadcast has spoken of it.

    That is `PHANTOM_DELAY_NS`, or `PHANTOM_SHARE_NS` for each of the `members`, whichever is longer. It is also the
    shortest time between two phantoms of a member.
    """

    __slots__ = ("_delay_ns", "_port", "_timer", "news")

    def __init__(self, port: Port, timer: str, members: int) -> None:
        self.members(members)
        self._port = port
        self._timer = timer
        self.news = False
        """Something was taken that was not spoken of: the timer is set."""

    def members(self, members: int) -> None:
        """There are so many members now."""
        self._delay_ns = max(PHANTOM_DELAY_NS, members * PHANTOM_SHARE_NS)

    def took(self) -> None:
        """The application has taken a message."""
        if not self.news:
            self.news = True
            self._port.set_timer(self._delay_ns, self._timer)

    def spoke(self) -> None:
        """A broadcast says all that was taken."""
        if self.news:
            self.news = False
            self._port.cancel_timer(self._timer)

    def must_speak(self, timer: Timer) -> bool:
        """A timer is due: whether a phantom must be sent now, which says all that was taken."""
        if timer != self._timer:
            return False
        news, self.news = self.news, False
        return news

    def restore(self, news: bool) -> None:
        """Take up from there; a timer that was set runs from the beginning."""
        if news:
            self.took()
