"""The transitive past of every message, as one integer per origin.

All earlier messages of an origin are in the past of a later one, so the past of a message is, per origin, a
number of messages from its first on: a vector clock over the messages that the logs know. What a log gives
directly is `direct`: for each message how far into each origin its sender had delivered. Closing that under
transitivity in the order of dependence costs one row operation per immediate dependency and needs no
assumption that any log is in causal order.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK_CELLS: Final = 4_000_000
_FIRST_BLOCK: Final = 16


def close(direct: NDArray[np.int32], starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Close `direct` under transitivity, in place.

    Args:
        direct: shape (messages, origins); the messages of origin `a` are the rows `starts[a]:starts[a + 1]`, in
            order, and row `i` must already dominate row `i - 1` of the same origin.
        starts: shape (origins + 1,).

    Returns:
        Contradictions: pairs of a message and a message its sender delivered before, where the second depends
        on the first. No execution does that; the dependency is left out.
    """
    origins = direct.shape[1]
    done = np.zeros(origins, dtype=np.int64)
    total = np.diff(starts)
    waiting: list[list[tuple[int, int]]] = [[] for _ in range(origins)]
    ready = deque(range(origins))
    contradictions: dict[tuple[int, int], tuple[int, int]] = {}
    pending = int((total > 0).sum())
    while pending:
        while ready:
            origin = ready.popleft()
            if done[origin] == total[origin]:
                continue
            blocker = _advance(direct, starts, done, origin)
            if blocker is None:
                pending -= 1
            else:
                waiting[blocker[0]].append((blocker[1], origin))
            still = [(need, who) for need, who in waiting[origin] if need > done[origin]]
            ready.extend(who for need, who in waiting[origin] if need <= done[origin])
            waiting[origin] = still
        if pending:
            stuck = next(a for a in range(origins) if done[a] < total[a])
            for pair in _cut(direct, starts, done, stuck):
                contradictions.setdefault((stuck, pair[1]), pair)
            for list_ in waiting:
                list_[:] = [(need, who) for need, who in list_ if who != stuck]
            ready.append(stuck)
    return list(contradictions.values())


def _advance(
    direct: NDArray[np.int32], starts: NDArray[np.int64], done: NDArray[np.int64], origin: int
) -> tuple[int, int] | None:
    """Close as many messages of `origin` as can be; return what the next one waits for, or `None` at the end."""
    first, last = int(starts[origin]), int(starts[origin + 1])
    block = _FIRST_BLOCK
    most = max(1, _BLOCK_CELLS // direct.shape[1] ** 2)
    reached = done.astype(np.int32)
    reached[origin] = np.iinfo(np.int32).max
    while True:
        at = first + int(done[origin])
        if at == last:
            return None
        rows = direct[at : min(last, at + min(block, most))]
        late = rows > reached
        blocked = late.any(axis=1)
        count = int(blocked.argmax()) if blocked.any() else rows.shape[0]
        if count:
            _close_rows(direct, starts, origin, at, count)
            done[origin] += count
        if count < rows.shape[0]:
            column = int(late[count].argmax())
            return column, int(rows[count, column])
        block *= 2


def _close_rows(direct: NDArray[np.int32], starts: NDArray[np.int64], origin: int, at: int, count: int) -> None:
    """Close rows whose dependencies are closed. Only a dependency that is new in its row adds anything."""
    rows = direct[at : at + count]
    before = np.empty_like(rows)
    before[1:] = rows[:-1]
    before[0] = direct[at - 1] if at > starts[origin] else 0
    news = rows > before
    news[:, origin] = False
    row, column = np.nonzero(news)
    if row.size:
        gathered = direct[starts[column] + rows[row, column] - 1]
        heads = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
        best = np.maximum.reduceat(gathered, heads, axis=0)
        rows[row[heads]] = np.maximum(rows[row[heads]], best)
    np.maximum(rows[0], before[0], out=rows[0])
    np.maximum.accumulate(rows, axis=0, out=rows)


def _cut(
    direct: NDArray[np.int32], starts: NDArray[np.int64], done: NDArray[np.int64], origin: int
) -> list[tuple[int, int]]:
    """Leave out what the next message of `origin` waits for in vain."""
    at = int(starts[origin] + done[origin])
    row = direct[at]
    columns = [int(a) for a in np.flatnonzero(row > done) if a != origin]
    pairs = [(at, int(starts[a] + row[a] - 1)) for a in columns]
    row[columns] = done[columns]
    return pairs
