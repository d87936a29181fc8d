"""What a person reads of an audit: one HTML file that opens from disk, and its short forms for a terminal.

Names and lines from a trace are written by whoever wrote the trace. Every string is therefore spelt out by
`picture.visible` and escaped by the template engine before it reaches the page, and the page's own policy forbids
it to load or run anything but what it was made with.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.table import Table
from rich.text import Text

from causalcast.audit.picture import SVG_STYLE, draw_svg, draw_text, visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from causalcast.audit.result import AuditResult, Distribution, Finding, FindingKind, ProcessSummary, SpaceTime

MAX_FINDINGS: Final = 100
"""Findings of one kind that a page shows."""
MAX_PROCESSES: Final = 2_000
MAX_QUARANTINED: Final = 500
MAX_LISTED: Final = 200
"""Notes, and sources, that a page shows."""
MAX_TEXT: Final = 400
"""Characters shown of a quarantined line or of another text that a trace decides."""

MEANINGS: Final[dict[FindingKind, str]] = {
    "causal-order": "A process delivered a message before another that happened before it.",
    "missing-cause": "A process delivered a message and never one that happened before it.",
    "fifo-order": "A process delivered two messages of one sender in the opposite order.",
    "duplicate": "A process delivered one message more than once.",
    "not-broadcast": "A process delivered a message that nobody's log says was broadcast.",
    "altered": "A message was delivered otherwise than it was broadcast.",
    "undelivered": "A process that was entitled to a message never delivered it.",
    "tag-mismatch": "The tag a message carried orders it otherwise than the logs do.",
    "stable-order": "A process reported a message stable too early, twice, or out of causal order.",
    "unstable": "A message never became stable at a process.",
    "reused-identifier": "Two broadcasts carry the same origin and number.",
    "absent-log": "Others' logs name a process whose own log was not given.",
}
"""What each kind of finding says, in the order in which a reader should meet them."""


# ------------------------------------------------------------------------------------------------------- quantities


def count(number: int) -> str:
    """Return a number with its thousands set apart."""
    return f"{number:,}"


def quantity(value: float | None, unit: str) -> str:
    """Return a measured value with three significant figures in the unit a reader would choose; a dash for none."""
    if value is None:
        return "-"
    steps = [(1e3, "s"), (1.0, "ms"), (1e-3, "µs")] if unit == "ms" else [(1e6, "MB"), (1e3, "kB"), (1.0, "B")]
    size, name = next(((size, name) for size, name in steps if abs(value) >= size), steps[-1])
    scaled = value / size
    decimals = 0 if abs(scaled) >= 100 or scaled == int(scaled) else 1 if abs(scaled) >= 10 else 2
    return f"{scaled:,.{decimals}f} {name}"


def _plural(number: int, one: str, many: str | None = None) -> str:
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def _clip(text: str, limit: int = MAX_TEXT) -> str:
    if len(text) <= limit:
        return visible(text)
    return f"{visible(text[:limit])} … ({count(len(text) - limit)} more characters)"


def _percent(part: float | None, whole: float | None) -> str:
    return f"{100 * part / whole:.2f}" if part and whole else "0"


# --------------------------------------------------------------------------------------------------------- terminal


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
        f"{visible(finding.kind)} ({visible(finding.property)}){derived}: {_clip(finding.detail)}",
        *(f"  {label:<8} {_clip(value)}" for label, value in known if value is not None),
    ]
    if ascii_only:
        lines = [line.encode("ascii", "backslashreplace").decode("ascii") for line in lines]
    if finding.picture is not None:
        drawn = draw_text(finding.picture, width - 2, ascii_only=ascii_only)
        lines += ["", *(f"  {line}".rstrip() for line in drawn.splitlines())]
    return lines


# ------------------------------------------------------------------------------------------------------------- page


@dataclass(frozen=True, slots=True)
class _Shown:
    """A finding with its number in the page, from 1."""

    number: int
    finding: Finding


@dataclass(frozen=True, slots=True)
class _Group:
    """All findings of one kind: what the page shows of them and how many there are."""

    kind: str
    meaning: str
    total: int
    roots: tuple[_Shown, ...]
    derived: tuple[_Shown, ...]

    @property
    def shown(self) -> int:
        return len(self.roots) + len(self.derived)


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    about: str
    measured: Distribution


def write_report(result: AuditResult, path: Path) -> None:
    """Write `result` as one HTML file to `path`: whole or not at all, and replacing what was there."""
    page = render_report(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(page)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def render_report(result: AuditResult) -> str:
    """Return the page of `write_report`; the same result gives the same page."""
    templates = _environment()
    script = _asset("report.js")
    groups = _groups(result)
    processes = _order_processes(result.processes)
    return templates.get_template("report.html").render(
        result=result,
        sentence=_sentence(result, groups),
        first=next((s for g in groups for s in (*g.roots, *g.derived)), None),
        groups=groups,
        metrics=_metrics(result),
        fates=Counter(p.fate for p in result.processes).most_common(20),
        processes=processes[:MAX_PROCESSES],
        anchors={p.process: number for number, p in enumerate(processes[:MAX_PROCESSES], 1)},
        quarantine=result.quarantine[:MAX_QUARANTINED],
        listed=MAX_LISTED,
        style=Markup(_asset("report.css") + SVG_STYLE),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _asset(name: str) -> str:
    return (files("causalcast.audit") / "templates" / name).read_text("utf-8")


def _environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("causalcast.audit"),
        autoescape=True,
        finalize=_finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters.update(
        count=count, quantity=quantity, plural=_plural, percent=_percent, clip=_clip, svg=_svg, drawn=_drawn
    )
    return templates


def _finalize(value: Any) -> Any:
    """Spell out what would act instead of show, in whatever the template prints, so that none can be forgotten."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _svg(picture: SpaceTime) -> Markup:
    return Markup(draw_svg(picture, styled=False))


