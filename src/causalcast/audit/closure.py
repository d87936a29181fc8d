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
_MAX_SWEEPS: Final = 12
_EVERYTHING: Final = 2**31 - 1


def close(direct: NDArray[np.int32], starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Close `direct` under transitivity, in place.

    Logs in causal order are closed as they stand, which one vectorised sweep finds out. A few violations are
    closed by a few sweeps. What is left (long chains of lost information, or logs that contradict each other) is
    closed message by message in the order of dependence.

    Args:
        direct: shape (messages, origins); the messages of origin `a` are the rows `starts[a]:starts[a + 1]`, in
            order, and row `i` must already dominate row `i - 1` of the same origin.
        starts: shape (origins + 1,).

    Returns:
        Contradictions: pairs of a message and a message its sender delivered before, where the second depends
        on the first. No execution does that; the dependency is left out.
    """
    if not _sweep(direct, starts, dry=True):
        return []
    swept = direct.copy()
    for _ in range(_MAX_SWEEPS):
        changed = _sweep(swept, starts)
        if _cyclic(swept, starts):
            break
        if not changed:
            direct[:] = swept
            return []
    return _close_in_order(direct, starts)


def _sweep(rows: NDArray[np.int32], starts: NDArray[np.int64], *, dry: bool = False) -> bool:
    """Let every message take over the past of its immediate dependencies once; return whether that changed any.

    With `dry`, only say whether it would.
    """
    changed = False
    size = max(1, _BLOCK_CELLS // max(1, rows.shape[1]) ** 2)
    for origin in range(rows.shape[1]):
        first, last = int(starts[origin]), int(starts[origin + 1])
        for at in range(first, last, size):
            block = rows[at : min(last, at + size)]
            before = rows[at - 1] if at > first else np.zeros_like(block[0])
            best, heads = _inherited(rows, starts, origin, block, before)
            if heads.size == 0 or not (best > block[heads]).any():
                continue
            if dry:
                return True
            changed = True
            block[heads] = np.maximum(block[heads], best)
        if changed:
            np.maximum.accumulate(rows[first:last], axis=0, out=rows[first:last])
    return changed


def _cyclic(rows: NDArray[np.int32], starts: NDArray[np.int64]) -> bool:
    """Return whether a message has come to be in its own past."""
    return any(
        bool((rows[starts[a] : starts[a + 1], a] > np.arange(starts[a + 1] - starts[a])).any())
        for a in range(rows.shape[1])
    )


def _inherited(
    rows: NDArray[np.int32],
    starts: NDArray[np.int64],
    origin: int,
    block: NDArray[np.int32],
    before: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return what the dependencies that are new in each row of `block` bring along, and the rows with any."""
    news = np.empty(block.shape, dtype=bool)
    np.greater(block[1:], block[:-1], out=news[1:])
    np.greater(block[0], before, out=news[0])
    news[:, origin] = False
    row, column = np.nonzero(news)
    if row.size == 0:
        return block[:0], row
    gathered = rows[starts[column] + block[row, column] - 1]
    head = np.empty(row.size, dtype=bool)
    head[0] = True
    np.not_equal(row[1:], row[:-1], out=head[1:])
    heads = np.flatnonzero(head)
    return np.maximum.reduceat(gathered, heads, axis=0), row[heads]


def _close_in_order(direct: NDArray[np.int32], starts: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Close message by message, each after all that it depends on."""
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
    reached[origin] = _EVERYTHING
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
    before = direct[at - 1] if at > starts[origin] else np.zeros_like(rows[0])
    best, heads = _inherited(direct, starts, origin, rows, before)
    if heads.size:
        rows[heads] = np.maximum(rows[heads], best)
    np.maximum(rows[0], before, out=rows[0])
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
