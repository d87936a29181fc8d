"""`causalcast watch` on growing files: each line is read once, over restarts too; the verdict is the batch audit's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from causalcast.audit.errors import InputUnusable
from causalcast.audit.live import Watcher
from causalcast.audit.pipeline import run_audit
from causalcast.audit.tail import whole_lines
from tests.audit.test_trouble import PAIR, lines, log

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

THIRD = log("c", "deliver b:1", "deliver a:1", "deliver a:2")


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\n{"b": ')

    assert whole_lines(file, 0) == 9
    assert whole_lines(file, 9) == 9
    with file.open("ab") as more:
        more.write(b"2}\n")
    assert whole_lines(file, 9) == 18


def test_what_grows_is_judged_once_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    text = {"a": lines(PAIR[:3]), "b": lines(PAIR[3:]), "c": lines(THIRD)}
    for process, rows in text.items():
        (trace / f"{process}.jsonl").write_text("\n".join(rows[:1]) + "\n" + rows[1][:10])

    first = Watcher(trace)
    first.run(lambda _: None, lambda _: first.progress.events >= 3)
    assert first.progress.window.shown == set()
    for process, rows in text.items():
        (trace / f"{process}.jsonl").write_text("\n".join(rows) + "\n")
    second = Watcher(trace)
    assert second.progress.events == 3
    second.run(lambda _: None, lambda _: second.progress.events >= 9)

    assert second.progress.needs_batch == []
    assert ("causal-order", "c", "b:1") in [(f["kind"], f["process"], f["message"]) for f in second.findings()]
    assert second.progress.window.total == run_audit([trace]).counts == {"causal-order": 1}


def test_a_step_that_is_repeated_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As after a crash between the end of a step and Spark's note of it."""
    watcher = Watcher(tmp_path)
    frame = spark.createDataFrame([(line, "a.jsonl") for line in lines([*PAIR, *THIRD])], "value string, file string")
    watcher._step(frame, 0)
    state = watcher.findings()

    again = Watcher(tmp_path)
    again._step(frame, 0)

    assert again.progress.events == 9
    assert again.findings() == state
    assert len(state) == 1


def test_bad_lines_are_counted_and_leave_the_verdict_to_the_batch_audit(spark: SparkSession, tmp_path: Path) -> None:
    watcher = Watcher(tmp_path)
    rows = [*lines(PAIR), "no json", json.dumps({"process": "a", "seq": 9})]
    watcher._step(spark.createDataFrame([(line, "a.jsonl") for line in rows], "value string, file string"), 0)

    assert watcher.progress.bad == 2
    assert watcher.progress.needs_batch[0].startswith("2 rows")


def test_no_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match="no such folder"):
        Watcher(tmp_path / "absent")
