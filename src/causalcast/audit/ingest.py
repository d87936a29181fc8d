"""Reading traces: JSON lines and Parquet, files and folders, with every bad row set aside and accounted for.

A row is usable when it has a process, a sequence number from 1, a known event, and what that event needs. What is
not usable is *quarantined*: counted, kept with file, line and reason, and never judged. The rules are Spark
expressions in one place (`reason`), so that all formats are read alike.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it
from pyspark.sql import types as T  # noqa: N812

from causalcast.audit import files
from causalcast.audit.errors import InputUnusable, NoTraceFile
from causalcast.audit.events import EVENT_CODES
from causalcast.audit.result import Quarantined
from causalcast.trace.schema import (
    EVENTS,
    MAX_VERSION,
    MESSAGE_EVENTS,
    OTHER_SCHEMA,
    SCHEMA_FIELD,
    SCHEMA_KEY,
    SCHEMA_VERSION,
    WHAT_IS_READ,
    other_schema,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

JSON_SUFFIXES: Final = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
_LIKE_A_TRACE: Final = re.compile(r"\.(jsonl|ndjson|json|parquet|pq)(\.(gz|bz2|xz|zst|lz4|zip))?$", re.IGNORECASE)
MAX_QUARANTINED: Final = 1000
"""Quarantined rows that are kept with their text; their number is always exact."""
MAX_TEXT: Final = 2000
UNREADABLE: Final = (PySparkException, Py4JJavaError)
"""What Spark raises for files that it cannot read; some of it comes as Java threw it."""

_CORRUPT: Final = "_corrupt"
_SCHEMA: Final = T.StructType(
    [T.StructField(name, T.StringType()) for name in (*files.WORDS, SCHEMA_FIELD)]
    + [T.StructField(name, T.LongType()) for name in files.NUMBERS]
    + [
        T.StructField("context", T.ArrayType(T.ArrayType(T.StringType()))),
        T.StructField(_CORRUPT, T.StringType()),
    ]
)
_END: Final = "\u2403"
"""Put after a line, to see whether a parser comes to its end."""
_JSON_OPTIONS: Final = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "encoding": "UTF-8",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The files to read, by format, and their size in bytes where it is known."""

    json: tuple[str, ...]
    parquet: tuple[str, ...]
    size: int
    unfinished: tuple[str, ...] = ()
    """Files beside them whose names say that they are not whole yet."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the files that this machine can see, when they were listed."""

    def only(self, paths: Collection[str]) -> Inputs:
        """Return those of the files that are among `paths`."""
        return replace(
            self,
            json=tuple(path for path in self.json if path in paths),
            parquet=tuple(path for path in self.parquet if path in paths),
        )


def find_inputs(sources: Sequence[str | Path], *, without: Path | None = None) -> Inputs:
    """List the trace files of `sources`: files, folders (searched to any depth), or URIs that Spark can read.

    Names that begin with a dot or an underscore or end in `.tmp` are not read: writers use them for files that are
    not finished. Nor is what lies in `without`, the folder that an audit writes to.

    Raises:
        InputUnusable: a source does not exist or cannot be listed, there is no trace file in it, or a line of one
            never ends.
    """
    if not sources:
        raise InputUnusable("no trace given: name at least one file or folder")
    lines: list[str] = []
    parquet: list[str] = []
    unfinished: list[str] = []
    for source in sources:
        text = str(source)
        if "://" in text:
            (parquet if text.endswith(PARQUET_SUFFIXES) else lines).append(text)
            continue
        found, open_files = _files(Path(text), without.resolve() if without is not None else None)
        unfinished += open_files
        for path in found:
            (parquet if path.name.endswith(PARQUET_SUFFIXES) else lines).append(str(path.resolve()))
    try:
        sizes = files.sizes_of({*lines, *parquet})
        files.refuse_endless_lines(dict.fromkeys(lines))
    except OSError as error:
        raise InputUnusable(f"{error.filename}: cannot be read: {error.strerror or error}") from error
    return Inputs(
        tuple(dict.fromkeys(lines)),
        tuple(dict.fromkeys(parquet)),
        sum(sizes.values()),
        tuple(dict.fromkeys(unfinished)),
        sizes,
    )


