"""Writers of traces: JSON lines for what a process logs while it runs, Parquet for what is kept and compared."""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from causalcast.model import CausalcastError
from causalcast.trace.schema import SCHEMA_FIELD, SCHEMA_KEY, SCHEMA_VERSION

if TYPE_CHECKING:
    import os
    from types import TracebackType
    from typing import Self

    from causalcast.trace.schema import TraceEvent

BUFFER_BYTES: Final = 1 << 16
"""A JSON lines writer hands this much to the operating system at a time."""

ROW_GROUP_ROWS: Final = 100_000

_SAYING_VERSION: Final = f',"{SCHEMA_FIELD}":{SCHEMA_VERSION}}}'.encode()


class TraceWriteError(CausalcastError, OSError):
    """A trace could not be written; what was flushed before stays readable."""

    def __init__(self, path: Path, reason: OSError) -> None:
        if reason.errno in {errno.ENOSPC, errno.EDQUOT}:
            advice = "make room there, or write the trace elsewhere"
        else:
            advice = "check that the folder exists and may be written to"
        super().__init__(f"cannot write the trace {path}: {reason.strerror or reason}; {advice}")
        self.path = path
        self.errno = reason.errno


def saying_version(line: bytes) -> bytes:
    """Return the JSON of an event with the schema version as its last field."""
    return line[:-1] + _SAYING_VERSION


class TraceSink(Protocol):
    """Where a host puts the events of a trace."""

    def write(self, event: TraceEvent) -> None:
        """Add one event; it may stay in a buffer until `flush`."""

    def flush(self) -> None:
        """Hand all events to the operating system, so that a reader sees them."""

    def close(self) -> None:
        """Flush and let go of the file; a second call does nothing."""


class _FileWriter(ABC):
    """What both writers share: a context manager over `close`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class JsonLinesWriter(_FileWriter):
    """One event a line. The same events give the same bytes, and every line that was flushed is whole.

    The first line that it writes also says the schema version.

    Raises `TraceWriteError` from any method. After that the writer is closed and the events in its buffer are gone.
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = False) -> None:
        """Replaces a file that is there, or with `append` goes on behind its last line."""
        super().__init__(path)
        self._encode_into = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()
        self._said_version = False
        try:
            self._file = self.path.open("ab" if append else "wb", buffering=0)
        except OSError as error:
            raise TraceWriteError(self.path, error) from error

    def write(self, event: TraceEvent) -> None:
        buffer = self._buffer
        self._encode_into(event, buffer, -1)
        if not self._said_version:
            self._said_version = True
            buffer[-1:] = _SAYING_VERSION
        buffer += b"\n"
        if len(buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        left = memoryview(bytes(self._buffer))
        self._buffer.clear()
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.close()
            raise TraceWriteError(self.path, error) from error

    def close(self) -> None:
        if not self._file.closed:
            self.flush()
            self._file.close()


class ParquetWriter(_FileWriter):
    """Columns, compressed with zstd. Readable only once closed. Needs pyarrow (`pip install 'causalcast[audit]'`)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._schema = parquet_schema().with_metadata({SCHEMA_KEY: str(SCHEMA_VERSION)})
        self._to_batch = pa.RecordBatch.from_pydict
        self._rows: list[TraceEvent] = []
        try:
            self._file: Any = pq.ParquetWriter(self.path, self._schema, compression="zstd")
        except OSError as error:
            raise TraceWriteError(self.path, error) from error

    def write(self, event: TraceEvent) -> None:
        self._rows.append(event)
        if len(self._rows) >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group; a reader still has to wait for `close`."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        columns: dict[str, list[Any]] = {
            name: [getattr(row, name) for row in rows] for name in self._schema.names if name != "context"
        }
        columns["context"] = [
            None if row.context is None else [{"origin": origin, "counter": counter} for origin, counter in row.context]
            for row in rows
        ]
        try:
            self._file.write_batch(self._to_batch(columns, schema=self._schema))
        except OSError as error:
            self._abandon()
            raise TraceWriteError(self.path, error) from error

    def close(self) -> None:
        if self._file is None:
            return
        self.flush()
        try:
            self._file.close()
        except OSError as error:
            raise TraceWriteError(self.path, error) from error
        finally:
            self._file = None

    def _abandon(self) -> None:
        file, self._file = self._file, None
        try:
            file.close()
        except OSError:
            return


def parquet_schema() -> Any:
    """The Arrow schema of schema version 1, columns in the order of the table in `causalcast.trace.schema`."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency

    return pa.schema(
        [
            pa.field("process", pa.string(), nullable=False),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("event", pa.string(), nullable=False),
            ("origin", pa.string()),
            ("counter", pa.int64()),
            ("topic", pa.string()),
            ("peer", pa.string()),
            ("time_ns", pa.int64()),
            ("payload_bytes", pa.int64()),
            ("overhead_bytes", pa.int64()),
            ("context", pa.list_(pa.struct([("origin", pa.string()), ("counter", pa.int64())]))),
        ]
    )
