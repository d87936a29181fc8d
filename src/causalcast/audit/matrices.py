"""The pasts of the messages of many small topics at once; see `closure` for what a past is.

The matrices of topics with about as many origins are stacked. All steps but the last go over a whole stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.ranges import heads_of, places, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from causalcast.audit.flat import Messages

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]
    Matrix = NDArray[np.int32]

_CELLS: Final = 4_000_000
"""Cells of a stack, and of what is looked up at once."""
MAX_SWEEPS: Final = 12
"""Times that messages take over the pasts of what they depend on; a topic that needs more is not closed."""


@dataclass(frozen=True, slots=True)
class Pasts:
    """Of each topic: its matrix of origins by messages, its immediate predecessors, whether it is `closed`.

    The matrices of topics that are not closed are of no use.
    """

    past: Matrix
    pasts: Ints
    edges: Ints
    effect: NDArray[np.int32]
    cause: NDArray[np.int32]
    closed: Bools


def close_side_by_side(messages: Messages, target: Ints, group: Ints, rank: Ints) -> Pasts:
    """Make the pasts of all messages from the immediate dependencies that logs say.

    Where logs were in causal order, what was delivered before a broadcast has its own past among what was delivered.
    In other topics messages take over the pasts of what they depend on, again and again until nothing changes. A topic
    is not closed when that takes too long, or never ends well since its logs contradict each other.

    Args:
        messages: the messages of all topics.
        target: rising rows of messages.
        group: for each, a group of the same topic of which its sender had delivered messages.
        rank: how many of them.
    """
    topics = messages.groups.size - 1
    origins, sizes = np.diff(messages.groups), np.diff(messages.first)
    closed = np.ones(topics, dtype=bool)
    matrices: list[Matrix] = [np.zeros(0, dtype=np.int32)] * topics
    effects, causes = ([np.zeros(0, dtype=np.int32)] * topics for _ in range(2))
    width = 1 << np.ceil(np.log2(np.maximum(origins, 1))).astype(np.int64)
    starts = np.searchsorted(target, np.arange(messages.counters.size + 1))
    for columns in np.unique(width).tolist():
        chosen = np.flatnonzero(width == columns)
        stack_of = np.cumsum(sizes[chosen]) * columns // _CELLS
        for stack in np.split(chosen, np.flatnonzero(np.diff(stack_of)) + 1):
            _Stack(messages, stack, columns).run((starts, group, rank), closed, (matrices, effects, causes))
    nothing = np.zeros(0, dtype=np.int32)
    return Pasts(
        past=np.concatenate((nothing, *matrices)),
        pasts=starts_of(origins * sizes),
        edges=starts_of(np.array([part.size for part in effects], dtype=np.int64)),
        effect=np.concatenate((nothing, *effects)),
        cause=np.concatenate((nothing, *causes)),
        closed=closed,
    )


class _Stack:
    """Some topics; rows and columns of `matrix` are their messages and their origins."""

    def __init__(self, messages: Messages, topics: Ints, columns: int) -> None:
        self.messages = messages
        self.topics = topics
        self.columns = columns
        self.origins = np.diff(messages.groups)[topics]
        self.sizes = np.diff(messages.first)[topics]
        self.base = np.cumsum(self.sizes) - self.sizes
        self.rows = places(messages.first[topics], self.sizes)
        self.topic = np.repeat(np.arange(topics.size), self.sizes)
        self.first_group = messages.groups[topics]
        groups = places(self.first_group, self.origins)
        each = np.diff(messages.starts)[groups]
        self.column = np.repeat(np.concatenate([np.arange(n) for n in self.origins.tolist()]), each)
        self.heads = heads_of(self.topic, self.column)
        self.own = np.arange(self.rows.size) - np.maximum.accumulate(np.where(self.heads, np.arange(self.rows.size), 0))
        self.group_at = starts_of(each)[:-1]
        """Where each origin's messages begin in the matrix."""
        self.group_of = np.cumsum(self.origins) - self.origins

    def run(
        self,
        direct: tuple[Ints, Ints, Ints],
        closed: Bools,
        results: tuple[list[Matrix], list[NDArray[np.int32]], list[NDArray[np.int32]]],
    ) -> None:
        matrix = self._direct(*direct)
        effect, cause, opened = self._predecessors(matrix)
        if opened.any():
            self._close(matrix, opened, closed)
            effect, cause, _ = self._predecessors(matrix)
        order = np.argsort(effect, kind="stable")
        effect, cause = effect[order], cause[order]
        ends = np.searchsorted(effect, [*self.base.tolist(), self.rows.size])
        for i, t in enumerate(self.topics.tolist()):
            mine = slice(self.base[i], self.base[i] + self.sizes[i])
            edges = slice(ends[i], ends[i + 1])
            results[0][t] = matrix[mine, : self.origins[i]].T.reshape(-1)
            results[1][t] = (effect[edges] - self.base[i]).astype(np.int32)
            results[2][t] = (cause[edges] - self.base[i]).astype(np.int32)

    def _direct(self, starts: Ints, group: Ints, rank: Ints) -> Matrix:
        matrix = np.zeros((self.rows.size, self.columns), dtype=np.int32)
        sizes = starts[self.rows + 1] - starts[self.rows]
        part = places(starts[self.rows], sizes)
        row = np.repeat(np.arange(self.rows.size), sizes)
        column = group[part] - self.first_group[self.topic[row]]
        np.maximum.at(matrix.reshape(-1), row * self.columns + column, rank[part].astype(np.int32))
        matrix[np.arange(self.rows.size), self.column] = self.own
        self._accumulate(matrix)
        return matrix

    def _close(self, matrix: Matrix, opened: Bools, closed: Bools) -> None:
        """Close the topics that are open, in place; mark those that cannot be."""
        some = _Stack(self.messages, self.topics[opened], self.columns)
        rows = np.flatnonzero(opened[self.topic])
        part = matrix[rows]
        for _ in range(MAX_SWEEPS):
            left = some._take_over(part)
            if not left.any():
                break
        failed = left
        failed[some.topic[part[np.arange(rows.size), some.column] > some.own]] = True
        closed[some.topics[failed]] = False
        matrix[rows] = part

    def _accumulate(self, matrix: Matrix) -> None:
        """Let each message have all that its sender's earlier ones have."""
        if matrix.size == 0:
            return
        # A step that no number reaches keeps the origins apart in one running maximum.
        steps = (np.cumsum(self.heads) * (int(matrix.max()) + 1))[:, None]
        matrix[:] = np.maximum.accumulate(matrix + steps, axis=0) - steps

    def _take_over(self, matrix: Matrix) -> Bools:
        """Let each message have the pasts of what it depends on, in place; return which topics that changed."""
        opened = np.zeros(self.topics.size, dtype=bool)
        for block, row, column in self._news(matrix):
            here = matrix[block]
            best = self._inherited(matrix, block.start, row, column, here)
            opened[self.topic[block][(best > here).any(axis=1)]] = True
            np.maximum(here, best, out=here)
        if opened.any():
            self._accumulate(matrix)
        return opened

    def _predecessors(self, matrix: Matrix) -> tuple[Ints, Ints, Bools]:
        """Return the immediate predecessors of all messages, and in which topics one lacks what one of them has."""
        effects, causes = [], []
        opened = np.zeros(self.topics.size, dtype=bool)
        for block, row, column in self._news(matrix):
            here = matrix[block]
            best = self._inherited(matrix, block.start, row, column, here)
            opened[self.topic[block][(best > here).any(axis=1)]] = True
            alone = best[row, column] < here[row, column]
            effects.append(row[alone] + block.start)
            causes.append(self._cause(block.start, row[alone], column[alone], here))
            # The sender's previous message, where nothing that was delivered since follows it.
            own = self.own[block]
            previous = np.flatnonzero((own > 0) & (best[np.arange(own.size), self.column[block]] < own)) + block.start
            effects.append(previous)
            causes.append(previous - 1)
        return np.concatenate((self.base[:0], *effects)), np.concatenate((self.base[:0], *causes)), opened

    def _news(self, matrix: Matrix) -> Iterator[tuple[slice, Ints, Ints]]:
        """Yield blocks of messages, and of which other origins each has more in its past than its sender's last one."""
        step = max(1, _CELLS // (8 * self.columns))
        for first in range(0, self.rows.size, step):
            block = slice(first, min(self.rows.size, first + step))
            here = matrix[block]
            before = np.zeros_like(here)
            before[1:] = here[:-1]
            if first:
                before[0] = matrix[first - 1]
            before[self.heads[block]] = 0
            news = here > before
            news[np.arange(here.shape[0]), self.column[block]] = False
            row, column = np.nonzero(news)
            yield block, row, column

    def _cause(self, first: int, row: Ints, column: Ints, here: Matrix) -> Ints:
        at = self.group_at[self.group_of[self.topic[first + row]] + column]
        cause: Ints = at + here[row, column] - 1
        return cause

    def _inherited(self, matrix: Matrix, first: int, row: Ints, column: Ints, here: Matrix) -> Matrix:
        """Return the maximum of the pasts of what is new before each message of a block."""
        best = np.zeros_like(here)
        step = max(1, _CELLS // self.columns)
        for at in range(0, row.size, step):
            mine = row[at : at + step]
            gathered = matrix[self._cause(first, mine, column[at : at + step], here)]
            heads = np.flatnonzero(heads_of(mine))
            who = mine[heads]
            best[who] = np.maximum(best[who], np.maximum.reduceat(gathered, heads, axis=0))
        return best
