"""The times that logs reach over, told again when a log has grown without a look at its old rows.

Of each log some of its times are kept, spread over their order, and how many times of the log are none later: what
comes to the log may add to that number, and is told exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import NO_VALUE
from causalcast.audit.ranges import runs_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

KEPT: Final = 16
"""Times of a log that are kept."""
_OUTLYING: Final = 10
_ENOUGH: Final = 100
_FIRST, _LAST, _NUMBER = range(3)
_TIMES, _RANKS = slice(3, 3 + KEPT), slice(3 + KEPT, 3 + 2 * KEPT)
NO_TIMES: Final = np.array([NO_VALUE, NO_VALUE, 0, *[NO_VALUE] * KEPT, *[0] * KEPT], dtype=np.int64)
"""Of a log without rows: its first and last time, how many rows have one, those that are kept in order, and of each how
many are surely none later. That number less one is surely no fewer than are earlier."""


def times_of(log: Ints, times: Ints, logs: int) -> Ints:
    """Return of each log what `NO_TIMES` is for one without rows; `log` must not fall."""
    found = np.tile(NO_TIMES, (logs, 1))
    known = times != NO_VALUE
    log, times = log[known], times[known]
    if times.size == 0:
        return found
    heads = np.flatnonzero(np.append(True, log[1:] != log[:-1]))
    sizes = np.diff(np.append(heads, times.size))
    falls = np.add.reduceat(np.append(False, (times[1:] < times[:-1]) & (log[1:] == log[:-1])), heads) > 0
    at = np.linspace(0, sizes - 1, KEPT).astype(np.int64).T
    kept = times[heads[:, None] + at]
    for i in np.flatnonzero(falls).tolist():
        kept[i] = np.partition(times[heads[i] : heads[i] + sizes[i]], at[i])[at[i]]
    found[log[heads]] = np.column_stack((kept[:, 0], kept[:, -1], sizes, kept, at + 1))
    return found


def grown(old: Ints, log: Ints, times: Ints) -> Ints:
    """Return the same of logs to which rows with these times were added."""
    known = times != NO_VALUE
    log, times = log[known], times[known]
    order = np.lexsort((times, log))
    log, times = log[order], times[order]
    found = old.copy()
    fresh = old[log, _NUMBER] == 0
    begun = np.unique(log[fresh])
    found[begun] = times_of(log[fresh], times[fresh], len(old))[begun]
    log, times = log[~fresh], times[~fresh]
    for part in runs_of(log):
        found[log[part.start]] = _with(old[log[part.start]], times[part])
    return found


def _with(old: Ints, times: Ints) -> Ints:
    """Return the same of one log with more times, which are in order."""
    found = old.copy()
    found[_FIRST], found[_LAST] = min(old[_FIRST], times[0]), max(old[_LAST], times[-1])
    found[_NUMBER] = old[_NUMBER] + times.size
    kept, ranks = old[_TIMES], old[_RANKS] + np.searchsorted(times, old[_TIMES], "right")
    later = int(np.searchsorted(times, old[_LAST], "right"))
    if later < times.size:
        at = np.unique(np.linspace(later, times.size - 1, KEPT).astype(np.int64))
        kept = np.concatenate((kept, times[at]))
        ranks = np.concatenate((ranks, old[_NUMBER] + at + 1))
        wanted = np.linspace(1, found[_NUMBER], KEPT)
        chosen = np.minimum(np.searchsorted(ranks, wanted), ranks.size - 1)
        kept, ranks = kept[chosen], ranks[chosen]
    found[_TIMES], found[_RANKS] = kept, ranks
    return found


def whole_spans(times: Ints) -> Ints | None:
    """Return the spans of logs, as `links.spans_of` does, `None` where a few times of one may lie far from the others.

    A time of which enough are none later is none earlier than the first of the middle times, and so on at their end.
    """
    first, last, number = times[:, _FIRST], times[:, _LAST], times[:, _NUMBER]
    kept, ranks = times[:, _TIMES], times[:, _RANKS]
    least = np.rint(0.01 * (number - 1)).astype(np.int64)[:, None]
    most = np.rint(0.99 * (number - 1)).astype(np.int64)[:, None]
    low = np.where(ranks >= least + 1, kept, np.iinfo(np.int64).max).min(axis=1)
    high = np.where(ranks <= most + 1, kept, NO_VALUE).max(axis=1)
    # Differences of times may not fit in int64; what is close is looked at in full.
    wide, middle = (late.astype(np.float64) - early for early, late in ((first, last), (low, high)))
    near = wide <= 0.99 * _OUTLYING * np.maximum(middle, 1)
    return times[:, [_FIRST, _LAST]] if bool(((number < _ENOUGH) | near).all()) else None
