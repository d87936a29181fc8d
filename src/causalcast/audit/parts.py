"""Parts of logs: put together where the process is digested, and packed where they must travel in Spark's rows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from causalcast.audit.logs import LogColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


Shrunk: TypeAlias = "tuple[int, int] | NDArray[np.int64]"
"""A column as its one value and its length, or in as few bytes as it needs."""


def pack(rows: LogColumns) -> Packed:
    """Return a part in as few bytes as it needs: columns of one value as that value."""
    small = {f.name: shrink(getattr(rows, f.name)) for f in fields(rows) if f.name not in ("names", "peers")}
    return Packed(list(rows.names), rows.peers, small)


@dataclass(frozen=True, slots=True)
class Packed:
    """A part on its way; see `pack`."""

    names: list[str]
    peers: dict[int, str]
    columns: dict[str, Shrunk]

    def unpack(self) -> LogColumns:
        """Return the part that was packed."""
        whole = {name: widen(value) for name, value in self.columns.items()}
        event = whole.pop("event").astype(np.int8)
        return LogColumns(names=self.names, peers=self.peers, event=event, **whole)


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


def shrink(values: NDArray[np.int64]) -> Shrunk:
    """Return a column in as few bytes as it needs."""
    if values.size == 0:
        return 0, 0
    low, high = int(values.min()), int(values.max())
    if low == high:
        return low, int(values.size)
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return values.astype(kind)
    return values


def widen(value: Shrunk) -> NDArray[np.int64]:
    """Return a column that was shrunk."""
    return taken(value, slice(None))


def taken(value: Shrunk, rows: slice | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return some rows of a column that was shrunk."""
    if not isinstance(value, tuple):
        return value[rows].astype(np.int64)
    number = len(range(*rows.indices(value[1]))) if isinstance(rows, slice) else rows.size
    return np.full(number, value[0], dtype=np.int64)
