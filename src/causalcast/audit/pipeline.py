"""The audit from end to end: traces in, `AuditResult` out. The command line and the demo call `run_audit`."""

from __future__ import annotations

import json
import pickle
import tempfile
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from causalcast.audit import files
from causalcast.audit.carried import add_carried, check_carried, find_carried
from causalcast.audit.clocks import Known, LogFinding, build_clock
from causalcast.audit.depot import Depot
from causalcast.audit.errors import InputUnusable
from causalcast.audit.findings import Case, Collection
from causalcast.audit.metrics import Histogram, sizes
from causalcast.audit.result import AuditResult, Distribution, Finding, ProcessSummary, Transport
from causalcast.audit.session import spark_session
from causalcast.audit.timeline import ProcessTimeline, summarise, transport
from causalcast.audit.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, Observation, SparkSession

    from causalcast.audit.ingest import BadRows, Inputs
    from causalcast.audit.logs import LogIndex

PICTURES: Final = 20
"""Roots that are drawn, spread over their kinds."""
JSON_FINDINGS: Final = 200
MAX_NOTED: Final = 8
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
        out: a folder for `audit.json` and the Parquet files with all findings, quarantined rows and processes.
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
    inputs = ingest.find_inputs(carried.traces) if carried.traces or not carried else None
    named = tuple(str(source) for source in sources)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    say("Starting Spark")
    with spark_session(master, jvm_bytes=inputs.json_size if inputs is not None else 0) as session:
        local = (session.sparkContext.master or "").startswith("local")
        result = None
        if inputs is not None:
            with tempfile.TemporaryDirectory(prefix="causalcast-audit-") as scratch:
                depot = Depot(scratch if local else None)
                result = _Audit(session, depot, inputs, named, frozenset(crashed), out, say).run()
                if not carried:
                    return result
        say("Checking the clocks that the traces carry")
        result = add_carried(result, check_carried(session, carried), named)
    if out is not None:
        _write(result, out)
    return result


