"""What each guarantee demands of the reads of one key; Spark and the command's own process run the same code.

A *demand* says: this read must not miss that transaction's write. The guarantees, for a read of key x in session s
(what s *observed* are the transactions that it read from so far, with this one):

- read your writes: the last write of x in s before it;
- monotonic reads: the write that the last read of x in s returned;
- monotonic writes: for each other session, its last write of x before the last of its transactions that s observed;
- writes follow reads: for each other session, what its last read of x returned, at or before the last of its
  transactions that s observed;
- causal consistency: for each session, its last write of x that happened before the read.

Registers: each demand is one transaction, found by binary search in its session, so all of them cost
O(reads * sessions that use the key * log). Lists and sets: a read has to contain *all* these writes; each is compared
with all writes of its key, which is the size of what it returned where it is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from causalcast.audit.histories.resolve import Past

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

GUARANTEES: Final = (
    "read-your-writes",
    "monotonic-reads",
    "monotonic-writes",
    "writes-follow-reads",
    "causal-consistency",
)
RYW, MR, MW, WFR, CC = range(5)

ROWS: Final = pa.schema(
    [
        ("key", pa.int64()),
        ("txn", pa.int64()),
        ("write", pa.int64()),
        ("read", pa.int64()),
        ("order", pa.int64()),
        ("seen", pa.list_(pa.int64())),
    ]
)
"""A write (its number in `write`, `read` is -1), or a read with the writes that it returned."""
DEMANDS: Final = pa.schema(
    [("guarantee", pa.int64()), ("read", pa.int64()), ("needed", pa.int64()), ("returned", pa.int64())]
)
"""A read, the transaction whose write it must not miss, and the one that it returned (-1: the initial state).

For lists and sets `needed` is the write that is missing, and `returned` is -1."""
DEMANDS_SCHEMA: Final = "guarantee long, read long, needed long, returned long"


def demands(table: pa.Table, past: Past, *, registers: bool) -> pa.Table:
    """Return the demands that the reads in `table` do not meet by what they returned; it holds whole keys."""
    columns = {
        name: np.asarray(table.column(name).combine_chunks()) for name in ("key", "txn", "write", "read", "order")
    }
    seen = table.column("seen").combine_chunks()
    ends = np.asarray(seen.offsets).astype(np.int64)
    flat = np.asarray(seen.flatten()).astype(np.int64)
    order = np.lexsort((columns["read"], columns["write"], columns["key"]))
    keys = columns["key"][order]
    bounds = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1], True]) if keys.size else np.zeros(0, dtype=np.int64)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[begin:end]
        is_read = columns["read"][rows] >= 0
        writes, reads = rows[~is_read], rows[is_read]
        if reads.size == 0:
            continue
        if registers:
            source = np.full(reads.size, -1, dtype=np.int64)
            some = ends[reads + 1] > ends[reads]
            source[some] = flat[ends[reads[some]]]
            found.extend(
                _registers(columns["txn"][writes], columns["txn"][reads], columns["read"][reads], source, past)
            )
        else:
            parts = [flat[ends[row] : ends[row + 1]] for row in reads.tolist()]
            mine = {name: columns[name][writes] for name in ("txn", "write", "order")}
            theirs = {name: columns[name][reads] for name in ("txn", "read", "order")}
            found.extend(_collections(mine, theirs, parts, past))
    whole = [np.concatenate([part[i] for part in found]) if found else np.zeros(0, dtype=np.int64) for i in range(4)]
    return pa.Table.from_arrays([pa.array(part) for part in whole], schema=DEMANDS)


def demand_batches(past: Callable[[], Past], *, registers: bool) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return the Spark stage that runs `demands` on a partition of keys."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = [batch for batch in batches if batch.num_rows]
        if held:
            yield from demands(pa.Table.from_batches(held), past(), registers=registers).to_batches()

    return run


def _registers(
    writers: Ints, readers: Ints, reads: Ints, source: Ints, past: Past
) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Yield the demands on one register; `source` is the transaction that each read returned, -1 the initial state."""
    order = np.lexsort((reads, past.position[readers], past.chain[readers]))
    readers, reads, source = readers[order], reads[order], source[order]
    chain = past.chain[readers]

    def unmet(guarantee: int, needed: Ints, among: Mask) -> tuple[Ints, Ints, Ints, Ints]:
        at = np.flatnonzero(among & (needed >= 0) & (needed != source) & (needed != readers))
        return np.full(at.size, guarantee, dtype=np.int64), reads[at], needed[at], source[at]

    for session, theirs in _by_chain(np.unique(writers), past):
        mine = chain == session
        last = _last(theirs, past.happened[readers, session], past)
        yield unmet(CC, last, np.ones(mine.size, dtype=bool))
        yield unmet(RYW, last, mine)
        yield unmet(MW, _last(theirs, past.observed[readers, session] - 1, past), ~mine)
    first = np.ones(chain.size, dtype=bool)
    first[1:] = chain[1:] != chain[:-1]
    place = np.arange(chain.size)
    group = np.maximum.accumulate(np.where(first, place, 0))
    latest = np.maximum.accumulate(np.where(source >= 0, place, -1))
    before = np.r_[-1, latest[:-1]]
    returned = np.where(before >= group, source[np.maximum(before, 0)], -1)
    yield unmet(MR, returned, np.ones(chain.size, dtype=bool))
    told = np.flatnonzero(source >= 0)
    for session in np.unique(chain[told]).tolist():
        theirs = told[chain[told] == session]
        at = np.searchsorted(past.position[readers[theirs]], past.observed[readers, session], "right") - 1
        needed = np.where(at >= 0, source[theirs[np.maximum(at, 0)]], -1)
        yield unmet(WFR, needed, chain != session)


