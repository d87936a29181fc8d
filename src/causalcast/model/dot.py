"""Dots: the identity of a message, its broadcaster and its number there (document 004, section 4.4.3)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

ProcessId: TypeAlias = str
"""The name of a process, unique in its group for as long as the group exists."""

RawDot: TypeAlias = tuple[str, int]
"""A dot as plain data: what the wire carries and tables are keyed by. Equal, and hashes equal, to a `Dot`."""


class Dot(NamedTuple):
    """`(origin, counter)`: counters start at 1 and have no gaps per origin."""

    origin: ProcessId
    counter: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.counter}"
