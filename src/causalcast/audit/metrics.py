"""Measured quantities: sketches that merge across processes, and their summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.result import Distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WIDTH: Final = 1e-3
"""Relative width of a bin, and so the largest relative error of a quantile."""


def logarithm(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the bin of each value: bins of constant relative width, those of negative values below zero."""
    scale = np.log1p(np.abs(values).astype(np.float64))
    scale /= np.log1p(_WIDTH)
    keys: NDArray[np.int32] = np.rint(scale).astype(np.int32)
    keys[values < 0] *= -1
    return keys


def value_of(key: int) -> float:
    """Return the value in the middle of a bin of `logarithm`."""
    size = float(np.expm1(abs(key) * np.log1p(_WIDTH)))
    return size if key >= 0 else -size


def exact_sum(values: NDArray[np.int64]) -> int:
    """Return a sum that does not depend on the order and cannot overflow."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


@dataclass(slots=True)
class Histogram:
    """Times in nanoseconds, in bins of constant relative width: small, and merged by addition.

    Negative values are kept apart from positive ones: clocks of different processes may disagree, and a latency
    below zero says so.
    """

    bins: dict[int, int] = field(default_factory=dict)
    count: int = 0
    total: int = 0
    maximum: int | None = None

    def add(self, values: NDArray[np.int64], keys: NDArray[np.int32]) -> None:
        """Count `values`, whose bins are `keys`."""
        if values.size == 0:
            return
        lowest = int(keys.min())
        counts = np.bincount(keys - lowest)
        found = np.flatnonzero(counts)
        self.add_counts(found + lowest, counts[found], exact_sum(values), int(values.max()))

    def add_counts(self, keys: NDArray[np.int64], numbers: NDArray[np.int64], total: int, maximum: int) -> None:
        """Add values that were counted: `numbers` of them are in the bins `keys`."""
        for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
            self.bins[key] = self.bins.get(key, 0) + number
        self.count += int(numbers.sum())
        self.total += total
        self.maximum = maximum if self.maximum is None else max(self.maximum, maximum)

    def merge(self, other: Histogram) -> None:
        """Add another histogram's counts."""
        for key, number in other.bins.items():
            self.bins[key] = self.bins.get(key, 0) + number
        self.count += other.count
        self.total += other.total
        if other.maximum is not None:
            self.maximum = other.maximum if self.maximum is None else max(self.maximum, other.maximum)

    def subtract(self, part: Histogram) -> None:
        """Take the counts of a part away; the maximum stays that of the whole."""
        for key, number in part.bins.items():
            left = self.bins[key] - number
            if left:
                self.bins[key] = left
            else:
                del self.bins[key]
        self.count -= part.count
        self.total -= part.total

    @property
    def negative(self) -> int:
        """How many values are below zero."""
        return sum(number for key, number in self.bins.items() if key < 0)

    def milliseconds(self) -> Distribution:
        """Summarise as milliseconds."""
        if self.count == 0 or self.maximum is None:
            return Distribution("ms")
        keys = np.array(sorted(self.bins), dtype=np.int64)
        reached = np.cumsum([self.bins[int(key)] for key in keys])
        quantiles = []
        for share in (0.5, 0.9, 0.99):
            key = int(keys[int(np.searchsorted(reached, share * self.count))])
            quantiles.append(min(value_of(key), float(self.maximum)) / 1e6)
        p50, p90, p99 = quantiles
        return Distribution("ms", self.count, self.total / self.count / 1e6, p50, p90, p99, self.maximum / 1e6)
