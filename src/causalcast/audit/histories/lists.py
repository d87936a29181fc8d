"""The order of a list's elements: reads of one list are prefixes of one another, and it is an order of its writes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.histories.resolve import Past, Resolved

    Ints = NDArray[np.int64]


@dataclass(slots=True)
class ListOrders:
    """Edges between transactions whose elements follow one another, and what is wrong: kind, read, two writes."""

    before: Ints
    after: Ints
    troubles: list[tuple[str, int, int, int]] = field(default_factory=list)


def list_orders(resolved: Resolved, past: Past) -> ListOrders:
    """Compare all reads of each list with its longest one. Costs the elements that were read, once.

    - `duplicate-element`: a read shows an element twice;
    - `incompatible-order`: a read is no prefix of the longest;
    - `reordered-writes`: elements of one session stand in another order than it appended them in.
    """
    per_key: dict[int, list[int]] = {}
    for read, key in enumerate(resolved.read_key.tolist()):
        per_key.setdefault(key, []).append(read)
    before: list[int] = []
    after: list[int] = []
    found = ListOrders(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    values = resolved.history.seen
    for reads in per_key.values():
        longest = max(reads, key=lambda read: int(resolved.read_starts[read + 1] - resolved.read_starts[read]))
        start, end = int(resolved.read_starts[longest]), int(resolved.read_starts[longest + 1])
        whole = list(values[start:end])
        for read in reads:
            mine = list(values[int(resolved.read_starts[read]) : int(resolved.read_starts[read + 1])])
            if len(set(mine)) < len(mine):
                found.troubles.append(("duplicate-element", read, -1, -1))
            elif mine != whole[: len(mine)]:
                found.troubles.append(("incompatible-order", read, longest, -1))
        _sessions(resolved, past, longest, found)
        known = [int(write) for write in resolved.seen[start:end] if write >= 0]
        for one, other in itertools.pairwise(known):
            first, second = int(resolved.write_txn[one]), int(resolved.write_txn[other])
            if first != second and past.chain[first] >= 0 and past.chain[second] >= 0:
                before.append(first)
                after.append(second)
    found.before, found.after = np.array(before, dtype=np.int64), np.array(after, dtype=np.int64)
    return found


def _sessions(resolved: Resolved, past: Past, read: int, found: ListOrders) -> None:
    latest: dict[int, tuple[int, int, int]] = {}
    for write in resolved.seen[int(resolved.read_starts[read]) : int(resolved.read_starts[read + 1])].tolist():
        if write < 0:
            continue
        txn = int(resolved.write_txn[write])
        chain = int(past.chain[txn])
        place = (int(past.position[txn]), int(resolved.write_order[write]), write)
        if chain in latest and place[:2] < latest[chain][:2]:
            found.troubles.append(("reordered-writes", read, write, latest[chain][2]))
        else:
            latest[chain] = place
