"""Reading pieces of JSON lines files in Spark's workers: what a trace normally looks like, by Arrow's own parser.

Spark is the judge of what a line is. A line is read here only if it is one JSON object whose fields have the types of
the schema; such lines mean the same to both. Everything else (numbers where names are expected, a torn line, two
objects on a line) is *odd* and left to Spark: the odd lines alone where a piece has few, else the whole file. So is a
file in which a line may mean something else alone (text that is no UTF-8, carriage returns, lists).
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from causalcast.audit.errors import InputUnusable
from causalcast.audit.files import NUMBERS, WORDS
from causalcast.trace.schema import SCHEMA_FIELD

if TYPE_CHECKING:
    from io import BufferedReader

PIECE: Final = 32 * 2**20
"""Bytes of a file that one piece has, to the end of its last line."""
_BLOCK: Final = 2**20
_LOOK: Final = 64 * 2**10
MOST_ODD: Final = 100
"""Odd lines of a piece up to which these alone are left to Spark."""
_LONGEST_ODD: Final = 4 * 2**10
"""Bytes of an odd line up to which it may be left alone."""
_NOT_ALONE: Final = (b"[", b"\xef\xbb\xbf")
"""A list may be many rows, and a mark of the byte order is one at the start of a file only."""
_SCHEMA: Final = pa.schema(
    [(name, pa.string()) for name in WORDS] + [(name, pa.int64()) for name in (*NUMBERS, SCHEMA_FIELD)],
)
_IGNORING: Final = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")


class _Tag(msgspec.Struct):
    context: list[tuple[str, int]] | None = None


_TAG: Final = msgspec.json.Decoder(_Tag)
_TEXT: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Lines:
    """Bytes `first` to `last - 1` of a JSON lines file; `last` is -1 for a packed file, which is read as a whole."""

    path: str
    first: int
    last: int


def cut(path: str, first: int, last: int) -> list[Lines]:
    """Cut a plain file from `first` to `last`, its size, into pieces that end where lines end.

    What stands behind the last line's end is a piece of its own: its line may not be whole yet.
    """
    found: list[Lines] = []
    with Path(path).open("rb") as file:
        while last - first > PIECE:
            end = _line_end(file, first + PIECE, last)
            found.append(Lines(path, first, end))
            first = end
        if first < last:
            whole = _last_line_end(file, first, last)
            found.extend(Lines(path, a, b) for a, b in ((first, whole), (whole, last)) if a < b)
    return found


def _line_end(file: BufferedReader, at: int, last: int) -> int:
    """Return the offset behind the first line end from `at` on."""
    file.seek(at)
    while at < last and (block := file.read(_LOOK)):
        found = block.find(b"\n")
        if found >= 0:
            return min(at + found + 1, last)
        at += len(block)
    return last


def _last_line_end(file: BufferedReader, first: int, last: int) -> int:
    """Return the offset behind the last line end before `last`, `first` where there is none."""
    end = last
    while end > first:
        start = max(first, end - _LOOK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return first


def fetch(piece: Lines) -> bytes:
    """Return the bytes of a piece as they stand in the file.

    Raises:
        InputUnusable: they cannot be read.
    """
    try:
        with Path(piece.path).open("rb") as file:
            file.seek(piece.first)
            return file.read(piece.last - piece.first if piece.last >= 0 else -1)
    except OSError as error:
        raise InputUnusable(f"{piece.path}: cannot be read: {error.strerror or error}") from error


def fingerprint(data: bytes) -> str:
    """Return what tells these bytes from others."""
    return sha256(data).hexdigest()


def unpacked(piece: Lines, data: bytes) -> bytes:
    """Return the text of a piece's bytes.

    Raises:
        InputUnusable: the file is named as if it were packed and is not, or is cut short.
    """
    if not piece.path.endswith(".gz"):
        return data
    if not data:
        raise InputUnusable(f"{piece.path}: cannot be read: it is empty, so it is no gzip file")
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputUnusable(f"{piece.path}: cannot be read: {error}") from error


def parse(data: bytes) -> pa.Table | None:
    """Return the rows of whole lines, in the columns that `direct.checked` takes; `None` where they are odd.

    There is a column more: the schema version that a row says.
    """
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    lines = _objects(data)
    if lines is None or b"\r" in data or not _is_utf8(data):
        return None
    if lines == 0:
        return _nothing()
    table = _read(data, _BLOCK)
    if table is None and len(data) > _BLOCK:
        table = _read(data, len(data) + 1)  # a line was longer than a block
    if table is None or table.num_rows != lines:
        return None
    context = _contexts(data, lines)
    return None if context is None else table.append_column("context", context)


def sift(data: bytes) -> tuple[pa.Table, list[int]] | None:
    """Return the rows of those lines that are not odd, and which of the lines (see `texts`) are.

    Odd lines are found by halving. `None` where there are too many, or they mean nothing by themselves.
    """
    found = texts(data)
    if found is None:
        return None
    tables, odd = [], list[int]()
    waiting = [(0, len(found))]
    while waiting:
        first, last = waiting.pop()
        table = parse(b"\n".join(found[first:last]))
        if table is not None:
            tables.append(table)
        elif last - first > 1:
            middle = (first + last) // 2
            waiting += [(middle, last), (first, middle)]
        elif len(odd) == MOST_ODD or len(found[first]) > _LONGEST_ODD or found[first].lstrip().startswith(_NOT_ALONE):
            return None
        else:
            odd.append(first)
    return pa.concat_tables(tables or [_nothing()]), odd


def texts(data: bytes) -> list[bytes] | None:
    """Return the lines that have anything on them; `None` where it is not plain what a line is."""
    data = data.replace(b"\r\n", b"\n")
    if b"\r" in data or not _is_utf8(data):
        return None
    return [line for line in data.split(b"\n") if line.strip(b" \t")]


def _nothing() -> pa.Table:
    return _SCHEMA.empty_table().append_column("context", pa.array([], pa.string()))


def _objects(data: bytes) -> int | None:
    """Return the number of lines that are not empty, `None` where one does not begin and end as an object does."""
    text = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if text.size and text[-1] != ord("\n"):
        ends = np.append(ends, text.size)
    starts = np.append(0, ends[:-1] + 1)[: ends.size]
    full = ends > starts
    starts, ends = starts[full], ends[full]
    if not ((text[starts] == ord("{")).all() and (text[ends - 1] == ord("}")).all()):
        return None
    return int(starts.size)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(data: bytes, block: int) -> pa.Table | None:
    try:
        options = pj.ReadOptions(use_threads=False, block_size=block)
        return pj.read_json(pa.BufferReader(data), read_options=options, parse_options=_IGNORING)
    except pa.ArrowException:
        return None


def _contexts(data: bytes, lines: int) -> pa.Array | None:
    """Return the tags as JSON text: Arrow knows no lists of unlike values."""
    if not _may_have_tag(data):
        return pa.nulls(lines, pa.string())
    found: list[str | None] = []
    for line in data.split(b"\n"):
        if not line:
            continue
        if not _may_have_tag(line):
            found.append(None)
            continue
        try:
            dots = _TAG.decode(line).context
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        if dots is not None and not all(origin and 1 <= number < 2**63 for origin, number in dots):
            return None
        found.append(None if dots is None else _TEXT.encode([(o, str(n)) for o, n in dots]).decode())
    return pa.array(found, pa.string())


def _may_have_tag(data: bytes) -> bool:
    return b'"context"' in data or b"\\u" in data
