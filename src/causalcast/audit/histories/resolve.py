"""Who wrote what was read, and which transaction happened before which.

The values are unique, so a read names its write. Session order and these reads-from pairs generate happens-before;
its clocks are computed once, in topological order, one entry a session: `n` transactions and `k` sessions take
`n * k` cells twice (all that happened before; what the session itself has read).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.errors import InputUnusable
from causalcast.audit.graph import circle, order_of
from causalcast.audit.histories.history import FAILED, MAYBE, History, column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

NOBODY: Final = -1
"""Nobody wrote the value."""
SEVERAL: Final = -2
"""More than one write of the key has the value."""
MAX_CELLS: Final = 2**29
"""Of each clock matrix, at 4 bytes."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with one read by itself: its kind, the read, and the write that it is about (-1: none)."""

    kind: str
    read: int
    write: int


@dataclass(slots=True)
class Resolved:
    """A history whose reads know their writes. Arrays are per write, per read, per seen value and per transaction."""

    history: History
    write_txn: Ints
    write_key: Ints
    write_order: Ints
    read_txn: Ints
    read_key: Ints
    read_order: Ints
    read_starts: Ints
    seen: Ints
    """The write of each value that was seen, or `NOBODY` or `SEVERAL`."""
    own: Ints
    """Per read, the write of the key that its own transaction had made before it, or -1."""
    repeated: Ints
    """Writes whose value another write of the key has."""
    chain: Ints
    """Per transaction: its session, or one of its own where it only may have happened; -1: it did not."""
    position: Ints
    before: Ints
    after: Ints
    """The edges that generate happens-before."""
    observed_before: Ints
    observed_after: Ints
    """Those of them that are reads."""
    chains: int
    troubles: list[Trouble] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Past:
    """Clocks: per transaction and chain, how many transactions of it happened before, and how many are observed.

    A session has observed those that it, up to and with this transaction, read from, and those before them.
    """

    happened: NDArray[np.int32]
    observed: NDArray[np.int32]
    chain: Ints
    position: Ints

    def precedes(self, first: Ints, second: Ints) -> Mask:
        """Return where the transaction `first[i]` happened before `second[i]`."""
        found: Mask = self.happened[second, self.chain[first]] >= self.position[first]
        return found


def resolve(history: History) -> Resolved:
    """Find the writes of all reads, and the edges of happens-before."""
    write_txn, write_key = column(history.write_txn), column(history.write_key)
    read_txn, ends = column(history.read_txn), column(history.read_ends)
    starts = np.r_[np.zeros(1, dtype=np.int64), ends]
    read_of = np.repeat(np.arange(read_txn.size), np.diff(starts))
    seen, repeated = _match(history, read_of)
    status = column(history.status)
    reader = read_txn[read_of]
    writer = np.where(seen >= 0, write_txn[np.maximum(seen, 0)] if write_txn.size else -1, -1)
    real = (writer >= 0) & (writer != reader)
    real[real] = status[writer[real]] != FAILED
    pairs = np.unique(np.stack((writer[real], reader[real])), axis=1)
    chain, position, session_edges = _chains(history, np.unique(writer[real]))
    resolved = Resolved(
        history=history,
        write_txn=write_txn,
        write_key=write_key,
        write_order=column(history.write_order),
        read_txn=read_txn,
        read_key=column(history.read_key),
        read_order=column(history.read_order),
        read_starts=starts,
        seen=seen,
        own=np.zeros(0, dtype=np.int64),
        repeated=repeated,
        chain=chain,
        position=position,
        before=np.concatenate((session_edges[0], pairs[0])),
        after=np.concatenate((session_edges[1], pairs[1])),
        observed_before=pairs[0],
        observed_after=pairs[1],
        chains=int(chain.max(initial=-1)) + 1,
    )
    final = _own_writes(resolved)
    _look_at_reads(resolved, final, status)
    return resolved


def past_of(resolved: Resolved) -> Past | list[int]:
    """Return the clocks, or a circle of transactions where happens-before goes round.

    Raises:
        InputUnusable: they would not fit, see `MAX_CELLS`.
    """
    number = resolved.history.transactions
    if number * resolved.chains > MAX_CELLS:
        raise InputUnusable(
            f"{number:,} transactions of {resolved.chains:,} sessions: more than {MAX_CELLS:,} clock entries; "
            "judge a part of the history"
        )
    order, left = order_of(number, resolved.before, resolved.after)
    if left:
        return circle(number, resolved.before, resolved.after)
    happened = np.zeros((number, resolved.chains), dtype=np.int32)
    observed = np.zeros((number, resolved.chains), dtype=np.int32)
    causes: list[list[int]] = [[] for _ in range(number)]
    session_edges = resolved.before.size - resolved.observed_before.size
    for first, second in zip(resolved.before.tolist(), resolved.after.tolist(), strict=True):
        causes[second].append(first)
    follows = np.full(number, -1, dtype=np.int64)
    follows[resolved.after[:session_edges]] = resolved.before[:session_edges]
    chain, position, previous = resolved.chain.tolist(), resolved.position.tolist(), follows.tolist()
    for node in order:
        mine, seen = happened[node], observed[node]
        if previous[node] >= 0:
            seen[:] = observed[previous[node]]
        for cause in causes[node]:
            np.maximum(mine, happened[cause], out=mine)
            mine[chain[cause]] = max(mine[chain[cause]], position[cause])
            if cause != previous[node]:
                seen[chain[cause]] = max(seen[chain[cause]], position[cause])
    return Past(happened, observed, resolved.chain, resolved.position)


