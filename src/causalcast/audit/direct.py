"""Reading local files straight into Arrow, in Spark's workers, without a detour of every row over the JVM.

Only files of the expected shape are read here, by the same rules as `ingest.reason`. Bad rows of Parquet are counted,
and `ingest` reads them again to say what is wrong with them. What is odd in a piece of JSON lines (a bad row, or
anything that Spark may read differently) leaves the whole file to Spark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causalcast.audit import files
from causalcast.audit.errors import InputUnusable
from causalcast.audit.events import EVENT_CODES, EVICT, LAST_MESSAGE_EVENT
from causalcast.audit.files import DOT, NUMBERS, WORDS
from causalcast.trace.schema import SCHEMA_FIELD

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_PER_PIECE: Final = 2_000_000
SMALL: Final = 4 * 2**20
"""Bytes up to which a Parquet file is one piece."""


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Row groups `first` to `last - 1` of a Parquet file; all of them where `last` is -1."""

    path: str
    first: int
    last: int


def row_groups(path: str, size: int) -> list[RowGroups]:
    """Cut a Parquet file of `size` bytes into pieces; a small one is not looked into here.

    Raises:
        InputUnusable: it is no Parquet file, or cut short.
    """
    if size <= SMALL:
        return [RowGroups(path, 0, -1)]
    try:
        meta = pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error
    found: list[RowGroups] = []
    first = rows = 0
    for group in range(meta.num_row_groups):
        rows += meta.row_group(group).num_rows
        if rows >= ROWS_PER_PIECE or group + 1 == meta.num_row_groups:
            found.append(RowGroups(path, first, group + 1))
            first, rows = group + 1, 0
    return found


def _unreadable(path: str, error: Exception) -> InputUnusable:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputUnusable(f"{path}: not readable as Parquet: {reason}")


def _expected(schema: pa.Schema) -> bool:
    for name in schema.names:
        kind = schema.field(name).type
        if name in WORDS and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            return False
        if name in NUMBERS and not pa.types.is_signed_integer(kind):
            return False
        if name == "context" and not pa.types.is_list(kind):
            return False
    return True


def load(groups: RowGroups) -> pa.Table | None:
    """Return all rows of a piece of a Parquet file, in those columns that it has.

    Words stay as Parquet has them, a dictionary and indices, so that each distinct word is looked at once.

    Returns:
        The rows; `None` where the file's columns are not of the types that are read here.

    Raises:
        InputUnusable: the file cannot be read, says another schema version, or its columns are not those of a trace.
    """
    try:
        # Of ten thousand small files each is read in one go: Arrow would have another thread fetch each part of it.
        whole = Path(groups.path).read_bytes() if groups.last < 0 else None
        meta = pq.read_metadata(groups.path if whole is None else pa.BufferReader(whole))
        schema = meta.schema.to_arrow_schema()
        files.refuse_other_schema(groups.path, meta.metadata)
        files.refuse_foreign_columns(groups.path, schema)
        if not _expected(schema):
            return None
        wanted = [name for name in (*WORDS, *NUMBERS, "context", SCHEMA_FIELD) if name in schema.names]
        words = [name for name in WORDS if name in schema.names]
        last = groups.last if groups.last >= 0 else meta.num_row_groups
        source = groups.path if whole is None else pa.BufferReader(whole)
        with pq.ParquetFile(source, metadata=meta, read_dictionary=words, pre_buffer=whole is None) as file:
            table = file.read_row_groups(list(range(groups.first, last)), columns=wanted, use_threads=False)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(groups.path, error) from error
    return without_schema(groups.path, table)


def without_schema(path: str, table: pa.Table) -> pa.Table:
    """Return rows without the schema version that they say.

    Raises:
        InputUnusable: it is another than the one that is read.
    """
    if SCHEMA_FIELD not in table.column_names:
        return table
    files.refuse_other_rows(path, table.column(SCHEMA_FIELD))
    return table.drop_columns([SCHEMA_FIELD])


