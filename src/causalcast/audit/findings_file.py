"""The Parquet file with all findings: those of the logs, then process by process, by topic, kind and row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from causalcast.audit.outputs import unfinished
from causalcast.audit.violations import KINDS, PROPERTY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from causalcast.audit.findings import Case

SCHEMA: Final = pa.schema(
    [
        ("property", pa.string()),
        ("kind", pa.string()),
        ("process", pa.string()),
        ("topic", pa.string()),
        ("message", pa.string()),
        ("cause", pa.string()),
        ("seq", pa.int64()),
        ("cause_seq", pa.int64()),
        ("root", pa.bool_()),
        ("culprit", pa.string()),
        ("detail", pa.string()),
    ]
)
AT_ONCE: Final = 20_000
"""Rows that are written at once."""


def as_table(cases: Sequence[Case]) -> pa.Table:
    """Return the rows of some findings."""
    rows = {
        "property": [PROPERTY[case.kind] for case in cases],
        "kind": [case.kind for case in cases],
        "process": [case.process for case in cases],
        "topic": [case.topic or None for case in cases],
        "message": [case.message for case in cases],
        "cause": [case.cause for case in cases],
        "seq": [case.at or None for case in cases],
        "cause_seq": [case.cause_at or None for case in cases],
        "root": [case.root for case in cases],
        "culprit": [case.culprit for case in cases],
        "detail": [case.detail for case in cases],
    }
    return pa.table(rows, schema=SCHEMA)


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the findings of processes from several tables, in their order."""
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    keys = {
        "process": table["process"],
        "topic": pc.fill_null(table["topic"], ""),
        "kind": pc.index_in(table["kind"], value_set=pa.array(KINDS)),
        "seq": pc.fill_null(table["seq"], 0),
    }
    order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
    return table.take(order).combine_chunks()


class FindingRows:
    """Holds findings of processes as rows."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def add(self, cases: Sequence[Case]) -> None:
        """Add some."""
        self.tables.append(as_table(cases))


class FindingsFile:
    """Writes the file, whole or not at all; with `before`, findings that were there already come among the others."""

    def __init__(self, path: Path, before: pa.Table | None = None) -> None:
        self._path = path
        self._before = before
        self._later = FindingRows()
        self._unwritten: list[Case] = []
        self._writer = pq.ParquetWriter(unfinished(path), SCHEMA, compression="zstd")

    def __enter__(self) -> FindingsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._writer:
            if kind is not None:
                return
            self._write_out()
            if self._before is not None:
                self._writer.write_table(merged([self._before, *self._later.tables]))
        unfinished(self._path).replace(self._path)

    def add_of_logs(self, cases: Sequence[Case]) -> None:
        """Add findings of the logs themselves, before all others."""
        self._write(cases)

    def add(self, cases: Sequence[Case]) -> None:
        """Add findings of processes, in their order."""
        if self._before is None:
            self._write(cases)
        else:
            self._later.add(cases)

    def _write(self, cases: Sequence[Case]) -> None:
        self._unwritten += cases
        if len(self._unwritten) >= AT_ONCE:
            self._write_out()

    def _write_out(self) -> None:
        cases, self._unwritten = self._unwritten, []
        if cases:
            self._writer.write_table(as_table(cases))
