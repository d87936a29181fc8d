"""Random models against their formulas, with fixed seeds; arithmetic that is the same on every machine."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from random import Random
from statistics import NormalDist, fmean, pstdev

import pytest

from causalcast.simulation import (
    NS_PER_MS,
    Constant,
    Delay,
    Exponential,
    InvalidModelError,
    Normal,
    Uniform,
    Weibull,
    parse_delay,
)
from causalcast.simulation.portable import choose, exp, ln

DRAWS = 40_000
MS = NS_PER_MS


def drawn(model: Delay, tick_ns: int = 1) -> list[int]:
    return model.draw_many(Random("fixed"), tick_ns, DRAWS)


def assert_mean(sample: list[int], expected: float) -> None:
    """Within four standard errors."""
    assert abs(fmean(sample) - expected) < 4 * pstdev(sample) / math.sqrt(len(sample))


@pytest.mark.parametrize("x", [1e-300, 1e-9, 0.1, 0.5, 0.70710678, 0.99999, 1.0, 1.0000001, 2.0, 3.7, 1e9, 1e300])
def test_the_logarithm_and_its_inverse(x: float) -> None:
    assert ln(x) == pytest.approx(math.log(x), rel=1e-11, abs=1e-15)
    assert exp(ln(x)) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("x", [-700.0, -20.5, -1.0, -1e-9, 0.0, 0.3, 1.0, 20.0, 700.0])
def test_the_exponential_function(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-11)


@pytest.mark.parametrize(
    "model",
    [
        Constant(7 * MS),
        Uniform(3 * MS, 9 * MS),
        Normal(100 * MS, 25 * MS),
        Weibull(10 * MS),
        Weibull(10 * MS, 0.3, 1.2),
        Exponential(10 * MS),
    ],
    ids=repr,
)
def test_draws_are_whole_ticks_and_many_are_as_one_by_one(model: Delay) -> None:
    for tick_ns in (1, 1000, MS):
        source = Random(1)
        single = [model.draw(source, tick_ns) for _ in range(500)]
        assert single == model.draw_many(Random(1), tick_ns, 500)
        assert all(time >= 0 and time % tick_ns == 0 for time in single)


def test_the_draws_of_a_seed_are_written_down() -> None:
    """The same numbers on every machine and Python: a change here changes every recorded result."""
    models = (
        Uniform(0, 10**9),
        Normal(10**8, 25 * 10**6),
        Weibull(10**7),
        Weibull(10**7, 0.3, 1.2),
        Exponential(10**7),
    )
    digest = hashlib.sha256()
    for model in models:
        digest.update(repr(model.draw_many(Random("fixed"), 1, 1000)).encode())
    assert digest.hexdigest() == "5fd533745af9759659d28c28ee8f2beafacade2d8e765e3a2574394252499217"


def test_uniform() -> None:
    sample = drawn(Uniform(3, 7))
    assert set(sample) == {3, 4, 5, 6, 7}
    assert_mean(sample, 5)
    assert max(abs(number - DRAWS / 5) for number in Counter(sample).values()) < 4 * math.sqrt(DRAWS / 5)
    assert set(drawn(Uniform(1, MS), MS)) == {MS}, "a range that holds one tick"


def test_normal() -> None:
    sample = drawn(Normal(100 * MS, 25 * MS))
    assert_mean(sample, 100 * MS)
    assert pstdev(sample) == pytest.approx(25 * MS, rel=0.02)
    within = sum(75 * MS <= time <= 125 * MS for time in sample) / DRAWS
    assert within == pytest.approx(0.6827, abs=0.01)


def test_normal_is_truncated_at_zero() -> None:
    """Of mean 1 and deviation 1: the mean becomes phi(1) + Phi(1), the share at zero Phi(-1)."""
    sample = drawn(Normal(MS, MS))
    standard = NormalDist()
    assert min(sample) == 0
    assert sample.count(0) / DRAWS == pytest.approx(standard.cdf(-1), abs=0.01)
    assert_mean(sample, MS * (standard.pdf(1) + standard.cdf(1)))


@pytest.mark.parametrize("shape", [1.0, 2.0, 3.5])
def test_weibull(shape: float) -> None:
    """Document 004, section 8.1.2: B (1 + W), mean B (1 + scale Gamma(1 + 1/shape)), at most B (1 + 3 scale)."""
    sample = drawn(Weibull(100 * MS, 0.15, shape))
    assert min(sample) >= 100 * MS
    assert max(sample) <= 145 * MS
    cut = _weibull_excess(shape)
    assert_mean(sample, 100 * MS * (1 + 0.15 * (math.gamma(1 + 1 / shape) - cut)))
    share = sum(time == 145 * MS for time in sample) / DRAWS
    assert share == pytest.approx(math.exp(-(3**shape)), abs=0.005)
    median = sorted(sample)[DRAWS // 2]
    assert median == pytest.approx(100 * MS * (1 + 0.15 * math.log(2) ** (1 / shape)), rel=0.005)


def _weibull_excess(shape: float) -> float:
    """What truncation at 3 takes from the mean: the integral of the tail exp(-x^shape) from 3."""
    step = 0.001
    return sum(math.exp(-((3 + step * (place + 0.5)) ** shape)) * step for place in range(20_000))


def test_the_mean_that_document_004_prints() -> None:
    sample = drawn(Weibull(4_413_500_000))
    assert fmean(sample) / 1e9 == pytest.approx(5, abs=0.005)


@pytest.mark.parametrize("limit", [1.0, 4.0])
def test_exponential(limit: float) -> None:
    """Document 004, section 8.1.1: -ln(U) / lambda, at most `limit` times the mean."""
    sample = drawn(Exponential(10 * MS, limit))
    assert max(sample) == limit * 10 * MS
    assert_mean(sample, 10 * MS * (1 - math.exp(-limit)))
    assert sample.count(max(sample)) / DRAWS == pytest.approx(math.exp(-limit), abs=0.01)


def test_choices_are_equally_likely() -> None:
    source = Random(1)
    seen = Counter(tuple(choose(source, "abc", 2)) for _ in range(6000))
    assert len(seen) == 6
    assert max(abs(number - 1000) for number in seen.values()) < 4 * math.sqrt(1000)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("constant:10", Constant(10 * MS)),
        ("uniform:5:15", Uniform(5 * MS, 15 * MS)),
        ("uniform:0.5:1.5", Uniform(MS // 2, 3 * MS // 2)),
        ("normal:100:25", Normal(100 * MS, 25 * MS)),
        ("weibull:10", Weibull(10 * MS)),
        ("weibull:10:0.3:1.5", Weibull(10 * MS, 0.3, 1.5)),
        ("exponential:10", Exponential(10 * MS)),
        ("exponential:10:3", Exponential(10 * MS, 3)),
    ],
)
def test_short_forms(text: str, model: Delay) -> None:
    assert parse_delay(text) == model


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gauss:1:2", "no model of time is called 'gauss'"),
        ("uniform:5", "uniform:LOW:HIGH"),
        ("uniform:a:b", "uniform:LOW:HIGH"),
        ("uniform:9:3", "no times lie from"),
        ("constant:-1", "negative"),
        ("constant:inf", "constant:MS"),
        ("constant:nan", "constant:MS"),
        ("weibull:10:0.1:0", "shape above 0"),
        ("exponential:10:0", "limit above 0"),
        ("", "no model of time"),
    ],
)
def test_short_forms_that_mean_nothing(text: str, words: str) -> None:
    with pytest.raises(InvalidModelError, match=words):
        parse_delay(text)
