"""Long forks: two reads of one group of keys of which each saw a write that the other did not.

Judged where every key has at most one value, as in the workload made for it (writes of single keys, reads of
groups). Snapshot isolation forbids long forks, causal consistency does not.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.audit.histories.resolve import Resolved


def long_forks(resolved: Resolved) -> list[tuple[int, int]] | None:
    """Return pairs of reads (their numbers) that saw one group of keys forked, one pair a read at most.

    `None`: a key has more than one value, so that a read does not tell how much of it was seen. The reads of a group
    form a chain exactly when each contains the one before it by size, so sorting costs O(reads * log).
    """
    history = resolved.history
    value: dict[int, int] = {}
    groups: dict[frozenset[int], list[tuple[frozenset[int], int]]] = {}
    reads: dict[int, list[int]] = {}
    for read, txn in enumerate(resolved.read_txn.tolist()):
        reads.setdefault(txn, []).append(read)
    for mine in reads.values():
        seen: set[int] = set()
        for read in mine:
            key = int(resolved.read_key[read])
            for place in range(int(resolved.read_starts[read]), int(resolved.read_starts[read + 1])):
                seen.add(key)
                if value.setdefault(key, history.seen[place]) != history.seen[place]:
                    return None
        keys = frozenset(int(resolved.read_key[read]) for read in mine)
        if len(keys) > 1:
            groups.setdefault(keys, []).append((frozenset(seen), mine[0]))
    forks: list[tuple[int, int]] = []
    for seen_by in groups.values():
        seen_by.sort(key=lambda one: len(one[0]))
        for (less, first), (more, second) in itertools.pairwise(seen_by):
            if not less <= more:
                forks.append((first, second))
    return forks
