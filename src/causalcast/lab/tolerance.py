"""How far a measured value may lie from the expected one: the regular forms of the references, and what they mean.

exact                    the same number, or the same text
abs 0.25 [points|u.t.]   at most so far away
relative 5%              at most so far away, of the expected value
relative 20% or abs 30   either
factor 1.5               between a 1.5th of it and 1.5 times it
<=80  <80  >=3  >0       a bound; what is expected is not looked at
<=80 (+10%)  <=10 (+2)   a bound, and how far beyond it is still accepted
in [25, 50]              both ends included
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

_NUMBER: Final = r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)"
_DISTANCE: Final = re.compile(rf"abs {_NUMBER}(?: (?:points?|u\.t\.))?|relative {_NUMBER}%")
_FACTOR: Final = re.compile(rf"factor {_NUMBER}")
_BOUND: Final = re.compile(rf"(<=|<|>=|>) ?{_NUMBER}%?(?: \(\+{_NUMBER}(%?)\))?")
_BETWEEN: Final = re.compile(rf"in \[{_NUMBER}, ?{_NUMBER}\]")
_PLAIN: Final = re.compile(rf"~?{_NUMBER}(?: ?%| ?x| u\.t\.)?")
_LAST_BIT: Final = 1e-9
"""Numbers that differ by less, of their size, are the same: they came about by different sums."""

Value: TypeAlias = float | str


class InvalidToleranceError(ValueError):
    """A tolerance that has none of the forms above."""


def expected_number(text: str) -> float | None:
    """The number that `text` consists of, if it is no more than a number and its unit."""
    found = _PLAIN.fullmatch(text.strip())
    return None if found is None else float(found[1])


def needs_expected(tolerance: str) -> bool:
    """Whether `tolerance` measures from an expected value, rather than naming bounds itself."""
    return not (_BOUND.fullmatch(tolerance) or _BETWEEN.fullmatch(tolerance))


def accepts(tolerance: str, expected: Value | None, measured: Value) -> bool:
    """Whether `measured` is as expected. Raises `InvalidToleranceError`."""
    if isinstance(measured, str) or isinstance(expected, str):
        if tolerance != "exact":
            raise InvalidToleranceError(f"words are compared exactly, not by {tolerance!r}")
        return measured == expected
    return any(_accepts(part, expected, measured) for part in tolerance.split(" or "))


def check_tolerance(tolerance: str, expected: Value | None) -> None:
    """Raises `InvalidToleranceError` unless `accepts` can use these two."""
    accepts(tolerance, expected, expected if isinstance(expected, str) else 0.0)


def _accepts(tolerance: str, expected: float | None, measured: float) -> bool:
    if bound := _BOUND.fullmatch(tolerance):
        return _within(bound, measured)
    if between := _BETWEEN.fullmatch(tolerance):
        return float(between[1]) <= measured <= float(between[2])
    distance, factor = _DISTANCE.fullmatch(tolerance), _FACTOR.fullmatch(tolerance)
    if tolerance != "exact" and distance is None and factor is None:
        raise InvalidToleranceError(f"{tolerance!r} is no tolerance")
    if expected is None:
        raise InvalidToleranceError(f"a tolerance of {tolerance!r} needs an expected value")
    if factor is not None:
        most = float(factor[1])
        return expected > 0 and expected / most <= measured <= expected * most
    allowed = 0.0
    if distance is not None:
        allowed = float(distance[1]) if distance[1] is not None else abs(expected) * float(distance[2]) / 100
    return abs(measured - expected) <= allowed + _LAST_BIT * abs(expected)


def _within(bound: re.Match[str], measured: float) -> bool:
    sign, limit = bound[1], float(bound[2])
    slack = float(bound[3] or 0) * (abs(limit) / 100 if bound[4] else 1)
    if sign.startswith("<"):
        limit += slack
        return measured < limit if sign == "<" else measured <= limit
    limit -= slack
    return measured > limit if sign == ">" else measured >= limit
