"""From traces to digests: which files are read by whom, what cannot be used, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from causalcast.audit import files, state
from causalcast.audit.errors import InputUnusable
from causalcast.audit.notes import MAX_NOTED, place_of_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, Observation, SparkSession

    from causalcast.audit.depot import Depot
    from causalcast.audit.digests import Indices, LogIndex
    from causalcast.audit.ingest import BadRows, Inputs
    from causalcast.audit.log_findings import LogFinding

MOST_LEFT: Final = 20_000
"""Lines, of all files together, up to which they are left to Spark by themselves."""
_LINES: Final = pa.schema([("value", pa.string()), ("file", pa.string())])
BYTES_PER_PARTITION: Final = 128 * 2**20
"""Of input, for each task that digests logs."""


class Intake:
    """The first stages of one audit, in the order of their definition."""

    def __init__(
        self,
        session: SparkSession,
        depot: Depot,
        kept: state.State,
        inputs: Inputs,
        sources: tuple[str, ...],
        say: Callable[[str], None],
    ) -> None:
        self.session = session
        self.depot = depot
        self.kept = kept
        self.inputs = inputs
        self.sources = sources
        self.say = say
        self._pieces: list[state.Planned] = []
        self._by_spark = inputs
        """What Spark reads itself."""
        self._seen: Observation | None = None
        self._bad = 0

    @property
    def shared(self) -> bool:
        """Whether workers share a folder with the driver, as in local mode."""
        return self.depot.folder is not None

    def read(self) -> None:
        """Let workers read what is new of the files that they can read; leave the others to Spark."""
        from causalcast.audit import stages  # noqa: PLC0415

        if not self.shared:
            files.refuse_foreign_parquet(self.inputs.parquet)
            return
        self._pieces, others = self.kept.plan(self.inputs)
        wanted = [planned for planned in self._pieces if planned.wanted]
        every = len(self._pieces)
        self.say(
            f"Reading what is new: {len(wanted)} of {every} pieces" if len(wanted) < every else "Reading the traces"
        )
        odd: set[str] = set()
        if wanted:
            rows = [(i, p.kind, p.path, p.piece.first, p.piece.last) for i, p in enumerate(wanted)]
            read = self.frame(rows, stages.PIECES, tasks=4).mapInArrow(
                stages.read_pieces(self.depot), stages.FACT_SCHEMA
            )
            for fact in read.collect():
                state.record(wanted[fact["number"]], fact.asDict())
                if fact["odd"]:
                    odd.add(wanted[fact["number"]].path)
        if sum(len(planned.piece.odd) for planned in self._pieces) > MOST_LEFT:
            for planned in self._pieces:
                if planned.piece.odd:
                    odd.add(planned.path)
                    planned.piece.token, planned.piece.odd = "", []
        # Where lines do not mean what they mean alone, or are many, Spark reads the whole file.
        self._pieces = [planned for planned in self._pieces if planned.path not in odd]
        left = {*others, *odd}
        self._by_spark = self.inputs.only(left)
        self._bad = sum(planned.piece.bad for planned in self._pieces)

    def frame(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema, tasks: int) -> DataFrame:
        """Return rows as a frame, cut into at most `tasks` tasks for each core."""
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        frame = self.session.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
        return frame.repartition(max(1, min(len(rows), tasks * self.session.sparkContext.defaultParallelism)))

    @cached_property
    def _rows(self) -> DataFrame:
        """All rows of the files that Spark reads or that hold rows that cannot be used, as Spark reads them."""
        from causalcast.audit import ingest  # noqa: PLC0415

        return ingest.read(self.session, self._suspects, self._text)

    @cached_property
    def _left(self) -> list[tuple[str, str]]:
        """The lines of other files that are left to Spark, and of which file each is."""
        return [(line, planned.path) for planned in self._pieces for line in planned.piece.odd]

    @property
    def _text(self) -> DataFrame | None:
        return self.frame(self._left, _LINES, tasks=1) if self._left else None

    @cached_property
    def _suspects(self) -> Inputs:
        bad = {planned.path for planned in self._pieces if planned.piece.bad}
        return self.inputs.only({*self._by_spark.json, *self._by_spark.parquet, *bad})

    def digest(self) -> DataFrame:
        """Return one digest per process."""
        from pyspark import StorageLevel  # noqa: PLC0415

        from causalcast.audit import stages  # noqa: PLC0415

        parts = self._packed()
        if self._pieces:
            places: dict[str, list[int]] = {}
            for planned in self._pieces:
                places.setdefault(planned.piece.token, []).append(planned.piece.place)
            rows = [(token.encode(), numbers) for token, numbers in places.items()]
            listed = self.frame(rows, stages.BUNDLES, tasks=1).mapInArrow(
                stages.list_parts(self.depot), stages.PART_SCHEMA
            )
            parts = listed if parts is None else parts.unionByName(listed)
        if parts is None:
            raise InputUnusable(f"{', '.join(self.sources)}: no rows")
        partitions = int(self.session.conf.get("spark.sql.shuffle.partitions") or 8)
        partitions = max(partitions, self.inputs.size // BYTES_PER_PARTITION)
        known = self.depot.put(self.kept.keys() if self.shared else {})
        stage = stages.digest_batches(self.depot, known)
        digests = parts.repartition(partitions, "process").mapInArrow(stage, stages.DIGEST_SCHEMA)
        return digests.persist(StorageLevel.DISK_ONLY)

    @property
    def _any_by_spark(self) -> bool:
        return bool(self._by_spark.json or self._by_spark.parquet or self._left)

    def _packed(self) -> DataFrame | None:
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from causalcast.audit import ingest, stages  # noqa: PLC0415

        if not self._any_by_spark:
            return None
        self._seen = Observation("ingest")
        rows = ingest.read(self.session, self._by_spark, self._text)
        observed = rows.observe(self._seen, F.count("reason").alias("bad"))
        return ingest.usable(observed).mapInArrow(stages.pack_batches(self.depot), stages.PART_SCHEMA)

    def collect(self, digests: DataFrame) -> tuple[dict[str, LogIndex], DataFrame | dict[str, state.Digested]]:
        """Return the index of each log, and where the bodies are."""
        logs: dict[str, LogIndex] = {}
        bodies: dict[str, state.Digested] = {}
        before = self.kept.manifest.digests
        names = ("processes", "keys", "log_index", *(("body",) if self.shared else ()))
        for row in digests.select(*names).collect():
            if row["log_index"] is None:
                bodies |= {process: before[process] for process in row["processes"]}
                continue
            indices: Indices = self.depot.get(bytes(row["log_index"]))
            for place, process in enumerate(row["processes"]):
                logs[process] = indices.log(place)
            if self.shared:
                index, body = (bytes(row[name]).decode() for name in ("log_index", "body"))
                shares = (indices.rows / indices.rows.sum()).tolist()
                for place, (process, key) in enumerate(zip(row["processes"], row["keys"], strict=True)):
                    bodies[process] = state.Digested(key, index, body, place, shares[place])
        for token in {bodies[process].index for process in bodies.keys() - logs.keys()}:
            indices = self.depot.get(token.encode())
            taken = {p: bodies[p].place for p in bodies.keys() - logs.keys() if bodies[p].index == token}
            logs |= {process: indices.log(place) for process, place in taken.items()}
        if self._seen is not None:
            self._bad += int(self._seen.get.get("bad", 0))
        if self.shared:
            self.kept.manifest.digests = bodies
            self.kept.commit()
        return dict(sorted(logs.items())), bodies if self.shared else digests

    def quarantine(self) -> BadRows:
        from causalcast.audit import ingest  # noqa: PLC0415

        if self._bad == 0:
            return ingest.NO_BAD_ROWS
        self.say(f"Locating {self._bad} rows that cannot be used")
        alone = {path for _, path in self._left}
        suspects = self.inputs.only({*self._suspects.json, *self._suspects.parquet, *alone})
        return ingest.collect_bad_rows(self.session, suspects, self._rows, self._text, alone)

    def nothing_usable(self, bad: BadRows) -> str:
        where = ", ".join(self.sources[:3]) + (" ..." if len(self.sources) > 3 else "")
        if bad.count == 0:
            return f"{where}: no rows"
        first = bad.rows[0] if bad.rows else None
        example = f"; the first: {place_of_row(first.file, first.line)}: {first.reason}" if first is not None else ""
        return f"{where}: none of {bad.count} rows can be used{example}"

    def doubtful(self, bad: BadRows, logs: dict[str, LogIndex]) -> frozenset[str]:
        """Return the processes that may have lost rows to the quarantine.

        A bad row that names no process can be any process's in its file. Where the file's logs miss as many rows
        as it has bad ones, those are the bad ones; else the end of any of its logs may be cut.
        """
        from causalcast.audit import ingest  # noqa: PLC0415

        doubtful = set(bad.processes)
        for file, number in bad.unnamed:
            mine = ingest.processes_of(self._rows, [file]) | self._processes_in(file)
            if sum(logs[process].missing_rows for process in mine if process in logs) < number:
                doubtful |= mine
        return frozenset(doubtful)

    def located(self, findings: list[LogFinding]) -> list[LogFinding]:
        """Say of incomplete logs in which file and line they begin, so that a misspelt name can be found."""
        from causalcast.audit import ingest  # noqa: PLC0415

        wanted = {f.process for f in findings if f.kind == "absent-log" and f.process is not None and f.number is None}
        if not wanted:
            return findings
        names = sorted(wanted)[:MAX_NOTED]
        found = self._files_naming(names)
        if self._any_by_spark:
            rows = ingest.read(self.session, self._by_spark, self._text)
            for name, path in ingest.first_files(rows, names).items():
                found[name] = min(path, found.get(name, path))
        places = {name: ingest.place_in(path, name) for name, path in found.items()}
        return [
            replace(f, detail=f"{f.detail}; first named at {places[f.process]}")
            if f.process in places and f.kind == "absent-log" and f.number is None
            else f
            for f in findings
        ]

    def _processes_in(self, path: str) -> frozenset[str]:
        """Return the processes with rows in a file that workers read."""
        found: set[str] = set()
        for planned in self._pieces:
            if planned.path == path:
                found.update(self.depot.get(planned.piece.token.encode()).processes_in(planned.piece.place))
        return frozenset(found)

    def _files_naming(self, names: Sequence[str]) -> dict[str, str]:
        """Return the first of the files that workers read, by its name, in which each name stands."""
        found: dict[str, str] = {}
        bundles: dict[str, dict[int, str]] = {}
        for planned in self._pieces:
            bundles.setdefault(planned.piece.token, {})[planned.piece.place] = planned.path
        for token, paths in bundles.items():
            bundle = self.depot.get(token.encode())
            for name in names:
                for place in bundle.pieces_naming(name):
                    if place in paths:
                        found[name] = min(paths[place], found.get(name, paths[place]))
        return found
