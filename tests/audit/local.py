"""The pipeline's kernels without Spark: rows in, findings out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from causalcast.audit.bundles import split
from causalcast.audit.clocks import build_clock
from causalcast.audit.events import EVENT_CODES
from causalcast.audit.findings import Case, Collection
from causalcast.audit.logs import digest
from causalcast.audit.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.audit.digests import LogBody, LogIndex

SCHEMA = pa.schema(
    [
        ("process", pa.string()),
        ("seq", pa.int64()),
        ("event", pa.int8()),
        ("origin", pa.string()),
        ("counter", pa.int64()),
        ("topic", pa.string()),
        ("peer", pa.string()),
        ("time_ns", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("overhead_bytes", pa.int64()),
        ("context", pa.string()),
    ]
)


def table(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Return rows as `ingest.usable` hands them on."""
    shaped = []
    for row in rows:
        context = row.get("context")
        shaped.append(
            row
            | {
                "event": EVENT_CODES[row["event"]],
                "context": None if context is None else json.dumps([[str(part) for part in dot] for dot in context]),
            }
        )
    return pa.Table.from_pylist(shaped, schema=SCHEMA)


def judge(rows: Iterable[dict[str, Any]], crashed: Sequence[str] = ()) -> list[Case]:
    """Run digest, clock and replay on rows that need no quarantine."""
    return findings_of([digest(process, columns) for process, columns in split(table(rows))], crashed)


def findings_of(digests: Sequence[tuple[LogIndex, LogBody]], crashed: Sequence[str] = ()) -> list[Case]:
    """Run clock and replay on digests."""
    logs = {index.process: index for index, _ in digests}
    known = build_clock(list(logs.values()), crashed)
    collection = Collection(known.clock)
    collection.add_log_findings(known.findings)
    for _, body in digests:
        collection.add(replay(body, logs[body.process].marks, known.clock), body.names)
    return collection.sample()
