"""The Spark stages around the NumPy kernels: files to bundles, every log to its digest, every digest to its verdict.

Rows cross from the JVM to Python once, as slim Arrow columns, or not at all where workers read the files; from then on
what Spark moves are names of values, so its work does not grow with the checks. The stages hold what one task was
given: a bundle of rows, or the logs of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from causalcast.audit import direct, lines
from causalcast.audit.bundles import bundle, split
from causalcast.audit.logs import digest_logs
from causalcast.audit.parts import Packed, merge, pack
from causalcast.audit.replay import replay_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from causalcast.audit.bundles import Bundle
    from causalcast.audit.clocks import Clock
    from causalcast.audit.depot import Box, Depot
    from causalcast.audit.digests import Bodies
    from causalcast.audit.logs import LogColumns

    Ints: TypeAlias = NDArray[np.int64]

    Stage: TypeAlias = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

JSON: Final = 0
PARQUET: Final = 1
PIECES: Final = pa.schema(
    [("number", pa.int64()), ("kind", pa.int64()), ("path", pa.string()), ("first", pa.int64()), ("last", pa.int64())]
)
FACTS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("bundle", pa.binary()),
        ("place", pa.int64()),
        ("rows", pa.int64()),
        ("bundled", pa.int64()),
        ("bad", pa.int64()),
        ("odd", pa.bool_()),
        ("fingerprint", pa.string()),
        ("left", pa.list_(pa.string())),
    ]
)
FACT_SCHEMA: Final = (
    "number long, bundle binary, place long, rows long, bundled long, bad long, odd boolean, fingerprint string,"
    " left array<string>"
)
"""Of each piece: its bundle and place there, rows in it and in the whole bundle, and lines that are left to Spark.

An odd one has to be read by Spark, with its whole file.
"""
BUNDLES: Final = pa.schema([("bundle", pa.binary()), ("places", pa.list_(pa.int64()))])
PARTS: Final = pa.schema([("process", pa.string()), ("part", pa.binary()), ("group", pa.int64()), ("rows", pa.int64())])
PART_SCHEMA: Final = "process string, part binary, group long, rows long"
"""A part of a log: a group of a bundle, or a value of its own, with group -1."""
DIGESTS: Final = pa.schema(
    [
        ("processes", pa.list_(pa.string())),
        ("keys", pa.list_(pa.string())),
        ("log_index", pa.binary()),
        ("body", pa.binary()),
    ]
)
DIGEST_SCHEMA: Final = "processes array<string>, keys array<string>, log_index binary, body binary"
"""Digests of some logs, or nulls and those logs whose digest is there already."""
BODIES: Final = pa.schema([("body", pa.binary()), ("places", pa.list_(pa.int64()))])
"""Which logs to replay; all where `places` is null."""
REPLAYS: Final = pa.schema(
    [("processes", pa.list_(pa.string())), ("places", pa.list_(pa.int64())), ("result", pa.binary())]
)
REPLAY_SCHEMA: Final = "processes array<string>, places array<long>, result binary"
TOGETHER: Final = 1_000_000
"""Rows of logs that are digested, and replayed, by one call. A log of more has a call of its own."""


def read_pieces(depot: Depot) -> Stage:
    """Return the stage that reads pieces of files into bundles, small ones together, and says what became of each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with depot.box() as box:
            held = _Held()
            for batch in batches:
                for row in batch.to_pylist():
                    where = (row["path"], row["first"], row["last"])
                    if row["kind"] == PARQUET:
                        read = _Read(row["number"], direct.load(direct.RowGroups(*where)))
                    else:
                        read = _read_lines(row["number"], lines.Lines(*where))
                    if read.table is None:
                        odd = {"number": read.number, "odd": True, "fingerprint": read.fingerprint}
                        yield pa.RecordBatch.from_pylist([odd], schema=FACTS)
                        continue
                    if not held.takes(read.table):
                        yield held.bundled(box)
                        held = _Held()
                    held.add(read, read.table)
            if held.read:
                yield held.bundled(box)

    return run


