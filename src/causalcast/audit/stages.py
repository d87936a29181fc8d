"""The two Spark stages around the NumPy kernels: every log to its digest, every digest to its verdict.

Rows cross from the JVM to Python once, as slim Arrow columns; from then on a log travels as one packed value, so
the JVM's work does not grow with the checks. Both stages hold what one task was given: the logs of a partition.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causalcast.audit import direct
from causalcast.audit.events import FIRST_MEMBERSHIP, NO_VALUE
from causalcast.audit.logs import LogBody, LogColumns, LogIndex, digest
from causalcast.audit.parts import merge, pack, unpack
from causalcast.audit.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.depot import Depot
    from causalcast.audit.logs import Mark
    from causalcast.audit.violations import Replay

    Stage: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

NO_PROCESS: Final = ""
"""Stands where a process would, for what belongs to none: no usable row has it."""
PARTS: Final = pa.schema([("process", pa.string()), ("part", pa.binary())])
DIGESTS: Final = pa.schema([("process", pa.string()), ("log_index", pa.binary()), ("body", pa.binary())])
REPLAYS: Final = pa.schema([("process", pa.string()), ("result", pa.binary())])
SPLIT_SCHEMA: Final = "path string, first int, last int"
PART_SCHEMA: Final = "process string, part binary"
DIGEST_SCHEMA: Final = "process string, log_index binary, body binary"
REPLAY_SCHEMA: Final = "process string, result binary"
_TAGS: Final = msgspec.json.Decoder(list[tuple[str, str]])
_NONE: Final[NDArray[np.int64]] = np.zeros(0, dtype=np.int64)


def pack_batches(depot: Depot) -> Stage:
    """Return the stage that packs usable rows, as Spark read them, into parts of logs."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            held.append(batch)
            rows += batch.num_rows
            if rows >= direct.ROWS_PER_SPLIT:
                yield from _parts(pa.Table.from_batches(held), depot)
                held, rows = [], 0
        if rows:
            yield from _parts(pa.Table.from_batches(held), depot)

    return run


def read_batches(depot: Depot) -> Stage:
    """Return the stage that reads splits of Parquet files and packs their rows; bad ones count under no process."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                table, bad = direct.read(direct.Split(row["path"], row["first"], row["last"]))
                yield from _parts(table, depot)
                if bad:
                    yield _row(PARTS, process=NO_PROCESS, part=depot.put(pickle.dumps(bad)))

    return run


def digest_batches(depot: Depot) -> Stage:
    """Return the stage that digests the logs of one partition, which holds all parts of each process in it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[str, list[bytes]] = {}
        for batch in batches:
            for process, part in zip(batch.column("process"), batch.column("part"), strict=True):
                held.setdefault(process.as_py(), []).append(part.as_py())
        bad = sum(pickle.loads(depot.get(number)) for number in held.pop(NO_PROCESS, []))
        if bad:
            yield _row(DIGESTS, process=NO_PROCESS, log_index=depot.put(pickle.dumps(bad)), body=b"")
        for process in sorted(held):
            parts = [unpack(depot.get(part)) for part in held.pop(process)]
            index, body = digest(process, merge(parts))
            yield _row(
                DIGESTS,
                process=process,
                log_index=depot.put(pickle.dumps(index, protocol=5)),
                body=depot.put(pickle.dumps(body, protocol=5)),
            )

    return run


