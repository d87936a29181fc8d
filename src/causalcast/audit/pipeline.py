"""The audit from end to end: traces in, `AuditResult` out. The command line and the demo call `run_audit`."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from causalcast.audit import files, state
from causalcast.audit.carried import add_carried, check_carried, find_carried
from causalcast.audit.clocks import Known, LogFinding, build_clock
from causalcast.audit.depot import Depot
from causalcast.audit.errors import InputUnusable
from causalcast.audit.findings import Case, Collection
from causalcast.audit.identity import ReplayKeys
from causalcast.audit.metrics import Histogram, sizes
from causalcast.audit.notes import MAX_NOTED, bad_row_findings, notes, place_of_row, summaries, unfinished_findings
from causalcast.audit.outputs import FINDINGS, write_outputs
from causalcast.audit.result import AuditResult, Finding
from causalcast.audit.session import spark_session
from causalcast.audit.timeline import ProcessTimeline, summarise, transport
from causalcast.audit.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, Observation, SparkSession

    from causalcast.audit.ingest import BadRows, Inputs
    from causalcast.audit.logs import LogIndex
    from causalcast.audit.violations import Replay

STATE: Final = ".state"
"""The folder in the output folder that keeps what a later run need not do again."""
PICTURES: Final = 20
"""Roots that are drawn, spread over their kinds."""
BYTES_PER_PARTITION: Final = 128 * 2**20
"""Of input, for each task that digests logs: such a task holds all logs of its partition."""


def run_audit(
    sources: Sequence[str | Path],
    *,
    out: Path | None = None,
    master: str | None = None,
    crashed: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> AuditResult:
    """Audit the traces in `sources`.

    Args:
        sources: trace files and folders.
        out: a folder for `audit.json` and the Parquet files with all findings, quarantined rows and processes, and for
            what a later run with the same folder need not do again; it is not searched for traces.
        master: a Spark master URL; `None` is local mode.
        crashed: processes whose obligations end with their logs.
        progress: called with a short sentence at the start of each stage.

    Raises:
        InputUnusable: there is nothing to judge.
        EnvironmentUnusable: Spark cannot run here.
    """
    # PySpark is imported where it is needed: the command line must start without it.
    from causalcast.audit import ingest  # noqa: PLC0415

    say = progress or (lambda _: None)
    carried = find_carried(sources)
    inputs = ingest.find_inputs(carried.traces, without=out) if carried.traces or not carried else None
    named = tuple(str(source) for source in sources)
    here = master is None or master.startswith("local")
    with contextlib.ExitStack() as stack:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        if out is not None and here:
            folder = out / STATE
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="causalcast-audit-")))
        kept = stack.enter_context(state.State(folder.resolve()))
        say("Starting Spark")
        session = stack.enter_context(spark_session(master, jvm_bytes=inputs.json_size if inputs and not here else 0))
        local = (session.sparkContext.master or "").startswith("local")
        result = None
        if inputs is not None:
            depot = Depot(str(kept.folder) if local else None)
            result = _Audit(session, depot, kept, inputs, named, frozenset(crashed), out, say).run()
        if carried:
            say("Checking the clocks that the traces carry")
            result = add_carried(result, check_carried(session, carried), named)
        assert result is not None
        if out is not None:
            write_outputs(result, out)
    return result


class _Audit:
    """One run: its stages in order."""

    def __init__(
        self,
        session: SparkSession,
        depot: Depot,
        kept: state.State,
        inputs: Inputs,
        sources: tuple[str, ...],
        crashed: frozenset[str],
        out: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self.session = session
        self.depot = depot
        self.kept = kept
        self.inputs = inputs
        self.sources = sources
        self.crashed = crashed
        self.out = out
        self.say = say
        self._pieces: list[state.Planned] = []
        self._by_spark = inputs
        """What Spark reads itself."""
        self._seen: Observation | None = None
        self._bad = 0

    @property
    def _shared(self) -> bool:
        """Whether workers share a folder with the driver, as in local mode."""
        return self.depot.folder is not None

    def run(self) -> AuditResult:
        from pyspark.errors import PythonException  # noqa: PLC0415

        from causalcast.audit import ingest  # noqa: PLC0415

        try:
            self._read()
            digests = self._digest()
            try:
                logs, bodies = self._collect_logs(digests)
                return self._judge_all(logs, bodies)
            finally:
                digests.unpersist()
        except PythonException as error:
            if unusable := files.unusable(str(error)):
                raise InputUnusable(unusable) from error
            raise  # a fault of ours, not of the traces
        except ingest.UNREADABLE as error:
            raise InputUnusable(f"the traces cannot be read: {ingest.first_line(error)}") from error

    # --------------------------------------------------------------------------------------- reading

    def _read(self) -> None:
        """Let workers read what is new of the files that they can read; leave the others to Spark."""
        from causalcast.audit import stages  # noqa: PLC0415

        if not self._shared:
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
            read = self._frame(rows, stages.PIECES, tasks=4).mapInArrow(
                stages.read_pieces(self.depot), stages.FACT_SCHEMA
            )
            for fact in read.collect():
                state.record(wanted[fact["number"]], fact.asDict())
                if fact["odd"]:
                    odd.add(wanted[fact["number"]].path)
        # What is odd in one piece is read by Spark with the whole file, so that lines mean what they always mean.
        self._pieces = [planned for planned in self._pieces if planned.path not in odd]
        left = {*others, *odd}
        self._by_spark = self.inputs.only(left)
        self._bad = sum(planned.piece.bad for planned in self._pieces)

    def _frame(self, rows: Sequence[tuple[Any, ...]], schema: pa.Schema, tasks: int) -> DataFrame:
        """Return rows as a frame, cut into at most `tasks` tasks for each core."""
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        frame = self.session.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
        return frame.repartition(max(1, min(len(rows), tasks * self.session.sparkContext.defaultParallelism)))

    @cached_property
    def _rows(self) -> DataFrame:
        """All rows of the files that Spark reads or that hold rows that cannot be used, as Spark reads them."""
        from causalcast.audit import ingest  # noqa: PLC0415

        return ingest.read(self.session, self._suspects)

    @cached_property
    def _suspects(self) -> Inputs:
        bad = {planned.path for planned in self._pieces if planned.piece.bad}
        return self.inputs.only({*self._by_spark.json, *self._by_spark.parquet, *bad})

    def _digest(self) -> DataFrame:
        """Return one digest per process."""
        from pyspark import StorageLevel  # noqa: PLC0415

        from causalcast.audit import stages  # noqa: PLC0415

        parts = self._packed()
        if self._pieces:
            places: dict[str, list[int]] = {}
            for planned in self._pieces:
                places.setdefault(planned.piece.token, []).append(planned.piece.place)
            rows = [(token.encode(), numbers) for token, numbers in places.items()]
            listed = self._frame(rows, stages.BUNDLES, tasks=1).mapInArrow(
                stages.list_parts(self.depot), stages.PART_SCHEMA
            )
            parts = listed if parts is None else parts.unionByName(listed)
        if parts is None:
            raise InputUnusable(f"{', '.join(self.sources)}: no rows")
        partitions = int(self.session.conf.get("spark.sql.shuffle.partitions") or 8)
        partitions = max(partitions, self.inputs.size // BYTES_PER_PARTITION)
        known = self.depot.put(self.kept.digests() if self._shared else {})
        stage = stages.digest_batches(self.depot, known)
        digests = parts.repartition(partitions, "process").mapInArrow(stage, stages.DIGEST_SCHEMA)
        return digests.persist(StorageLevel.DISK_ONLY)

    def _packed(self) -> DataFrame | None:
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from causalcast.audit import ingest, stages  # noqa: PLC0415

        if not (self._by_spark.json or self._by_spark.parquet):
            return None
        self._seen = Observation("ingest")
        rows = ingest.read(self.session, self._by_spark)
        observed = rows.observe(self._seen, F.count("reason").alias("bad"))
        return ingest.usable(observed).mapInArrow(stages.pack_batches(self.depot), stages.PART_SCHEMA)

    def _collect_logs(self, digests: DataFrame) -> tuple[dict[str, LogIndex], DataFrame | dict[str, state.Digested]]:
        """Return the index of each log, and where the bodies are."""
        logs: dict[str, LogIndex] = {}
        bodies: dict[str, state.Digested] = {}
        names = ("process", "key", "log_index", "body") if self._shared else ("process", "log_index")
        for row in digests.select(*names).collect():
            logs[row["process"]] = self.depot.get(bytes(row["log_index"]))
            if self._shared:
                tokens = (bytes(row[name]).decode() for name in ("log_index", "body"))
                bodies[row["process"]] = state.Digested(row["key"], *tokens)
        if self._seen is not None:
            self._bad += int(self._seen.get.get("bad", 0))
        if self._shared:
            self.kept.manifest.digests = bodies
            self.kept.commit()
        return dict(sorted(logs.items())), bodies if self._shared else digests

    def _quarantine(self) -> BadRows:
        from causalcast.audit import ingest  # noqa: PLC0415

        if self._bad == 0:
            return ingest.NO_BAD_ROWS
        self.say(f"Locating {self._bad} rows that cannot be used")
        return ingest.collect_bad_rows(self.session, self._suspects, self._rows)

    def _nothing_usable(self, bad: BadRows) -> str:
        where = ", ".join(self.sources[:3]) + (" ..." if len(self.sources) > 3 else "")
        if bad.count == 0:
            return f"{where}: no rows"
        first = bad.rows[0] if bad.rows else None
        example = f"; the first: {place_of_row(first.file, first.line)}: {first.reason}" if first is not None else ""
        return f"{where}: none of {bad.count} rows can be used{example}"

    def _doubtful(self, bad: BadRows, logs: dict[str, LogIndex]) -> frozenset[str]:
        """Return the processes that may have lost rows to the quarantine.

        A bad row that names no process can be any process's in its file. Where the file's logs miss as many rows
        as it has bad ones, those are the bad ones; else the end of any of its logs may be cut.
        """
        from causalcast.audit import ingest  # noqa: PLC0415

        doubtful = set(bad.processes)
        for file, number in bad.unnamed:
            mine = ingest.processes_of(self._rows, [file])
            if sum(logs[process].missing_rows for process in mine if process in logs) < number:
                doubtful |= mine
        return frozenset(doubtful)

    # --------------------------------------------------------------------------------------- judging

    def _judge_all(self, logs: dict[str, LogIndex], bodies: DataFrame | dict[str, state.Digested]) -> AuditResult:
        bad = self._quarantine()
        if not logs:
            raise InputUnusable(self._nothing_usable(bad))
        self.say(f"Ordering the messages of {len(logs)} processes")
        known = build_clock(list(logs.values()), self.crashed, self._doubtful(bad, logs))
        self.say("Replaying every process")
        path = self.out / FINDINGS if self.out is not None else None
        clock = known.clock
        latency, delay, whole = Histogram(), Histogram(), ProcessTimeline()
        excused = unproven = 0
        with self._replays(logs, bodies, known) as replays, Collection(clock, path) as collection:
            collection.add_log_findings(bad_row_findings(bad))
            collection.add_log_findings(unfinished_findings(self.inputs))
            collection.add_log_findings(self._located(known.findings))
            for replay in replays:
                collection.add(replay, logs[replay.process].names)
                latency.merge(replay.latency)
                delay.merge(replay.stability_delay)
                whole.merge(replay.timeline)
                excused += clock.messages + replay.excused
                unproven += replay.unproven
        files.refuse_changed(self.inputs.sizes)
        if self._shared:
            self.kept.commit(last=True)
        self.say("Writing the findings")
        indices = [index for log in logs.values() for index in log.topics.values()]
        return AuditResult(
            verdict="fail" if collection.counts else "pass",
            events=sum(log.rows for log in logs.values()),
            processes=summaries(logs, known),
            messages=clock.messages,
            deliveries=sum(index.deliveries for index in indices),
            quarantined=bad.count,
            counts=dict(sorted(collection.counts.items())),
            findings=tuple(_with_pictures(collection.sample(), Witness(clock, logs))),
            quarantine=bad.rows,
            latency=latency.milliseconds(),
            stability_delay=delay.milliseconds(),
            payload_bytes=sizes(topic.payload for topic in clock.topics.values()),
            overhead_bytes=sizes(topic.overhead for topic in clock.topics.values()),
            notes=tuple(notes(logs, known, self.crashed, bad, latency, excused, unproven)),
            sources=self.sources,
            roots=dict(sorted(collection.roots.items())),
            suspects=collection.suspects,
            timeline=summarise(whole, clock, logs),
            transport=transport(whole, logs.values(), latency.count),
        )

    @contextlib.contextmanager
    def _replays(
        self, logs: dict[str, LogIndex], bodies: DataFrame | dict[str, state.Digested], known: Known
    ) -> Iterator[Iterable[Replay]]:
        """Yield the replay of every process; those that rest on nothing new are taken over."""
        from pyspark import StorageLevel  # noqa: PLC0415

        from causalcast.audit import stages  # noqa: PLC0415

        marks = {process: log.marks for process, log in logs.items()}
        shared = self.depot.put((known.clock, marks))
        stage = stages.replay_batches(self.depot, shared)
        if not isinstance(bodies, dict):
            frame = bodies.select("process", "body").mapInArrow(stage, stages.REPLAY_SCHEMA)
            frame = frame.persist(StorageLevel.DISK_ONLY)
            try:
                frame.count()
                yield (self.depot.get(bytes(row["result"])) for row in frame.toLocalIterator())
            finally:
                frame.unpersist()
            return
        keys = ReplayKeys(known.clock)
        before, now = self.kept.manifest.replays, dict[str, state.Replayed]()
        wanted = []
        for process, digested in bodies.items():
            key = keys.key(digested.key, logs[process])
            earlier = before.get(process)
            now[process] = earlier if earlier is not None and earlier.key == key else state.Replayed(key, "")
            if not now[process].result:
                wanted.append((process, digested.body.encode()))
        if wanted:
            frame = self._frame(wanted, stages.BODIES, tasks=4).mapInArrow(stage, stages.REPLAY_SCHEMA)
            for row in frame.collect():
                now[row["process"]].result = bytes(row["result"]).decode()
        self.kept.manifest.replays = now
        yield (self.depot.get(now[process].result.encode()) for process in logs)

    def _located(self, findings: list[LogFinding]) -> list[LogFinding]:
        """Say of incomplete logs in which file and line they begin, so that a misspelt name can be found."""
        from causalcast.audit import ingest  # noqa: PLC0415

        wanted = {f.process for f in findings if f.kind == "absent-log" and f.process is not None and f.number is None}
        if not wanted:
            return findings
        names = sorted(wanted)[:MAX_NOTED]
        found = self._files_naming(names)
        if self._by_spark.json or self._by_spark.parquet:
            for name, path in ingest.first_files(ingest.read(self.session, self._by_spark), names).items():
                found[name] = min(path, found.get(name, path))
        places = {name: ingest.place_in(path, name) for name, path in found.items()}
        return [
            replace(f, detail=f"{f.detail}; first named at {places[f.process]}")
            if f.process in places and f.kind == "absent-log" and f.number is None
            else f
            for f in findings
        ]

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


def _with_pictures(cases: list[Case], witness: Witness) -> Iterator[Finding]:
    drawn: set[int] = set()
    roots = [i for i, case in enumerate(cases) if case.root]
    per_kind: dict[str, int] = {}
    for i in roots:
        kind = cases[i].kind
        per_kind[kind] = per_kind.get(kind, 0) + 1
        if per_kind[kind] <= 5 and len(drawn) < PICTURES:
            drawn.add(i)
    drawn.update([i for i in roots if i not in drawn][: PICTURES - len(drawn)])
    for i, case in enumerate(cases):
        finding = case.finding()
        yield replace(finding, picture=witness.picture(case)) if i in drawn else finding
