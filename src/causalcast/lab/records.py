"""What one run measured, as a Parquet file of its own: a row for each metric, whole or not there at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from causalcast.lab.errors import ResultsUnusableError
from causalcast.lab.experiment import Scalar
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics import Measured

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


SUFFIX: Final = ".parquet"


class Record(msgspec.Struct, frozen=True):
    """A finished run."""

    key: str
    parameters: dict[str, Scalar]
    seed: int
    measured: dict[str, Measured]
    seconds: float
    """Of CPU time that the run took."""


def path_of(folder: Path, key: str) -> Path:
    """Where the record of this key is, once its run is finished."""
    return folder / f"{key}{SUFFIX}"


def write(record: Record, folder: Path) -> None:
    """Put the file there at once: a reader, or a sweep that resumes, never sees half of one."""
    import pyarrow as pa  # noqa: PLC0415 - an optional dependency
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = [_row(record, metric, measured) for metric, measured in record.measured.items()]
    schema = pa.schema(
        [
            ("key", pa.string()),
            ("parameters", pa.string()),
            ("seed", pa.int64()),
            ("seconds", pa.float64()),
            ("metric", pa.string()),
            ("number", pa.float64()),
            ("text", pa.string()),
            ("values", pa.list_(pa.float64())),
            ("counts", pa.list_(pa.int64())),
            ("sum", pa.float64()),
        ]
    )
    hidden = folder / f".{record.key}{SUFFIX}"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), hidden, compression="zstd")
    os.replace(hidden, path_of(folder, record.key))


def read(folder: Path, key: str) -> Record:
    """The record of a finished run. Raises `ResultsUnusableError`."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an optional dependency

    path = path_of(folder, key)
    try:
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        first = rows[0]
        parameters = msgspec.json.decode(first["parameters"], type=dict[str, Any])
        measured = {row["metric"]: _measured(row) for row in rows}
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ResultsUnusableError(f"{path} is no record of a run ({reason}); remove it and run again") from error
    return Record(first["key"], parameters, first["seed"], measured, first["seconds"])


def _row(record: Record, metric: str, measured: Measured) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": record.key,
        "parameters": msgspec.json.encode(record.parameters).decode(),
        "seed": record.seed,
        "seconds": record.seconds,
        "metric": metric,
    }
    if isinstance(measured, Histogram):
        return row | {"values": [*measured.counts], "counts": [*measured.counts.values()], "sum": measured.sum}
    if isinstance(measured, str):
        return row | {"text": measured}
    return row | {"number": measured}


def _measured(row: Mapping[str, Any]) -> Measured:
    if row["values"] is not None:
        histogram = Histogram(dict(zip(row["values"], row["counts"], strict=True)))
        histogram.sum = row["sum"]
        return histogram
    if row["text"] is not None:
        text: str = row["text"]
        return text
    number: float | None = row["number"]
    return number