def _last(transactions: Ints, limit: Any, past: Past) -> Ints:
    """Return the last of a session's transactions at or below each position, -1 where there is none."""
    at = np.searchsorted(past.position[transactions], limit, "right") - 1
    found: Ints = np.where(at >= 0, transactions[np.maximum(at, 0)], -1)
    return found


def _by_chain(transactions: Ints, past: Past) -> Iterator[tuple[int, Ints]]:
    transactions = transactions[past.chain[transactions] >= 0]
    order = transactions[np.lexsort((past.position[transactions], past.chain[transactions]))]
    chains = past.chain[order]
    bounds = np.flatnonzero(np.r_[True, chains[1:] != chains[:-1], True]) if order.size else order
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        yield int(chains[begin]), order[begin:end]


def _collections(
    writes: dict[str, Ints], reads: dict[str, Ints], seen: list[Ints], past: Past
) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Yield the writes of one list or set that its reads miss."""
    took_effect = past.chain[writes["txn"]] >= 0
    txn, number, order = (writes[name][took_effect] for name in ("txn", "write", "order"))
    chain, position = past.chain[txn], past.position[txn]
    held: dict[int, Mask] = {}
    shown: dict[int, list[tuple[int, Mask]]] = {}
    for i in np.lexsort((reads["read"], past.position[reads["txn"]], past.chain[reads["txn"]])).tolist():
        inside = np.isin(number, seen[i])
        reader = int(reads["txn"][i])
        session, place = int(past.chain[reader]), int(past.position[reader])
        shown.setdefault(session, []).append((place, inside))
        held[i] = inside
    yield from _missing(reads, held, shown, (txn, number, order, chain, position), past)


def _missing(
    reads: dict[str, Ints],
    held: dict[int, Mask],
    shown: dict[int, list[tuple[int, Mask]]],
    writes: tuple[Ints, Ints, Ints, Ints, Ints],
    past: Past,
) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    txn, number, order, chain, position = writes
    places = {session: [place for place, _ in rows] for session, rows in shown.items()}
    previous: dict[int, Mask] = {}
    for i, inside in held.items():
        reader = int(reads["txn"][i])
        session = int(past.chain[reader])
        happened, observed = past.happened[reader], past.observed[reader]
        own = (txn == reader) & (order < reads["order"][i])
        needed = {
            CC: (position <= happened[chain]) | own,
            RYW: ((chain == session) & (position <= happened[chain])) | own,
            MW: (chain != session) & (position < observed[chain]),
            WFR: np.zeros(number.size, dtype=bool),
        }
        if session in previous:
            needed[MR] = previous[session]
        previous[session] = inside
        for other, rows in shown.items():
            if other != session:
                at = int(np.searchsorted(places[other], observed[other], "right")) - 1
                if at >= 0:
                    needed[WFR] |= rows[at][1]
        for guarantee, mask in needed.items():
            missing = number[mask & ~inside & ((txn != reader) | own)]
            size = missing.size
            if size:
                yield (
                    np.full(size, guarantee, dtype=np.int64),
                    np.full(size, reads["read"][i], dtype=np.int64),
                    missing,
                    np.full(size, -1, dtype=np.int64),
                )