@dataclass(slots=True)
class _Read:
    """A piece that was read; `table` is `None` where Spark has to read its file.

    `odd` are those of its lines that are not in the table.
    """

    number: int
    table: pa.Table | None
    piece: lines.Lines | None = None
    fingerprint: str = ""
    odd: list[int] = field(default_factory=list)

    def left(self, bad: Ints) -> list[str] | None:
        """Return the lines that are left to Spark, `bad` rows of the table too; `None` where that is its whole file."""
        if self.piece is None or (bad.size == 0 and not self.odd):
            return []
        if bad.size + len(self.odd) > lines.MOST_ODD:
            return None
        data = lines.fetch(self.piece)
        found = lines.texts(lines.unpacked(self.piece, data))
        if found is None or lines.fingerprint(data) != self.fingerprint:
            return None
        even = np.delete(np.arange(len(found)), self.odd)
        return [found[i].decode() for i in sorted([*self.odd, *even[bad].tolist()])]


def _read_lines(number: int, piece: lines.Lines) -> _Read:
    data = lines.fetch(piece)
    text = lines.unpacked(piece, data)
    table = lines.parse(text)
    sifted = lines.sift(text) if table is None else (table, [])
    if sifted is None:
        return _Read(number, None, piece, lines.fingerprint(data))
    rows = direct.without_schema(piece.path, sifted[0])
    return _Read(number, rows, piece, lines.fingerprint(data), sifted[1])


@dataclass(slots=True)
class _Held:
    """Tables of one schema that wait to be bundled."""

    tables: list[pa.Table] = field(default_factory=list)
    read: list[_Read] = field(default_factory=list)
    rows: int = 0

    def takes(self, table: pa.Table) -> bool:
        """Whether the table can be bundled with the others."""
        if not self.tables:
            return True
        fits = self.rows + table.num_rows <= direct.ROWS_PER_PIECE
        return fits and bool(table.schema.equals(self.tables[0].schema))

    def add(self, read: _Read, table: pa.Table) -> None:
        """Hold a piece's rows."""
        read.table = None
        self.read.append(read)
        self.tables.append(table)
        self.rows += table.num_rows

    def bundled(self, box: Box) -> pa.RecordBatch:
        """Put what is held away as one bundle; return the facts of its pieces."""
        sizes = [table.num_rows for table in self.tables]
        table, good = direct.checked(pa.concat_tables(self.tables))
        piece = np.repeat(np.arange(len(sizes)), sizes)
        starts = np.cumsum(sizes) - sizes
        bad = [np.zeros(0, dtype=np.int64)] * len(sizes)
        for place in np.unique(piece[~good]).tolist():
            bad[place] = np.flatnonzero((piece == place) & ~good) - starts[place]
        left = [read.left(rows) for read, rows in zip(self.read, bad, strict=True)]
        good &= ~np.array([lost is None for lost in left], dtype=bool)[piece]
        if not good.all():
            table, piece = table.filter(pa.array(good)), piece[good]
        rows = np.bincount(piece, minlength=len(sizes)).tolist()
        token = box.put(bundle(table, piece))
        facts: list[dict[str, Any]] = []
        for place, (read, lost) in enumerate(zip(self.read, left, strict=True)):
            fact = {"number": read.number, "fingerprint": read.fingerprint, "odd": lost is None}
            if lost is not None:
                # Bad rows of Parquet are read again by Spark; of JSON their lines are left to it.
                number = bad[place].size if read.piece is None else 0
                fact |= {"bundle": token, "place": place, "rows": rows[place], "bundled": piece.size, "bad": number}
                fact["left"] = lost
            facts.append(fact)
        return pa.RecordBatch.from_pylist(facts, schema=FACTS)


