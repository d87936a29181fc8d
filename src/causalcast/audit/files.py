"""What can be wrong with trace files before a row of them is read: endless lines, files that are being written."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from causalcast.audit.errors import AuditError, InputUnusable
from causalcast.trace.reader import refusal_of
from causalcast.trace.schema import SCHEMA_KEY, other_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_LINE: Final = 16 * 2**20
"""Bytes from which on a line is no event any more. Spark would hold it in memory, several times over."""
WATCH_STATE: Final = ".causalcast-watch"
"""The folder among the traces where `live` keeps its state, unless another is named."""
WORDS: Final = ("process", "event", "origin", "topic", "peer")
NUMBERS: Final = ("seq", "counter", "time_ns", "payload_bytes", "overhead_bytes")
DOT: Final = ("origin", "counter")
"""The fields of a tag's parts."""
_BLOCK: Final = 64 * 2**10
_MOST_PACKED: Final = 1032
"""How many bytes deflate can make of one."""


def all_below(folder: Path) -> list[Path]:
    """Return all that lies in a folder, at any depth, sorted. Links to folders are followed, each folder once.

    Raises:
        OSError: a folder cannot be listed.
    """

    def refuse(error: OSError) -> None:
        raise error

    found: list[Path] = []
    seen: set[tuple[int, int]] = set()
    for at, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        status = Path(at).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        found.extend(Path(at, name) for name in (*folders, *names))
    return sorted(found)


def literal(path: str) -> str:
    """Return a path as Spark has to be given it, which takes it for a pattern; a URI stays one."""
    return path if "://" in path else re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def refuse_endless_lines(paths: Iterable[str]) -> None:
    """Check that JSON lines files have lines.

    Of every `MAX_LINE` bytes of a plain file, only as much is read as it takes to find the end of a line; packed files
    are unpacked.

    Raises:
        InputUnusable: a file has a line that is longer, or is no gzip file although it is named so.
    """
    large = [path for path in paths if "://" not in path and _may_have_one(path)]
    with ThreadPoolExecutor() as pool:
        for error in pool.map(_endless, large):
            if error is not None:
                raise InputUnusable(error)


def _may_have_one(path: str) -> bool:
    size = Path(path).stat().st_size
    return size * (_MOST_PACKED if path.endswith(".gz") else 1) >= MAX_LINE


def _endless(path: str) -> str | None:
    try:
        line = _packed(path) if path.endswith(".gz") else _plain(path)
    except (OSError, EOFError, zlib.error) as error:
        return f"{path}: cannot be read: {error}"
    if line is None:
        return None
    return f"{path}:{line}: a line of more than {MAX_LINE // 2**20} MiB: this is no trace of one JSON object a line"


