"""Which messages have been here, by origin, where they may arrive in any order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from causalcast.model import ProcessId

WINDOW: Final = 1024
"""A message that many numbers or more behind the latest of its origin counts as seen."""


class Seen:
    """For each origin the highest number and a bit for each of the `WINDOW` below it.

    What was heard of since the last `age`, and what before: whatever stays silent through two of them goes.
    """

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[ProcessId, tuple[int, int]] = {}
        self._old: dict[ProcessId, tuple[int, int]] = {}

    def add(self, origin: ProcessId, number: int) -> bool:
        """Whether the message is new; it is not any more."""
        known = self._young.get(origin)
        if known is None:
            known = self._old.pop(origin, None)
            if known is None:
                self._young[origin] = (number, 1)
                return True
        highest, bits = known
        ahead = number - highest
        if ahead > 0:
            self._young[origin] = (number, ((bits << ahead) | 1) & _MASK if ahead < WINDOW else 1)
            return True
        new = -ahead < WINDOW and not bits >> -ahead & 1
        self._young[origin] = (highest, bits | 1 << -ahead) if new else known
        return new

    def age(self) -> bool:
        """A period is over; whether anything is left."""
        self._old = self._young
        self._young = {}
        return bool(self._old)

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __contains__(self, message: tuple[ProcessId, int]) -> bool:
        origin, number = message
        known = self._young.get(origin) or self._old.get(origin)
        if known is None or number > known[0]:
            return False
        behind = known[0] - number
        return behind >= WINDOW or bool(known[1] >> behind & 1)


_MASK: Final = (1 << WINDOW) - 1
