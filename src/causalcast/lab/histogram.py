"""Distributions of what a run yields, and the statistics that experiments ask of them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_VALUES: Final = 2_000
"""Different values that a histogram keeps apart; with more they are rounded to `DIGITS`."""
DIGITS: Final = 3

_NUMBER: Final = r"-?\d+(?:\.\d+)?"
_CONDITION: Final = re.compile(
    rf"(?P<sign><=|>=|<|>|=) ?(?P<limit>{_NUMBER})"
    rf"|(?P<left>[\[(])(?P<low>{_NUMBER}), ?(?P<high>{_NUMBER})(?P<right>[\])])"
)
_PERCENTILE: Final = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_SIMPLE: Final = ("value", "mean", "median", "min", "max", "sum", "count")

STATISTICS: Final = (
    "value (of a metric that is one number or text), mean, median, pNN, min, max, sum, count, "
    "and percent or count of those in a range: 'percent <=50', 'count (4, 8]', 'percent = 2'"
)


class InvalidStatisticError(ValueError):
    """A statistic that has none of the forms of `STATISTICS`."""


class Histogram:
    """How often which value was seen. Count, sum, minimum and maximum stay exact when values are rounded."""

    def __init__(self, counts: Mapping[float, int]) -> None:
        self.count = sum(counts.values())
        self.sum = float(sum(value * times for value, times in counts.items()))
        self.min = min(counts, default=None)
        self.max = max(counts, default=None)
        if len(counts) > MOST_VALUES:
            rounded: Counter[float] = Counter()
            low, high = min(counts), max(counts)
            for value, times in counts.items():
                inside = low < value < high
                rounded[min(max(float(f"{value:.{DIGITS}g}"), low), high) if inside else value] += times
            counts = rounded
        self.counts = dict(sorted(counts.items()))

    def statistic(self, name: str) -> float | None:
        """`None` where nothing was seen, except that a count is then 0. Raises `InvalidStatisticError`."""
        if found := _PERCENTILE.fullmatch(name):
            return self._quantile(float(found[1]) / 100)
        word, _, condition = name.partition(" ")
        if condition and word in {"percent", "count"}:
            times = sum(map(self.counts.__getitem__, filter(_test(condition, name), self.counts)))
            return times if word == "count" else 100 * times / self.count if self.count else None
        match name:
            case "mean":
                return self.sum / self.count if self.count else None
            case "median":
                return self._quantile(0.5)
            case "min" | "max" | "sum" | "count":
                value: float | None = getattr(self, name)
                return value
        raise InvalidStatisticError(f"{name!r} is no statistic of a distribution; use one of {STATISTICS}")

    def _quantile(self, part: float) -> float | None:
        """The smallest value that at least this part of all values does not exceed."""
        if not self.count:
            return None
        needed = part * self.count
        values = list(self.counts)
        reached = accumulate(self.counts.values())
        return next((value for value, so_far in zip(values, reached, strict=True) if so_far >= needed), values[-1])


def check_statistic(name: str) -> None:
    """Raises `InvalidStatisticError`."""
    if name not in _SIMPLE:
        Histogram({}).statistic(name)


def _test(condition: str, name: str) -> Callable[[float], bool]:
    found = _CONDITION.fullmatch(condition.strip())
    if found is None:
        raise InvalidStatisticError(f"{name!r} is no statistic: {condition!r} is no range such as <=50 or (4, 8]")
    if found["sign"] is None:
        low, high = float(found["low"]), float(found["high"])
        low_in, high_in = found["left"] == "[", found["right"] == "]"
        return lambda value: low < value < high or (low_in and value == low) or (high_in and value == high)
    limit = float(found["limit"])
    tests: dict[str, Callable[[float], bool]] = {
        "<=": limit.__ge__,
        "<": limit.__gt__,
        ">=": limit.__le__,
        ">": limit.__lt__,
        "=": limit.__eq__,
    }
    return tests[found["sign"]]
