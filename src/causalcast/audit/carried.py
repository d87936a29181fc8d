"""Clock checks: traces that carry vector clocks of their own, or name the causes of their events.

The audit derives its order from logs and never trusts a clock. Here the clocks themselves are judged:

- *well-formed*: whole numbers, with an entry of the own process;
- *gap-free*: own entries run 1, 2, 3, ... in each process;
- *equal to the order the events imply*: a clock contains that of the event before it, and of each event that it
  names; where sends and receptions are logged, a reception contains its send and learns nothing else. A clock that
  passes names exactly the events that happened before.

What carries no clocks but names its causes (spans) is checked for causes that are absent, identifiers that are
given twice, and causes that go round in a circle.

Spark moves each clock once, and once more for each entry by which it grew; sorting makes it n log n. The circle is
looked for on the driver, which holds the causes as pairs of numbers.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from causalcast.audit import clock_stages as stages
from causalcast.audit.errors import InputUnusable, NoTraceFile
from causalcast.audit.files import all_below, literal
from causalcast.audit.graph import circle
from causalcast.audit.result import AuditResult, Finding, ProcessSummary, Quarantined
from causalcast.trace.importers.items import CLOCKS_FILE, MAX_TEXT, REJECTED_FILE, unfinished

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from causalcast.audit.result import FindingKind

MAX_QUARANTINED: Final = 1000
_SCHEMA: Final = (
    "process string, file string, line long, clock map<string,long>, sends string, receives array<string>, "
    "exact boolean, execution string, text string, _corrupt string"
)
_PROPERTY: Final = {"absent-log": "trace", "unlogged-send": "trace", "reused-identifier": "trace"}
_CLOCK_KINDS: Final = ("clock-malformed", "clock-gap", "clock-order")


@dataclass(frozen=True, slots=True)
class Files:
    """What imports left in the folders to audit."""

    clocks: tuple[Path, ...]
    rejected: tuple[Path, ...]
    traces: tuple[str | Path, ...]
    """The sources without the folders that hold clocks and no trace."""

    def __bool__(self) -> bool:
        return bool(self.clocks or self.rejected)


@dataclass(slots=True)
class Carried:
    """What the checks found."""

    events: dict[str, int] = field(default_factory=dict)
    """Events per process."""
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    quarantine: list[Quarantined] = field(default_factory=list)
    quarantined: int = 0
    notes: list[str] = field(default_factory=list)


def find_carried(sources: Sequence[str | Path]) -> Files:
    """Return the files that imports left in the folders among `sources`, at any depth.

    Raises:
        InputUnusable: a folder cannot be listed, or holds an import that was ended before it was done.
    """
    clocks: list[Path] = []
    rejected: list[Path] = []
    traces: list[str | Path] = []
    for source in sources:
        folder = Path(source)
        mine: list[Path] = []
        if "://" not in str(source) and folder.is_dir():
            every = _below(folder)
            if left := next(
                (path for path in every if path.name == unfinished(path.with_name(CLOCKS_FILE)).name), None
            ):
                raise InputUnusable(f"{left}: an import was ended before it was done: import again")
            mine = [path.resolve() for path in every if path.name == CLOCKS_FILE]
            clocks.extend(mine)
            rejected.extend(path.resolve() for path in every if path.name == REJECTED_FILE)
        if not mine or _holds_traces(source):
            traces.append(source)
    return Files(tuple(dict.fromkeys(clocks)), tuple(dict.fromkeys(rejected)), tuple(traces))


def _below(folder: Path) -> list[Path]:
    try:
        return all_below(folder)
    except OSError as error:
        raise InputUnusable(f"{error.filename}: cannot be read: {error.strerror or error}") from error


def _holds_traces(source: str | Path) -> bool:
    from causalcast.audit.ingest import find_inputs  # noqa: PLC0415 - imports PySpark

    try:
        find_inputs([source])
    except NoTraceFile:
        return False
    return True


def check_carried(session: SparkSession, files: Files) -> Carried:
    """Check the clocked events of imports."""
    carried = Carried()
    if files.clocks:
        _check(session, files.clocks, carried)
    for path in files.rejected:
        _set_aside(path, carried)
    carried.findings.sort(key=lambda finding: (not finding.root, finding.kind))
    return carried


def add_carried(result: AuditResult | None, carried: Carried, sources: tuple[str, ...]) -> AuditResult:
    """Return the result of an audit with what the clock checks found; `None` where there was no trace to audit.

    Raises:
        InputUnusable: there was nothing at all.
    """
    if result is None:
        if not carried.events and not carried.counts:
            raise InputUnusable(f"{', '.join(sources)}: no rows")
        summaries = tuple(ProcessSummary(name, count, 0, 0, 0, "member") for name, count in carried.events.items())
        note = "No broadcasts: P1 to P6 were not judged."
        events = sum(carried.events.values())
        result = AuditResult("pass", events, summaries, 0, 0, 0, {}, (), notes=(note,), sources=sources)
    counts = Counter(result.counts) + carried.counts
    roots = [finding for finding in carried.findings if finding.root]
    others = [finding for finding in carried.findings if not finding.root]
    old = [finding for finding in result.findings if finding.root]
    rest = [finding for finding in result.findings if not finding.root]
    return replace(
        result,
        verdict="fail" if counts else "pass",
        counts=dict(sorted(counts.items())),
        findings=(*old, *roots, *rest, *others),
        quarantined=result.quarantined + carried.quarantined,
        roots=dict(sorted((Counter(result.roots) + carried.counts).items())),
        quarantine=(*result.quarantine, *carried.quarantine)[:MAX_QUARANTINED],
        notes=(*result.notes, *carried.notes),
    )


def _check(session: SparkSession, paths: Sequence[Path], carried: Carried) -> None:
    from pyspark import StorageLevel  # noqa: PLC0415 - the command line must start without it
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    rows = session.read.schema(_SCHEMA).options(**options).json([literal(str(path)) for path in paths])
    whole = F.col("_corrupt").isNull() & F.col("process").isNotNull() & F.col("file").isNotNull()
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        broken = rows.where(~whole).count()
        if broken:
            detail = f"{broken} lines of {', '.join(map(str, paths))} are not what an import writes; import again"
            carried.counts["absent-log"] += broken
            carried.findings.append(Finding("trace", "absent-log", None, None, None, detail))
        good = rows.where(whole).drop("_corrupt", "text")
        logs = good.groupBy("execution", "process", F.col("clock").isNotNull().alias("clocked")).agg(
            F.count("*").alias("events"), F.count("receives").alias("told")
        )
        known = logs.orderBy("execution", "process").collect()
        for row in known:
            carried.events[row["process"]] = carried.events.get(row["process"], 0) + row["events"]
        clocked = [row for row in known if row["clocked"]]
        if clocked:
            _clocks(good.where(F.col("clock").isNotNull()), carried)
            carried.notes.extend(_clock_notes(clocked, carried))
        if len(clocked) < len(known):
            _causes(good.where(F.col("clock").isNull()), carried)
    finally:
        rows.unpersist()


# ----------------------------------------------------------------------------------- events with clocks


def _clocks(events: DataFrame, carried: Carried) -> None:
    from pyspark import StorageLevel  # noqa: PLC0415
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    columns = ("process", "file", "line", "clock", "sends", "receives", "exact", "execution")
    logs = events.select(*columns).repartition("execution", "process").mapInArrow(stages.check_logs, stages.ROWS_SCHEMA)
    logs = logs.persist(StorageLevel.DISK_ONLY)
    try:
        asked = logs.where(F.col("row").isin(stages.LOG, stages.ASK)).repartition("execution", "target")
        told = logs.where(F.col("row").isin(stages.SEND, stages.RECEIVE)).repartition("execution", "target")
        breaches = logs.where(F.col("row").isin(stages.BREACH, stages.COUNT))
        breaches = breaches.unionByName(asked.mapInArrow(stages.answer, stages.ROWS_SCHEMA))
        breaches = breaches.unionByName(told.mapInArrow(stages.pair, stages.ROWS_SCHEMA))
        for row in breaches.drop("clock", "news").toLocalIterator():
            if row["row"] == stages.COUNT:
                carried.counts[row["kind"]] += row["number"]
            elif sum(finding.kind == row["kind"] for finding in carried.findings) < stages.SAMPLE:
                carried.findings.append(_clock_finding(row))
    finally:
        logs.unpersist()


def _clock_finding(row: Any) -> Finding:
    where = f"{row['file']}:{row['line']}"
    execution = f" in execution {row['execution']}" if row["execution"] else ""
    return Finding(
        property=_PROPERTY.get(row["kind"], "clocks"),
        kind=row["kind"],
        process=row["process"],
        message=f"{row['process']}:{row['own']}",
        cause=row["cause"],
        detail=f"{row['detail']} ({where}{execution})",
    )


def _clock_notes(logs: list[Any], carried: Carried) -> Iterator[str]:
    executions = len({row["execution"] for row in logs})
    among = f" in {executions} executions" if executions > 1 else ""
    broken = [kind for kind in _CLOCK_KINDS if carried.counts[kind]]
    verdict = f"not valid ({', '.join(broken)})" if broken else "well-formed, gap-free and equal to the implied order"
    yield f"Clocks: {sum(row['events'] for row in logs)} vectors of {len(logs)} logs{among} are {verdict}."
    if not any(row["told"] for row in logs):
        yield (
            "Clocks: no event says what it received, so the order is the one that the vectors imply among themselves: "
            "each contains the one before it and all that it names."
        )
    if carried.counts["unlogged-send"]:
        yield (
            f"Clocks: {carried.counts['unlogged-send']} receptions have no logged send. That is a fault of the log and "
            "not of the order; their clocks were checked against the events they name."
        )


# ------------------------------------------------------------------------- events that name their causes


def _causes(events: DataFrame, carried: Carried) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    number = events.count()
    place = F.concat_ws(":", "file", "line")
    places = (F.count("*").alias("n"), F.min("process").alias("process"), F.min("at").alias("at"))
    named = events.where(F.col("sends").isNotNull()).select("process", place.alias("at"), F.col("sends").alias("name"))
    identified = named.groupBy("name").agg(*places)
    causes = events.select("process", "sends", F.explode("receives").alias("name"), place.alias("at"))
    absent = causes.join(identified.select("name"), "name", "left_anti").groupBy("name").agg(*places)
    _named(identified.where("n > 1"), "reused-identifier", "{n} events have the identifier {name}", carried)
    _named(absent, "unlogged-send", "{name} is named as a cause {n} times and is not logged", carried)
    _circle(causes.where(F.col("sends").isNotNull()), carried)
    carried.notes.append(
        f"Causes: {number} events name what they follow (parents and links). Judged: each of these is logged once, and "
        "none follows itself. Not judged: order within a process, time stamps, and whether a cause was left out."
    )


def _named(frame: DataFrame, kind: FindingKind, said: str, carried: Carried) -> None:
    number = frame.count()
    if number:
        carried.counts[kind] += number
    for row in frame.orderBy("at", "name").limit(stages.SAMPLE).collect():
        detail = f"{said.format(n=row['n'], name=row['name'])} ({row['at']})"
        carried.findings.append(Finding("trace", kind, row["process"], row["name"], None, detail))


def _circle(causes: DataFrame, carried: Carried) -> None:
    edges = causes.select("sends", "name").toArrow()
    names: dict[str, int] = {}
    after, before = (
        np.array([names.setdefault(name, len(names)) for name in edges.column(column).to_pylist()], dtype=np.int64)
        for column in ("sends", "name")
    )
    found = circle(len(names), before, after)
    if not found:
        return
    known = list(names)
    path = " -> ".join(known[node] for node in [*found, found[0]][:10])
    detail = f"an event is its own cause: {path}"
    carried.counts["clock-order"] += 1
    carried.findings.append(Finding("clocks", "clock-order", None, known[found[0]], known[found[-1]], detail))


# -------------------------------------------------------------------------------------- rejected rows


def _set_aside(path: Path, carried: Carried) -> None:
    """Count what the import rejected: what it held is unknown, so an audit of it does not pass."""
    number = 0
    first = ""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            number += 1
            if number > MAX_QUARANTINED:
                continue
            try:
                row = json.loads(line)
                item = Quarantined(row["file"], int(row["line"]), row["reason"], row["text"])
            except (ValueError, KeyError, TypeError):
                item = Quarantined(str(path), number, "not what an import writes", line[:MAX_TEXT])
            carried.quarantine.append(item)
            first = first or f"{item.file}:{item.line}: {item.reason}"
    if number:
        carried.quarantined += number
        carried.counts["absent-log"] += 1
        detail = f"{number} rows could not be imported; the first: {first}"
        carried.findings.append(Finding("trace", "absent-log", None, None, None, detail))