def list_parts(depot: Depot) -> Stage:
    """Return the stage that lists the parts of logs in bundles."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                whole: Bundle = depot.get(row["bundle"])
                groups = np.flatnonzero(np.isin(whole.piece, row["places"]))
                owners = pa.array(whole.names, pa.string()).take(pa.array(whole.process[groups]))
                token = pa.array([row["bundle"]] * groups.size, pa.binary())
                sizes = pa.array(np.diff(whole.starts)[groups])
                yield pa.RecordBatch.from_arrays([owners, token, pa.array(groups), sizes], schema=PARTS)

    return run


def pack_batches(depot: Depot) -> Stage:
    """Return the stage that packs usable rows, as Spark read them, into parts of logs."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with depot.box() as box:
            held: list[pa.RecordBatch] = []
            rows = 0
            for batch in batches:
                held.append(batch)
                rows += batch.num_rows
                if rows >= direct.ROWS_PER_PIECE:
                    yield from _packed(held, box)
                    held, rows = [], 0
            if rows:
                yield from _packed(held, box)

    return run


def _packed(held: list[pa.RecordBatch], box: Box) -> Iterator[pa.RecordBatch]:
    for process, rows in split(pa.Table.from_batches(held)):
        yield _row(PARTS, process, box.put(pack(rows)), -1, rows.seq.size)


def digest_batches(depot: Depot, known: bytes) -> Stage:
    """Return the stage that digests the logs of one partition, which holds all parts of each process in it.

    `known` is the token of the keys of digests of an earlier run, by process. A digest is taken over where the log has
    the same parts as then.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[str, list[tuple[bytes, int, int]]] = {}
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in PARTS.names)
            for process, *part in zip(*columns, strict=True):
                held.setdefault(process, []).append(tuple(part))
        keys = {process: _key(held[process]) for process in sorted(held)}
        earlier: Mapping[str, str] = depot.get(known)
        same = [process for process, key in keys.items() if earlier.get(process) == key]
        if same:
            yield _row(DIGESTS, same, [keys[process] for process in same], None, None)
        with depot.box() as box:
            for processes in _together({p: held[p] for p in keys if earlier.get(p) != keys[p]}):
                index, body = digest_logs(processes, *_gathered(depot, [held.pop(p) for p in processes]))
                yield _row(DIGESTS, processes, [keys[p] for p in processes], box.put(index), box.put(body))

    return run


def _key(parts: list[tuple[bytes, int, int]]) -> str:
    parts.sort()
    named = [(token, group) for token, group, _ in parts]
    return blake2b(repr(named).encode(), digest_size=16).hexdigest()


def _together(logs: Mapping[str, list[tuple[bytes, int, int]]]) -> Iterator[list[str]]:
    """Yield the logs to digest by one call."""
    chosen: list[str] = []
    rows = 0
    for process, parts in logs.items():
        size = sum(part[2] for part in parts)
        if chosen and rows + size > TOGETHER:
            yield chosen
            chosen, rows = [], 0
        chosen.append(process)
        rows += size
    if chosen:
        yield chosen


def _gathered(depot: Depot, logs: list[list[tuple[bytes, int, int]]]) -> tuple[LogColumns, Ints]:
    """Return the rows of logs, and whose row each is."""
    groups: dict[bytes, list[tuple[int, int, int]]] = {}
    for place, parts in enumerate(logs):
        for token, group, rows in parts:
            groups.setdefault(token, []).append((place, group, rows))
    found: list[LogColumns] = []
    owners: list[Ints] = []
    for token, listed in groups.items():
        place, group, rows = np.array(listed, dtype=np.int64).T
        value: Packed | Bundle = depot.get(token)
        found.append(value.unpack() if isinstance(value, Packed) else value.parts(group))
        owners.append(np.repeat(place, rows))
    return merge(found), np.concatenate(owners)


def replay_batches(depot: Depot, shared: bytes) -> Stage:
    """Return the stage that replays logs; `shared` is the token of the clock."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock: Clock = depot.get(shared)
        with depot.box() as box:
            for batch in batches:
                for body, places in zip(*(batch.column(name).to_pylist() for name in BODIES.names), strict=True):
                    bodies: Bodies = depot.get(body)
                    chosen = np.arange(len(bodies.processes)) if places is None else np.array(places, dtype=np.int64)
                    result = box.put(replay_logs(bodies, chosen, clock))
                    yield _row(REPLAYS, [bodies.processes[i] for i in chosen.tolist()], chosen.tolist(), result)

    return run


def _row(schema: pa.Schema, *values: Any) -> pa.RecordBatch:
    arrays = [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
