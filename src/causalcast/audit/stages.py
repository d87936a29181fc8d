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
from causalcast.audit.logs import LogBody, digest
from causalcast.audit.parts import Packed, merge, pack
from causalcast.audit.replay import replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from causalcast.audit.bundles import Bundle
    from causalcast.audit.clocks import Clock
    from causalcast.audit.depot import Box, Depot
    from causalcast.audit.logs import LogColumns, Mark

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
    ]
)
FACT_SCHEMA: Final = (
    "number long, bundle binary, place long, rows long, bundled long, bad long, odd boolean, fingerprint string"
)
"""Of each piece: its bundle and place there, rows in it and in the whole bundle. An odd one has to be read by Spark."""
BUNDLES: Final = pa.schema([("bundle", pa.binary()), ("places", pa.list_(pa.int64()))])
PARTS: Final = pa.schema([("process", pa.string()), ("part", pa.binary()), ("group", pa.int64())])
PART_SCHEMA: Final = "process string, part binary, group long"
"""A part of a log: a group of a bundle, or a value of its own, with group -1."""
DIGESTS: Final = pa.schema(
    [("process", pa.string()), ("key", pa.string()), ("log_index", pa.binary()), ("body", pa.binary())]
)
DIGEST_SCHEMA: Final = "process string, key string, log_index binary, body binary"
BODIES: Final = pa.schema([("process", pa.string()), ("body", pa.binary())])
REPLAYS: Final = pa.schema([("process", pa.string()), ("result", pa.binary())])
REPLAY_SCHEMA: Final = "process string, result binary"
_BATCH: Final = 500
"""Rows that a stage hands on together: each batch costs Spark as much as many rows do."""
_BATCH_BYTES: Final = 8 * 2**20
"""The same where values travel in the rows."""


def read_pieces(depot: Depot) -> Stage:
    """Return the stage that reads pieces of files into bundles, small ones together, and says what became of each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with depot.box() as box:
            held = _Held()
            for batch in batches:
                for row in batch.to_pylist():
                    number, where = row["number"], (row["path"], row["first"], row["last"])
                    table: pa.Table | None
                    if row["kind"] == PARQUET:
                        fingerprint, table = "", direct.load(direct.RowGroups(*where))
                    else:
                        piece = lines.Lines(*where)
                        data = lines.fetch(piece)
                        fingerprint, table = lines.fingerprint(data), lines.parse(lines.unpacked(piece, data))
                    if table is None:
                        odd = {"number": number, "odd": True, "fingerprint": fingerprint}
                        yield pa.RecordBatch.from_pylist([odd], schema=FACTS)
                        continue
                    if not held.takes(table):
                        yield held.bundled(box)
                        held = _Held()
                    held.add(number, row["kind"], fingerprint, table)
            if held.tables:
                yield held.bundled(box)

    return run


@dataclass(slots=True)
class _Held:
    """Tables of one schema that wait to be bundled."""

    tables: list[pa.Table] = field(default_factory=list)
    facts: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0

    def takes(self, table: pa.Table) -> bool:
        """Whether the table can be bundled with the others."""
        if not self.tables:
            return True
        fits = self.rows + table.num_rows <= direct.ROWS_PER_PIECE
        return fits and bool(table.schema.equals(self.tables[0].schema))

    def add(self, number: int, kind: int, fingerprint: str, table: pa.Table) -> None:
        """Hold a piece's rows."""
        place = len(self.tables)
        self.facts.append({"number": number, "kind": kind, "fingerprint": fingerprint, "place": place})
        self.tables.append(table)
        self.rows += table.num_rows

    def bundled(self, box: Box) -> pa.RecordBatch:
        """Put what is held away as one bundle; return the facts of its pieces."""
        sizes = [table.num_rows for table in self.tables]
        table, good = direct.checked(pa.concat_tables(self.tables))
        piece = np.repeat(np.arange(len(sizes)), sizes)
        rows = np.bincount(piece[good], minlength=len(sizes)).tolist()
        # A bad line leaves its whole piece to Spark.
        odd = [fact["kind"] == JSON and used < size for fact, used, size in zip(self.facts, rows, sizes, strict=True)]
        good &= ~np.array(odd, dtype=bool)[piece]
        if not good.all():
            table, piece = table.filter(pa.array(good)), piece[good]
        token = box.put(bundle(table, piece))
        for fact, strange, used, size in zip(self.facts, odd, rows, sizes, strict=True):
            fact["odd"] = strange
            if not strange:
                fact |= {"bundle": token, "rows": used, "bundled": piece.size, "bad": size - used}
        return pa.RecordBatch.from_pylist(self.facts, schema=FACTS)