def _match(history: History, read_of: Ints) -> tuple[Ints, Ints]:
    """Return the write of each seen value, and the writes whose value is not unique to their key."""
    size = len(history.values) + 1
    written = column(history.write_key) * size + column(history.write_value)
    wanted = column(history.read_key)[read_of] * size + column(history.seen)
    order = np.argsort(written, kind="stable")
    ordered = written[order]
    same = ordered[1:] == ordered[:-1]
    repeated = np.zeros(ordered.size, dtype=bool)
    repeated[1:] |= same
    repeated[:-1] |= same
    if ordered.size == 0:
        return np.full(wanted.size, NOBODY, dtype=np.int64), ordered
    at = np.minimum(np.searchsorted(ordered, wanted), ordered.size - 1)
    seen = np.where(ordered[at] == wanted, np.where(repeated[at], SEVERAL, order[at]), NOBODY)
    return seen.astype(np.int64), order[repeated]


def _chains(history: History, observed: Ints) -> tuple[Ints, Ints, tuple[Ints, Ints]]:
    """Return chain and position of each transaction, and the edges of session order.

    What may have happened did so if it was read. Then its session's earlier transactions precede it, and nothing
    of its session need follow: it stands in a chain of its own.
    """
    session, status = column(history.session), column(history.status)
    chain = np.full(session.size, -1, dtype=np.int64)
    position = np.zeros(session.size, dtype=np.int64)
    last: dict[int, int] = {}
    count: dict[int, int] = {}
    before: list[int] = []
    after: list[int] = []
    seen = set(observed.tolist())
    extra = len(history.sessions)
    for txn, (mine, state) in enumerate(zip(session.tolist(), status.tolist(), strict=True)):
        if state == FAILED or (state == MAYBE and txn not in seen):
            continue
        if mine in last:
            before.append(last[mine])
            after.append(txn)
        if state == MAYBE:
            chain[txn], position[txn] = extra, 1
            extra += 1
            continue
        count[mine] = count.get(mine, 0) + 1
        chain[txn], position[txn], last[mine] = mine, count[mine], txn
    return chain, position, (np.array(before, dtype=np.int64), np.array(after, dtype=np.int64))


def _own_writes(resolved: Resolved) -> Mask:
    """Set `own`; return which writes are their transaction's last one of the key."""
    writes, reads = resolved.write_txn.size, resolved.read_txn.size
    txn = np.concatenate((resolved.write_txn, resolved.read_txn))
    key = np.concatenate((resolved.write_key, resolved.read_key))
    order = np.lexsort((np.concatenate((resolved.write_order, resolved.read_order)), key, txn))
    first = np.ones(order.size, dtype=bool)
    first[1:] = (txn[order[1:]] != txn[order[:-1]]) | (key[order[1:]] != key[order[:-1]])
    place = np.arange(order.size)
    group = np.maximum.accumulate(np.where(first, place, 0)) if order.size else place
    latest = np.maximum.accumulate(np.where(order < writes, place, -1)) if order.size else place
    own = np.where(latest >= group, order[np.maximum(latest, 0)] if order.size else -1, -1)
    is_read = order >= writes
    resolved.own = np.full(reads, -1, dtype=np.int64)
    resolved.own[order[is_read] - writes] = own[is_read]
    ends = np.flatnonzero(np.r_[first[1:], True]) if order.size else place
    final = np.zeros(writes, dtype=bool)
    last = own[ends]
    final[last[last >= 0]] = True
    return final


def _look_at_reads(resolved: Resolved, final: Mask, status: Ints) -> None:
    """Collect what is wrong with reads by themselves."""
    registers = resolved.history.model == "register"
    reads = np.repeat(np.arange(resolved.read_txn.size), np.diff(resolved.read_starts))
    for kind, code in (("phantom-read", NOBODY), ("ambiguous-read", SEVERAL)):
        troubled = np.unique(reads[resolved.seen == code])
        resolved.troubles.extend(Trouble(kind, int(read), -1) for read in troubled)
    known = np.flatnonzero(resolved.seen >= 0)
    write, read = resolved.seen[known], reads[known]
    writer, reader = resolved.write_txn[write], resolved.read_txn[read]
    own = writer == reader
    aborted = (status[writer] == FAILED) & ~own
    future = own & (resolved.write_order[write] > resolved.read_order[read])
    for kind, mask in (("aborted-read", aborted), ("future-read", future)):
        at = np.flatnonzero(mask)
        resolved.troubles.extend(Trouble(kind, int(read[i]), int(write[i])) for i in at)
    if registers:
        early = np.flatnonzero(~own & ~aborted & ~final[write])
        resolved.troubles.extend(Trouble("intermediate-read", int(read[i]), int(write[i])) for i in early)
        _look_inside(resolved)


def _look_inside(resolved: Resolved) -> None:
    """A transaction that wrote a register and reads it has to see what it wrote last."""
    values, written = column(resolved.history.seen), column(resolved.history.write_value)
    for read in np.flatnonzero(resolved.own >= 0).tolist():
        own = int(resolved.own[read])
        start, end = int(resolved.read_starts[read]), int(resolved.read_starts[read + 1])
        if start == end or values[end - 1] != written[own]:
            resolved.troubles.append(Trouble("own-write-missed", read, own))
