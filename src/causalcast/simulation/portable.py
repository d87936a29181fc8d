"""Arithmetic and choices that give the same bits on every machine.

A trace must not depend on the C library under Python, whose `log`, `exp` and `pow` may differ in the last bit from
one system to the next. What is here uses only operations that IEEE 754 rounds exactly (+, -, *, /, the square root,
`frexp`, `ldexp`) and the one draw whose sequence Python guarantees for a seed, `random.Random.random`.
"""

from __future__ import annotations

from math import frexp, ldexp
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

T = TypeVar("T")

_LN_2: Final = 0.6931471805599453
_ROOT_HALF: Final = 0.7071067811865476
_LN_TERMS: Final = tuple(1 / odd for odd in range(17, 0, -2))
_EXP_TERMS: Final = 15


def ln(x: float) -> float:
    """The natural logarithm of a positive number, to about 12 digits."""
    mantissa, exponent = frexp(x)
    if mantissa < _ROOT_HALF:
        mantissa *= 2
        exponent -= 1
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = 0.0
    for term in _LN_TERMS:
        series = series * square + term
    return 2 * ratio * series + exponent * _LN_2


def exp(x: float) -> float:
    """e to the power of `x`, to about 12 digits."""
    twos = int(x / _LN_2 + (0.5 if x >= 0 else -0.5))
    rest = x - twos * _LN_2
    series = 1.0
    for divisor in range(_EXP_TERMS, 0, -1):
        series = 1 + series * rest / divisor
    return ldexp(series, twos)


def choose(random: Random, population: Sequence[T], count: int) -> list[T]:
    """`count` different members of `population`, every choice and order equally likely."""
    left = list(population)
    for place in range(count):
        other = place + int(random.random() * (len(left) - place))
        left[place], left[other] = left[other], left[place]
    return left[:count]