def _drawn(picture: SpaceTime) -> Markup:
    return escape(draw_text(picture, 120))


def _groups(result: AuditResult) -> list[_Group]:
    """Group findings by kind; kinds with roots come first, and within a kind its roots."""
    by_kind: dict[str, list[Finding]] = {kind: [] for kind in (*MEANINGS, *result.counts)}
    for finding in result.findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    totals = {kind: max(result.counts.get(kind, 0), len(found)) for kind, found in by_kind.items()}
    order = sorted(
        (kind for kind, total in totals.items() if total),
        key=lambda kind: not any(f.root for f in by_kind[kind]),
    )
    groups, number = [], 0
    for kind in order:
        shown = sorted(by_kind[kind], key=lambda f: not f.root)[:MAX_FINDINGS]
        numbered = [_Shown(number + place, finding) for place, finding in enumerate(shown, 1)]
        number += len(shown)
        groups.append(
            _Group(
                kind,
                next((text for known, text in MEANINGS.items() if known == kind), ""),
                totals[kind],
                tuple(s for s in numbered if s.finding.root),
                tuple(s for s in numbered if not s.finding.root),
            )
        )
    return groups


def _order_processes(processes: Sequence[ProcessSummary]) -> list[ProcessSummary]:
    """Put first whoever was more than a plain member: those decide how the verdict has to be read."""
    return sorted(processes, key=lambda p: p.fate == "member")


def _sentence(result: AuditResult, groups: Sequence[_Group]) -> str:
    total = sum(group.total for group in groups)
    scope = (
        f"{_plural(result.messages, 'message')}, {_plural(result.deliveries, 'delivery', 'deliveries')} and "
        f"{_plural(len(result.processes), 'process', 'processes')}"
    )
    if result.verdict == "pass":
        aside = f" {_plural(total, 'finding')} below did not decide against it." if total else ""
        said = f"Every property that could be checked holds for {scope}.{aside}"
    else:
        said = f"{_plural(total, 'finding')} of {_plural(len(groups), 'kind')} among {scope}."
    if result.quarantined:
        said += f" {_plural(result.quarantined, 'row')} could not be used and stood aside."
    return said


def _metrics(result: AuditResult) -> list[_Metric]:
    return [
        _Metric("Latency", "from a broadcast to its delivery elsewhere", result.latency),
        _Metric("Stability delay", "from a broadcast to its report as stable", result.stability_delay),
        _Metric("Payload", "application bytes a message", result.payload_bytes),
        _Metric("Overhead", "everything else on the wire, a message", result.overhead_bytes),
    ]
