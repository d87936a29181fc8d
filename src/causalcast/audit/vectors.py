"""Vector clocks as sparse columns, and the checks on them that NumPy does: one partition of a log at a time.

A clock is its entries, sorted by process; an absent entry is 0. All checks come down to one comparison, `exceeding`:
which entries of these clocks are larger than those of those clocks. It costs a binary search per entry, so a check
grows with the entries it looks at, n log n, and not with the square of the processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_WIDTH: Final = 2**31
"""More than there are processes: a row and a process make one number, row * width + process."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks of `n` rows: row `i` has the entries `starts[i]:starts[i + 1]`, sorted by process; row `n` has none.

    Processes are indices into a list of names that the caller has.
    """

    starts: Ints
    process: Ints
    value: Ints

    def exceeding(self, mine: Ints, others: Clocks, theirs: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Compare row `mine[i]` with row `theirs[i]` of `others`, for every `i`.

        Returns for each entry that is larger here: which `i`, the process, the value here, the value there.
        """
        sizes = self.starts[mine + 1] - self.starts[mine]
        pair = np.repeat(np.arange(mine.size), sizes)
        take = np.arange(pair.size) + np.repeat(self.starts[mine] - (np.cumsum(sizes) - sizes), sizes)
        process, value = self.process[take], self.value[take]
        there = others.values(theirs[pair], process)
        larger = np.flatnonzero(value > there)
        return pair[larger], process[larger], value[larger], there[larger]

    def values(self, rows: Ints, process: Ints) -> Ints:
        """Return the entry of each row for each process, 0 where it has none."""
        if self.process.size == 0:
            return np.zeros(rows.size, dtype=np.int64)
        key = self._keys()
        wanted = rows * _WIDTH + process
        at = np.minimum(np.searchsorted(key, wanted), key.size - 1)
        found: Ints = np.where(key[at] == wanted, self.value[at], 0)
        return found

    def _keys(self) -> Ints:
        row = np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))
        keys: Ints = row * _WIDTH + self.process
        return keys


def clocks_of(column: pa.Array, names: dict[str, int]) -> Clocks:
    """Return a column of maps as `Clocks`; names that are new get the next numbers in `names`."""
    starts = np.asarray(column.offsets).astype(np.int64)
    first, last = int(starts[0]), int(starts[-1])
    words = column.keys.slice(first, last - first).dictionary_encode()
    local = np.array([names.setdefault(name, len(names)) for name in words.dictionary.to_pylist()], dtype=np.int64)
    process = local[np.asarray(words.indices)] if local.size else np.zeros(0, dtype=np.int64)
    value = np.asarray(column.items.slice(first, last - first)).astype(np.int64)
    starts = starts - first
    row = np.repeat(np.arange(starts.size - 1), np.diff(starts))
    order = np.lexsort((process, row))
    return Clocks(np.append(starts, starts[-1]), process[order], value[order])
