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
)
from causalcast.trace.schema import TraceEvent
from causalcast.trace.writer import TraceWriteError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from typing import BinaryIO

TRACE_FILE: Final = "trace.jsonl"
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
    encode = msgspec.json.Encoder().encode
    names = {TraceEvent: TRACE_FILE, ClockedEvent: CLOCKS_FILE, Rejected: REJECTED_FILE}
    unfinished = {name: folder / f".{name}.tmp" for name in names.values()}
    try:
        with ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            for item in items:
                name = names[type(item)]
                file = files.get(name)
                if file is None:
                    file = files[name] = stack.enter_context(unfinished[name].open("wb"))
                _count(imported, item)
                file.write(encode(item) + b"\n")
        if imported.events == imported.clocked == 0:
            raise _nothing(folder, imported)
        for name in files:
            unfinished[name].rename(folder / name)
    except OSError as error:
        raise TraceWriteError(folder, error) from error
    finally:
        for path in unfinished.values():
            path.unlink(missing_ok=True)
    return imported


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
