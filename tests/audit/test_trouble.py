"""Traces as they come: torn, misspelt, skewed. Each test is named after what it protects."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causalcast.audit import direct, files, ingest, pipeline
from causalcast.audit.clocks import build_clock
from causalcast.audit.depot import Depot
from causalcast.audit.errors import InputUnusable
from causalcast.audit.events import BROADCAST, DELIVER, NO_VALUE
from causalcast.audit.files import MAX_LINE
from causalcast.audit.logs import LogColumns, digest
from causalcast.audit.outputs import to_json
from causalcast.audit.pipeline import run_audit
from causalcast.audit.replay import replay
from tests.audit.local import judge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Row = dict[str, Any]


def log(process: str, *events: str) -> list[Row]:
    """Write a log as `broadcast a:1` or `leave`, one row each."""
    rows: list[Row] = []
    for seq, text in enumerate(events, start=1):
        event, _, dot = text.partition(" ")
        row: Row = {"process": process, "seq": seq, "event": event}
        if dot:
            origin, _, counter = dot.partition(":")
            row |= {"origin": origin, "counter": int(counter)}
        rows.append(row)
    return rows


def lines(rows: list[Row]) -> list[str]:
    return [json.dumps(row) for row in rows]


PAIR = [
    *log("a", "broadcast a:1", "deliver b:1", "broadcast a:2"),
    *log("b", "deliver a:1", "broadcast b:1", "deliver a:2"),
]


def kinds(cases: list[Any]) -> list[tuple[str, str | None, str | None]]:
    return [(case.kind, case.process, case.message) for case in cases if case.root]


# ------------------------------------------------------------------------------------- holes and lost sends


def test_a_hole_in_a_log_is_reported_as_a_hole_and_the_rest_is_judged() -> None:
    third = log("c", "deliver b:1", "deliver a:1", "deliver a:2")
    holey = [row for row in PAIR if (row["process"], row["seq"]) != ("b", 1)]

    cases = judge([*holey, *third])

    assert kinds(cases) == [("absent-log", "b", None)]
    # Without the hole, b's log shows that a:1 is a cause of b:1.
    assert kinds(judge([*PAIR, *third])) == [("causal-order", "c", "b:1")]


def test_a_lost_send_is_no_wrong_order() -> None:
    rows = [
        *log("a", "broadcast a:1", "broadcast a:3"),
        *log("b", "deliver a:1", "deliver a:2", "deliver a:3"),
    ]

    assert kinds(judge(rows)) == [("absent-log", "a", "a:2")]


def test_program_order_is_known_even_when_the_sender_has_no_log() -> None:
    rows = log("b", "deliver a:2", "deliver a:1")

    assert kinds(judge(rows)) == [("fifo-order", "b", "a:2"), ("absent-log", "a", None)]


def test_what_is_absent_between_orders_what_is_on_both_sides() -> None:
    rows = [
        *log("a", "broadcast a:1", "deliver b:1", "deliver c:1"),
        *log("b", "deliver a:1", "broadcast b:1", "deliver c:1"),
        *log("c", "deliver a:1", "deliver b:1", "broadcast c:1"),
        *log("d", "join", "deliver c:1", "deliver a:1"),
    ]

    assert kinds(judge(rows)) == [("causal-order", "d", "c:1")]


def test_a_restart_under_the_same_name_is_named() -> None:
    rows = [*PAIR, *log("b", "broadcast b:1")]

    found = {(case.kind, case.process) for case in judge(rows)}

    assert ("reused-identifier", "b") in found


# ------------------------------------------------------------------------------------- one bad line, one bad name


def test_one_bad_line_is_named_with_file_and_line_and_the_rest_is_judged(spark: SparkSession, tmp_path: Path) -> None:
    swapped = log("c", "deliver b:1", "deliver a:1", "deliver a:2")
    text = lines([*PAIR, *swapped])
    text.insert(2, '{"process": "x", "seq": ')
    text.append('{"process": "c", "seq": 4, "event": "delivered", "origin": "a", "counter": 3}')
    trace = tmp_path / "odd name.jsonl"
    trace.write_text("\n".join(text) + "\n")

    result = run_audit([trace])

    assert result.quarantined == 2
    assert [(row.file, row.line) for row in result.quarantine] == [(str(trace), 3), (str(trace), len(text))]
    assert "unknown event delivered" in result.quarantine[1].reason
    assert result.counts["causal-order"] == 1
    assert any(f"{trace}:3" in finding.detail for finding in result.findings if finding.kind == "absent-log")


def test_a_torn_last_line_never_passes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join([*lines(PAIR), '{"process": "b", "se']))

    result = run_audit([tmp_path])

    assert (result.verdict, result.quarantined) == ("fail", 1)
    assert {finding.kind for finding in result.findings} == {"absent-log"}


def test_a_misspelt_process_is_named_with_file_and_line(spark: SparkSession, tmp_path: Path) -> None:
    rows = [dict(row) for row in PAIR]
    rows[4]["process"] = "B"
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines(rows)) + "\n")

    result = run_audit([trace])

    named = [finding.detail for finding in result.findings if finding.process == "B"]
    assert named
    assert any(f"{trace}:5" in detail for detail in named)


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1, 2]",
        '"text"',
        '{"seq": 1, "event": "join"}',
        '{"process": "", "seq": 1, "event": "join"}',
        '{"process": "a", "event": "join"}',
        '{"process": "a", "seq": 0, "event": "join"}',
        '{"process": "a", "seq": "one", "event": "join"}',
        '{"process": "a", "seq": 1.5, "event": "join"}',
        '{"process": "a", "seq": 1}',
        '{"process": "a", "seq": 1, "event": "jion"}',
        '{"process": "a", "seq": 1, "event": "deliver", "counter": 1}',
        '{"process": "a", "seq": 1, "event": "deliver", "origin": "b"}',
        '{"process": "a", "seq": 1, "event": "deliver", "origin": "b", "counter": 0}',
        '{"process": "a", "seq": 1, "event": "deliver", "origin": "b", "counter": [1]}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "payload_bytes": -1}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "context": "b:1"}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "context": [["b"]]}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "context": [["b", 0]]}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "context": [["b", 1, 2]]}',
        '{"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "context": [null]}',
        '{"process": "a", "seq": 1, "event": "evict"}',
    ],
)
def test_bad_lines_are_told_from_good_ones(line: str, judged_lines: dict[str, str | None]) -> None:
    assert judged_lines[line] is not None


@pytest.fixture(scope="module")
def judged_lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """Every line of the test above, read in one job: line to reason."""
    marks = [mark for mark in test_bad_lines_are_told_from_good_ones.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    folder = tmp_path_factory.mktemp("lines")
    found: dict[str, str | None] = {}
    for number, line in enumerate(marks[0].args[1]):
        (folder / f"{number:03d}.jsonl").write_text(line + "\n")
        found[line] = None
    rows = ingest.read(spark, ingest.find_inputs([folder])).select("file", "reason").collect()
    ordered = list(found)
    for row in rows:
        found[ordered[int(row["file"][-9:-6])]] = row["reason"]
    return found


# ------------------------------------------------------------------------------------- inputs


def test_unusable_inputs_are_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    garbage = tmp_path / "garbage.jsonl"
    garbage.write_text("?\n!\n")
    fake = tmp_path / "fake.parquet"
    fake.write_text("PAR?")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / ".part.jsonl").write_text("{}")
    (folder / "_done.json").write_text("{}")
    (folder / "a.jsonl.tmp").write_text("{}")

    for source in (empty, garbage, fake, folder, tmp_path / "absent"):
        with pytest.raises(InputUnusable) as raised:
            run_audit([source])
        assert str(source) in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(InputUnusable):
        run_audit([])


def test_a_parquet_file_cut_short_or_overwritten_is_named(spark: SparkSession, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    rows = [row | {"time_ns": number} for number, row in enumerate(PAIR)] * 500
    pq.write_table(pa.Table.from_pylist(rows), whole)
    data = whole.read_bytes()
    for name, cut in (("cut", data[: len(data) // 2]), ("holes", data[:4] + b"\xff" * 300 + data[304:])):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(cut)

        with pytest.raises(InputUnusable, match=f"{path}.*") as raised:
            run_audit([whole, path])

        assert "\n" not in str(raised.value)


def test_parquet_files_of_unlike_schemas_are_read_together_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    newer = [row | {"region": "eu", "zone": 2} for row in PAIR if row["process"] == "b"]
    pq.write_table(pa.Table.from_pylist([row for row in PAIR if row["process"] == "a"]), tmp_path / "1.parquet")
    pq.write_table(pa.Table.from_pylist(newer), tmp_path / "2.parquet")
    assert run_audit([tmp_path]).verdict == "pass"

    unlike = pa.Table.from_pylist([row | {"seq": str(row["seq"])} for row in newer])
    pq.write_table(unlike, tmp_path / "2.parquet")
    assert run_audit([tmp_path]).verdict == "pass"

    pq.write_table(pa.Table.from_pylist([row | {"schema": 2} for row in newer]), tmp_path / "2.parquet")
    with pytest.raises(InputUnusable, match=rf"{tmp_path}/2.parquet: trace schema 2"):
        run_audit([tmp_path])

    pq.write_table(pa.table({"process": ["a"], "what": ["b"]}), tmp_path / "2.parquet")
    with pytest.raises(InputUnusable, match=rf"{tmp_path}/2.parquet: no trace: it has no column event, seq"):
        run_audit([tmp_path])


def test_a_line_without_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    first = "\n".join(lines(PAIR)) + "\n"
    plain = tmp_path / "trace.jsonl"
    with plain.open("w") as file:
        file.write(first)
        file.truncate(2**30)
    packed = tmp_path / "packed.jsonl.gz"
    with gzip.open(packed, "wb", compresslevel=1) as out:
        out.write(first.encode() + b"x" * (MAX_LINE + 1))

    for path in (plain, packed):
        with pytest.raises(InputUnusable, match=rf"{path}:\d+: a line of more than 16 MiB"):
            ingest.find_inputs([path])

    long_but_whole = tmp_path / "long.jsonl"
    long_but_whole.write_text(first * (2 * MAX_LINE // len(first)))
    assert ingest.find_inputs([long_but_whole]).json == (str(long_but_whole),)


def test_a_gzip_file_that_is_none_or_cut_short_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1)
    whole = gzip.compress("\n".join(lines(PAIR)).encode())
    for number, data in enumerate((b"no gzip", whole[:-12])):
        path = tmp_path / f"{number}.jsonl.gz"
        path.write_bytes(data)
        with pytest.raises(InputUnusable, match=f"{path}: cannot be read"):
            ingest.find_inputs([path])


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines(PAIR)))

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.open", refused)  # root, who runs tests in containers, may read everything
    with pytest.raises(InputUnusable, match=f"{path}: cannot be read: Permission denied"):
        ingest.find_inputs([path])


@pytest.mark.parametrize("name", [".c.jsonl", "c.parquet.tmp", ".c.parquet.123.tmp"])
def test_a_folder_that_is_being_written_never_passes(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    (tmp_path / name).write_text('{"process": "c", "seq": 1, "ev')

    result = run_audit([tmp_path])

    assert result.verdict == "fail"
    assert [(f.kind, str(tmp_path / name) in f.detail) for f in result.findings] == [("absent-log", True)]


def test_a_file_that_grows_while_it_is_read_is_no_verdict(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(lines(PAIR)) + "\n")

    def grow(step: str) -> None:
        if step.startswith("Replaying"):
            with path.open("a") as file:
                file.write(json.dumps(log("c", "deliver b:1")[0]) + "\n")

    with pytest.raises(InputUnusable, match=f"{path}: written to while it was read"):
        run_audit([path], progress=grow)


def test_json_gzip_and_parquet_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    rows = [dict(row) for row in PAIR]
    (tmp_path / "a.jsonl").write_text("\n".join(lines(rows[:2])) + "\n\n")
    with gzip.open(tmp_path / "b.ndjson.gz", "wt") as file:
        file.write("\n".join(lines(rows[3:])))
    tag = pa.array([[{"origin": "a", "counter": 1}]])
    pq.write_table(pa.Table.from_pylist(rows[2:3]).append_column("context", tag), tmp_path / "c.parquet")

    result = run_audit([tmp_path], out=tmp_path / "out")

    assert result.events == 6
    # The tag leaves out b:1, which a had delivered.
    assert [(f.kind, f.message, f.cause) for f in result.findings] == [("tag-mismatch", "a:2", "b:1")]


def test_workers_and_spark_set_the_same_parquet_rows_aside(spark: SparkSession, tmp_path: Path) -> None:
    fine: Row = {"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1, "peer": "b"}
    changes: list[Row] = [
        {},
        {"process": None},
        {"process": ""},
        {"event": None},
        {"event": "jion"},
        {"seq": None},
        {"seq": 0},
        {"origin": None},
        {"origin": ""},
        {"counter": None},
        {"counter": -1},
        {"event": "join", "origin": None, "counter": None},
        {"event": "evict", "peer": None},
        {"event": "evict"},
        {"event": "send", "counter": None},
        {"payload_bytes": -1},
        {"payload_bytes": 0},
        {"overhead_bytes": -5},
        {"context": []},
        {"context": [{"origin": "b", "counter": 2}]},
        {"context": [{"origin": "b", "counter": 0}]},
        {"context": [{"origin": None, "counter": 1}]},
        {"context": [{"origin": "", "counter": 1}]},
        {"context": [{"origin": "b", "counter": None}]},
        {"event": "deliver", "context": [{"origin": "b", "counter": 0}]},
    ]
    dot = pa.struct([("origin", pa.string()), ("counter", pa.int64())])
    kinds = {"context": pa.list_(dot), "payload_bytes": pa.int64(), "overhead_bytes": pa.int64()}
    rows = [fine | change | {"time_ns": number} for number, change in enumerate(changes)]
    names = ("process", "seq", "event", "origin", "counter", "peer", "time_ns", *kinds)
    columns = {name: pa.array([row.get(name) for row in rows], kinds.get(name)) for name in names}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=7)

    inputs = ingest.find_inputs([tmp_path])
    by_spark = ingest.usable(ingest.read(spark, inputs)).select("time_ns").collect()
    loaded = direct.load(direct.RowGroups(inputs.parquet[0], 0, -1))
    assert loaded is not None
    table, good = direct.checked(loaded)
    by_worker, bad = table.filter(pa.array(good)), int((~good).sum())

    assert by_worker.column("time_ns").to_pylist() == [row["time_ns"] for row in by_spark]
    assert bad == len(rows) - by_worker.num_rows == 19


def test_a_bad_parquet_row_never_passes(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*PAIR, {"process": "a", "seq": 4, "event": "jion"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")

    result = run_audit([tmp_path])

    assert (result.verdict, result.events, result.quarantined) == ("fail", 6, 1)
    assert result.quarantine[0].reason == "unknown event jion"
    assert result.quarantine[0].file == str(tmp_path / "t.parquet")


def test_workers_without_a_common_disk_come_to_the_same_result(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: values travel in Spark's rows, and Spark itself reads Parquet."""
    rows = [*PAIR, *log("c", "deliver b:1", "deliver a:1", "deliver a:2"), {"process": "a", "seq": 4, "event": "jion"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    here = run_audit([tmp_path])

    monkeypatch.setattr(pipeline, "Depot", lambda _: Depot(None))

    assert run_audit([tmp_path]) == here
    assert here.counts == {"absent-log": 1, "causal-order": 1}


def test_a_process_in_several_files_is_one_log(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.Table.from_pylist(PAIR[number::3]), tmp_path / f"{number}.parquet")
    with_tag = PAIR[0] | {"context": []}
    (tmp_path / "again.jsonl").write_text(json.dumps(with_tag) + "\n")

    result = run_audit([tmp_path])

    assert (result.verdict, result.events) == ("pass", 6)
    assert any("1 rows stand in the traces more than once" in note for note in result.notes)


# ------------------------------------------------------------------------------------- verdict and report


def test_invalid_is_invalid_and_no_file_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines([*PAIR, *log("c", "deliver b:1", "deliver a:1", "deliver a:2")])))

    result = run_audit([trace], out=tmp_path / "out")

    assert result.verdict == "fail"
    written = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert written == to_json(result)
    assert written["counts"] == {"causal-order": 1}
    rows = pq.read_table(tmp_path / "out" / "findings.parquet").to_pylist()
    assert [(row["kind"], row["message"], row["cause"]) for row in rows] == [("causal-order", "b:1", "a:1")]
    for name in ("processes", "metrics", "quarantine"):
        assert pq.read_schema(tmp_path / "out" / f"{name}.parquet").names