def checked(table: pa.Table) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Return rows in the columns of `ingest.usable`, and which of them can be used."""
    words = {name: _words(table, name) for name in WORDS}
    numbers = {name: _numbers(table, name) for name in NUMBERS}
    event = _per_word(words["event"], [EVENT_CODES.get(word or "", -1) for word in _dictionary(words["event"])], -1)
    context, tagged = _context(table)
    good = _good(words, numbers, event) & tagged
    columns: dict[str, Any] = {**words, **numbers, "event": pa.array(event.astype(np.int8)), "context": context}
    return pa.table(columns), good


def _words(table: pa.Table, name: str) -> pa.DictionaryArray:
    if name not in table.column_names:
        nothing = pa.nulls(table.num_rows, pa.int32())
        return pa.DictionaryArray.from_arrays(nothing, pa.array([], pa.string()))
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    whole = column.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def _dictionary(words: pa.DictionaryArray) -> list[str | None]:
    return words.dictionary.to_pylist()  # type: ignore[no-any-return]


def _per_word(words: pa.DictionaryArray, values: list[Any], absent: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the value of each row's word, `absent` where it has none."""
    table = np.array([*values, absent])
    indices = words.indices
    if indices.null_count:
        indices = indices.fill_null(len(values))
    found: np.ndarray[Any, np.dtype[Any]] = table[np.asarray(indices)]
    return found


def _numbers(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.int64())])
    column = table.column(name)
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _good(
    words: dict[str, pa.DictionaryArray], numbers: dict[str, pa.ChunkedArray], event: np.ndarray[Any, np.dtype[Any]]
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which rows keep the rules of `ingest.reason`, tags aside."""
    about_message = (event >= 0) & (event <= LAST_MESSAGE_EVENT)
    good = (event >= 0) & _named(words["process"]) & _at_least(numbers["seq"], 1, absent=False)
    good &= ~about_message | (_named(words["origin"]) & _at_least(numbers["counter"], 1, absent=False))
    evict = event == EVICT
    if evict.any():
        good &= ~evict | np.asarray(words["peer"].is_valid())
    for name in ("payload_bytes", "overhead_bytes"):
        if numbers[name].null_count < len(numbers[name]):
            good &= _at_least(numbers[name], 0, absent=True)
    kept: np.ndarray[Any, np.dtype[np.bool_]] = good
    return kept


def _named(words: pa.DictionaryArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return _per_word(words, [bool(word) for word in _dictionary(words)], False)


def _at_least(column: pa.ChunkedArray, least: int, *, absent: bool) -> np.ndarray[Any, np.dtype[np.bool_]]:
    reached = pc.greater_equal(column, least)
    if column.null_count:
        reached = pc.fill_null(reached, absent)
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.asarray(reached)
    return found


def _context(table: pa.Table) -> tuple[pa.ChunkedArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the tags as JSON text, and which rows have none or a well-formed one."""
    good = np.ones(table.num_rows, dtype=bool)
    if "context" not in table.column_names or table.column("context").null_count == table.num_rows:
        return pa.chunked_array([pa.nulls(table.num_rows, pa.string())]), good
    column = table.column("context").combine_chunks()
    if pa.types.is_string(column.type):
        return pa.chunked_array([column]), good  # as `lines` has written it
    texts: list[str | None] = [None] * table.num_rows
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    for row, dots in zip(rows.tolist(), column.drop_null().to_pylist(), strict=True):
        pairs = [_pair(dot) if isinstance(dot, dict) else dot for dot in dots]
        if all(_is_dot(pair) for pair in pairs):
            texts[row] = json.dumps([[str(origin), str(counter)] for origin, counter in pairs])
        else:
            good[row] = False
    return pa.chunked_array([pa.array(texts, pa.string())]), good


def _pair(dot: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(dot[name] for name in DOT) if dot.keys() == set(DOT) else tuple(dot.values())


def _is_dot(pair: Any) -> bool:
    if pair is None or len(pair) != 2 or not pair[0] or pair[1] is None:
        return False
    try:
        return int(pair[1]) >= 1
    except ValueError:
        return False
