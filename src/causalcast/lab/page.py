"""A comparison for people and for other programs: an HTML page that opens from disk, and CSV."""

from __future__ import annotations

import csv
import io
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.lab.compare import VERDICTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.lab.compare import Checked, Comparison, Row
    from causalcast.lab.experiment import Experiment
    from causalcast.lab.plots import Picture
    from causalcast.lab.summary import Summary

CSV_COLUMNS: Final = (
    "id", "document", "where", "system", "metric", "expected", "measured", "low", "high", "tolerance", "verdict",
    "reason", "experiment",
)  # fmt: skip


class _Section(NamedTuple):
    """One experiment on the page."""

    name: str
    experiment: Experiment | None
    summary: Summary | None
    rows: tuple[Row, ...]
    pictures: Sequence[Picture]


def number(value: float | str | None) -> str:
    """A measured value as a person reads it; a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if abs(value) >= 1e-3 else f"{value:.3e}"


def span(interval: tuple[float, float] | None) -> str:
    """A confidence interval."""
    return "-" if interval is None else f"{number(interval[0])} … {number(interval[1])}"


def expectation(check: Checked) -> str:
    """What a check wants."""
    return check.tolerance if check.expected is None else f"{number(check.expected)} ({check.tolerance})"


def to_csv(comparison: Comparison) -> str:
    """One line for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in comparison.rows:
        low, high = row.interval or ("", "")
        writer.writerow(
            [
                row.id, row.document, row.where, row.system, row.metric, row.expected,
                "" if row.measured is None else row.measured,
                low, high, row.tolerance, row.verdict, row.reason, row.experiment or "",
            ]
        )  # fmt: skip
    return text.getvalue()


def to_html(comparison: Comparison, experiments: Mapping[str, Experiment], summaries: Mapping[str, Summary]) -> str:
    """The page: a section for each experiment with its plots and rows, then what nothing answers."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an optional dependency

    from causalcast.lab.plots import pictures  # noqa: PLC0415 - Matplotlib is one too

    sections = []
    for name, experiment in experiments.items():
        summary = summaries.get(name)
        rows = tuple(row for row in comparison.rows if row.experiment == name)
        drawn = pictures(experiment, summary) if summary is not None else []
        sections.append(_Section(name, experiment, summary, rows, drawn))
    rest = tuple(row for row in comparison.rows if row.experiment is None)
    if rest:
        sections.append(_Section("Unanswered", None, None, rest, ()))
    environment = Environment(
        loader=PackageLoader("causalcast.lab"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "span": span, "expectation": expectation}
    style = files("causalcast.lab").joinpath("templates/compare.css").read_text(encoding="utf-8")
    return environment.get_template("compare.html").render(
        comparison=comparison, sections=sections, verdicts=VERDICTS, style=style
    )