def replay_batches(depot: Depot, shared: bytes) -> Stage:
    """Return the stage that replays logs; `shared` is the token of the clock and of every process's marks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock: Clock
        marks: dict[str, tuple[Mark, ...]]
        clock, marks = pickle.loads(depot.get(shared))
        for batch in batches:
            for process, token in zip(batch.column("process"), batch.column("body"), strict=True):
                if process.as_py() == NO_PROCESS:
                    continue
                body: LogBody = pickle.loads(depot.get(token.as_py()))
                result = replay(body, marks[body.process], clock)
                yield _row(REPLAYS, process=body.process, result=depot.put(pickle.dumps(result, protocol=5)))

    return run


def _parts(table: pa.Table, depot: Depot) -> Iterator[pa.RecordBatch]:
    for process, rows in split(table):
        yield _row(PARTS, process=process, part=depot.put(pack(rows)))


def _row(schema: pa.Schema, **values: str | bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: [value] for name, value in values.items()}, schema=schema)


def split(table: pa.Table) -> Iterator[tuple[str, LogColumns]]:
    """Split a table of usable rows (the columns of `ingest.usable`) into the columns of each process.

    The names of origins, topics and of the processes themselves become indices into one list per table.
    """
    names: dict[str, int] = {}
    process = _codes(table, "process", names)
    origin = _codes(table, "origin", names)
    topic = _codes(table, "topic", names)
    seq = _numbers(table, "seq")
    event = _numbers(table, "event").astype(np.int8)
    counter = _numbers(table, "counter")
    time, payload, overhead = (_numbers(table, name) for name in ("time_ns", "payload_bytes", "overhead_bytes"))
    peers = _peers(table, event)
    rows, ends, context_origin, context_counter = _contexts(table, names)
    order = _by_process_and_seq(process, seq)
    starts = np.flatnonzero(np.r_[True, process[order][1:] != process[order][:-1]])
    every = list(names)
    owner_of_context = process[rows]
    context_starts = np.r_[_NONE, 0, ends[:-1]] if ends.size else _NONE
    for i, start in enumerate(starts.tolist()):
        mine = order[start : int(starts[i + 1]) if i + 1 < starts.size else order.size]
        code = int(process[mine[0]])
        place = np.zeros(0, dtype=np.int64)
        tags = np.flatnonzero(owner_of_context == code)
        if tags.size:
            inverse = np.empty(mine.size, dtype=np.int64)
            ordered = np.sort(mine)
            inverse = np.argsort(mine, kind="stable")
            place = inverse[np.searchsorted(ordered, rows[tags])]
        sizes = ends[tags] - context_starts[tags]
        tag_ends = np.cumsum(sizes)
        take = np.repeat(context_starts[tags] - (tag_ends - sizes), sizes) + np.arange(int(sizes.sum()))
        take = take.astype(np.int64)
        used, recode = _used_names(every, code, origin[mine], topic[mine], context_origin[take])
        yield (
            every[code],
            LogColumns(
                names=used,
                seq=seq[mine],
                event=event[mine],
                origin=recode[origin[mine]],
                counter=counter[mine],
                topic=recode[topic[mine]],
                time=time[mine],
                payload=payload[mine],
                overhead=overhead[mine],
                peers={int(j): peers[int(row)] for j, row in enumerate(mine) if int(row) in peers} if peers else {},
                context_rows=place,
                context_ends=tag_ends,
                context_origin=recode[context_origin[take]],
                context_counter=context_counter[take],
            ),
        )


def _by_process_and_seq(process: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order by process, then seq: one stable sort, quick on the sorted runs that files are made of."""
    if seq.size and int(seq.max()) < 2**40 and int(process.max()) < 2**22:
        return np.argsort((process << 40) | seq, kind="stable")
    return np.lexsort((seq, process))


def _used_names(every: list[str], code: int, *columns: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names that a process uses, and the map from the table's indices to theirs (-1 stays -1)."""
    used = np.zeros(len(every) + 1, dtype=bool)
    used[code] = True
    for column in columns:
        used[column] = True
    used[-1] = False
    recode = np.cumsum(used) - 1
    recode[-1] = -1
    return [every[i] for i in np.flatnonzero(used)], recode


def _codes(table: pa.Table, column: str, names: dict[str, int]) -> NDArray[np.int64]:
    array = table.column(column)
    if pa.types.is_dictionary(array.type):
        array = array.unify_dictionaries().combine_chunks()
    else:
        array = pc.dictionary_encode(array.combine_chunks())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    local = np.array([names.setdefault(name, len(names)) for name in array.dictionary.to_pylist()] + [-1])
    indices = array.indices.fill_null(len(array.dictionary)) if array.null_count else array.indices
    codes: NDArray[np.int64] = local.astype(np.int64)[np.asarray(indices)]
    return codes


def _numbers(table: pa.Table, column: str) -> NDArray[np.int64]:
    array = table.column(column)
    if array.null_count:
        array = pc.fill_null(pc.cast(array, pa.int64()), NO_VALUE)
    return np.asarray(array.combine_chunks()).astype(np.int64, copy=False)


def _peers(table: pa.Table, event: NDArray[np.int8]) -> dict[int, str]:
    rows = np.flatnonzero(event >= FIRST_MEMBERSHIP)
    if rows.size == 0:
        return {}
    values = table.column("peer").take(pa.array(rows)).to_pylist()
    return {int(row): peer for row, peer in zip(rows, values, strict=True) if peer is not None}


def _contexts(table: pa.Table, names: dict[str, int]) -> tuple[NDArray[np.int64], ...]:
    """Return the tags as rows, part ends, origins and numbers."""
    column = table.column("context")
    if column.null_count == table.num_rows:
        return _NONE, _NONE, _NONE, _NONE
    rows = np.flatnonzero(np.asarray(column.combine_chunks().is_valid()))
    sizes: list[int] = []
    origin: list[int] = []
    number: list[int] = []
    for text in column.drop_null().to_pylist():
        dots = _TAGS.decode(text)
        sizes.append(len(dots))
        origin.extend(names.setdefault(name, len(names)) for name, _ in dots)
        number.extend(int(counter) for _, counter in dots)
    ends = np.cumsum(np.array(sizes, dtype=np.int64))
    return rows, ends, np.array(origin, dtype=np.int64), np.array(number, dtype=np.int64)


def unpack_index(packed: bytes) -> LogIndex:
    """Return the index that `digest_batches` packed."""
    index: LogIndex = pickle.loads(packed)
    return index


def unpack_count(packed: bytes) -> int:
    """Return the number of bad rows that `digest_batches` packed."""
    number: int = pickle.loads(packed)
    return number


def unpack_replay(packed: bytes) -> Replay:
    """Return the result that `replay_batches` packed."""
    result: Replay = pickle.loads(packed)
    return result
