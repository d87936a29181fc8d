"""A later run on a trace that grew does what is new, and says what a run from the start says; killed or not."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causalcast.audit import depot, ingest, intake, pipeline, stages, state
from causalcast.audit import lines as odd_lines
from causalcast.audit.errors import BoxDamaged, InputUnusable
from causalcast.audit.pipeline import run_audit
from tests.audit import unsparked
from tests.audit.churn import Churn
from tests.audit.histories import mutate
from tests.audit.test_trouble import PAIR, lines, log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from causalcast.audit.result import AuditResult

Row = dict[str, Any]
THIRD = log("c", "deliver b:1", "deliver a:1", "deliver a:2")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the stages in this process, without a JVM."""
    monkeypatch.setattr(pipeline, "spark_session", unsparked.session)


def audited(trace: Path, out: Path | None = None, **more: Any) -> AuditResult:
    return run_audit([trace], out=out, **more)


def random_trace(seed: int) -> tuple[random.Random, list[Row], tuple[str, ...]]:
    rng = random.Random(seed)
    rows: list[Row] = []
    while not rows:
        rows = Churn(rng).run(rng.randint(15, 70))
    crashed: tuple[str, ...] = ()
    if rng.random() < 0.6:
        rows, crashed = mutate(rng, rows)
    for row in rows:
        if rng.random() < 0.9:
            row["time_ns"] = row["seq"] * 1_000 + len(row["process"])
    return rng, rows, crashed


def growing(rng: random.Random, rows: list[Row], trace: Path) -> Iterator[None]:
    """Write a trace in a few steps: files of one or of many processes, appended to; new files; a file rewritten."""
    files = rng.randint(1, 3)
    texts = ["".join(line + "\n" for line in lines(rows[part::files])) for part in range(files)]
    if rng.random() < 0.5:
        texts = []
        for process in sorted({row["process"] for row in rows}):
            texts.append("".join(line + "\n" for line in lines([row for row in rows if row["process"] == process])))
    cuts = sorted(rng.random() for _ in range(rng.randint(1, 3)))
    for cut in [*cuts, 1.0]:
        for number, text in enumerate(texts):
            end = text.rfind("\n", 0, round(len(text) * cut * rng.choice((1, 1, 0.5)))) + 1 if cut < 1 else len(text)
            path = trace / f"{number}.jsonl"
            if path.exists() and len(path.read_text()) > end:
                continue
            if end:
                path.write_text(text[:end])
        if any(path.stat().st_size for path in trace.iterdir()):
            yield