def test_the_violating_sequence_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines([*PAIR, *log("c", "deliver b:1", "deliver a:1", "deliver a:2")])))

    picture = run_audit([trace]).findings[0].picture

    assert picture is not None
    shown = sorted(picture.events, key=lambda event: event.column)
    assert [(e.process, e.event, e.message) for e in shown] == [
        ("a", "broadcast", "a:1"),
        ("b", "deliver", "a:1"),
        ("b", "broadcast", "b:1"),
        ("c", "deliver", "b:1"),
        ("c", "deliver", "a:1"),
    ]
    for source, target in picture.arrows:
        assert picture.events[source].message == picture.events[target].message
        assert picture.events[source].column < picture.events[target].column


# ------------------------------------------------------------------------------------- size, clocks


def test_memory_grows_with_the_events_not_with_their_square() -> None:
    small, large = peak_bytes_per_event(40, 2_000), peak_bytes_per_event(160, 2_000)

    assert large < 2 * small
    assert large < 400


def peak_bytes_per_event(processes: int, messages: int) -> float:
    """Audit a run in which all deliver everything in one order; return the kernels' peak memory per event."""
    names = [f"p{i}" for i in range(processes)]
    sender = np.arange(messages) % processes
    counter = np.arange(messages) // processes + 1
    absent = np.full(messages, NO_VALUE, dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    tracemalloc.start()
    digests = [
        digest(
            name,
            LogColumns(
                names=names,
                seq=np.arange(1, messages + 1),
                event=np.where(sender == i, BROADCAST, DELIVER).astype(np.int8),
                origin=sender,
                counter=counter,
                topic=np.full(messages, -1),
                time=absent,
                payload=absent,
                overhead=absent,
                peers={},
                context_rows=none,
                context_ends=none,
                context_origin=none,
                context_counter=none,
            ),
        )
        for i, name in enumerate(names)
    ]
    known = build_clock([index for index, _ in digests])
    found = [replay(body, index.marks, known.clock).violations for index, body in digests]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not any(found)
    return peak / (processes * messages)


def test_clock_skew_never_decides_order() -> None:
    skewed = [row | {"time_ns": 10**18 - 10**9 * i} for i, row in enumerate(PAIR)]

    assert judge(skewed) == judge(PAIR) == []


def test_negative_latency_is_reported_and_judges_nothing(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    skewed = [row | {"time_ns": row["seq"] if row["process"] == "b" else 10**9} for row in PAIR]
    trace.write_text("\n".join(lines(skewed)))

    result = run_audit([trace])

    assert result.verdict == "pass"
    assert result.latency.count == 3
    assert any("clocks disagree" in note for note in result.notes)
