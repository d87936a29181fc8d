"""What happens before what in one topic: its messages, and the past of each as one number per origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.left_out import Numbers
    from causalcast.audit.reduction import Predecessors

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NEVER: Final = 2**31 - 1


class Joiner(NamedTuple):
    """An origin that came while others ran: ranks of its first message after its first and its last arrival.

    The last one is row `came` of its log. Where these messages are left out, `since` and `since_last` have the ranks
    from which on each origin's messages follow them; then `origin` is -1 if none of its own are there.
    """

    origin: int
    first: int
    last: int
    process: str
    came: int = 0
    since: Ints | None = None
    since_last: Ints | None = None


@dataclass(frozen=True, slots=True)
class TopicClock:
    """The universe of one topic: `m` messages of `a` origins, sorted by origin and number.

    Message `i` of origin `a` is row `starts[a] + i`; its *rank* is `i + 1`. `past[a, m]` is how many of `a`'s
    messages happen before message `m`.
    """

    topic: str
    origins: tuple[str, ...]
    starts: Ints
    owner: NDArray[np.int32]
    counters: Ints
    past: NDArray[np.int32]
    logged: Bools
    """Whether the message's own broadcast row is there."""
    seq: Ints
    """The row of its broadcast in its sender's log; 0 where `logged` is false."""
    time: Ints
    payload: Ints
    overhead: Ints
    in_doubt: Bools
    """Whether rows that may add to the message's past are missing."""
    owed: Bools
    """Whether agreement is owed on the message at all: its sender lived, or somebody else delivered it."""
    stability: bool
    """Whether any process reports stability in this topic."""
    stability_owed: bool
    """Whether every message must become stable: nobody stopped for good while still a member."""
    joiners: tuple[Joiner, ...] = ()
    predecessors: Predecessors | None = None
    """Kept where there are many origins, and where a topic is small."""
    place: dict[str, int] = field(default_factory=dict)
    """Of each origin in `origins`."""

    @property
    def messages(self) -> int:
        """How many messages the topic has."""
        return int(self.counters.size)

    def name(self, message: int) -> str:
        """Return `origin:counter` of a message."""
        return f"{self.origins[self.owner[message]]}:{self.counters[message]}"

    def count_per_origin(self, mask: Bools) -> Ints:
        """Return how many of each origin's messages are marked."""
        return np.diff(np.append(0, np.cumsum(mask))[self.starts])

    def maximal(self, messages: Ints) -> Ints:
        """Return some of `messages` in whose pasts all others are: at least those that are in no other's past."""
        last = np.append(self.owner[messages][1:] != self.owner[messages][:-1], True)[: messages.size]
        messages = messages[last]
        if self.predecessors is None:
            return messages
        chosen = np.zeros(self.messages, dtype=bool)
        chosen[messages] = True
        edges = self.predecessors
        chosen[edges.cause[chosen[edges.effect] & chosen[edges.cause]]] = False
        return np.flatnonzero(chosen)

    def block(self, origin: int) -> slice:
        """Return the rows of one origin's messages."""
        return slice(int(self.starts[origin]), int(self.starts[origin + 1]))

    def ranks_from(self, numbers: Numbers, others: int) -> Ints:
        """Return the first rank of each origin that is of its number or a higher one; without a number, `others`."""
        first = np.full(len(self.origins), others, dtype=np.int64)
        for origin in numbers.keys() & self.place.keys():
            a = self.place[origin]
            first[a] = 1 + np.searchsorted(self.counters[self.block(a)], numbers[origin])
        return first

    def locate(self, names: Sequence[str], origin: Ints, counter: Ints) -> Ints:
        """Return the row of each message, -1 where it is not in the universe; `origin` are indices of `names`."""
        code = self._codes(names, origin)
        rows = np.full(code.size, -1, dtype=np.int64)
        if not self.origins:
            return rows
        first = self.counters[self.starts[:-1]]
        size = np.diff(self.starts)
        last = self.counters[self.starts[1:] - 1]
        dense = last - first + 1 == size
        known = code >= 0
        easy = known & dense[code]
        inside = counter - first[code]
        easy &= (inside >= 0) & (inside < size[code])
        rows[easy] = (self.starts[code] + inside)[easy]
        for a in np.unique(code[known & ~dense[code]]).tolist():
            mine = np.flatnonzero(code == a)
            numbers = self.counters[self.block(a)]
            at = np.minimum(np.searchsorted(numbers, counter[mine]), numbers.size - 1)
            hit = numbers[at] == counter[mine]
            rows[mine[hit]] = self.starts[a] + at[hit]
        return rows

    def _codes(self, names: Sequence[str], origin: Ints) -> Ints:
        """Return the topic's index of each origin, -1 where it has none; only names that occur are looked up."""
        table = np.full(len(names) + 1, -1, dtype=np.int64)
        for code in np.flatnonzero(np.bincount(origin[origin >= 0], minlength=1)).tolist():
            table[code] = self.place.get(names[code], -1)
        codes: Ints = table[origin]
        return codes

    def locate_last(self, names: Sequence[str], origin: Ints, first: Ints | None, last: Ints) -> Ints:
        """Return the row of the highest message in each range of numbers, -1 where none is in the universe."""
        rows = self.locate(names, origin, last)
        if first is None:
            return rows
        missed = np.flatnonzero((rows < 0) & (origin >= 0))
        for code in np.unique(origin[missed]).tolist():
            if names[code] not in self.place:
                continue
            block = self.block(self.place[names[code]])
            mine = missed[origin[missed] == code]
            at = np.searchsorted(self.counters[block], last[mine], side="right") - 1
            hit = (at >= 0) & (self.counters[block][at] >= first[mine])
            rows[mine[hit]] = block.start + at[hit]
        return rows