def _files(source: Path, without: Path | None) -> tuple[list[Path], list[str]]:
    """Return the trace files of a source, and those that are not whole yet."""
    try:
        if source.is_file():
            with source.open("rb"):
                return [source], []
        if not source.is_dir():
            raise InputUnusable(f"{source}: no such file or folder")
        every = files.all_below(source)
        if without is not None and without.is_relative_to(source.resolve()):
            every = [path for path in every if not Path(os.path.realpath(path)).is_relative_to(without)]
        suffixes = JSON_SUFFIXES + PARQUET_SUFFIXES
        unfinished = [
            str(path)
            for path in every
            if files.is_unfinished(path.name, suffixes) and path.parent.name != files.WATCH_STATE
        ]
        alike = [
            path
            for path in every
            if _LIKE_A_TRACE.search(path.name)
            and not any(_unfinished(part) for part in path.relative_to(source).parts)
            and not path.is_dir()
        ]
        found = [path for path in alike if path.name.endswith(suffixes)]
        absent = next((path for path in found if not path.is_file()), None)
    except OSError as error:
        raise InputUnusable(f"{error.filename or source}: cannot be read: {error.strerror or error}") from error
    if len(found) < len(alike):
        other = next(path for path in alike if not path.name.endswith(suffixes))
        raise InputUnusable(f"{other}: such a name is not read: give it one of {', '.join(suffixes)}, or take it away")
    if absent is not None:
        raise InputUnusable(f"{absent}: cannot be read: no file, or a link to nothing")
    if not found and without is not None and source.resolve() == without:
        raise InputUnusable(f"{source}: is the folder for the output: give --out another, in it for example")
    if not found:
        raise NoTraceFile(f"{source}: no trace file in this folder (looked for *.jsonl, *.ndjson, *.json, *.parquet)")
    return found, unfinished


def _unfinished(name: str) -> bool:
    return name.startswith((".", "_")) or name.endswith(".tmp")


def read(session: SparkSession, inputs: Inputs, text: DataFrame | None = None) -> DataFrame:
    """Return all rows of the inputs in one shape, with `file` and, where a row is bad, `reason`.

    `text`, if there is any, are more lines, each (`value`) of a `file`.

    Raises:
        InputUnusable: a file is not what its name says.
    """
    parts = [_parsed(lines).drop("value") for lines in (text, _text_of(session, inputs.json)) if lines is not None]
    if inputs.parquet:
        parts.append(_read_parquet(session, inputs.parquet))
    frame = parts[0]
    for part in parts[1:]:
        frame = frame.unionByName(part)
    return frame.withColumn("reason", reason())


