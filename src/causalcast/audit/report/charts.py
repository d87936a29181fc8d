"""Line charts of a timeline, as SVG that needs nothing from outside."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import floor, log10
from typing import TYPE_CHECKING, Final

from causalcast.audit.report.words import amount, elapsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.audit.result import Timeline

_WIDTH: Final = 360
_HEIGHT: Final = 150
_LEFT: Final = 58
_RIGHT: Final = 10
_TOP: Final = 10
_FOOT: Final = 24


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: what it shows and the timeline's column with its values."""

    label: str
    column: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart as planned: its lines, their unit, and what is said where the trace has nothing for it."""

    title: str
    about: str
    unit: str
    lines: tuple[Line, ...]
    absent: str

    def shown(self, timeline: Timeline | None) -> list[Line]:
        """Return the lines that the timeline has values for."""
        return [line for line in self.lines if timeline is not None and line.column in timeline.columns]


CHARTS: Final = (
    Chart(
        "Latency",
        "from a broadcast to its delivery elsewhere, by the time of the broadcast",
        "ms",
        (Line("median", "latency_p50_ms"), Line("99 %", "latency_p99_ms")),
        "broadcasts and deliveries carry no time_ns",
    ),
    Chart(
        "Under way",
        "broadcast and not yet delivered, over all processes; what is never delivered is a finding, not here",
        "",
        (Line("not yet delivered", "under_way"),),
        "broadcasts and deliveries carry no time_ns",
    ),
    Chart(
        "Bytes a message",
        "as its broadcast row says",
        "B",
        (Line("payload", "payload_bytes"), Line("overhead", "overhead_bytes")),
        "broadcasts carry no payload_bytes and overhead_bytes, or no time_ns",
    ),
    Chart(
        "Redundancy",
        "receptions of what was there already, for each first reception",
        "",
        (Line("redundant per first", "redundancy"),),
        "the trace has no receive events with a time_ns",
    ),
    Chart(
        "Buffers",
        "received and not yet delivered, over all processes",
        "",
        (Line("waiting", "buffered"),),
        "the trace has no receive events with a time_ns",
    ),
    Chart(
        "Time in the buffer",
        "from the first reception to the delivery at one process, so no two clocks are compared",
        "ms",
        (Line("99 %", "buffer_p99_ms"),),
        "the trace has no receive events with a time_ns",
    ),
    Chart(
        "Stability delay",
        "from the delivery to the report as stable at one process, so no two clocks are compared",
        "ms",
        (Line("median", "stability_p50_ms"), Line("99 %", "stability_p99_ms")),
        "no process reports stability with a time_ns",
    ),
    Chart(
        "Not yet stable",
        "delivered and not yet reported stable, over all processes; what never became stable is a finding, not here",
        "",
        (Line("waiting", "not_yet_stable"),),
        "no process reports stability with a time_ns",
    ),
    Chart("Members", "processes that are members", "", (Line("members", "members"),), "the logs carry no time_ns"),
)
"""The charts of a report in their order."""


def nice(value: float) -> float:
    """Return the first of 1, 2, 5, 10, 20, ... that reaches `value`, which is above 0."""
    power: float = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def draw_chart(chart: Chart, timeline: Timeline) -> str:
    """Draw the lines that `timeline` has values for; there is at least one."""
    lines = [(line, timeline.columns[line.column]) for line in chart.shown(timeline)]
    known = [value for _, values in lines for value in values if value is not None]
    top = nice(max(known)) if max(known) > 0 else 0.0
    low = -nice(-min(known)) if min(known) < 0 else 0.0
    if top == low:
        top = 1.0
    count = len(lines[0][1])
    across = (_WIDTH - _LEFT - _RIGHT) / count
    down = (_HEIGHT - _TOP - _FOOT) / (top - low)

    def at(index: int, value: float) -> tuple[float, float]:
        return _LEFT + (index + 0.5) * across, _TOP + (top - value) * down

    ticks = [low, 0.0, top] if low < 0 < top else [low, (low + top) / 2, top]
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(_told(chart, lines))}">',
        *(_tick(tick, at(0, tick)[1], chart.unit) for tick in ticks),
        *(_time(share, count * timeline.width_ns) for share in (0.0, 0.5, 1.0)),
        *(
            _line(number, [None if v is None else at(i, v) for i, v in enumerate(vs)])
            for number, (_, vs) in enumerate(lines)
        ),
        *_slices(chart, lines, timeline, across),
        "</svg>",
    ]
    return "".join(parts)


def _told(chart: Chart, lines: Sequence[tuple[Line, Sequence[float | None]]]) -> str:
    parts = []
    for line, values in lines:
        known = [value for value in values if value is not None]
        low, high = amount(min(known), chart.unit), amount(max(known), chart.unit)
        parts.append(f"{line.label} {low}" if low == high else f"{line.label} from {low} to {high}")
    return f"{chart.title} over time: {', '.join(parts)}"


def _tick(value: float, y: float, unit: str) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(amount(value, unit))}</text>'
    )


def _time(share: float, length_ns: int) -> str:
    x = _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
    anchor = "start" if share == 0 else "end" if share == 1 else "middle"
    return f'<text x="{x:.0f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{escape(elapsed(share * length_ns))}</text>'


def _line(number: int, points: Sequence[tuple[float, float] | None]) -> str:
    """Join the points there are; a line over a slice without one is a guess that the slice's own words take back."""
    known = [point for point in points if point is not None]
    if len(known) == 1:
        return f'<circle class="l{number}" cx="{known[0][0]:.1f}" cy="{known[0][1]:.1f}" r="3"/>'
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
    return f'<polyline class="l{number}" points="{path}"/>'


def _slices(
    chart: Chart, lines: Sequence[tuple[Line, Sequence[float | None]]], timeline: Timeline, across: float
) -> list[str]:
    """Return what a pointer over a slice is told."""
    parts = []
    for index in range(len(lines[0][1])):
        shown = [f"{line.label} {amount(values[index], chart.unit)}" for line, values in lines]
        told = f"from {elapsed(index * timeline.width_ns)}: {', '.join(shown)}"
        parts.append(
            f'<rect class="slice" x="{_LEFT + index * across:.1f}" y="{_TOP}" width="{across:.1f}" '
            f'height="{_HEIGHT - _TOP - _FOOT}"><title>{escape(told)}</title></rect>'
        )
    return parts
