"""The times that logs reach over, told again when a log has grown without a look at its old rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import NO_VALUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TIMES: Final = ("first", "last", "number", "low", "high", "of")
"""Of a log: its first and last time, how many rows have one, and of the first `of` of these two times in their order
with a tenth of them outside of each."""
_FIRST, _LAST, _NUMBER, _LOW, _HIGH, _OF = range(len(TIMES))
_OUTLYING: Final = 10
_ENOUGH: Final = 100


def times_of(log: Ints, times: Ints, logs: int) -> Ints:
    """Return `TIMES` of each log; `log` must not fall."""
    found = np.full((logs, len(TIMES)), NO_VALUE, dtype=np.int64)
    known = times != NO_VALUE
    log, times = log[known], times[known]
    found[:, _NUMBER] = found[:, _OF] = np.bincount(log, minlength=logs)
    if times.size == 0:
        return found
    heads = np.flatnonzero(np.append(True, log[1:] != log[:-1]))
    sizes = np.diff(np.append(heads, times.size))
    falls = np.add.reduceat(np.append(False, (times[1:] < times[:-1]) & (log[1:] == log[:-1])), heads) > 0
    low, high = _tenths(sizes)
    rows = np.stack(
        (np.minimum.reduceat(times, heads), np.maximum.reduceat(times, heads), times[heads + low], times[heads + high])
    )
    for i in np.flatnonzero(falls).tolist():
        mine = np.partition(times[heads[i] : heads[i] + sizes[i]], (low[i], high[i]))
        rows[2:, i] = mine[low[i]], mine[high[i]]
    found[np.ix_(log[heads], np.array([_FIRST, _LAST, _LOW, _HIGH]))] = rows.T
    return found


def _tenths(number: Ints) -> tuple[Ints, Ints]:
    """Return the places in order of the two times in the middle."""
    low = (number - 1) // 10
    return low, number - 1 - low


def grown(old: Ints, new: Ints) -> Ints:
    """Return the `TIMES` of logs and of the rows that were added to them."""
    found = old.copy()
    fresh = old[:, _NUMBER] == 0
    found[fresh] = new[fresh]
    more = ~fresh & (new[:, _NUMBER] > 0)
    found[more, _FIRST] = np.minimum(old[more, _FIRST], new[more, _FIRST])
    found[more, _LAST] = np.maximum(old[more, _LAST], new[more, _LAST])
    found[more, _NUMBER] = old[more, _NUMBER] + new[more, _NUMBER]
    return found


def whole_spans(times: Ints) -> Ints | None:
    """Return the spans of logs, as `links.spans_of` does, `None` where a few times of one may lie far from the others.

    A time stands no later in the order of all times than in that of the first ones, and no earlier from the end.
    """
    first, last, number, low, high, of = times.T
    at_low, at_high = _tenths(of)
    least = np.rint(0.01 * (number - 1)).astype(np.int64)
    most = np.rint(0.99 * (number - 1)).astype(np.int64)
    told = (least <= at_low) & (most - (number - of) >= at_high)
    # Differences of times may not fit in int64; what is close is looked at in full.
    wide, middle = (last.astype(np.float64) - first, high.astype(np.float64) - low)
    near = wide <= 0.99 * _OUTLYING * np.maximum(middle, 1)
    if not bool(((number < _ENOUGH) | (told & near)).all()):
        return None
    return times[:, [_FIRST, _LAST]]
