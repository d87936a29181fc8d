"""How the report spells what a result holds: numbers, quantities, kinds of findings, and text that a trace chose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.audit.picture import visible

if TYPE_CHECKING:
    from causalcast.audit.result import FindingKind

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
    "reused-identifier": "One identifier stands for two messages, or one name for two logs.",
    "clock-order": "A logged clock is not what the events imply.",
    "clock-gap": "The own entries of a process's clocks do not run 1, 2, 3: events are missing or share a number.",
    "clock-malformed": "A logged clock has no entry of its own process, or a negative one.",
    "unlogged-send": "Something was received, or is named as a cause, that no log has.",
    "absent-log": "Rows are missing: a log was not given, has holes or lost a broadcast, or rows could not be used.",
}
"""What each kind of finding says, in the order in which a reader should meet them."""


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


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return a number and what there are so many of."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def clip(text: str, limit: int = MAX_TEXT) -> str:
    """Return text that a trace chose, made visible and at most `limit` characters of it."""
    if len(text) <= limit:
        return visible(text)
    return f"{visible(text[:limit])} … ({count(len(text) - limit)} more characters)"


def percent(part: float | None, whole: float | None) -> str:
    """Return a share in percent as SVG and CSS write it."""
    return f"{100 * part / whole:.2f}" if part and whole else "0"


def amount(value: float | None, unit: str) -> str:
    """Return a value of a chart: a quantity, or a bare number where there is no unit."""
    if value is None or unit:
        return quantity(value, unit)
    size, name = next(((s, n) for s, n in ((1e9, " bn"), (1e6, " m"), (1e3, " k")) if abs(value) >= 10 * s), (1.0, ""))
    scaled = value / size
    return f"{scaled:,.0f}{name}" if scaled == int(scaled) or abs(scaled) >= 100 else f"{scaled:,.3g}{name}"


def elapsed(nanoseconds: float) -> str:
    """Return a time since the start of a trace in the unit a reader would choose."""
    for size, name in ((86_400e9, "d"), (3_600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= size:
            scaled = nanoseconds / size
            return f"{scaled:,.0f} {name}" if scaled >= 100 else f"{scaled:.3g} {name}"
    return f"{nanoseconds:.0f} ns" if nanoseconds else "0"
