"""Reading local Parquet files straight into Arrow, in Spark's workers, without a detour of every row over the JVM.

Only files of the expected shape are read here, by the same rules as `ingest.reason`; bad rows are counted, and
`ingest` reads them again to say what is wrong with them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causalcast.audit.events import EVENT_CODES, EVICT, STABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROWS_PER_SPLIT: Final = 2_000_000
_WORDS: Final = ("process", "event", "origin", "topic", "peer")
_NUMBERS: Final = ("seq", "counter", "time_ns", "payload_bytes", "overhead_bytes")


@dataclass(frozen=True, slots=True)
class Split:
    """Row groups `first` to `last - 1` of a file."""

    path: str
    first: int
    last: int


def splits(paths: Sequence[str]) -> tuple[list[Split], list[str]]:
    """Return what can be read directly, cut into pieces, and the files that cannot."""
    found: list[Split] = []
    others: list[str] = []
    for path in paths:
        try:
            meta = pq.read_metadata(path)
        except (OSError, pa.ArrowException):
            others.append(path)
            continue
        if not _expected(meta.schema.to_arrow_schema()):
            others.append(path)
            continue
        first = rows = 0
        for group in range(meta.num_row_groups):
            rows += meta.row_group(group).num_rows
            if rows >= ROWS_PER_SPLIT or group + 1 == meta.num_row_groups:
                found.append(Split(path, first, group + 1))
                first, rows = group + 1, 0
    return found, others


def _expected(schema: pa.Schema) -> bool:
    for name in schema.names:
        kind = schema.field(name).type
        if name in _WORDS and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return False
        if name in _NUMBERS and not pa.types.is_signed_integer(kind):
            return False
        if name == "context" and not pa.types.is_list(kind):
            return False
    return {"process", "seq", "event"} <= set(schema.names)


def read(split: Split) -> Iterator[tuple[pa.Table, int]]:
    """Yield the usable rows of a split, in the columns of `ingest.usable`, and how many rows are bad."""
    file = pq.ParquetFile(split.path)
    wanted = [name for name in (*_WORDS, *_NUMBERS, "context") if name in file.schema_arrow.names]
    table = file.read_row_groups(list(range(split.first, split.last)), columns=wanted, use_threads=False)
    columns = {name: _column(table, name, pa.string()) for name in _WORDS}
    columns |= {name: _column(table, name, pa.int64()) for name in _NUMBERS}
    event = pc.index_in(columns["event"], pa.array(list(EVENT_CODES)))
    context, tagged = _context(table)
    good = _good(columns, event) & tagged
    codes = np.asarray(pc.fill_null(event, -1))
    columns["event"] = pa.chunked_array([pa.array(codes.astype(np.int8))])
    columns["context"] = context
    usable = pa.table(columns)
    if not good.all():
        usable = usable.filter(pa.array(good))
    yield usable, int(good.size - good.sum())


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, kind)])
    column = table.column(name)
    return column if column.type == kind else column.cast(kind)


def _good(columns: dict[str, pa.ChunkedArray], event: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows keep the rules of `ingest.reason`, tags aside."""
    codes = np.asarray(pc.fill_null(event, -1))
    about_message = (codes >= 0) & (codes <= max(STABLE, EVENT_CODES["send"], EVENT_CODES["receive"]))
    good = (codes >= 0) & _named(columns["process"]) & _at_least(columns["seq"], 1, absent=False)
    good &= ~about_message | (_named(columns["origin"]) & _at_least(columns["counter"], 1, absent=False))
    good &= (codes != EVICT) | np.asarray(pc.is_valid(columns["peer"]))
    for name in ("payload_bytes", "overhead_bytes"):
        if columns[name].null_count < len(columns[name]):
            good &= _at_least(columns[name], 0, absent=True)
    kept: np.ndarray[Any, np.dtype[np.bool_]] = good
    return kept


def _named(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    filled = pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
    named: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(filled)
    return named


def _at_least(column: pa.ChunkedArray, least: int, *, absent: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    reached: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(pc.fill_null(pc.greater_equal(column, least), absent))
    return reached


def _context(table: pa.Table) -> tuple[pa.ChunkedArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the tags as JSON text, and which rows have none or a well-formed one."""
    good = np.ones(table.num_rows, dtype=bool)
    if "context" not in table.column_names or table.column("context").null_count == table.num_rows:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.string())]), good
    column = table.column("context").combine_chunks()
    texts: list[str | None] = [None] * table.num_rows
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    for row, dots in zip(rows.tolist(), column.drop_null().to_pylist(), strict=True):
        pairs = [tuple(dot.values()) if isinstance(dot, dict) else dot for dot in dots]
        if all(_is_dot(pair) for pair in pairs):
            texts[row] = json.dumps([[str(origin), str(counter)] for origin, counter in pairs])
        else:
            good[row] = False
    return pa.chunked_array([pa.array(texts, pa.string())]), good


def _is_dot(pair: Any) -> bool:
    if pair is None or len(pair) != 2 or not pair[0] or pair[1] is None:
        return False
    try:
        return int(pair[1]) >= 1
    except ValueError:
        return False
