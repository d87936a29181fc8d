"""A trace that stays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.trace import TraceEvent


class Memory:
    """A trace sink that keeps its rows."""

    def __init__(self) -> None:
        self.rows: list[TraceEvent] = []

    def write(self, event: TraceEvent) -> None:
        self.rows.append(event)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def of(self, process: str) -> list[TraceEvent]:
        """The rows of one process."""
        return [row for row in self.rows if row.process == process]