def test_a_later_run_says_what_a_run_from_the_start_says(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed = taken_over = 0
    stage = stages.replay_batches

    def counting(*arguments: Any) -> Any:
        run = stage(*arguments)

        def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal replayed
            for batch in run(batches):
                replayed += sum(len(processes) for processes in batch.column("processes").to_pylist())
                yield batch

        return counted

    monkeypatch.setattr(stages, "replay_batches", counting)
    for seed in range(20):
        rng, rows, crashed = random_trace(seed)
        trace, out = tmp_path / f"{seed}", tmp_path / f"{seed}.out"
        trace.mkdir()
        for _ in growing(rng, rows, trace):
            before = replayed
            found = audited(trace, out, crashed=crashed)
            taken_over += len([p for p in found.processes if p.fate != "absent"]) - (replayed - before)
            assert found == audited(trace, crashed=crashed), seed
        assert audited(trace, out, crashed=crashed) == found, seed

    assert taken_over > 5


def test_a_file_that_grew_is_read_from_where_it_ended(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    rows = [{"process": "a", "seq": i, "event": "broadcast", "origin": "a", "counter": i} for i in range(1, 1001)]
    (trace / "a.jsonl").write_text("\n".join(lines(rows[:990])) + "\n")
    (trace / "b.jsonl").write_text(lines(log("b", "join"))[0] + "\n")
    audited(trace, out)
    parsed: list[int] = []
    parse = stages.lines.parse
    monkeypatch.setattr(stages.lines, "parse", lambda data: parsed.append(data.count(b"\n")) or parse(data))

    with (trace / "a.jsonl").open("a") as file:
        file.write("\n".join(lines(rows[990:])) + "\n")
    assert audited(trace, out).events == 1001
    assert parsed == [10]

    audited(trace, out)
    assert parsed == [10]


def test_what_changed_in_a_file_is_read_again_however_it_looks(here: None, tmp_path: Path) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    (trace / "t.jsonl").write_text("\n".join(lines([*PAIR, *THIRD])) + "\n")
    pq.write_table(pa.Table.from_pylist(log("d", "leave")), trace / "d.parquet")
    assert audited(trace, out).counts == {"causal-order": 1}

    times = (trace / "t.jsonl").stat()
    right = log("c", "deliver a:1", "deliver b:1", "deliver a:2")
    (trace / "t.jsonl").write_text("\n".join(lines([*PAIR, *right])) + "\n")
    os.utime(trace / "t.jsonl", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (trace / "t.jsonl").stat().st_size == times.st_size
    assert audited(trace, out).verdict == "pass"

    (trace / "t.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    pq.write_table(pa.Table.from_pylist(THIRD), trace / "d.parquet")
    assert audited(trace, out).counts == {"causal-order": 1}

    (trace / "d.parquet").unlink()
    assert audited(trace, out) == audited(trace)


def test_a_line_that_was_not_whole_is_read_again(here: None, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    first, second = lines(log("a", "join", "leave"))
    trace.write_text(first)
    assert audited(trace, out).events == 1

    trace.write_text(f"{first}\n{second}")

    assert audited(trace, out).events == 2


def test_who_is_named_as_crashed_is_asked_each_time(here: None, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    trace.write_text("\n".join(lines([*PAIR, *log("c", "deliver a:1")])) + "\n")

    assert audited(trace, out).counts == {"undelivered": 2}
    assert audited(trace, out, crashed=["c"]).verdict == "pass"
    assert audited(trace, out).counts == {"undelivered": 2}


def test_another_version_of_the_code_begins_anew(here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    trace.write_text("\n".join(lines([*PAIR, *THIRD])) + "\n")
    audited(trace, out)
    boxes = set((out / ".state").glob("*.box"))

    monkeypatch.setattr(state, "_code", lambda: "another")

    assert audited(trace, out).counts == {"causal-order": 1}
    assert not boxes & set((out / ".state").glob("*.box"))


def test_the_state_stays_as_large_as_the_trace(here: None, tmp_path: Path) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    rows = [{"process": "a", "seq": i, "event": "broadcast", "origin": "a", "counter": i} for i in range(1, 801)]
    sizes = []
    for step in range(40):
        with trace.open("a") as file:
            file.write("\n".join(lines(rows[step * 20 : (step + 1) * 20])) + "\n")
        assert audited(trace, out).events == (step + 1) * 20
        sizes.append(sum(path.stat().st_size for path in (out / ".state").iterdir()))
    manifest = json.loads((out / ".state" / state.MANIFEST).read_text())
    audited(trace, tmp_path / "fresh")
    fresh = sum(path.stat().st_size for path in (tmp_path / "fresh" / ".state").iterdir())

    assert len(manifest["files"][str(trace)]["pieces"]) <= 7
    assert max(sizes) < 4 * fresh


@pytest.mark.parametrize("left", ["nothing", "half", "zeros"])
def test_a_state_that_was_damaged_is_named(here: None, tmp_path: Path, left: str) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    trace.write_text("\n".join(lines(PAIR)) + "\n")
    expected = audited(trace, out)
    for box in (out / ".state").glob(f"*{depot.SUFFIX}"):
        data = box.read_bytes()
        box.write_bytes({"nothing": b"", "half": data[: len(data) // 2], "zeros": bytes(len(data))}[left])
    depot._mapped.cache_clear()

    with pytest.raises(BoxDamaged, match=r"\.box: is not as it was written: remove .*/out/\.state and run again"):
        audited(trace, out)

    shutil.rmtree(out / ".state")
    assert audited(trace, out) == expected


def test_two_audits_do_not_share_a_folder(here: None, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("\n".join(lines(PAIR)) + "\n")

    with state.State(tmp_path / "out" / ".state"), pytest.raises(InputUnusable, match="another audit"):
        audited(trace, tmp_path / "out")


def test_an_output_folder_among_the_traces_is_no_trace(here: None, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("\n".join(lines(PAIR)) + "\n")

    for _ in range(2):
        assert audited(tmp_path, tmp_path / "out").events == 6


def test_workers_that_do_not_share_the_output_folder_get_their_values_another_way(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, out = tmp_path / "t.jsonl", tmp_path / "out"
    trace.write_text("\n".join(lines([*PAIR, *THIRD])) + "\n")
    whole = audited(trace)
    # As on a cluster: the folder of this name is not there for those who are to write to it.
    read = pipeline.Intake.read

    def read_elsewhere(intake: pipeline.Intake) -> None:
        shutil.rmtree(out / ".state", ignore_errors=True)
        read(intake)

    monkeypatch.setattr(pipeline.Intake, "read", read_elsewhere)
    steps: list[str] = []

    found = audited(trace, out, progress=steps.append)

    assert (found.verdict, found.counts, found.events) == ("fail", {"causal-order": 1}, 9)
    assert found == whole
    assert any(f"do not share {out / '.state'} on " in step for step in steps)


# ------------------------------------------------------------------------------------- killed


def audit_until(trace: Path, out: Path, step: int) -> None:
    """Run an audit and end this process as `kill -9` does at a step: a stage, a value written, a file renamed."""
    passed = 0

    def maybe_die(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    pipeline.spark_session = unsparked.session  # type: ignore[assignment]
    put, rename = depot.Box.put, type(trace).replace

    def dying_put(box: depot.Box, value: Any) -> bytes:
        token = put(box, value)
        maybe_die()
        return token

    def dying_rename(path: Path, target: Path) -> Path:
        maybe_die()
        return rename(path, target)

    depot.Box.put = dying_put  # type: ignore[method-assign]
    type(trace).replace = dying_rename  # type: ignore[method-assign,assignment]
    run_audit([trace], out=out, progress=maybe_die)


@pytest.mark.parametrize("later", [False, True])
def test_a_run_that_is_killed_anywhere_is_repeated_as_if_it_had_not_been(
    here: None, tmp_path: Path, later: bool
) -> None:
    trace, whole, base = tmp_path / "trace", tmp_path / "whole", tmp_path / "base"
    trace.mkdir()
    (trace / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    (trace / "c.jsonl").write_text("\n".join(lines(THIRD[:2])) + "\n")
    # Where a log has a hole, the later run looks at everything.
    (trace / "d.jsonl").write_text("\n".join(lines([row | {"seq": 5} for row in log("d", "deliver a:1")])) + "\n")
    base.mkdir()
    if later:
        audited(trace, base)
        (trace / "c.jsonl").write_text("\n".join(lines(THIRD)) + "\n")
    expected = audited(trace, whole)
    step, finished = 0, False
    while not finished:
        step += 1
        out = tmp_path / f"out{step}"
        shutil.copytree(base, out)
        child = multiprocessing.get_context("fork").Process(target=audit_until, args=(trace, out, step))
        child.start()
        child.join(60)
        finished = child.exitcode == 0
        assert finished or child.exitcode == -signal.SIGKILL
        assert audited(trace, out) == expected
        for name in ("findings", "processes", "quarantine", "metrics"):
            assert pq.read_table(out / f"{name}.parquet") == pq.read_table(whole / f"{name}.parquet")
        assert (out / "audit.json").read_bytes() == (whole / "audit.json").read_bytes()
        assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}
    assert step > 15


# ------------------------------------------------------------------------------------- Spark


ODD = (
    '{"process": "c", "seq": ',
    "nonsense",
    '{"process": "c", "seq": 9, "event": "jion"}',
    '{"seq": 9, "event": "leave"}',
    '{"process": "c", "seq": 9, "event": "leave"} {"process": "c", "seq": 10, "event": "join"}',
    '{"process": 1, "seq": 1, "event": "leave"}',
    '{"process": "c", "seq": 9.0, "event": "leave"}',
    '{"process": "c", "seq": "9", "event": "leave"}',
    '{"process": "c", "seq": 99999999999999999999, "event": "leave"}',
    '{"process": "c", "process": "d", "seq": 9, "event": "leave"}',
    "{'process': 'c', 'seq': 9, 'event': 'leave'}",
    '  {"process": "c", "seq": 9, "event": "leave"}',
    '{"process": "c", "seq": 9, "event": "leave"}}',
    '{"process": "c", "seq": 9, "event": "leave", "time_ns": NaN}',
    '{"process": "c", "seq": 9, "event": "broadcast", "origin": "c", "counter": 1, "context": [["a", 0]]}',
    '{"process": "c", "seq": 9, "event": "broadcast", "origin": "c", "counter": 1, "context": [["a", "1"]]}',
    '{"process": "c", "seq": 9, "event": "broadcast", "origin": "c", "counter": 1, "context": [[1, 1]]}',
    '"text"',
    "null",
    "{}",
    '\ufeff{"process": "c", "seq": 9, "event": "leave"}',
    '[{"process": "c", "seq": 9, "event": "leave"}, {"process": "c", "seq": 10, "event": "join"}]',
    r'{"process": "\ud800", "seq": 9, "event": "leave"}',
)


def test_an_odd_line_means_the_same_alone(spark: SparkSession, tmp_path: Path) -> None:
    whole, rest = tmp_path / "whole.jsonl", tmp_path / "rest.jsonl"
    text = "".join(f"{line}\n{odd}\n" for line, odd in zip(lines(PAIR) * 4, ODD, strict=False))
    assert odd_lines.sift(text.encode()) is None  # for the list
    alone = [odd for odd in ODD if odd[0] not in "[\ufeff"]
    text = "".join(f"{line}\n{odd}\n" for line, odd in zip(lines(PAIR) * 4, alone, strict=False))
    found, sifted = odd_lines.texts(text.encode()), odd_lines.sift(text.encode())
    assert found is not None
    assert sifted is not None
    odd = sifted[1]
    whole.write_text(text)
    rest.write_bytes(b"\n".join(line for number, line in enumerate(found) if number not in odd))

    left = spark.createDataFrame([(found[i].decode(), "") for i in odd], "value string, file string")
    by_line = Counter(map(str, ingest.parse_lines(left).drop("file", "value").collect()))
    by_file, others = (
        Counter(map(str, ingest.read(spark, ingest.find_inputs([path])).drop("file").collect()))
        for path in (whole, rest)
    )

    assert len(odd) > 12
    assert by_file == by_line + others


def test_lines_that_are_odd_cost_a_later_run_no_more_than_these_lines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    bad = [*ODD[:4], '{"process": "c", "seq": 0, "event": "leave"}']
    (trace / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n" + ODD[0])
    (trace / "c.jsonl").write_text("\n".join([*lines(THIRD[:1]), *bad, *lines(THIRD[1:2]), ODD[5]]) + "\n" + ODD[1])
    first = audited(trace, out)
    assert (first.quarantined, first.events) == (7, 9)
    read: list[tuple[str, ...]] = []
    by_spark = ingest.read

    def reading(session: SparkSession, inputs: ingest.Inputs, *text: Any) -> Any:
        read.append((*inputs.json, *inputs.parquet))
        return by_spark(session, inputs, *text)

    monkeypatch.setattr(ingest, "read", reading)
    with (trace / "c.jsonl").open("a") as file:
        file.write("\n" + lines(THIRD)[2] + "\n")
    steps: list[str] = []
    second = audited(trace, out, progress=steps.append)

    assert any(re.fullmatch("Reading what is new: [12] of 4 pieces", step) for step in steps)
    assert not any(read)
    assert second == audited(trace)
    assert (second.quarantined, second.counts["causal-order"]) == (7, 1)
    assert [(row.file, row.line) for row in second.quarantine] == [
        (str(trace / "ab.jsonl"), 7),
        *((str(trace / "c.jsonl"), number) for number in (2, 3, 4, 5, 6, 9)),
    ]
    # Where nearly all is odd, or a line depends on others, Spark reads the file.
    (trace / "d.jsonl").write_text(f"{ODD[1]}\n" * 101)
    third = audited(trace, out)
    assert third.quarantined == 7 + 101
    assert read[-1] == (str(trace / "d.jsonl"),)
    monkeypatch.setattr(intake, "MOST_LEFT", 6)
    assert audited(trace, out) == third
    assert set(read[-1]) == {str(trace / name) for name in ("ab.jsonl", "c.jsonl", "d.jsonl")}


def test_lines_mean_the_same_to_arrow_and_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = [*PAIR, *THIRD]
    rows[0] = rows[0] | {"context": [], "payload_bytes": 5, "note": {"a": [1, {"b": None}]}}
    rows[2] = rows[2] | {"context": [["b", 1]], "topic": None}
    text = "\n\n".join(json.dumps(row, ensure_ascii=bool(i % 2)) for i, row in enumerate(rows)).replace("c", "é")
    text = text.replace('"proéess"', '"process"').replace('"éounter"', '"counter"').replace('"éontext"', '"context"')
    text = text.replace('"broadéast"', '"broadcast"')
    for name, data in (("t.jsonl", text), ("w.jsonl", text.replace("\n", "\r\n") + "\r\n")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(data.encode())
        direct = audited(folder)
        # A list is read by Spark, with the whole file.
        (folder / name).write_bytes((data + '\n[{"process": "1", "seq": 1, "event": "leave"}]').encode())
        by_spark = audited(folder)

        assert direct.counts == by_spark.counts == {"causal-order": 1}
        assert (direct.events, direct.payload_bytes) == (9, by_spark.payload_bytes)
        assert by_spark.events == 10
        assert replace(by_spark.findings[0], picture=None) == replace(direct.findings[0], picture=None)