def _read_parquet(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    try:
        frame = session.read.option("mergeSchema", "true" if len(paths) > 1 else "false").parquet(*paths)
    except UNREADABLE as error:
        raise InputUnusable(f"{_named(paths)}: not readable as Parquet: {first_line(error)}") from error
    _refuse_other_footers(session, [path for path in paths if "://" in path])
    columns = [
        _cast(frame, field).alias(field.name)
        if field.name in frame.columns
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in _SCHEMA
        if field.name not in ("context", _CORRUPT)
    ]
    context = _parquet_context(frame)
    corrupt = F.lit(None).cast("string").alias(_CORRUPT)
    return frame.select(*columns, context, corrupt, F.col("_metadata.file_path").alias("file"))


def _cast(frame: DataFrame, field: T.StructField) -> Column:
    column = F.col(f"`{field.name}`")
    if isinstance(frame.schema[field.name].dataType, T.FractionalType) and field.name in files.NUMBERS:
        column = F.when(column % 1 == 0, column)
    return column.try_cast(field.dataType)


def _refuse_other_footers(session: SparkSession, paths: Sequence[str]) -> None:
    """Check the schema versions of Parquet files that only Spark may see; see `files` for the others."""
    jvm: Any = session.sparkContext._jvm
    conf = session._jsparkSession.sessionState().newHadoopConf()
    for path in session.read.parquet(*paths).inputFiles() if paths else ():
        hadoop = jvm.org.apache.hadoop.fs.Path(path)
        footer = jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter(conf, hadoop)
        if reason := other_schema(footer.getFileMetaData().getKeyValueMetaData().get(SCHEMA_KEY.decode())):
            raise InputUnusable(f"{_uri_path(path)}: {reason}")


def _parquet_context(frame: DataFrame) -> Column:
    """Return the tags as lists of two strings, whether the file has them as pairs or as structs."""
    wanted = T.ArrayType(T.ArrayType(T.StringType()))
    if "context" not in frame.columns:
        return F.lit(None).cast(wanted).alias("context")
    given = frame.schema["context"].dataType
    if isinstance(given, T.ArrayType) and isinstance(given.elementType, T.StructType):
        names = given.elementType.names
        fields = files.DOT if set(names) == set(files.DOT) else names
        pairs = F.transform("context", lambda dot: F.array(*[dot.getField(name).cast("string") for name in fields]))
        return pairs.alias("context")
    if isinstance(given, T.StringType):
        nothing = F.when(F.col("context").isNotNull(), F.array(F.lit(None).cast(wanted.elementType)))
        return F.coalesce(F.from_json("context", wanted), nothing).alias("context")
    return F.col("context").cast(wanted).alias("context")


def reason() -> Column:
    """Return why a row cannot be used, null where it can."""
    event = F.col("event")
    about_message = event.isin(*sorted(MESSAGE_EVENTS))
    dot_wrong = F.exists(
        "context",
        lambda dot: F.coalesce(
            (F.size(dot) != 2)
            | F.element_at(dot, 1).isNull()
            | (F.length(F.element_at(dot, 1)) == 0)
            | F.coalesce(F.element_at(dot, 2).try_cast("bigint") < 1, F.lit(True)),
            F.lit(True),
        ),
    )
    version = F.col(SCHEMA_FIELD)
    other = F.concat(F.lit(OTHER_SCHEMA), F.substring(version, 1, MAX_VERSION), F.lit(WHAT_IS_READ))
    return F.coalesce(
        F.when(version != str(SCHEMA_VERSION), other),
        F.when(F.col(_CORRUPT).isNotNull(), "not a JSON object, or a field of it has the wrong type"),
        F.when(F.coalesce(F.length("process"), F.lit(0)) == 0, "no process"),
        F.when(event.isNull(), "no event"),
        F.when(~event.isin(*sorted(EVENTS)), F.concat(F.lit("unknown event "), event)),
        F.when(F.coalesce(F.col("seq"), F.lit(0)) < 1, "seq is absent or below 1"),
        F.when(
            about_message,
            F.coalesce(
                F.when(F.coalesce(F.length("origin"), F.lit(0)) == 0, "no origin"),
                F.when(F.coalesce(F.col("counter"), F.lit(0)) < 1, "counter is absent or below 1"),
            ),
        ),
        F.when((event == "evict") & F.col("peer").isNull(), "evict names no peer"),
        F.when(F.col("payload_bytes") < 0, "payload_bytes is negative"),
        F.when(F.col("overhead_bytes") < 0, "overhead_bytes is negative"),
        F.when(F.col("context").isNotNull() & dot_wrong, "context is not a list of [origin, counter]"),
    )


def usable(frame: DataFrame) -> DataFrame:
    """Return the usable rows, the event as a small integer and only the columns that the stages need."""
    codes = F.create_map(*[F.lit(x) for pair in EVENT_CODES.items() for x in (pair[0], pair[1])])
    return frame.where(F.col("reason").isNull()).select(
        "process",
        "seq",
        codes[F.col("event")].cast("byte").alias("event"),
        "origin",
        "counter",
        F.when(F.col("topic") != "", F.col("topic")).alias("topic"),
        F.when(F.col("event").isin("evict", "crash"), F.col("peer")).alias("peer"),
        "time_ns",
        "payload_bytes",
        "overhead_bytes",
        # A nested column would make Spark measure each Arrow batch again for every row it adds.
        F.when(F.col("event") == "broadcast", F.to_json("context")).alias("context"),
    )


@dataclass(frozen=True, slots=True)
class BadRows:
    """The quarantine: a bounded sample of the rows, all their reasons, and the processes whose logs they touch."""

    count: int
    rows: tuple[Quarantined, ...]
    per_file: tuple[tuple[str, str, int], ...]
    """File, reason, number of rows."""
    processes: frozenset[str]
    """Named by the rows themselves."""
    unnamed: tuple[tuple[str, int], ...]
    """Files with rows that name no process, and how many."""


NO_BAD_ROWS: Final = BadRows(0, (), (), frozenset(), ())


def collect_bad_rows(
    session: SparkSession, inputs: Inputs, frame: DataFrame, text: DataFrame | None = None, alone: Collection[str] = ()
) -> BadRows:
    """Read the bad rows again, with their text and line; costs a pass over the files that have any.

    `text` are lines as in `read`, of the files `alone`, of which no others are bad.

    Raises:
        InputUnusable: a row says another schema version.
    """
    bad = frame.where(F.col("reason").isNotNull())
    summary = bad.groupBy("file", "reason").count().orderBy("file", "reason").collect()
    for row in summary:
        refuse_other_schema(row["file"], row["reason"])
    bad_files = {row["file"] for row in summary}
    count = sum(row["count"] for row in summary)
    names = [row["process"] for row in bad.select("process").where("process <> ''").distinct().limit(10_000).collect()]
    unnamed = bad.where(F.coalesce(F.length("process"), F.lit(0)) == 0).groupBy("file").count().collect()
    json_files = [path for path in inputs.json if _uri_path(path) in {_uri_path(file) for file in bad_files}]
    rows: list[Quarantined] = []
    if json_files:
        whole = [path for path in json_files if path not in alone]
        texts = [lines for lines in (text, _text_of(session, whole)) if lines is not None]
        rows.extend(_json_rows(reduce(lambda one, other: one.unionByName(other), texts), json_files))
    rows.extend(_parquet_rows(bad, set(json_files)))
    return BadRows(
        count=count,
        rows=tuple(rows[:MAX_QUARANTINED]),
        per_file=tuple((_uri_path(row["file"]), row["reason"], row["count"]) for row in summary),
        processes=frozenset(names),
        unnamed=tuple(sorted((_uri_path(row["file"]), row["count"]) for row in unnamed)),
    )


def refuse_other_schema(file: str, reason: str) -> None:
    """Say where a file says another schema version, if that is why its rows are bad.

    Raises:
        InputUnusable: it is.
    """
    if reason.startswith(OTHER_SCHEMA):
        path = _uri_path(file)
        place = None if path.endswith(PARQUET_SUFFIXES) else files.first_other_schema(path)
        raise InputUnusable(place or f"{path}: {reason}")


def parse_lines(text: DataFrame) -> DataFrame:
    """Return the rows of lines (`value`, of a `file`) in the shape of `read`, with the lines."""
    return _parsed(text).withColumn("reason", reason())


def _text_of(session: SparkSession, paths: Sequence[str]) -> DataFrame | None:
    if not paths:
        return None
    lines = session.read.text([files.literal(path) for path in paths])
    return lines.select("value", F.col("_metadata.file_path").alias("file"))


def _parsed(text: DataFrame) -> DataFrame:
    """Return the rows of lines, each with its line, which may be a list of rows."""
    value = F.col("value")
    # Spark reads the first value of a line and says nothing of what comes after it, unless that is more of a list.
    followed = F.from_json(F.concat(F.lit("["), value, F.lit(f',"{_END}"]')), "array<string>")
    ends = F.instr(value, "}") == F.length(F.rtrim(value))
    alone = ends | F.coalesce((F.size(followed) == 2) & (F.get(followed, F.lit(1)) == _END), F.lit(False))
    listed = F.when(F.ltrim(value).startswith("["), F.from_json(value, "array<string>"))
    lines = text.where(F.length(F.btrim(value, F.lit(" \t"))) > 0).select(
        value,
        "file",
        (alone & F.is_valid_utf8(value)).alias("whole"),
        F.explode(F.coalesce(listed, F.array(value))).alias("item"),
    )
    row = F.when(F.col("whole"), F.from_json("item", _SCHEMA, _JSON_OPTIONS))
    known = lines.select(value, "file", row.alias("row"))
    corrupt = F.when(F.col("row").isNull(), value).otherwise(F.col(f"row.{_CORRUPT}"))
    fields = [F.col(f"row.{field.name}") for field in _SCHEMA if field.name != _CORRUPT]
    return known.select(value, "file", *fields, corrupt.alias(_CORRUPT))


def _json_rows(text: DataFrame, files: Sequence[str]) -> list[Quarantined]:
    rows = parse_lines(text)
    bad = rows.where(F.col("reason").isNotNull()).select("file", "reason", "value").limit(MAX_QUARANTINED).collect()
    reasons = {(_uri_path(row["file"]), row["value"]): row["reason"] for row in bad}
    found: list[Quarantined] = []
    for file in files:
        wanted = {value: why for (path, value), why in reasons.items() if path == _uri_path(file)}
        found.extend(_locate_lines(file, wanted))
    return found


def _locate_lines(file: str, wanted: dict[str, str]) -> Iterable[Quarantined]:
    """Find the line numbers of bad lines by their text; a file that is not local keeps them without."""
    path = Path(_uri_path(file))
    if not path.is_file():
        return [Quarantined(file, None, why, text[:MAX_TEXT]) for text, why in wanted.items()]
    found: list[Quarantined] = []
    with _open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            text = line.rstrip("\r\n")
            why = wanted.get(text)
            if why is not None:
                found.append(Quarantined(str(path), number, why, text[:MAX_TEXT]))
                if len(found) == MAX_QUARANTINED:
                    break
    return found


def _open_text(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="\n")
    return path.open(encoding="utf-8", errors="replace", newline="\n")


def _parquet_rows(bad: DataFrame, json_files: set[str]) -> list[Quarantined]:
    paths = {_uri_path(path) for path in json_files}
    shown = F.to_json(F.struct(*files.WORDS, *files.NUMBERS, "context"))
    rows = bad.where(F.col("file").rlike(r"\.(parquet|pq)$")).select("file", "reason", shown.alias("text"))
    return [
        Quarantined(_uri_path(row["file"]), None, row["reason"], row["text"][:MAX_TEXT])
        for row in rows.limit(MAX_QUARANTINED).collect()
        if _uri_path(row["file"]) not in paths
    ]


def _uri_path(file: str) -> str:
    """Return the path of a `file:` URI as Spark writes them, anything else unchanged."""
    if file.startswith("file:"):
        return unquote(urlparse(file).path)
    return file


def processes_of(frame: DataFrame, files: Iterable[str]) -> frozenset[str]:
    """Return the processes with usable rows in `files`."""
    wanted = set(files)
    rows = frame.where(F.col("reason").isNull()).select("process", "file").distinct().collect()
    return frozenset(row["process"] for row in rows if _uri_path(row["file"]) in wanted)


def first_files(frame: DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Return the first file, by its name, in which each name stands as process or origin."""
    usable_rows = frame.where(F.col("reason").isNull())
    named = usable_rows.select(F.explode(F.array("process", "origin")).alias("name"), "file")
    rows = named.where(F.col("name").isin(*names)).groupBy("name").agg(F.min("file").alias("file")).collect()
    return {row["name"]: _uri_path(row["file"]) for row in rows}


def place_in(path: str, name: str) -> str:
    """Return where a name first stands in a file, as `file:line` (Parquet: the file)."""
    line = None if path.endswith(PARQUET_SUFFIXES) else _line_naming(Path(path), name)
    return path if line is None else f"{path}:{line}"


def _line_naming(path: Path, name: str) -> int | None:
    if not path.is_file():
        return None
    with _open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if name not in line:
                continue
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and name in (row.get("process"), row.get("origin")):
                return number
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message: what Spark says after it is of no use to a person."""
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _named(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