def list_parts(depot: Depot) -> Stage:
    """Return the stage that lists the parts of logs in bundles."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                whole: Bundle = depot.get(row["bundle"])
                groups = np.flatnonzero(np.isin(whole.piece, row["places"]))
                owners = pa.array(whole.names, pa.string()).take(pa.array(whole.process[groups]))
                token = pa.array([row["bundle"]] * groups.size, pa.binary())
                yield pa.RecordBatch.from_arrays([owners, token, pa.array(groups)], schema=PARTS)

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
    parts = ((process, box.put(pack(rows)), -1) for process, rows in split(pa.Table.from_batches(held)))
    yield from _in_batches(parts, PARTS)


def digest_batches(depot: Depot, known: bytes) -> Stage:
    """Return the stage that digests the logs of one partition, which holds all parts of each process in it.

    `known` is the token of digests of an earlier run: process to key, index and body. A digest is taken over where
    the log has the same parts as then.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[str, list[tuple[bytes, int]]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                held.setdefault(row["process"], []).append((row["part"], row["group"]))
        earlier: Mapping[str, tuple[str, bytes, bytes]] = depot.get(known)
        bundles: dict[bytes, Bundle] = {}
        with depot.box() as box:
            rows = (digested(p, sorted(held.pop(p)), earlier, bundles, box) for p in sorted(held))
            yield from _in_batches(rows, DIGESTS)

    def digested(
        process: str,
        parts: list[tuple[bytes, int]],
        earlier: Mapping[str, tuple[str, bytes, bytes]],
        bundles: dict[bytes, Bundle],
        box: Box,
    ) -> tuple[str, str, bytes, bytes]:
        key = blake2b(repr(parts).encode(), digest_size=16).hexdigest()
        before = earlier.get(process)
        if before is not None and before[0] == key:
            return process, *before
        index, body = digest(process, merge([_part(depot, token, group, bundles) for token, group in parts]))
        return process, key, box.put(index), box.put(body)

    return run


def _part(depot: Depot, token: bytes, group: int, bundles: dict[bytes, Bundle]) -> LogColumns:
    """Return a part of a log; `bundles` are those that are open already."""
    if group < 0:
        packed: Packed = depot.get(token)
        return packed.unpack()
    if token not in bundles:
        bundles[token] = depot.get(token)
    return bundles[token].part(group)


def replay_batches(depot: Depot, shared: bytes) -> Stage:
    """Return the stage that replays logs; `shared` is the token of the clock and of every process's marks."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        clock: Clock
        marks: dict[str, tuple[Mark, ...]]
        clock, marks = depot.get(shared)
        with depot.box() as box:
            yield from _in_batches(replayed(batches, clock, marks, box), REPLAYS)

    def replayed(
        batches: Iterator[pa.RecordBatch], clock: Clock, marks: dict[str, tuple[Mark, ...]], box: Box
    ) -> Iterator[tuple[str, bytes]]:
        for batch in batches:
            for token in batch.column("body"):
                body: LogBody = depot.get(token.as_py())
                yield body.process, box.put(replay(body, marks[body.process], clock))

    return run


def _in_batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(held) == _BATCH or size > _BATCH_BYTES:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
