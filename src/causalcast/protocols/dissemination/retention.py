"""How long messages are kept to be sent again, and silent origins remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.protocols.dissemination.identity import MessageId

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retention:
    """Bounds of what is remembered."""

    period_ns: int | None = 150_000_000_000
    """Messages are kept for this long, and at most twice as long; `None`: until `messages` newer ones have come."""
    messages: int = 4096
    """At most so many messages are kept of either half of that time."""
    forget_after: int = 4
    """An origin is forgotten once it was silent for so many periods, and at most for twice as many: its next message
    counts as new whatever its number. No copy of a message may be under way for longer.
    """


DEFAULT_RETENTION: Final = Retention()
BY_NUMBER: Final = Retention(period_ns=None)
"""Nothing is forgotten by time: for groups whose members are fixed, and where time is nobody's, as in the explorer."""


class Kept(Generic[T]):
    """The latest messages in the order in which they came, by identity."""

    __slots__ = ("_limit", "_old", "_young")

    def __init__(self, retention: Retention) -> None:
        self._limit = retention.messages
        self._young: dict[MessageId, T] = {}
        self._old: dict[MessageId, T] = {}

    def add(self, name: MessageId, message: T) -> None:
        """Keep one more."""
        self._young[name] = message
        if len(self._young) > self._limit:
            del self._young[next(iter(self._young))]

    def get(self, name: MessageId) -> T | None:
        """The message of that name, if it is kept."""
        return self._young.get(name) or self._old.get(name)

    def age(self) -> bool:
        """A period is over; whether any message is left."""
        self._old, self._young = self._young, {}
        return bool(self._old)

    def __iter__(self) -> Iterator[MessageId]:
        yield from self._old
        yield from self._young

    def messages(self) -> Iterator[tuple[MessageId, T]]:
        """Every message with its name, oldest first."""
        yield from self._old.items()
        yield from self._young.items()

    def __len__(self) -> int:
        return len(self._old) + len(self._young)
