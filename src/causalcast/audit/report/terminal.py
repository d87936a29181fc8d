"""The short forms of a report, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from causalcast.audit.picture import draw_text, visible
from causalcast.audit.report.words import clip, count, quantity

if TYPE_CHECKING:
    from causalcast.audit.result import AuditResult, Finding


def summary_rows(result: AuditResult) -> list[tuple[str, str]]:
    """Return the table a person reads first as label and value; what was not measured is a dash."""
    return [
        ("processes", count(len(result.processes))),
        ("messages", count(result.messages)),
        ("deliveries", count(result.deliveries)),
        ("latency, median", quantity(result.latency.p50, "ms")),
        ("latency, 99th percentile", quantity(result.latency.p99, "ms")),
        ("metadata per message", quantity(result.overhead_bytes.mean, "B")),
        ("stability delay, median", quantity(result.stability_delay.p50, "ms")),
        ("events", count(result.events)),
        ("rows quarantined", count(result.quarantined)),
        ("findings", count(sum(result.counts.values()))),
        ("verdict", result.verdict),
    ]


def summary_table(result: AuditResult, *, title: str) -> Table:
    """Return `summary_rows` as a table for a terminal."""
    table = Table(title=Text(visible(title)), show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    for label, value in summary_rows(result):
        style = "" if label != "verdict" else "bold green" if value == "pass" else "bold red"
        table.add_row(Text(label), Text(value, style=style), end_section=label == "findings")
    return table


def finding_lines(finding: Finding, *, width: int = 100, ascii_only: bool = False) -> list[str]:
    """Tell a finding in plain lines, its picture last; print them without markup, since traces chose the names."""
    known = [("process", finding.process), ("message", finding.message), ("cause", finding.cause)]
    derived = "" if finding.root else ", explained by a root"
    lines = [
        f"{visible(finding.kind)} ({visible(finding.property)}){derived}: {clip(finding.detail)}",
        *(f"  {label:<8} {clip(value)}" for label, value in known if value is not None),
    ]
    if ascii_only:
        lines = [line.encode("ascii", "backslashreplace").decode("ascii") for line in lines]
    if finding.picture is not None:
        drawn = draw_text(finding.picture, width - 2, ascii_only=ascii_only)
        lines += ["", *(f"  {line}".rstrip() for line in drawn.splitlines())]
    return lines