def _plain(path: str) -> int | None:
    """Return the number of the first line that is too long."""
    with Path(path).open("rb") as file:
        size = file.seek(0, 2)
        for start in range(0, size - MAX_LINE + 1, MAX_LINE):
            file.seek(start)
            if not any(b"\n" in file.read(_BLOCK) for _ in range(MAX_LINE // _BLOCK)):
                file.seek(0)
                return 1 + sum(file.read(_BLOCK).count(b"\n") for _ in range(start // _BLOCK))
    return None


def _packed(path: str) -> int | None:
    line, since = 1, 0
    with gzip.open(path) as file:
        while block := file.read(_BLOCK):
            last = block.rfind(b"\n")
            if last < 0:
                since += len(block)
            else:
                line += block.count(b"\n")
                since = len(block) - last - 1
            if since >= MAX_LINE:
                return line
    return None


def is_unfinished(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a name is that of a trace file as writers name it until it is whole: `.a.jsonl`, `a.jsonl.tmp`."""
    hidden = name.startswith(".") and not name.startswith("._") and not name.endswith(".crc")
    return (hidden or name.endswith(".tmp")) and any(f"{suffix}." in f"{name}." for suffix in suffixes)


def refuse_foreign_parquet(paths: Iterable[str]) -> None:
    """Check that the Parquet files of this machine have the columns without which no row is an event.

    Raises:
        InputUnusable: one lacks them, or says another schema version. One that cannot be read at all is left to who
            reads it.
    """
    for path in paths:
        if "://" in path:
            continue
        with contextlib.suppress(OSError, pa.ArrowException):
            schema = pq.read_schema(path)
            refuse_other_schema(path, schema.metadata)
            refuse_foreign_columns(path, schema)


def refuse_foreign_columns(path: str, schema: pa.Schema) -> None:
    """Check that a Parquet file has the columns without which no row is an event, and none that is something else.

    Raises:
        InputUnusable: it does not.
    """
    if missing := sorted({"process", "seq", "event"} - set(schema.names)):
        raise InputUnusable(f"{path}: no trace: it has no column {', '.join(missing)}")
    known = [field for field in schema if field.name in (*WORDS, *NUMBERS, "context")]
    if len({field.name for field in known}) < len(known):
        raise InputUnusable(f"{path}: no trace: it has two columns of one name")
    for field in known:
        if not _may_be(field.name, field.type):
            raise InputUnusable(f"{path}: no trace: its column {field.name} is of type {field.type}")


def _may_be(name: str, kind: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_dictionary(kind):
        kind = kind.value_type
    if is_a.is_null(kind) or is_a.is_string(kind) or is_a.is_large_string(kind):
        return True
    if name == "context":
        listed = is_a.is_list(kind) or is_a.is_large_list(kind)
        return bool(listed and (is_a.is_nested(kind.value_type) or is_a.is_null(kind.value_type)))
    if name in NUMBERS:
        return bool(is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind))
    return not is_a.is_nested(kind)


def refuse_other_schema(path: str, metadata: Mapping[bytes, bytes] | None) -> None:
    """Check the schema version that a Parquet file's metadata say.

    Raises:
        InputUnusable: it is not the one that is read.
    """
    if reason := other_schema((metadata or {}).get(SCHEMA_KEY)):
        raise InputUnusable(f"{path}: {reason}")


def refuse_other_rows(path: str, column: pa.ChunkedArray) -> None:
    """Check the schema versions that rows of a file say; of JSON lines, the first such line is looked for.

    Raises:
        InputUnusable: one is not the one that is read.
    """
    if column.null_count == len(column):
        return
    values = [str(column.type)] if pa.types.is_nested(column.type) else column.unique().to_pylist()
    if reason := next(filter(None, map(other_schema, values)), None):
        raise InputUnusable(first_other_schema(path) or f"{path}: {reason}")


def first_other_schema(path: str) -> str | None:
    """Return where a JSON lines file first says another schema version, and which; `None` where no line does."""
    try:
        with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
            for number, line in enumerate(file, start=1):
                if reason := refusal_of(line):
                    return f"{path}:{number}: {reason}"
    except (OSError, EOFError, zlib.error):
        return None
    return None


def sizes_of(paths: Iterable[str]) -> dict[str, int]:
    """Return the sizes of the files among `paths` that this machine can see."""
    return {path: Path(path).stat().st_size for path in paths if "://" not in path}


def refuse_changed(before: dict[str, int]) -> None:
    """Check that no file has changed its size.

    Raises:
        InputUnusable: one has, so it was judged half written.
    """
    changed: Sequence[str] = [path for path, size in before.items() if _size(path) != size]
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise InputUnusable(f"{changed[0]}{more}: written to while it was read: audit it when its writer is done")


def _size(path: str) -> int | None:
    try:
        return Path(path).stat().st_size
    except OSError:
        return None


def said(error: str) -> str:
    """Return the one line of an error of Spark that says what happened; of one in a worker, its last."""
    found = re.search(r"Traceback .*\n(?:\s+.*\n)*(\S.*)", error)
    return found[1] if found else (error.strip().splitlines() or ["no reason given"])[0]


def raised(error: str, kind: type[AuditError]) -> str | None:
    """Return what an error of a kind said that a worker raised; it reaches the driver as text."""
    found = re.search(rf"{kind.__name__}: (.*)", error)
    return found[1] if found else None
