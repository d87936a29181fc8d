"""Ranges of consecutive numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def expand(parts: list[tuple[Ints, Ints]]) -> Ints:
    """Return the union of ranges of numbers, sorted."""
    first = np.concatenate([a for a, _ in parts])
    last = np.concatenate([b for _, b in parts])
    order = np.argsort(first, kind="stable")
    first, last = first[order], np.maximum.accumulate(last[order])
    head = np.ones(first.size, dtype=bool)
    head[1:] = first[1:] > last[:-1] + 1
    at = np.flatnonzero(head)
    first, last = first[at], last[np.append(at[1:], first.size) - 1]
    sizes = last - first + 1
    ends = np.cumsum(sizes)
    numbers: Ints = np.arange(int(ends[-1])) + np.repeat(first - (ends - sizes), sizes)
    return numbers


def spans(numbers: Ints) -> list[tuple[int, int]]:
    """Return the ranges of consecutive values in a sorted array."""
    if numbers.size == 0:
        return []
    heads = np.flatnonzero(np.r_[True, np.diff(numbers) > 1])
    ends = np.append(heads[1:], numbers.size) - 1
    return list(zip(numbers[heads].tolist(), numbers[ends].tolist(), strict=True))


def merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join ranges that touch or overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