class _Audit:
    """One run: its stages in order."""

    def __init__(
        self,
        session: SparkSession,
        depot: Depot,
        inputs: Inputs,
        sources: tuple[str, ...],
        crashed: frozenset[str],
        out: Path | None,
        say: Callable[[str], None],
    ) -> None:
        self.session = session
        self.depot = depot
        self.inputs = inputs
        self.sources = sources
        self.crashed = crashed
        self.out = out
        self.say = say
        self._seen: Observation | None = None
        self._bad = 0

    def run(self) -> AuditResult:
        from pyspark import StorageLevel  # noqa: PLC0415
        from pyspark.errors import PythonException  # noqa: PLC0415

        from causalcast.audit import ingest  # noqa: PLC0415

        try:
            self.say("Reading the traces")
            digests = self._digest().persist(StorageLevel.DISK_ONLY)
            logs = self._collect_logs(digests)
        except PythonException as error:
            if broken := files.broken_parquet(str(error)):
                raise InputUnusable(broken) from error
            raise  # a fault of ours, not of the traces
        except ingest.UNREADABLE as error:
            raise InputUnusable(f"the traces cannot be read: {ingest.first_line(error)}") from error
        try:
            bad = self._quarantine()
            if not logs:
                raise InputUnusable(self._nothing_usable(bad))
            self.say(f"Ordering the messages of {len(logs)} processes")
            doubtful = self._doubtful(bad, logs)
            known = build_clock(list(logs.values()), self.crashed, doubtful)
            self.say("Replaying every process")
            return self._judge(digests, logs, known, bad)
        finally:
            digests.unpersist()

    # --------------------------------------------------------------------------------------- reading

    @cached_property
    def _rows(self) -> DataFrame:
        """All rows as Spark reads them: what the workers read themselves is read so only to name what is bad."""
        from causalcast.audit import ingest  # noqa: PLC0415

        return ingest.read(self.session, self.inputs)

    def _digest(self) -> DataFrame:
        """Return one digest per process; local Parquet is read by the workers themselves, the rest by Spark."""
        from causalcast.audit import direct, stages  # noqa: PLC0415

        here = self.depot.folder is not None
        splits, others = direct.splits(self.inputs.parquet) if here else ([], list(self.inputs.parquet))
        parts = self._packed(replace(self.inputs, parquet=tuple(others)))
        if splits:
            table = [(split.path, split.first, split.last) for split in splits]
            tasks = min(len(splits), 4 * self.session.sparkContext.defaultParallelism)
            named = self.session.createDataFrame(table, stages.SPLIT_SCHEMA).repartition(tasks)
            read = named.mapInArrow(stages.read_batches(self.depot), stages.PART_SCHEMA)
            parts = read if parts is None else parts.unionByName(read)
        if parts is None:
            raise InputUnusable(f"{', '.join(self.sources)}: no rows")
        partitions = int(self.session.conf.get("spark.sql.shuffle.partitions") or 8)
        partitions = max(partitions, self.inputs.size // BYTES_PER_PARTITION)
        return parts.repartition(partitions, "process").mapInArrow(
            stages.digest_batches(self.depot), stages.DIGEST_SCHEMA
        )

    def _packed(self, inputs: Inputs) -> DataFrame | None:
        from pyspark.sql import Observation  # noqa: PLC0415
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from causalcast.audit import ingest, stages  # noqa: PLC0415

        if not (inputs.json or inputs.parquet):
            return None
        self._seen = Observation("ingest")
        rows = self._rows if inputs == self.inputs else ingest.read(self.session, inputs)
        observed = rows.observe(self._seen, F.count("reason").alias("bad"))
        return ingest.usable(observed).mapInArrow(stages.pack_batches(self.depot), stages.PART_SCHEMA)

    def _collect_logs(self, digests: DataFrame) -> dict[str, LogIndex]:
        from causalcast.audit import stages  # noqa: PLC0415

        logs: dict[str, LogIndex] = {}
        self._bad = 0
        for row in digests.select("process", "log_index").collect():
            packed = self.depot.get(bytes(row["log_index"]))
            if row["process"] == stages.NO_PROCESS:
                self._bad += stages.unpack_count(packed)
            else:
                logs[row["process"]] = stages.unpack_index(packed)
        if self._seen is not None:
            self._bad += int(self._seen.get.get("bad", 0))
        return dict(sorted(logs.items()))

    def _quarantine(self) -> BadRows:
        from causalcast.audit import ingest  # noqa: PLC0415

        if self._bad == 0:
            return ingest.NO_BAD_ROWS
        self.say(f"Locating {self._bad} rows that cannot be used")
        return ingest.collect_bad_rows(self.session, self.inputs, self._rows)

    def _nothing_usable(self, bad: BadRows) -> str:
        where = ", ".join(self.sources[:3]) + (" ..." if len(self.sources) > 3 else "")
        if bad.count == 0:
            return f"{where}: no rows"
        first = bad.rows[0] if bad.rows else None
        example = f"; the first: {_place(first.file, first.line)}: {first.reason}" if first is not None else ""
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

    def _judge(self, digests: DataFrame, logs: dict[str, LogIndex], known: Known, bad: BadRows) -> AuditResult:
        from pyspark import StorageLevel  # noqa: PLC0415

        from causalcast.audit import stages  # noqa: PLC0415

        clock = known.clock
        marks = {process: log.marks for process, log in logs.items()}
        shared = self.depot.put(pickle.dumps((clock, marks), protocol=5))
        stage = stages.replay_batches(self.depot, shared)
        replays = digests.select("process", "body").mapInArrow(stage, stages.REPLAY_SCHEMA)
        replays = replays.persist(StorageLevel.DISK_ONLY)
        latency, delay, whole = Histogram(), Histogram(), ProcessTimeline()
        excused = unproven = 0
        path = self.out / "findings.parquet" if self.out is not None else None
        try:
            replays.count()
            with Collection(clock, path) as collection:
                collection.add_log_findings(_bad_row_findings(bad))
                collection.add_log_findings(_unfinished_findings(self.inputs))
                collection.add_log_findings(self._located(known.findings))
                for row in replays.toLocalIterator():
                    replay = stages.unpack_replay(self.depot.get(bytes(row["result"])))
                    collection.add(replay, logs[replay.process].names)
                    latency.merge(replay.latency)
                    delay.merge(replay.stability_delay)
                    whole.merge(replay.timeline)
                    excused += replay.excused
                    unproven += replay.unproven
        finally:
            replays.unpersist()
        files.refuse_changed(self.inputs.sizes)
        indices = [index for log in logs.values() for index in log.topics.values()]
        result = AuditResult(
            verdict="fail" if collection.counts else "pass",
            events=sum(log.rows for log in logs.values()),
            processes=_summaries(logs, known),
            messages=sum(topic.messages for topic in clock.topics.values()),
            deliveries=sum(index.deliveries for index in indices),
            quarantined=bad.count,
            counts=dict(sorted(collection.counts.items())),
            findings=tuple(_with_pictures(collection.sample(), Witness(clock, logs))),
            quarantine=bad.rows,
            latency=latency.milliseconds(),
            stability_delay=delay.milliseconds(),
            payload_bytes=sizes(topic.payload for topic in clock.topics.values()),
            overhead_bytes=sizes(topic.overhead for topic in clock.topics.values()),
            notes=tuple(_notes(logs, known, self.crashed, bad, latency, excused, unproven)),
            sources=self.sources,
            roots=dict(sorted(collection.roots.items())),
            suspects=collection.suspects,
            timeline=summarise(whole, clock, logs),
            transport=transport(whole, logs.values(), latency.count),
        )
        if self.out is not None:
            self.say("Writing the findings")
            _write(result, self.out)
        return result

    def _located(self, findings: list[LogFinding]) -> list[LogFinding]:
        """Say of incomplete logs in which file and line they begin, so that a misspelt name can be found."""
        from causalcast.audit import ingest  # noqa: PLC0415

        wanted = {f.process for f in findings if f.kind == "absent-log" and f.process is not None and f.number is None}
        if not wanted:
            return findings
        places = ingest.first_places(self._rows, sorted(wanted)[:MAX_NOTED])
        return [
            replace(f, detail=f"{f.detail}; first named at {places[f.process]}")
            if f.process in places and f.kind == "absent-log" and f.number is None
            else f
            for f in findings
        ]


def to_json(result: AuditResult) -> dict[str, Any]:
    """Return the object that `causalcast audit --json` prints; its fields are in `docs/audit.md`."""
    return {
        "verdict": result.verdict,
        "events": result.events,
        "processes": len(result.processes),
        "messages": result.messages,
        "deliveries": result.deliveries,
        "quarantined": result.quarantined,
        "findings": [_finding_json(finding) for finding in result.findings[:JSON_FINDINGS]],
        "counts": result.counts,
        "roots": result.roots,
        "suspects": dict(result.suspects),
        "quarantine": [
            {"file": row.file, "line": row.line, "reason": row.reason} for row in result.quarantine[:JSON_FINDINGS]
        ],
        "latency": _distribution_json(result.latency),
        "stability_delay": _distribution_json(result.stability_delay),
        "payload_bytes": _distribution_json(result.payload_bytes),
        "overhead_bytes": _distribution_json(result.overhead_bytes),
        "transport": _transport_json(result.transport),
        "notes": list(result.notes),
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    return {
        "property": finding.property,
        "kind": finding.kind,
        "process": finding.process,
        "message": finding.message,
        "cause": finding.cause,
        "detail": finding.detail,
        "root": finding.root,
        "culprit": finding.culprit,
        "explains": finding.explains,
    }


def _distribution_json(distribution: Distribution) -> dict[str, Any]:
    names = ("unit", "count", "mean", "p50", "p90", "p99", "maximum")
    return {name: getattr(distribution, name) for name in names}


def _transport_json(transport: Transport | None) -> dict[str, Any] | None:
    if transport is None:
        return None
    names = ("sends", "receives", "redundant", "redundancy")
    return {name: getattr(transport, name) for name in names} | {"wait": _distribution_json(transport.wait)}


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


def _bad_row_findings(bad: BadRows) -> Iterator[LogFinding]:
    """A row set aside may have held anything, so no audit that set rows aside passes."""
    files = sorted({file for file, _, _ in bad.per_file})
    for file in files:
        number = sum(count for name, _, count in bad.per_file if name == file)
        first = next((row for row in bad.rows if row.file == file), None)
        example = f"; the first: {_place(file, first.line)}: {first.reason}" if first is not None else ""
        rows = "1 row" if number == 1 else f"{number} rows"
        yield LogFinding("absent-log", None, None, None, "", f"{rows} of {file} could not be used{example}")


def _unfinished_findings(inputs: Inputs) -> Iterator[LogFinding]:
    """What a file will hold that is still being written is unknown too."""
    for file in inputs.unfinished:
        detail = f"{file} is not whole yet, by its name: what it holds was not judged"
        yield LogFinding("absent-log", None, None, None, "", detail)


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _summaries(logs: dict[str, LogIndex], known: Known) -> tuple[ProcessSummary, ...]:
    found = [
        ProcessSummary(
            process=process,
            events=log.rows,
            broadcasts=sum(int(index.counter.size) for index in log.topics.values()),
            deliveries=sum(index.deliveries for index in log.topics.values()),
            stables=sum(index.stables for index in log.topics.values()),
            fate=known.clock.members[process].fate,
        )
        for process, log in logs.items()
    ]
    found.extend(ProcessSummary(process, 0, 0, 0, 0, "absent") for process in known.absent)
    return tuple(sorted(found, key=lambda summary: summary.process))


def _notes(
    logs: dict[str, LogIndex],
    known: Known,
    crashed: frozenset[str],
    bad: BadRows,
    latency: Histogram,
    excused: int,
    unproven: int,
) -> Iterator[str]:
    """Say what the verdict rests on."""
    members = known.clock.members
    fates: dict[str, list[str]] = {}
    for process, member in members.items():
        fates.setdefault(member.fate, []).append(process)
    why = {
        "crashed": "their obligations end with their logs",
        "evicted": "their obligations end with their logs and with the eviction",
        "left": "they owe nothing after they left",
        "joined late": "they owe what was broadcast after their join, as far as the logs tell",
    }
    for fate, reason in why.items():
        if fate in fates:
            yield f"{fate}: {_listed(fates[fate])}; {reason}."
    if known.absent:
        yield f"No log: {_listed(known.absent)}; their messages are judged by what others say of them."
    if unknown := sorted(crashed - members.keys()):
        yield f"Named as crashed, but not in the trace: {_listed(unknown)}."
    if holes := [process for process, member in members.items() if member.holes]:
        yield (
            f"Rows are missing from the logs of {_listed(holes)}: what is absent there proves nothing, so "
            f"{unproven} messages that they do not show as delivered are not held against them."
        )
    if excused:
        yield f"{excused} deliveries did not take place and were not owed: those processes were not entitled to them."
    if bad.count:
        yield f"{bad.count} rows were set aside; what they held is unknown, so the verdict cannot be a pass."
    if repeated := sum(log.repeated for log in logs.values()):
        yield f"{repeated} rows stand in the traces more than once and were counted once."
    yield from _unjudged(logs, known)
    if latency.negative:
        yield f"{latency.negative} latencies are below zero: clocks disagree. Clocks never decide order here."


def _unjudged(logs: dict[str, LogIndex], known: Known) -> Iterator[str]:
    """Say which properties the trace says nothing about."""
    topics = known.clock.topics.values()
    if not any(index.tags for log in logs.values() for index in log.topics.values()):
        yield "No broadcast carries a tag: exact tags (P4) were not judged."
    if not any(topic.stability for topic in topics):
        yield "No process reports stability: P5 and P6 were not judged."
    elif not all(topic.stability_owed for topic in topics):
        yield "A crashed member was not evicted, so nothing need become stable: P6 was not judged."


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NOTED])
    return shown if len(names) <= MAX_NOTED else f"{shown} and {len(names) - MAX_NOTED} more"


