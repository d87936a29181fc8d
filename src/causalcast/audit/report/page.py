"""The page: one HTML file that opens from disk.

Names and lines from a trace are written by whoever wrote the trace. Every string is therefore spelt out by
`picture.visible` and escaped by the template engine before it reaches the page, and the page's own policy forbids
it to load or run anything but what it was made with.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from causalcast.audit.picture import SVG_DARK, SVG_LIGHT, SVG_STYLE, draw_svg, draw_text, visible
from causalcast.audit.report.charts import CHARTS, draw_chart
from causalcast.audit.report.groups import Group, group_findings
from causalcast.audit.report.words import clip, count, elapsed, percent, plural, quantity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from causalcast.audit.result import AuditResult, Distribution, ProcessSummary, SpaceTime

MAX_PAGE_BYTES: Final = 5_000_000
"""What a page may weigh; where it would weigh more, it shows less of everything and says so."""
FIRST_ROWS: Final = 25
"""Rows of a long table that stand in the page itself; the script pages through the others."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much of a result a page shows: roots of a kind, what each explains, rows, notes, characters of a text."""

    roots: int = 100
    derived: int = 20
    processes: int = 20_000
    quarantined: int = 1_000
    listed: int = 200
    text: int = 400

    def halved(self) -> _Limits:
        """Return limits for a page of about half the size."""
        return _Limits(*(max(1, getattr(self, name) // 2) for name in self.__slots__))


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
    """Return the page of `write_report`, at most `MAX_PAGE_BYTES` of it; the same result gives the same page."""
    limits = _Limits()
    page = _render(result, limits)
    while len(page.encode("utf-8", "surrogatepass")) > MAX_PAGE_BYTES and limits != limits.halved():
        limits = limits.halved()
        page = _render(result, limits)
    return page


def _render(result: AuditResult, limits: _Limits) -> str:
    script = _asset("report.js")
    groups = group_findings(result, limits.roots, limits.derived)
    processes = _order_processes(result.processes)
    return (
        _environment(limits.text)
        .get_template("report.html")
        .render(
            result=result,
            sentence=_sentence(result, groups),
            first=next((root for group in groups for root in group.roots), None),
            groups=groups,
            metrics=_metrics(result),
            charts=CHARTS,
            unmeasured=_unmeasured(result),
            fates=Counter(p.fate for p in result.processes).most_common(20),
            suspects=result.suspects[: limits.listed],
            processes=_process_table(processes[: limits.processes]),
            quarantine=_quarantine_table(result, limits),
            first_rows=FIRST_ROWS,
            listed=limits.listed,
            style=Markup(_style()),
            script=Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _asset(name: str) -> str:
    return (files("causalcast.audit") / "templates" / name).read_text("utf-8")


def _style() -> str:
    """Return the style: light colours, the dark ones by the system's wish and by the page's switch, the rules."""
    dark = _asset("dark.css").strip() + SVG_DARK
    return (
        f":root{{color-scheme:light;{_asset('light.css').strip()}{SVG_LIGHT}}}\n"
        f"@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n{_asset('report.css')}{SVG_STYLE}"
    )


def _environment(text: int) -> Environment:
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
        count=count,
        quantity=quantity,
        plural=plural,
        percent=percent,
        elapsed=elapsed,
        clip=lambda value: clip(value, text),
        svg=_svg,
        drawn=_drawn,
        chart=lambda chart, timeline: Markup(draw_chart(chart, timeline)),
        data=_data,
        figures=_figures,
    )
    return templates


def _finalize(value: Any) -> Any:
    """Spell out what would act instead of show, in whatever the template prints, so that none can be forgotten."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _svg(picture: SpaceTime) -> Markup:
    return Markup(draw_svg(picture, styled=False))


def _drawn(picture: SpaceTime) -> Markup:
    return escape(draw_text(picture, 120))


def _data(rows: Sequence[Sequence[str | int]]) -> Markup:
    """Return rows as JSON that no HTML can end."""
    text = json.dumps(rows, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _figures(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _process_table(processes: Sequence[ProcessSummary]) -> list[tuple[str | int, ...]]:
    return [(clip(p.process), clip(p.fate), p.events, p.broadcasts, p.deliveries, p.stables) for p in processes]


def _quarantine_table(result: AuditResult, limits: _Limits) -> list[tuple[str | int, ...]]:
    return [
        (clip(row.file), "-" if row.line is None else row.line, clip(row.reason), clip(row.text, limits.text))
        for row in result.quarantine[: limits.quarantined]
    ]


def _order_processes(processes: Sequence[ProcessSummary]) -> list[ProcessSummary]:
    """Put first whoever was more than a plain member: those decide how the verdict has to be read."""
    return sorted(processes, key=lambda p: p.fate == "member")


def _sentence(result: AuditResult, groups: Sequence[Group]) -> str:
    total = sum(group.total for group in groups)
    roots = sum(result.roots.values())
    scope = (
        f"{plural(result.messages, 'message')}, {plural(result.deliveries, 'delivery', 'deliveries')} and "
        f"{plural(len(result.processes), 'process', 'processes')}"
    )
    if result.verdict == "pass":
        aside = f" {plural(total, 'finding')} below did not decide against it." if total else ""
        said = f"Every property that could be checked holds for {scope}.{aside}"
    else:
        said = f"{plural(total, 'finding')} of {plural(len(groups), 'kind')} among {scope}."
        if 0 < roots < total:
            said += f" {plural(roots, 'root')} {'explains' if roots == 1 else 'explain'} all of them."
    if result.quarantined:
        said += f" {plural(result.quarantined, 'row')} could not be used and stood aside."
    return said


def _unmeasured(result: AuditResult) -> list[tuple[str, list[str]]]:
    """Return why some charts are not there, each reason with their titles."""
    found: dict[str, list[str]] = {}
    for chart in CHARTS:
        if not chart.shown(result.timeline):
            found.setdefault(chart.absent, []).append(chart.title.lower())
    return list(found.items())


def _metrics(result: AuditResult) -> list[_Metric]:
    metrics = [
        _Metric("Latency", "from a broadcast to its delivery elsewhere; relies on two clocks", result.latency),
        _Metric("Stability delay", "from a delivery to its report as stable, at one process", result.stability_delay),
        _Metric("Payload", "application bytes a message", result.payload_bytes),
        _Metric("Overhead", "everything else on the wire, a message", result.overhead_bytes),
    ]
    if result.transport is not None and result.transport.receives:
        about = "from the first reception to the delivery, at one process"
        metrics.insert(1, _Metric("In the buffer", about, result.transport.wait))
    return metrics
