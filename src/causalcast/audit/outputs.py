"""What an audit leaves in its output folder, and the object that `--json` prints."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast.audit.result import AuditResult, Distribution, Finding, Transport

FINDINGS: Final = "findings.parquet"
JSON_FINDINGS: Final = 200


def unfinished(path: Path) -> Path:
    """Return the name that a file has until it is whole; then it is renamed, so no reader meets half of it."""
    return path.with_name(f".{path.name}.tmp")


def to_json(result: AuditResult) -> dict[str, Any]:
    """Return the object that `causalcast audit --json` prints; its fields are in `docs/audit.md`."""
    return {
        "verdict": result.verdict,
        "events": result.events,
        "processes": len(result.processes),
        "messages": result.messages,
        "deliveries": result.deliveries,
        "quarantined": result.quarantined,
        "findings": [_finding_json(finding) for finding in result.findings[:JSON_FINDINGS]],
        "counts": result.counts,
        "roots": result.roots,
        "suspects": dict(result.suspects),
        "quarantine": [
            {"file": row.file, "line": row.line, "reason": row.reason} for row in result.quarantine[:JSON_FINDINGS]
        ],
        "latency": _distribution_json(result.latency),
        "stability_delay": _distribution_json(result.stability_delay),
        "payload_bytes": _distribution_json(result.payload_bytes),
        "overhead_bytes": _distribution_json(result.overhead_bytes),
        "transport": _transport_json(result.transport),
        "notes": list(result.notes),
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "property": finding.property,
        "kind": finding.kind,
        "process": finding.process,
        "message": finding.message,
        "cause": finding.cause,
        "detail": finding.detail,
        "root": finding.root,
        "culprit": finding.culprit,
        "explains": finding.explains,
    }


def _distribution_json(distribution: Distribution) -> dict[str, Any]:
    names = ("unit", "count", "mean", "p50", "p90", "p99", "maximum")
    return {name: getattr(distribution, name) for name in names}


def _transport_json(transport: Transport | None) -> dict[str, Any] | None:
    if transport is None:
        return None
    names = ("sends", "receives", "redundant", "redundancy")
    return {name: getattr(transport, name) for name in names} | {"wait": _distribution_json(transport.wait)}


def write_outputs(result: AuditResult, out: Path) -> None:
    """Write all but the findings, each file whole or not at all, `audit.json` last."""
    quarantine = {
        "file": pa.array([row.file for row in result.quarantine], pa.string()),
        "line": pa.array([row.line for row in result.quarantine], pa.int64()),
        "reason": pa.array([row.reason for row in result.quarantine], pa.string()),
        "text": pa.array([row.text for row in result.quarantine], pa.string()),
    }
    _write_table(pa.table(quarantine), out / "quarantine.parquet")
    names = ("process", "events", "broadcasts", "deliveries", "stables", "fate")
    columns = {name: [getattr(process, name) for process in result.processes] for name in names}
    _write_table(pa.table(columns), out / "processes.parquet")
    measured = {
        "measure": ["latency", "stability_delay", "payload_bytes", "overhead_bytes"],
        **{
            name: [
                getattr(d, name)
                for d in (result.latency, result.stability_delay, result.payload_bytes, result.overhead_bytes)
            ]
            for name in ("unit", "count", "mean", "p50", "p90", "p99", "maximum")
        },
    }
    _write_table(pa.table(measured), out / "metrics.parquet")
    if result.timeline is not None:
        starts = range(len(next(iter(result.timeline.columns.values()), ())))
        times = [result.timeline.start_ns + i * result.timeline.width_ns for i in starts]
        _write_table(pa.table({"start_ns": times, **result.timeline.columns}), out / "timeline.parquet")
    else:
        (out / "timeline.parquet").unlink(missing_ok=True)
    text = json.dumps(to_json(result), indent=2, ensure_ascii=False) + "\n"
    unfinished(out / "audit.json").write_text(text, encoding="utf-8")
    unfinished(out / "audit.json").replace(out / "audit.json")


def _write_table(table: pa.Table, path: Path) -> None:
    pq.write_table(table, unfinished(path))
    unfinished(path).replace(path)
