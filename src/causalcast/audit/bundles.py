"""Rows of many logs as one set of columns, and the part of each log in it.

A task reads many files, or a file of many processes, and writes what it read as one *bundle*: sorted by piece (of a
file), process and row number. A part of a log is a range of its rows, so it costs next to nothing to have ten thousand
of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causalcast.audit.events import CRASH, EVICT, NO_VALUE
from causalcast.audit.logs import LogColumns
from causalcast.audit.parts import shrink, taken, widen
from causalcast.audit.ranges import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from causalcast.audit.parts import Shrunk

    Ints: TypeAlias = NDArray[np.int64]

_TAGS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_NONE: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)
_COLUMNS: Final = ("seq", "event", "origin", "counter", "topic", "time", "payload", "overhead")


@dataclass(frozen=True, slots=True)
class Bundle:
    """Columns as in `LogColumns`, over all rows; group `i` is rows `starts[i]:starts[i + 1]`, of one piece and process.

    `process` is an index into `names`. `peer_rows` and `tag_rows` list the rows that have a peer or a tag; the part
    of tag `i` is `tag_ends[i - 1]:tag_ends[i]` of `tag_origin` and `tag_counter`.
    """

    names: list[str]
    piece: Ints
    process: Ints
    starts: Ints
    columns: dict[str, Shrunk]
    peer_rows: Ints
    peers: list[str]
    tag_rows: Ints
    tag_ends: Ints
    tag_origin: Ints
    tag_counter: Ints

    def owner(self, group: int) -> str:
        """Return the process of a group."""
        return self.names[int(self.process[group])]

    def pieces_naming(self, name: str) -> list[int]:
        """Return the pieces in which a name stands as process or origin."""
        if name not in self.names:
            return []
        code = self.names.index(name)
        rows = np.flatnonzero(widen(self.columns["origin"]) == code)
        groups = np.unique(np.searchsorted(self.starts, rows, side="right") - 1)
        return sorted({*self.piece[groups].tolist(), *self.piece[self.process == code].tolist()})

    def processes_in(self, piece: int) -> set[str]:
        """Return the processes with rows in a piece."""
        return {self.names[code] for code in self.process[self.piece == piece].tolist()}

    def parts(self, groups: Ints) -> LogColumns:
        """Return the rows of groups, one group after the other."""
        first, sizes = self.starts[groups], self.starts[groups + 1] - self.starts[groups]
        take: slice | Ints = places(first, sizes)
        if bool((first[1:] == first[:-1] + sizes[:-1]).all()):
            take = slice(int(first[0]), int(first[-1] + sizes[-1]))
        columns = {name: taken(self.columns[name], take) for name in _COLUMNS}
        tag_first, tag_last = np.searchsorted(self.tag_rows, (first, first + sizes))
        tags = places(tag_first, tag_last - tag_first)
        dot_first = np.append(0, self.tag_ends)[tags]
        dots = places(dot_first, self.tag_ends[tags] - dot_first)
        peer_first, peer_last = np.searchsorted(self.peer_rows, (first, first + sizes))
        with_peer = places(peer_first, peer_last - peer_first)
        # From rows of the bundle to rows of the result.
        shift = np.cumsum(sizes) - sizes - first
        peer_rows = self.peer_rows[with_peer] + np.repeat(shift, peer_last - peer_first)
        return LogColumns(
            names=self.names,
            seq=columns["seq"],
            event=columns["event"].astype(np.int8),
            origin=columns["origin"],
            counter=columns["counter"],
            topic=columns["topic"],
            time=columns["time"],
            payload=columns["payload"],
            overhead=columns["overhead"],
            peers=dict(zip(peer_rows.tolist(), (self.peers[i] for i in with_peer.tolist()), strict=True)),
            context_rows=self.tag_rows[tags] + np.repeat(shift, tag_last - tag_first),
            context_ends=np.cumsum(self.tag_ends[tags] - dot_first),
            context_origin=self.tag_origin[dots],
            context_counter=self.tag_counter[dots],
        )

    def part(self, group: int) -> LogColumns:
        """Return one group with those names only that it uses."""
        rows = self.parts(np.array([group]))
        own = int(self.process[group])
        used = np.unique(np.concatenate(([-1, own], rows.origin, rows.topic, rows.context_origin)))
        origin, topic, context = (np.searchsorted(used, c) - 1 for c in (rows.origin, rows.topic, rows.context_origin))
        names = [self.names[i] for i in used[1:].tolist()]
        return replace(rows, names=names, origin=origin, topic=topic, context_origin=context)


def split(table: pa.Table) -> Iterator[tuple[str, LogColumns]]:
    """Split a table of usable rows (the columns of `ingest.usable`) into the columns of each process."""
    whole = bundle(table)
    for group in range(whole.process.size):
        yield whole.owner(group), whole.part(group)


def bundle(table: pa.Table, piece: Ints | None = None) -> Bundle:
    """Return a table of usable rows as a bundle; `piece` is the piece of each row.

    The names of origins, topics and of the processes themselves become indices into one list.
    """
    names: dict[str, int] = {}
    process = _codes(table, "process", names)
    origin = _codes(table, "origin", names)
    topic = _codes(table, "topic", names)
    seq = _numbers(table, "seq")
    event = _numbers(table, "event").astype(np.int8)
    group = process if piece is None else piece * len(names) + process
    order = _by_group_and_seq(group, seq)
    heads = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1])) if order.size else _NONE
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    peer_rows, peers = _peers(table, event, place)
    tag_rows, tag_ends, tag_origin, tag_counter = _contexts(table, names, place)
    columns: dict[str, NDArray[Any]] = {
        "seq": seq,
        "event": event,
        "origin": origin,
        "counter": _numbers(table, "counter"),
        "topic": topic,
        "time": _numbers(table, "time_ns"),
        "payload": _numbers(table, "payload_bytes"),
        "overhead": _numbers(table, "overhead_bytes"),
    }
    return Bundle(
        names=list(names),
        piece=np.zeros(heads.size, dtype=np.int64) if piece is None else piece[order[heads]],
        process=process[order[heads]],
        starts=np.append(heads, order.size),
        columns={name: shrink(values[order]) for name, values in columns.items()},
        peer_rows=peer_rows,
        peers=peers,
        tag_rows=tag_rows,
        tag_ends=tag_ends,
        tag_origin=tag_origin,
        tag_counter=tag_counter,
    )


def _by_group_and_seq(group: Ints, seq: Ints) -> Ints:
    """Return the order by group, then seq: one stable sort, quick on the sorted runs that files are made of."""
    if seq.size and int(seq.max()) < 2**36 and int(group.max()) < 2**27:
        return np.argsort((group << 36) | seq, kind="stable")
    return np.lexsort((seq, group))


def _codes(table: pa.Table, column: str, names: dict[str, int]) -> Ints:
    array = table.column(column)
    if pa.types.is_dictionary(array.type):
        array = array.unify_dictionaries().combine_chunks()
    else:
        array = pc.dictionary_encode(array.combine_chunks())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    words = array.dictionary.to_pylist()
    local = np.array([names.setdefault(name, len(names)) if name else -1 for name in words] + [-1])
    indices = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
    codes: Ints = local.astype(np.int64)[np.asarray(indices)]
    return codes


def _numbers(table: pa.Table, column: str) -> Ints:
    array = table.column(column)
    if array.null_count:
        array = pc.fill_null(pc.cast(array, pa.int64()), NO_VALUE)
    return np.asarray(array.combine_chunks()).astype(np.int64, copy=False)


def _peers(table: pa.Table, event: NDArray[np.int8], place: Ints) -> tuple[Ints, list[str]]:
    rows = np.flatnonzero((event == EVICT) | (event == CRASH))
    if rows.size == 0:
        return _NONE, []
    rows = rows[np.argsort(place[rows])]
    values = table.column("peer").take(pa.array(rows)).to_pylist()
    known = [i for i, peer in enumerate(values) if peer is not None]
    return place[rows[known]], [values[i] for i in known]


def _contexts(table: pa.Table, names: dict[str, int], place: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the tags in the order of their rows in the bundle: rows, part ends, origins and numbers."""
    column = table.column("context")
    if column.null_count == table.num_rows:
        return _NONE, _NONE, _NONE, _NONE
    rows = np.flatnonzero(np.asarray(column.combine_chunks().is_valid()))
    rows = rows[np.argsort(place[rows])]
    sizes: list[int] = []
    origin: list[int] = []
    number: list[int] = []
    for text in column.take(pa.array(rows)).to_pylist():
        dots = _TAGS.decode(text)
        sizes.append(len(dots))
        origin.extend(names.setdefault(name, len(names)) for name, _ in dots)
        number.extend(int(counter) for _, counter in dots)
    ends = np.cumsum(np.array(sizes, dtype=np.int64))
    return place[rows], ends, np.array(origin, dtype=np.int64), np.array(number, dtype=np.int64)
