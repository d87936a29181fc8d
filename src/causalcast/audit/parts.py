"""Parts of logs: what one task read of each process, packed, and put together again where the process is digested.

A packed part is one value to Spark. Rows therefore never pass through its shuffle one by one, which would cost
more than all checks together.
"""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.logs import LogColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def pack(rows: LogColumns) -> bytes:
    """Return a part as bytes: columns of one value as that value, others in 32 bits where they fit."""
    small = {f.name: _shrink(getattr(rows, f.name)) for f in fields(rows) if f.name not in ("names", "peers")}
    return pickle.dumps((list(rows.names), rows.peers, int(rows.seq.size), small), protocol=5)


def unpack(packed: bytes) -> LogColumns:
    """Return the part that `pack` packed."""
    names, peers, _, small = pickle.loads(packed)
    event = _widen(small.pop("event")).astype(np.int8)
    return LogColumns(names=names, peers=peers, event=event, **{name: _widen(value) for name, value in small.items()})


def merge(parts: Sequence[LogColumns]) -> LogColumns:
    """Return one process's parts as one: names are numbered anew, rows follow one another."""
    if len(parts) == 1:
        return parts[0]
    names: dict[str, int] = {}
    shifted: list[LogColumns] = []
    peers: dict[int, str] = {}
    rows = dots = 0
    for part in parts:
        recode = np.array([names.setdefault(name, len(names)) for name in part.names] + [-1], dtype=np.int64)
        shifted.append(
            replace(
                part,
                origin=recode[part.origin],
                topic=recode[part.topic],
                context_rows=part.context_rows + rows,
                context_ends=part.context_ends + dots,
                context_origin=recode[part.context_origin],
            )
        )
        peers.update({row + rows: peer for row, peer in part.peers.items()})
        rows += part.seq.size
        dots += part.context_origin.size
    columns = {
        f.name: np.concatenate([getattr(part, f.name) for part in shifted])
        for f in fields(LogColumns)
        if f.name not in ("names", "peers")
    }
    return LogColumns(names=list(names), peers=peers, **columns)


def select(rows: LogColumns, keep: NDArray[np.bool_], dots: NDArray[np.bool_]) -> LogColumns:
    """Return the rows in `keep`, and of their tags the parts in `dots`."""
    place = np.cumsum(keep) - 1
    starts = np.concatenate(([0], rows.context_ends[:-1])).astype(np.int64)[: rows.context_ends.size]
    tag_of = np.repeat(np.arange(rows.context_rows.size), rows.context_ends - starts)
    tags = keep[rows.context_rows]
    dots = dots & tags[tag_of]
    sizes = np.bincount(tag_of[dots], minlength=rows.context_rows.size)[tags]
    columns = {
        f.name: getattr(rows, f.name)[keep]
        for f in fields(LogColumns)
        if f.name not in ("names", "peers") and not f.name.startswith("context")
    }
    return LogColumns(
        names=rows.names,
        peers={int(place[row]): peer for row, peer in rows.peers.items() if keep[row]},
        context_rows=place[rows.context_rows[tags]],
        context_ends=np.cumsum(sizes),
        context_origin=rows.context_origin[dots],
        context_counter=rows.context_counter[dots],
        **columns,
    )


def _shrink(values: NDArray[np.int64]) -> tuple[int, int] | NDArray[np.int64]:
    if values.size == 0:
        return 0, 0
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low, int(values.size)
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def _widen(value: tuple[int, int] | NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(value, tuple):
        return np.full(value[1], value[0], dtype=np.int64)
    return value.astype(np.int64, copy=False)
