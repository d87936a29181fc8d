"""The transitive closure where a topic has many origins: each message takes over the pasts of few others.

`closure.close` looks at all that is new in a message's direct past. With thousands of origins that is thousands of
pasts of thousands of numbers for each message. Most of it is covered by what was delivered last: only the maximal
messages, its *immediate predecessors*, need be looked at, and what they are is kept, since a log that has each
message after its immediate predecessors has it after all of its past (see `order`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MANY_ORIGINS: Final = 128
"""From here on a topic's closure is made by predecessors."""
_NEW: Final = 0
_OPEN: Final = 1
_CLOSED: Final = 2


@dataclass(frozen=True, slots=True)
class Predecessors:
    """Edges of the order: `cause[i]` is an immediate predecessor of `effect[i]`. All other causes follow."""

    effect: NDArray[np.int32]
    cause: NDArray[np.int32]


def close_by_predecessors(direct: NDArray[np.int32], starts: Ints) -> Predecessors | None:
    """Close `direct` under transitivity, in place; see `closure.close` for the arguments.

    Costs messages times origins times the number of immediate predecessors.

    Returns:
        The predecessors; `None`, and `direct` as it was, where the logs contradict each other.
    """
    return _Closing(direct, starts).run()


class _Closing:
    """One run: depth first, each message after all that is new in its direct past."""

    def __init__(self, direct: NDArray[np.int32], starts: Ints) -> None:
        self.direct = direct
        self.starts = starts
        self.closed = direct.copy()
        self.state = np.zeros(direct.shape[0], dtype=np.int8)
        self.size = direct.sum(axis=1, dtype=np.int64)
        """Of each past. A message has a larger one than all its causes."""
        self.owner = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        self.effect: list[Ints] = []
        self.cause: list[Ints] = []

    def run(self) -> Predecessors | None:
        for first in np.argsort(self.size, kind="stable").tolist():
            stack = [first]
            while stack:
                message = stack[-1]
                if self.state[message] == _CLOSED:
                    stack.pop()
                    continue
                needed = self._needed(message)
                waiting = needed[self.state[needed] != _CLOSED]
                if waiting.size == 0:
                    self._close(message, needed)
                    stack.pop()
                elif self.state[message] == _OPEN and (self.state[waiting] == _OPEN).any():
                    return None
                else:
                    self.state[message] = _OPEN
                    stack.extend(waiting.tolist())
        own = np.flatnonzero(np.arange(self.owner.size) > self.starts[self.owner])
        effect, cause = np.concatenate((*self.effect, own)), np.concatenate((*self.cause, own - 1))
        self.direct[:] = self.closed
        return Predecessors(effect.astype(np.int32), cause.astype(np.int32))

    def _needed(self, message: int) -> Ints:
        """Return the origin's previous message, if there is one, and the last of what is new from each other origin."""
        owner = int(self.owner[message])
        row = self.direct[message]
        if message == self.starts[owner]:
            news = row > 0
            previous = np.zeros(0, dtype=np.int64)
        else:
            previous = np.array([message - 1], dtype=np.int64)
            closed = self.state[message - 1] == _CLOSED
            news = row > (self.closed if closed else self.direct)[message - 1]
        news[owner] = False
        columns = np.flatnonzero(news)
        return np.concatenate((previous, self.starts[columns] + row[columns] - 1))

    def _close(self, message: int, needed: Ints) -> None:
        cover = np.zeros(self.closed.shape[1], dtype=np.int32)
        if needed.size and self.owner[needed[0]] == self.owner[message]:
            cover = self.closed[needed[0]].copy()
            needed = needed[1:]
        rank = needed - self.starts[self.owner[needed]] + 1
        order = np.argsort(-self.size[needed], kind="stable")
        left, rank = needed[order], rank[order]
        taken = 1
        while left.size:
            batch = left[:taken]
            np.maximum(cover, self.closed[batch].max(axis=0), out=cover)
            self.cause.append(batch)
            self.effect.append(np.full(batch.size, message, dtype=np.int64))
            left, rank = left[taken:], rank[taken:]
            hidden = cover[self.owner[left]] >= rank
            left, rank = left[~hidden], rank[~hidden]
            taken *= 2
        row = self.closed[message]
        np.maximum(row, cover, out=row)
        self.size[message] = row.sum(dtype=np.int64)
        self.state[message] = _CLOSED
