"""Ranges of consecutive numbers, and columns that are cut into parts."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

AT_ONCE: Final = 2**22
"""Numbers in what is looked at at once, where one process's messages are compared with all origins or joiners."""


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


def union(group: Ints, first: Ints, last: Ints) -> tuple[Ints, Ints, Ints]:
    """Join the ranges of each group that touch or overlap: groups, first and last numbers, in order."""
    order = order_of(group, first)
    group, first, last = group[order], first[order], last[order]
    ends, rank = np.unique(last, return_inverse=True)
    heads = heads_of(group)
    # The highest end so far in each group: one running maximum, which begins anew at each head.
    base = np.cumsum(heads) * ends.size
    reached = ends[np.maximum.accumulate(base + rank) - base]
    heads[1:] |= first[1:] - 1 > reached[:-1]
    tails = np.append(heads[1:], True)[: heads.size]
    return group[heads], first[heads], reached[tails]


def places(first: Ints, sizes: Ints) -> Ints:
    """Return the numbers of ranges, one range after the other: `sizes[i]` numbers from `first[i]` on."""
    ends = np.cumsum(sizes)
    found: Ints = np.arange(int(ends[-1]) if ends.size else 0) + np.repeat(first - (ends - sizes), sizes)
    return found


def starts_of(sizes: Ints) -> Ints:
    """Return where each part begins, and behind them where the last ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)))


def heads_of(*columns: Ints) -> NDArray[np.bool_]:
    """Mark the rows that differ from the row before in any of the columns."""
    heads = np.zeros(columns[0].size, dtype=bool)
    heads[:1] = True
    for column in columns:
        heads[1:] |= column[1:] != column[:-1]
    return heads


def runs_of(*columns: Ints) -> Iterator[slice]:
    """Yield the ranges of rows that are alike in all columns."""
    heads = np.flatnonzero(heads_of(*columns)).tolist()
    yield from (slice(first, last) for first, last in pairwise([*heads, columns[0].size]))


def keys_of(*columns: Ints) -> Ints:
    """Return a number for each row: numbers compare as the rows do, column after column.

    The columns are laid side by side in 63 bits where they fit, and are replaced by their ranks where they do not.
    """
    if columns[0].size == 0:
        return np.zeros(0, dtype=np.int64)
    key, reach = _from_zero(columns[0])
    for column in columns[1:]:
        following, width = _from_zero(column)
        if reach * width >= _LARGEST:
            key, reach = _ranks(key)
        if reach * width >= _LARGEST:
            following, width = _ranks(following)
        key, reach = key * width + following, reach * width
    return key


_LARGEST: Final = 2**63


def _from_zero(column: Ints) -> tuple[Ints, int]:
    low, high = int(column.min()), int(column.max())
    if high - low >= _LARGEST:
        return _ranks(column)
    return column.astype(np.int64) - low, high - low + 1


def _ranks(column: Ints) -> tuple[Ints, int]:
    values, ranks = np.unique(column, return_inverse=True)
    return ranks.astype(np.int64), int(values.size)


def order_of(*columns: Ints) -> Ints:
    """Return the stable order of the rows, by the first column, then the next."""
    key = keys_of(*columns)
    if bool((key[1:] >= key[:-1]).all()):
        return np.arange(key.size)
    return np.argsort(key, kind="stable")


def portions(size: int, width: int) -> Iterator[slice]:
    """Cut `size` columns of `width` numbers each into parts of `AT_ONCE` numbers at most, or one column."""
    step = max(AT_ONCE // max(width, 1), 1)
    return (slice(start, start + step) for start in range(0, size, step))
