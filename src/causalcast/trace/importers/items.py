"""What importers yield, the limits they keep, and the lines of a file read within these limits."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final, TypeAlias

import msgspec

from causalcast.model import CausalcastError
from causalcast.trace.schema import TraceEvent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOCKS_FILE: Final = "clocks.import"
"""Where an import leaves its clocked events, as JSON lines. The name keeps it out of the traces of its folder."""
REJECTED_FILE: Final = "rejected.import"
MAX_LINE_BYTES: Final = 1 << 20
"""A longer line is set aside unread."""
MAX_LOG_BYTES: Final = 1 << 30
"""A larger file is refused where a format has to be read as a whole."""
MAX_TEXT: Final = 200
"""Characters of an event's own text that are kept to show it."""
MAX_COUNT: Final = 2**63 - 1


def unfinished(path: Path) -> Path:
    """Return the name that a file of an import has until it is whole."""
    return path.with_name(f".{path.name}.tmp")


class ImportUnusable(CausalcastError, ValueError):  # noqa: N818
    """A file that holds nothing to import; the message says what was looked for and what to do."""

    def __init__(self, path: Path, reason: str, line: int | None = None) -> None:
        where = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


class ClockedEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An event of a log that carries vector clocks, or that names its causes; see `docs/importers.md`."""

    process: str
    file: str
    line: int
    clock: dict[str, int] | None = None
    """Process to number of its events known here, this event included. `None`: the log carries no clocks."""
    sends: str | None = None
    """The message that starts here."""
    receives: tuple[str, ...] | None = None
    """The messages that arrive here; `None` where the log does not say."""
    exact: bool = False
    """Whether the clock may have grown by nothing but `receives` and the event itself."""
    execution: str | None = None
    """Logs of several executions in one file are judged apart."""
    text: str | None = None


class Rejected(msgspec.Struct, frozen=True, gc=False):
    """A row that was set aside."""

    file: str
    line: int
    reason: str
    text: str


Item: TypeAlias = TraceEvent | ClockedEvent | Rejected


def lines_of(path: Path, file: IO[bytes], most: int = MAX_LINE_BYTES) -> Iterator[tuple[int, bytes] | Rejected]:
    """Yield the lines of a file with their numbers, empty ones left out; one of over `most` bytes is `Rejected`."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most and not line.endswith(b"\n"):
            start = line[:MAX_TEXT]
            while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                pass
            yield rejected(path, number, f"longer than {most:,} bytes", start)
        elif line.strip():
            yield number, line


def rejected(path: Path, line: int, reason: str, text: bytes | str) -> Rejected:
    """Return the row set aside; its text is cut to what a person wants to see."""
    shown = text[: 4 * MAX_TEXT].decode("utf-8", "replace") if isinstance(text, bytes) else text
    return Rejected(str(path), line, reason, shown.rstrip("\r\n")[:MAX_TEXT])


def whole_clock(value: object) -> dict[str, int]:
    """Return a vector clock read from JSON without its zero entries, which say nothing (ShiViz drops them too).

    Raises:
        ValueError: it is no object of names and whole numbers from 0 to 2^63 - 1.
    """
    if not isinstance(value, dict) or not value:
        raise ValueError("the clock is not an object of processes and numbers")
    clock: dict[str, int] = {}
    for name, count in value.items():
        if not isinstance(name, str) or not name:
            raise ValueError("the clock has an entry without a name")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
            raise ValueError(f"the clock's entry of {name[:MAX_TEXT]!r} is not a whole number from 0 to 2^63 - 1")
        if count:
            clock[name] = count
    return clock
