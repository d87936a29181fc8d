"""The figures of the documents, drawn from our results, with what the document shows beside them."""

from __future__ import annotations

import base64
import io
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from causalcast.lab.estimate import NotMeasuredError, interval, matches, values_of
from causalcast.lab.experiment import expected_of, tolerance_of
from causalcast.lab.references import references
from causalcast.lab.tolerance import needs_expected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.lab.experiment import Experiment, Plot, Scalar
    from causalcast.lab.summary import Summary


class Point(NamedTuple):
    """One cell in a plot: the mean over the seeds and half its confidence interval."""

    x: float
    y: float
    half: float


class Picture(NamedTuple):
    """A figure as a page takes it."""

    figure: str
    title: str
    uri: str
    """The image, as a `data:` address."""
    text: str
    """What the image shows, for whoever does not see it."""
    marked: bool
    """Whether it shows what the document says."""


def pictures(experiment: Experiment, summary: Summary) -> list[Picture]:
    """A picture for each plot for which there are results."""
    found = []
    for plot in experiment.plots:
        lines = lines_of(plot, summary)
        if lines:
            found.append(_draw(plot, lines, list(marks_of(plot, experiment))))
    return found


def lines_of(plot: Plot, summary: Summary) -> dict[str, list[Point]]:
    """The points of each line, by its label."""
    lines: dict[str, list[Point]] = {}
    for cell in summary.cells:
        x = cell.parameters.get(plot.x)
        if not matches(cell.parameters, plot.where) or not isinstance(x, int | float):
            continue
        try:
            values = [value for value in values_of(cell, plot.metric, plot.statistic) if isinstance(value, int | float)]
        except NotMeasuredError:
            continue
        if values:
            scaled = [value * plot.scale for value in values]
            mean, around = statistics.fmean(scaled), interval(scaled)
            half = (around[1] - around[0]) / 2 if around is not None else 0.0
            lines.setdefault(_label(plot, cell.parameters), []).append(Point(x, mean, half))
    return {label: sorted(points) for label, points in lines.items()}


def marks_of(plot: Plot, experiment: Experiment) -> Iterator[tuple[float, float, str]]:
    """What the document shows: what answers expect of a point that lies in the plot."""
    for answer in experiment.answers:
        for check in answer.checks:
            x = check.where.get(plot.x)
            same = (check.metric, check.statistic, check.over) == (plot.metric, plot.statistic, None)
            if not same or isinstance(x, bool | str | tuple) or x is None or not _compatible(check.where, plot.where):
                continue
            expected, tolerance = expected_of(check, answer.id), tolerance_of(check, answer.id)
            if isinstance(expected, int | float) and (needs_expected(tolerance) or check.expected is not None):
                yield x, expected * plot.scale / check.scale, f"{references()[answer.id].system} ({answer.id})"


def _compatible(one: dict[str, Any], other: dict[str, Any]) -> bool:
    for name in one.keys() & other.keys():
        first, second = (set(v) if isinstance(v, tuple) else {v} for v in (one[name], other[name]))
        if not first & second:
            return False
    return True


def _label(plot: Plot, parameters: dict[str, Scalar]) -> str:
    return ", ".join(
        str(parameters[name]) if isinstance(parameters[name], str) else f"{name.replace('_', ' ')} {parameters[name]}"
        for name in plot.series
    )


def _draw(plot: Plot, lines: dict[str, list[Point]], marks: list[tuple[float, float, str]]) -> Picture:
    import matplotlib as mpl  # noqa: PLC0415 - an optional dependency, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "causalcast", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for label, points in lines.items():
            axes.errorbar(
                [point.x for point in points],
                [point.y for point in points],
                yerr=[point.half for point in points],
                label=label or "measured",
                marker="o",
                markersize=4,
                linewidth=1.3,
                capsize=3,
            )
        for x, y, label in marks:
            axes.plot([x], [y], linestyle="none", marker="*", markersize=13, markeredgecolor="black", label=label)
        axes.set_xlabel(plot.x.replace("_", " "))
        axes.set_ylabel(plot.label or plot.metric)
        axes.set_xscale("log", base=2) if plot.log_x else None
        axes.set_yscale("log") if plot.log_y else None
        axes.grid(visible=True, alpha=0.3)
        if plot.log_x:
            ticks = sorted({point.x for points in lines.values() for point in points})
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.minorticks_off()
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        image = io.StringIO()
        figure.savefig(image, format="svg", metadata={"Date": None})
    uri = "data:image/svg+xml;base64," + base64.b64encode(image.getvalue().encode()).decode()
    shown = [
        f"{label or 'measured'}: " + ", ".join(f"{point.x:g} → {point.y:.3g}" for point in line)
        for label, line in lines.items()
    ]
    shown += [f"document, {label}: {x:g} → {y:.3g}" for x, y, label in marks]
    return Picture(plot.figure, plot.title, uri, "; ".join(shown), bool(marks))
