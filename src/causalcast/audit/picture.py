"""Space-time diagrams of a finding: for a terminal and as SVG.

Processes are lines, time runs to the right, and an event stands after everything that happened before it. The
offending message, its cause and the path between them carry a mark of their own, so colour is never the only clue.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import hypot
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len, chop_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.audit.result import PictureEvent, Role, SpaceTime

NEVER: Final = "never"
"""The event of a picture that stands for a delivery which did not take place."""
_SHORT_EVENTS: Final = {"broadcast": "b", "deliver": "d", "stable": "s", "send": "tx", "receive": "rx"}
_ROLES: Final[dict[Role, str]] = {
    "message": "offending message",
    "cause": "its cause",
    "path": "on the path between",
    "context": "other",
}


def visible(text: str) -> str:
    """Return `text` with everything that would act on a terminal or a page instead of showing spelt as an escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def shorten(text: str, cells: int, mark: str = "…") -> str:
    """Return `text` in at most `cells` terminal cells; what falls out is its middle, where names differ least."""
    if cell_len(text) <= cells:
        return text
    room = max(cells - len(mark), 2)
    head = chop_cells(text, room // 2)[0]
    tail = chop_cells(text[::-1], room - room // 2)[0][::-1]
    return f"{head}{mark}{tail}"


def _label(event: PictureEvent) -> str:
    name = _SHORT_EVENTS.get(event.event, event.event)
    return f"{name} {event.message}" if event.message else name


def _messages(picture: SpaceTime, role: Role) -> str:
    return ", ".join(dict.fromkeys(e.message for e in picture.events if e.role == role and e.message))


def _slots(picture: SpaceTime) -> list[list[int]]:
    """Group event indices that share a place from left to right; events of one process never share one."""
    order = sorted(range(len(picture.events)), key=lambda i: (picture.events[i].column, picture.events[i].seq))
    taken: dict[tuple[str, int], int] = defaultdict(int)
    slots: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index in order:
        event = picture.events[index]
        slots[event.column, taken[event.process, event.column]].append(index)
        taken[event.process, event.column] += 1
    return [slots[key] for key in sorted(slots)]


def _skipped(picture: SpaceTime) -> set[int]:
    """Return the events whose process logged others, left out of the picture, just before them."""
    rows: dict[str, list[int]] = defaultdict(list)
    for index, event in enumerate(picture.events):
        rows[event.process].append(index)
    skipped: set[int] = set()
    for row in rows.values():
        row.sort(key=lambda i: picture.events[i].seq)
        if picture.events[row[0]].seq > 1:
            skipped.add(row[0])
        skipped.update(b for a, b in pairwise(row) if picture.events[b].seq > picture.events[a].seq + 1)
    return skipped


# --------------------------------------------------------------------------------------------------------- terminal


@dataclass(frozen=True, slots=True)
class _Glyphs:
    line: str
    gap: str
    end: str
    more: str
    ellipsis: str
    roles: dict[Role, str]


_UNICODE: Final = _Glyphs("─", "┄", "▶", "»", "…", {"message": "◆", "cause": "▲", "path": "●", "context": "○"})
_ASCII: Final = _Glyphs("-", ".", ">", "}", "~", {"message": "#", "cause": "^", "path": "*", "context": "o"})


def draw_text(picture: SpaceTime, width: int = 100, *, ascii_only: bool = False) -> str:
    """Draw `picture` in lines of at most `width` cells (40 at least), one a process, with a legend below.

    What does not fit beside each other is continued in a further band of lines underneath.
    """
    glyphs = _ASCII if ascii_only else _UNICODE
    width = max(width, 40)

    def spell(text: str) -> str:
        text = visible(text)
        return text.encode("ascii", "backslashreplace").decode("ascii") if ascii_only else text

    names = {p: shorten(spell(p), max(width // 4, 12), glyphs.ellipsis) for p in picture.processes}
    margin = max((cell_len(n) for n in names.values()), default=0) + 1
    room = width - margin - 2
    cells = [f"{glyphs.roles[e.role]} {shorten(spell(_label(e)), room - 6, glyphs.ellipsis)} " for e in picture.events]
    bands = _bands(picture, cells, room)
    skipped = _skipped(picture)
    lines: list[str] = []
    for number, band in enumerate(bands):
        if number:
            lines.append("")
        end = glyphs.end if number == len(bands) - 1 else glyphs.more
        length = max((x + cell_len(cells[i]) for i, x in band), default=0) + 1
        for process, name in names.items():
            row, at = [name, " " * (margin - cell_len(name))], 0
            for index, x in band:
                if picture.events[index].process != process:
                    continue
                row.append((glyphs.gap if index in skipped else glyphs.line) * (x - at))
                row.append(cells[index])
                at = x + cell_len(cells[index])
            row.append(glyphs.line * (length - at) + end)
            lines.append("".join(row))
    return "\n".join([*lines, "", *_legend(picture, glyphs, spell, width, continued=len(bands) > 1)])


def _bands(picture: SpaceTime, cells: Sequence[str], room: int) -> list[list[tuple[int, int]]]:
    """Place events from left to right, as (index, x); a new band starts where the next slot would not fit."""
    bands: list[list[tuple[int, int]]] = [[]]
    ends: dict[str, int] = {}
    last = -1
    for slot in _slots(picture):
        x = max([last + 2, *(ends.get(picture.events[i].process, 0) + 2 for i in slot)])
        if bands[-1] and any(x + cell_len(cells[i]) > room for i in slot):
            bands.append([])
            ends, x = {}, 2
        for index in slot:
            bands[-1].append((index, x))
            ends[picture.events[index].process] = x + cell_len(cells[index])
        last = x
    return bands


def _legend(
    picture: SpaceTime, glyphs: _Glyphs, spell: Callable[[str], str], width: int, *, continued: bool
) -> list[str]:
    lines = []
    for role, meaning in _ROLES.items():
        if any(e.role == role for e in picture.events):
            named = f" {spell(_messages(picture, role))}" if role in ("message", "cause") else ""
            lines.append(shorten(f"{glyphs.roles[role]} {meaning}{named}", width, glyphs.ellipsis))
    key = _key(picture)
    if _skipped(picture):
        key.append(f"{glyphs.gap * 2} events left out")
    if continued:
        key.append(f"{glyphs.more} goes on below")
    return [*lines, ", ".join(key)]


def _key(picture: SpaceTime) -> list[str]:
    used = {e.event for e in picture.events}
    key = [f"{short} {event}" for event, short in _SHORT_EVENTS.items() if event in used]
    return [*key, f"{NEVER} not delivered"] if NEVER in used else key


# -------------------------------------------------------------------------------------------------------------- SVG

_CELL: Final = 7.25
"""Width of a character of the 12 px monospaced label font, with a little to spare for fonts that run wide."""
_ROW: Final = 62
_TOP: Final = 38
_PAD: Final = 4
_RADIUS: Final[dict[Role, int]] = {"message": 10, "cause": 10, "path": 10, "context": 5}
_LETTERS: Final[dict[Role, str]] = {"message": "M", "cause": "C", "path": "P", "context": ""}

SVG_LIGHT: Final = (
    "--st-ink:#1d2430;--st-soft:#5b6573;--st-line:#b9c0cb;--st-paper:#ffffff;"
    "--st-message:#c0262d;--st-cause:#1f5fbf;--st-path:#8a5a00;--st-letter:#ffffff;"
)
SVG_DARK: Final = (
    "--st-ink:#e6e9ef;--st-soft:#a3adbd;--st-line:#4a5362;--st-paper:#151a21;"
    "--st-message:#ff8a87;--st-cause:#7fb2ff;--st-path:#e8b454;--st-letter:#10141a;"
)
"""The colours of a picture. A page sets them where it sets its own; alone, a picture follows the system."""
SVG_STYLE: Final = """
.spacetime{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.spacetime text{fill:var(--st-ink);stroke:var(--st-paper);stroke-width:4px;paint-order:stroke;stroke-linejoin:round}
.spacetime .paper{fill:var(--st-paper)}
.spacetime .axis{stroke:var(--st-line);stroke-width:2}
.spacetime .gap{stroke-dasharray:2 5}
.spacetime .arrow{fill:none;stroke:var(--st-role);stroke-width:1.6}
.spacetime .head{fill:var(--st-role);stroke:none}
.spacetime circle{fill:var(--st-role);stroke:var(--st-paper);stroke-width:2}
.spacetime .never circle{fill:var(--st-paper);stroke:var(--st-role);stroke-dasharray:3 2}
.spacetime .never .letter{fill:var(--st-role)}
.spacetime .lost .arrow{stroke-dasharray:5 4}
.spacetime .context circle{fill:var(--st-paper);stroke:var(--st-soft)}
.spacetime .letter{fill:var(--st-letter);stroke:none;font-weight:700}
.spacetime .name{font-weight:700}
.spacetime .legend{fill:var(--st-soft)}
.spacetime .message{--st-role:var(--st-message)}
.spacetime .cause{--st-role:var(--st-cause)}
.spacetime .path{--st-role:var(--st-path)}
.spacetime .context{--st-role:var(--st-soft)}
.spacetime .message text,.spacetime .cause text{font-weight:700}
"""
"""The rules of `draw_svg`: a page with many pictures needs them once."""
_ALONE: Final = f".spacetime{{{SVG_LIGHT}}}@media(prefers-color-scheme:dark){{.spacetime{{{SVG_DARK}}}}}"


@dataclass(frozen=True, slots=True)
class _Geometry:
    names: dict[str, str]
    labels: list[str]
    xs: list[float]
    ys: dict[str, int]
    left: float
    right: float


def draw_svg(picture: SpaceTime, *, styled: bool = True) -> str:
    """Draw `picture` as an SVG element that needs nothing from outside; with `styled=False`, only `SVG_STYLE`."""
    at = _geometry(picture)
    foot = _TOP + len(at.names) * _ROW
    legend, legend_width = _svg_legend(picture, foot - 14)
    width, height = max(at.right + 4, legend_width), foot + 24
    summary = escape(_summary(picture))
    return "".join(
        [
            f'<svg class="spacetime" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{summary}" '
            f'width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">',
            f"<title>{summary}</title>",
            f"<style>{_ALONE}{SVG_STYLE}</style>" if styled else "",
            '<rect class="paper" width="100%" height="100%"/>',
            *_svg_lines(picture, at),
            *(_svg_arrow(picture, at, source, target) for source, target in picture.arrows),
            *(_svg_event(picture, at, index) for index in range(len(picture.events))),
            legend,
            "</svg>",
        ]
    )


def _summary(picture: SpaceTime) -> str:
    parts = [f"Space-time diagram of {len(picture.processes)} processes and {len(picture.events)} events"]
    if message := _messages(picture, "message"):
        parts.append(f"offending message {visible(message)}")
    if cause := _messages(picture, "cause"):
        parts.append(f"its cause {visible(cause)}")
    return "; ".join(parts)


def _geometry(picture: SpaceTime) -> _Geometry:
    names = {p: shorten(visible(p), 24) for p in picture.processes}
    labels = [shorten(visible(_label(e)), 28) for e in picture.events]
    left = _PAD + max((cell_len(n) for n in names.values()), default=0) * _CELL + 14
    xs = [0.0] * len(labels)
    ends: dict[str, float] = {}
    last = left - 8
    for slot in _slots(picture):
        halves = {i: max(cell_len(labels[i]) * _CELL / 2, 10) for i in slot}
        x = max([last + 32, *(ends.get(picture.events[i].process, left) + halves[i] + 14 for i in slot)])
        for index in slot:
            xs[index] = x
            ends[picture.events[index].process] = x + halves[index]
        last = x
    ys = {p: _TOP + row * _ROW for row, p in enumerate(names)}
    return _Geometry(names, labels, xs, ys, left, max([left + 60, *ends.values()]) + 14)


def _svg_lines(picture: SpaceTime, at: _Geometry) -> list[str]:
    skipped = _skipped(picture)
    parts = []
    for process, name in at.names.items():
        y = at.ys[process]
        parts.append(
            f'<text class="name" x="{_PAD}" y="{y + 4}">{escape(name)}<title>{escape(visible(process))}</title></text>'
        )
        start = at.left
        for index in sorted((i for i, e in enumerate(picture.events) if e.process == process), key=at.xs.__getitem__):
            gap = " gap" if index in skipped else ""
            parts.append(f'<line class="axis{gap}" x1="{start:.1f}" y1="{y}" x2="{at.xs[index]:.1f}" y2="{y}"/>')
            start = at.xs[index]
        parts.append(f'<line class="axis" x1="{start:.1f}" y1="{y}" x2="{at.right:.1f}" y2="{y}"/>')
    return parts


def _svg_arrow(picture: SpaceTime, at: _Geometry, source: int, target: int) -> str:
    sender, receiver = picture.events[source], picture.events[target]
    x1, y1, x2, y2 = at.xs[source], at.ys[sender.process], at.xs[target], at.ys[receiver.process]
    if y1 == y2:
        # A process's delivery of its own message: an arc, or the line of the process would hide the arrow.
        bend = (x1 + x2) / 2, y1 + 34.0
        line = f"M{x1:.1f} {y1}Q{bend[0]:.1f} {bend[1]:.1f} "
    else:
        bend = x1, float(y1)
        line = f"M{x1:.1f} {y1}L"
    away = hypot(x2 - bend[0], y2 - bend[1]) or 1.0
    dx, dy = (x2 - bend[0]) / away, (y2 - bend[1]) / away
    stop = _RADIUS[receiver.role] + 1
    tip = x2 - dx * stop, y2 - dy * stop
    base = tip[0] - dx * 8, tip[1] - dy * 8
    head = (
        f"M{tip[0]:.1f} {tip[1]:.1f}L{base[0] - dy * 4:.1f} {base[1] + dx * 4:.1f}"
        f"L{base[0] + dy * 4:.1f} {base[1] - dx * 4:.1f}Z"
    )
    lost = " lost" if receiver.event == NEVER else ""
    return (
        f'<g class="{sender.role}{lost}"><path class="arrow" d="{line}{base[0]:.1f} {base[1]:.1f}"/>'
        f'<path class="head" d="{head}"/></g>'
    )


def _svg_event(picture: SpaceTime, at: _Geometry, index: int) -> str:
    event, x = picture.events[index], at.xs[index]
    y = at.ys[event.process]
    role = "" if event.role == "context" else f" ({_ROLES[event.role]})"
    never = event.event == NEVER
    place = "never delivered" if never else f"event {event.seq}: {event.event}"
    told = f"{event.process}, {place} {event.message}".rstrip() + role
    letter = "✗" if never else _LETTERS[event.role]
    return (
        f'<g class="{event.role}{" never" if never else ""}"><title>{escape(visible(told))}</title>'
        f'<circle cx="{x:.1f}" cy="{y}" r="{_RADIUS[event.role]}"/>'
        + (f'<text class="letter" x="{x:.1f}" y="{y + 4}" text-anchor="middle">{letter}</text>' if letter else "")
        + f'<text x="{x:.1f}" y="{y + (24 if _arrows_above(picture, at, index) > 0 else -16)}" text-anchor="middle">'
        f"{escape(at.labels[index])}</text></g>"
    )


def _arrows_above(picture: SpaceTime, at: _Geometry, index: int) -> int:
    """Count the arrows that meet the event from above, less those from below: its label goes where fewer are."""
    y = at.ys[picture.events[index].process]
    balance = 0
    for source, target in picture.arrows:
        if index in (source, target):
            other = at.ys[picture.events[target if index == source else source].process]
            balance += (other < y) - (other > y)
    return balance


def _svg_legend(picture: SpaceTime, y: int) -> tuple[str, float]:
    x, widest, parts = float(_PAD), 0.0, []
    for role, letter in _LETTERS.items():
        if not letter or all(e.role != role for e in picture.events):
            continue
        named = f" {shorten(visible(_messages(picture, role)), 28)}" if role in ("message", "cause") else ""
        text = f"{_ROLES[role]}{named}"
        parts.append(
            f'<g class="{role}"><circle cx="{x + 8:.1f}" cy="{y}" r="8"/>'
            f'<text class="letter" x="{x + 8:.1f}" y="{y + 4}" text-anchor="middle">{letter}</text></g>'
            f'<text class="legend" x="{x + 22:.1f}" y="{y + 4}">{escape(text)}</text>'
        )
        widest = x + 22 + cell_len(text) * _CELL
        x = widest + 18
    key = ", ".join([*_key(picture), *(["dotted line: events left out"] if _skipped(picture) else [])])
    parts.append(f'<text class="legend" x="{_PAD}" y="{y + 26}">{escape(key)}</text>')
    return "".join(parts), max(widest, _PAD + cell_len(key) * _CELL) + 8
