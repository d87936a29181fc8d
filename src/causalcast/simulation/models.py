"""Random models of times: how long a message takes, a sender waits, an application thinks.

Each is data, in nanoseconds, and draws whole multiples of a tick. Draws use `random.Random.random` and the arithmetic
of `portable`, so they are the same on every machine.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

import msgspec

from causalcast.model import CausalcastError
from causalcast.simulation.portable import exp, ln

if TYPE_CHECKING:
    from random import Random

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000


class InvalidModelError(CausalcastError, ValueError):
    """A network, workload, fault or random model that cannot be simulated."""


class Model(msgspec.Struct, frozen=True, tag_field="model", forbid_unknown_fields=True):
    """A distribution of times."""

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        """One time in nanoseconds, at least 0, a multiple of `tick_ns`."""
        raise NotImplementedError

    def draw_many(self, random: Random, tick_ns: int, count: int) -> list[int]:
        """What `count` calls of `draw` return."""
        draw = self.draw
        return [draw(random, tick_ns) for _ in range(count)]


class Constant(Model, frozen=True, tag="constant"):
    """Always the same time."""

    delay_ns: int

    def __post_init__(self) -> None:
        _require(self.delay_ns >= 0, f"a constant time of {self.delay_ns} ns is negative")

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        return _nearest(self.delay_ns, tick_ns)

    def draw_many(self, random: Random, tick_ns: int, count: int) -> list[int]:
        return [_nearest(self.delay_ns, tick_ns)] * count


class Uniform(Model, frozen=True, tag="uniform"):
    """Any multiple of the tick from `low_ns` to `high_ns`, both included, equally likely."""

    low_ns: int
    high_ns: int

    def __post_init__(self) -> None:
        _require(0 <= self.low_ns <= self.high_ns, f"no times lie from {self.low_ns} to {self.high_ns} ns")

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        first = -(-self.low_ns // tick_ns)
        choices = max(self.high_ns // tick_ns - first, 0) + 1
        return (first + int(choices * random.random())) * tick_ns

    def draw_many(self, random: Random, tick_ns: int, count: int) -> list[int]:
        first = -(-self.low_ns // tick_ns)
        choices = max(self.high_ns // tick_ns - first, 0) + 1
        uniform = random.random
        return [(first + int(choices * uniform())) * tick_ns for _ in range(count)]


class Normal(Model, frozen=True, tag="normal"):
    """Normally distributed, and 0 where that would be negative (document 002, section 4.5.1: mean 100, deviation 25).

    Kinderman and Monahan's ratio of uniforms, as `random.normalvariate` has it.
    """

    mean_ns: int
    deviation_ns: int

    _RATIO: ClassVar[float] = 1.7155277699214135
    """4 exp(-1/2) / sqrt(2)."""

    def __post_init__(self) -> None:
        _require(
            self.mean_ns >= 0 and self.deviation_ns >= 0,
            f"a normal time of {self.mean_ns} ns with deviation {self.deviation_ns} ns has a negative parameter",
        )

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        while True:
            first = random.random()
            second = 1.0 - random.random()
            score = self._RATIO * (first - 0.5) / second
            if score * score / 4.0 <= -ln(second):
                return _nearest(max(self.mean_ns + score * self.deviation_ns, 0.0), tick_ns)


class Weibull(Model, frozen=True, tag="weibull"):
    """B (1 + W(scale, shape)), at most B (1 + 3 scale), with B the baseline (document 004, section 8.1.2)."""

    baseline_ns: int
    scale: float = 0.15
    shape: float = 2.0

    def __post_init__(self) -> None:
        _require(
            self.baseline_ns >= 0 and self.scale >= 0 and self.shape > 0,
            f"a Weibull time needs a baseline and a scale of at least 0 and a shape above 0, "
            f"not {self.baseline_ns}, {self.scale:g} and {self.shape:g}",
        )

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        exponential = -ln(1.0 - random.random())
        sample = sqrt(exponential) if self.shape == 2 else _root(exponential, self.shape)
        return _nearest(self.baseline_ns * (1.0 + self.scale * min(sample, 3.0)), tick_ns)


class Exponential(Model, frozen=True, tag="exponential"):
    """Times between the events of a Poisson process, at most `limit` times the mean (document 004, section 8.1.1).

    As in the document, `mean_ns` is the mean before that truncation: with a limit of 4, 1.8 % above the one after it.
    """

    mean_ns: int
    limit: float = 4.0

    def __post_init__(self) -> None:
        _require(
            self.mean_ns >= 0 and self.limit > 0,
            f"an exponential time needs a mean of at least 0 and a limit above 0, not {self.mean_ns} and {self.limit}",
        )

    def draw(self, random: Random, tick_ns: int = 1) -> int:
        return _nearest(min(-ln(1.0 - random.random()), self.limit) * self.mean_ns, tick_ns)


Delay: TypeAlias = Constant | Uniform | Normal | Weibull | Exponential

_PARAMETERS: Final[dict[str, tuple[type[Delay], str, int, int]]] = {
    "constant": (Constant, "constant:MS", 1, 1),
    "uniform": (Uniform, "uniform:LOW:HIGH", 2, 2),
    "normal": (Normal, "normal:MEAN:DEVIATION", 2, 2),
    "weibull": (Weibull, "weibull:BASELINE[:SCALE:SHAPE]", 1, 3),
    "exponential": (Exponential, "exponential:MEAN[:LIMIT]", 1, 2),
}
"""Class, form, and how many numbers it takes."""
_TIMES: Final = {"constant": 1, "uniform": 2, "normal": 2, "weibull": 1, "exponential": 1}
"""How many of the numbers are times; the others are plain."""

DELAY_FORMS: Final = ", ".join(form for _, form, _, _ in _PARAMETERS.values())


def parse_delay(text: str) -> Delay:
    """A model from its short form, times in milliseconds: `uniform:5:15`, `weibull:10`."""
    name, *words = text.split(":")
    if name not in _PARAMETERS:
        raise InvalidModelError(f"no model of time is called {name!r}; use one of {DELAY_FORMS}, times in ms")
    kind, form, fewest, most = _PARAMETERS[name]
    try:
        numbers = [float(word) for word in words]
        if not fewest <= len(numbers) <= most:
            raise ValueError
        times = [round(number * NS_PER_MS) for number in numbers[: _TIMES[name]]]
    except (ValueError, OverflowError):
        raise InvalidModelError(f"{text!r} does not have the form {form}, times in ms") from None
    return kind(*times, *numbers[_TIMES[name] :])


def _root(x: float, degree: float) -> float:
    return exp(ln(x) / degree) if x else 0.0


def _nearest(time_ns: float, tick_ns: int) -> int:
    return int(time_ns / tick_ns + 0.5) * tick_ns


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise InvalidModelError(reason)
