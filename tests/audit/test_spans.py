"""Times of logs that grow: whatever comes, a span that is told is that of the whole log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from causalcast.audit.events import NO_VALUE
from causalcast.audit.links import spans_of
from causalcast.audit.spans import grown, times_of, whole_spans

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Draw = Callable[[np.random.Generator, int, int], Ints]

LOGS = 3


def rising(rng: np.random.Generator, before: int, number: int) -> Ints:
    return before + np.cumsum(rng.integers(0, 5, number))


def anywhere(rng: np.random.Generator, before: int, number: int) -> Ints:
    return rng.integers(0, 10_000, number)


def with_pauses(rng: np.random.Generator, before: int, number: int) -> Ints:
    return before + np.sort((rng.pareto(1.1, number) * 100).astype(np.int64))


def alike(rng: np.random.Generator, before: int, number: int) -> Ints:
    return before + rng.integers(0, 3, number)


def with_an_outlier(rng: np.random.Generator, before: int, number: int) -> Ints:
    times = rising(rng, before, number)
    if number and rng.random() < 0.3:
        times[rng.integers(0, number)] = rng.integers(0, 10**7)
    return times


@pytest.mark.parametrize("draw", [rising, anywhere, with_pauses, alike, with_an_outlier])
def test_spans_that_are_told_are_those_of_the_whole_logs(draw: Draw) -> None:
    told = asked = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        whole = [np.zeros(0, dtype=np.int64)] * LOGS
        state = times_of(whole[0], whole[0], LOGS)
        for step in range(6):
            parts: list[Ints] = []
            for log in range(LOGS):
                new = draw(rng, int(whole[log].max(initial=0)), int(rng.integers(0, 400 if step else 150)))
                new[rng.random(new.size) < 0.05] = NO_VALUE
                parts.append(new)
            whole = [np.concatenate(both) for both in zip(whole, parts, strict=True)]
            log = np.repeat(np.arange(LOGS), [part.size for part in parts])
            state = grown(state, log, np.concatenate(parts))
            every = np.repeat(np.arange(LOGS), [times.size for times in whole])
            found = whole_spans(state)
            asked += 1
            if found is not None:
                told += 1
                assert np.array_equal(found, spans_of(every, np.concatenate(whole), LOGS)), (seed, step)

    if draw in (rising, anywhere):
        assert told == asked


def test_a_log_that_grows_steadily_is_always_told() -> None:
    state = times_of(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 1)
    for part in np.array_split(np.arange(100_000), 400):
        state = grown(state, np.zeros(part.size, dtype=np.int64), part)
        found = whole_spans(state)
        assert found is not None
        assert found.tolist() == [[0, int(part[-1])]]
