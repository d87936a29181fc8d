"""An import as a folder: `trace.jsonl` for the audit, the clocked events and the rejected rows beside it."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.trace.importers.items import (
    CLOCKS_FILE,
    REJECTED_FILE,
    ClockedEvent,
    ImportUnusable,
    Item,
    Rejected,
    unfinished,
)
from causalcast.trace.schema import TraceEvent
from causalcast.trace.writer import TraceWriteError, saying_version

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

TRACE_FILE: Final = "trace.jsonl"
_NAMES: Final = {TraceEvent: TRACE_FILE, ClockedEvent: CLOCKS_FILE, Rejected: REJECTED_FILE}
_ORDER: Final = (REJECTED_FILE, TRACE_FILE, CLOCKS_FILE)
"""In which files get their names: an audit refuses what a killed import leaves, whichever have theirs by then."""
_REJECTED_SHOWN: Final = 5


@dataclass(slots=True)
class Imported:
    """What an import wrote."""

    events: int = 0
    """Rows of schema 1."""
    clocked: int = 0
    rejected: int = 0
    processes: set[str] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    """Schema 1 rows by event."""
    first_rejected: list[Rejected] = field(default_factory=list)


def write_import(items: Iterable[Item], folder: Path) -> Imported:
    """Write what importers yield into `folder`, which is made if it is not there and must be empty.

    Files are written under names that the audit does not read and get their own once they are whole. A file that
    would hold nothing is left out.

    Raises:
        ImportUnusable: the folder holds something, or nothing in the input could be used.
        TraceWriteError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise TraceWriteError(folder, error) from error
    if occupied:
        raise ImportUnusable(folder, "the folder is not empty; name a new one, so that no two imports mix")
    imported = Imported()
    with ExitStack() as stack:
        files = _Files(folder, stack)
        for item in items:
            _count(imported, item)
            files.write(item)
        if imported.events == imported.clocked == 0:
            raise _nothing(folder, imported)
        files.finish()
    return imported


class _Files:
    """The files of an import, each opened with its first row; `finish` gives them their names."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self._open: dict[str, BinaryIO] = {}
        self._encode = msgspec.json.Encoder().encode

    def write(self, item: Item) -> None:
        name = _NAMES[type(item)]
        try:
            row = self._encode(item)
            file = self._open.get(name)
            if file is None:
                row = saying_version(row) if isinstance(item, TraceEvent) else row
                path = unfinished(self.folder / name)
                self.stack.callback(path.unlink, missing_ok=True)
                file = self._open[name] = self.stack.enter_context(path.open("wb"))
            file.write(row + b"\n")
        except OSError as error:
            raise TraceWriteError(self.folder, error) from error

    def finish(self) -> None:
        try:
            for file in self._open.values():
                file.close()
            for name in _ORDER:
                if name in self._open:
                    unfinished(self.folder / name).rename(self.folder / name)
        except OSError as error:
            raise TraceWriteError(self.folder, error) from error


def _count(imported: Imported, item: Item) -> None:
    if isinstance(item, Rejected):
        imported.rejected += 1
        if len(imported.first_rejected) < _REJECTED_SHOWN:
            imported.first_rejected.append(item)
        return
    imported.processes.add(item.process)
    if isinstance(item, TraceEvent):
        imported.events += 1
        imported.kinds[item.event] += 1
    else:
        imported.clocked += 1


def _nothing(folder: Path, imported: Imported) -> ImportUnusable:
    if not imported.first_rejected:
        return ImportUnusable(folder, "nothing to import: the input has no events")
    first = imported.first_rejected[0]
    return ImportUnusable(
        folder,
        f"nothing to import: none of {imported.rejected} rows can be used; "
        f"the first: {first.file}:{first.line}: {first.reason}",
    )
