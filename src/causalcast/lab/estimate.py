"""From a summary to one number with its confidence interval: selecting cells, comparing them, folding them."""

from __future__ import annotations

import itertools
import statistics
from math import sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from causalcast.lab.experiment import Check, Scalar
    from causalcast.lab.summary import Cell, Number, Summary

_STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom."""
_NORMAL: Final = 1.960


class NotMeasuredError(ValueError):
    """The summary holds nothing that would decide this."""


class Estimate(NamedTuple):
    """What the repetitions say of one number, or one text."""

    value: float | str
    interval: tuple[float, float] | None
    """At 95 %, from the spread over the seeds; `None` of a text, or with one seed."""
    each: tuple[float | str, ...]
    """One for each seed."""


def estimate(check: Check, summary: Summary) -> Estimate:
    """What `check` measures. Raises `NotMeasuredError`."""
    selected = [cell for cell in summary.cells if matches(cell.parameters, check.where)]
    if not selected:
        raise NotMeasuredError("the results hold no such cell: run the experiment again")
    each = []
    for place in range(len(summary.seeds)):
        values = [value for cell in selected if (value := _compared(check, cell, summary, place)) is not None]
        if not values:
            raise NotMeasuredError(f"{check.metric} did not occur in the cells chosen")
        each.append(_folded(check, values))
    if any(isinstance(value, str) for value in each):
        texts = sorted({str(value) for value in each})
        return Estimate(" or ".join(texts), None, tuple(each))
    numbers = [float(value) for value in each]
    return Estimate(statistics.fmean(numbers), interval(numbers), tuple(numbers))


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The mean's confidence interval after Student; `None` with fewer than two values."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    mean = statistics.fmean(values)
    half = quantile * statistics.stdev(values) / sqrt(len(values))
    return mean - half, mean + half


def values_of(cell: Cell, metric: str, statistic: str) -> tuple[Number, ...]:
    """One value for each seed. Raises `NotMeasuredError`."""
    found = cell.measured.get(metric, {}).get(statistic)
    if found is None:
        raise NotMeasuredError(f"the results lack {statistic!r} of {metric}: run the experiment again")
    return found


def matches(parameters: Mapping[str, Scalar], where: Mapping[str, Scalar | tuple[Scalar, ...]]) -> bool:
    """Whether a cell has the values that `where` asks for."""
    return all(
        parameters.get(name) in (wanted if isinstance(wanted, tuple) else (wanted,)) for name, wanted in where.items()
    )


def _compared(check: Check, cell: Cell, summary: Summary, place: int) -> float | str | None:
    value = values_of(cell, check.metric, check.statistic)[place]
    if isinstance(value, str) or value is None:
        return value
    if check.over is None:
        return value * check.scale
    other_parameters = cell.parameters | check.over.where
    other = next((each for each in summary.cells if each.parameters == other_parameters), None)
    if other is None:
        raise NotMeasuredError("the results lack a cell to compare with: run the experiment again")
    metric, statistic = check.over.metric or check.metric, check.over.statistic or check.statistic
    base = values_of(other, metric, statistic)[place]
    if base is None or isinstance(base, str):
        return None
    if check.relation == "difference":
        return (value - base) * check.scale
    if not base:
        return None
    ratio = value / base
    if check.relation == "ratio":
        return ratio * check.scale
    return 100 * (ratio - 1 if check.relation == "percent_more" else 1 - ratio)


def _folded(check: Check, values: Sequence[float | str]) -> float | str:
    if len(values) == 1 and check.fold not in {"spread", "rise", "fall"}:
        return values[0]
    if check.fold is None:
        raise NotMeasuredError(f"{len(values)} cells match, and the check does not say how to fold them")
    numbers = [float(value) for value in values]
    return _FOLDS[check.fold](numbers)


def _spread(values: Sequence[float]) -> float:
    """The range, as percent of the mean."""
    mean = statistics.fmean(values)
    return 100 * (max(values) - min(values)) / mean if mean else 0.0


def _steps(values: Sequence[float]) -> list[float]:
    """Each value over the one before it, in the order of the grid."""
    steps = [later / earlier for earlier, later in itertools.pairwise(values) if earlier]
    if not steps:
        raise NotMeasuredError("a trend needs at least two cells")
    return steps


_FOLDS: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "sum": sum,
    "spread": _spread,
    "rise": lambda values: min(_steps(values)),
    "fall": lambda values: max(_steps(values)),
}
"""`rise` is the least step, at least 1 if values never fall; `fall` the greatest, at most 1 if they never rise."""
