"""The contexts of a process of `tcb-dynamic`: what its application has taken, as its next dot says it.

Source: document 004, algorithm 12. Dots of two kinds are in the graph, messages and what members do. A dot names its
immediate predecessors of both, a tag those among messages. The two differ only where a dot that is no message lies
between; while they do not, one is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.model import RawDot


class Contexts:
    """The dots taken that no other dot taken has in its past, of both kinds and among messages."""

    __slots__ = ("_seen", "dots")

    def __init__(self) -> None:
        self.dots: dict[str, int] = {}
        """Of both kinds, by column."""
        self._seen: dict[str, int] | None = None
        """Among messages; `None`: the same."""

    def of_dot(self) -> tuple[RawDot, ...]:
        """The immediate predecessors of a dot that is made now."""
        return tuple(self.dots.items())

    def of_tag(self) -> tuple[RawDot, ...] | None:
        """Those among messages; `None`: the same."""
        return None if self._seen is None else tuple(self._seen.items())

    def speak(self, column: str, counter: int) -> tuple[tuple[RawDot, ...], tuple[RawDot, ...] | None]:
        """Both contexts of a message that this process makes now, and that follows all that was taken."""
        before = tuple(self.dots.items()), None if self._seen is None else tuple(self._seen.items())
        self.dots = {column: counter}
        self._seen = None
        return before

    def emitted(self, column: str, counter: int) -> None:
        """This process has made a dot that is no message, which follows all that was taken."""
        self._part()
        self.dots = {column: counter}

    def took_message(
        self, origin: str, counter: int, of_tag: Iterable[RawDot], of_dot: Iterable[RawDot] | None
    ) -> None:
        """The application has taken a message with these contexts; `None`: that of its dot is that of its tag."""
        if of_dot is not None:
            self._part()
        dots = self.dots
        for name, count in of_tag if of_dot is None else of_dot:
            if dots.get(name) == count:
                del dots[name]
        dots[origin] = counter
        if self._seen is not None:
            _move(self._seen, origin, counter, of_tag)
            if self._seen == dots:
                self._seen = None

    def took(self, column: str, counter: int, before: Iterable[RawDot]) -> None:
        """A dot that follows `before` counts as taken, and the application knows nothing of it."""
        self._part()
        _move(self.dots, column, counter, before)

    def restore(self, of_dot: tuple[RawDot, ...], of_tag: tuple[RawDot, ...] | None) -> None:
        """Take up from there."""
        self.dots = dict(of_dot)
        self._seen = None if of_tag is None else dict(of_tag)

    def _part(self) -> None:
        """Something changes one of both only."""
        if self._seen is None:
            self._seen = dict(self.dots)


def _move(context: dict[str, int], column: str, counter: int, before: Iterable[RawDot]) -> None:
    for name, count in before:
        if context.get(name) == count:
            del context[name]
    context[column] = counter
