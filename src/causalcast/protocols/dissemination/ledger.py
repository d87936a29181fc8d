"""What has been delivered here: a count per origin, and the latest messages to send again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.dissemination.retention import Kept, Retention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from causalcast.model import ProcessId
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.ordering.path import PathMessage


class Ledger:
    """Deliveries of one process, of each origin in order of number.

    A count is enough where messages of an origin come in order (001 section 3.4). Origins silent for long are
    forgotten, later than the messages that are kept: what may be sent again is always known to whoever has had it.
    """

    __slots__ = ("_kept", "_old", "_periods", "_retention", "_young")

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._kept: Kept[PathMessage] = Kept(retention)
        self._young: dict[ProcessId, int] = {}
        self._old: dict[ProcessId, int] = {}
        self._periods = 0

    def count(self, origin: ProcessId) -> int:
        """The number of the latest message of `origin`; 0 if none is known."""
        return self._young.get(origin) or self._old.get(origin, 0)

    def add(self, message: PathMessage) -> None:
        """One more was delivered."""
        self.jump(message.origin, message.counter)
        self.keep(message)

    def keep(self, message: PathMessage) -> None:
        """Keep a message, to be sent again."""
        self._kept.add((message.origin, message.counter), message)

    def jump(self, origin: ProcessId, counter: int) -> None:
        """Everything of `origin` up to `counter` counts as delivered."""
        self._old.pop(origin, None)
        self._young[origin] = counter

    @property
    def origins(self) -> int:
        """How many origins are known."""
        return len(self._old) + len(self._young)

    def counts(self) -> tuple[MessageId, ...]:
        """The count of every origin that is known."""
        return (*self._old.items(), *self._young.items())

    def take_over(self, counts: Iterable[MessageId]) -> None:
        """Begin with the counts of another process."""
        for origin, counter in counts:
            if counter > self.count(origin):
                self.jump(origin, counter)

    def lacking(self, counts: Iterable[MessageId]) -> tuple[list[PathMessage], list[MessageId]]:
        """What a process with those counts has not got, in order of delivery, and the counts up to which more is
        missing than is kept here.
        """
        theirs = dict(counts)
        messages: list[PathMessage] = []
        first: dict[ProcessId, int] = {}
        for (origin, counter), message in self._kept.messages():
            if counter > theirs.get(origin, 0):
                messages.append(message)
                first.setdefault(origin, counter)
        gaps: list[MessageId] = []
        for origin, counter in self.counts():
            known = theirs.get(origin, 0)
            available = first.get(origin, counter + 1)
            if counter > known and available != known + 1:
                # Of an origin that it does not know at all, nobody knows whether anything is lost.
                gaps.append((origin, available - 1 if known else 0))
        return messages, gaps

    def age(self) -> bool:
        """A period is over; whether anything is left."""
        self._periods += 1
        left = self._kept.age()
        if self._periods % self._retention.forget_after == 0:
            self._old, self._young = self._young, {}
        return left or bool(self._old) or bool(self._young)

    def messages(self) -> Iterator[PathMessage]:
        """The messages kept, oldest first."""
        return (message for _, message in self._kept.messages())

    def tables(self) -> dict[str, int]:
        """Sizes of its tables."""
        return {"origins": self.origins, "kept": len(self._kept)}
