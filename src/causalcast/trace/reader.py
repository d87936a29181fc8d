"""Readers of traces: an iterator of events, or an error that names the line. The audit reads at scale on its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from causalcast.model import CausalcastError
from causalcast.trace.schema import EVENTS, MESSAGE_EVENTS, SCHEMA_FIELD, SCHEMA_KEY, TraceEvent, other_schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


class TraceReadError(CausalcastError, ValueError):
    """A row of a trace that is not an event of schema version 1."""

    def __init__(self, path: Path, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        """The line of a JSON lines file or the row of a Parquet file, from 1."""
        self.reason = reason


class OtherSchemaError(TraceReadError):
    """A trace, or a row of one, that says another schema version: none of it means what it seems to."""


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[TraceEvent]:
    """The events of a JSON lines file, in its order. Empty lines are skipped.

    Raises:
        TraceReadError: at the first line that is no event; what came before it has been yielded.
        OtherSchemaError: at the first line that says another schema version.
        OSError: the file cannot be read.
    """
    source = Path(path)
    decode = msgspec.json.Decoder(TraceEvent).decode
    with source.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            if reason := refusal_of(line):
                raise OtherSchemaError(source, number, reason)
            try:
                event = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise TraceReadError(source, number, str(error)) from error
            yield _checked(event, source, number)


def read_parquet(path: str | os.PathLike[str]) -> Iterator[TraceEvent]:
    """The events of a Parquet file, in its order; columns it does not have count as absent. Needs pyarrow.

    Raises:
        TraceReadError: at the first row that is no event, or at row 0 when this is no Parquet file.
        OtherSchemaError: the file, or a row of it, says another schema version.
        OSError: the file cannot be read.
    """
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    source = Path(path)
    try:
        file = pq.ParquetFile(source)
    except pa.ArrowInvalid as error:
        raise TraceReadError(source, 0, str(error)) from error
    with file:
        if reason := other_schema((file.metadata.metadata or {}).get(SCHEMA_KEY)):
            raise OtherSchemaError(source, 0, reason)
        names = (*TraceEvent.__struct_fields__, SCHEMA_FIELD)
        present = [name for name in names if name in file.schema_arrow.names]
        number = 0
        for batch in file.iter_batches(columns=present):
            for row in batch.to_pylist():
                number += 1
                if reason := other_schema(row.pop(SCHEMA_FIELD, None)):
                    raise OtherSchemaError(source, number, reason)
                yield _checked(_from_row(row, source, number), source, number)


class _Version(msgspec.Struct, gc=False):
    schema: Any = None


_VERSION_OF: Final = msgspec.json.Decoder(_Version).decode


def refusal_of(line: bytes) -> str | None:
    """Return why a line says that it is not to be read; `None` where it does not, or is no JSON object."""
    # A field's name may be written with escapes.
    if b'"schema"' not in line and b"\\u" not in line:
        return None
    try:
        return other_schema(_VERSION_OF(line).schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _from_row(row: dict[str, Any], source: Path, number: int) -> TraceEvent:
    given = {name: value for name, value in row.items() if value is not None}
    context = given.get("context")
    if context is not None:
        given["context"] = [tuple(dot.values()) if isinstance(dot, dict) else dot for dot in context]
    try:
        return msgspec.convert(given, TraceEvent)
    except msgspec.ValidationError as error:
        raise TraceReadError(source, number, str(error)) from error


def _checked(event: TraceEvent, source: Path, number: int) -> TraceEvent:
    if event.event not in EVENTS:
        raise TraceReadError(source, number, f"{event.event!r} is no event; known are {', '.join(sorted(EVENTS))}")
    if event.seq < 1:
        raise TraceReadError(source, number, f"seq is {event.seq}; it counts from 1")
    if event.event in MESSAGE_EVENTS:
        if event.origin is None or event.counter is None:
            raise TraceReadError(source, number, f"a {event.event} event needs origin and counter")
        if event.counter < 1:
            raise TraceReadError(source, number, f"counter is {event.counter}; it counts from 1")
    return event