def _write(result: AuditResult, out: Path) -> None:
    (out / "audit.json").write_text(json.dumps(to_json(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    quarantine = {
        "file": pa.array([row.file for row in result.quarantine], pa.string()),
        "line": pa.array([row.line for row in result.quarantine], pa.int64()),
        "reason": pa.array([row.reason for row in result.quarantine], pa.string()),
        "text": pa.array([row.text for row in result.quarantine], pa.string()),
    }
    pq.write_table(pa.table(quarantine), out / "quarantine.parquet")
    names = ("process", "events", "broadcasts", "deliveries", "stables", "fate")
    columns = {name: [getattr(process, name) for process in result.processes] for name in names}
    pq.write_table(pa.table(columns), out / "processes.parquet")
    measured = {
        "measure": ["latency", "stability_delay", "payload_bytes", "overhead_bytes"],
        **{
            name: [
                getattr(d, name)
                for d in (result.latency, result.stability_delay, result.payload_bytes, result.overhead_bytes)
            ]
            for name in ("unit", "count", "mean", "p50", "p90", "p99", "maximum")
        },
    }
    pq.write_table(pa.table(measured), out / "metrics.parquet")
    if result.timeline is not None:
        starts = range(len(next(iter(result.timeline.columns.values()), ())))
        times = [result.timeline.start_ns + i * result.timeline.width_ns for i in starts]
        pq.write_table(pa.table({"start_ns": times, **result.timeline.columns}), out / "timeline.parquet")
