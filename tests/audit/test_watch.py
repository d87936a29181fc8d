"""`causalcast watch` on growing files: each line is read once, over restarts too; the verdict is the batch audit's."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from causalcast.audit.errors import InputUnusable
from causalcast.audit.files import WATCH_STATE
from causalcast.audit.ingest import find_inputs
from causalcast.audit.live import Watcher
from causalcast.audit.pipeline import run_audit
from causalcast.audit.tail import whole_lines
from causalcast.cli.watch import _verdict
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


def test_what_watch_has_not_read_leaves_the_verdict_to_the_batch_audit(spark: SparkSession, tmp_path: Path) -> None:
    """A last line that is torn, files that became shorter or vanished, and those that watch does not follow."""
    for name, rows in (("a", PAIR[:3]), ("b", PAIR[3:]), ("c", log("c", "join")), ("d", log("d", "join"))):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines(rows)) + "\n")
    watcher = Watcher(tmp_path)
    other = ("e.json", ".f.jsonl", "g.parquet", "h.jsonl.gz", "clocks.import")

    def spoil(quiet: float) -> bool:
        if quiet < 1.5 or watcher.progress.events < 8:
            return False
        with (tmp_path / "a.jsonl").open("a") as file:
            file.write('{"process": "a", "se')
        (tmp_path / "c.jsonl").write_text("")
        (tmp_path / "d.jsonl").unlink()
        for name in other:
            (tmp_path / name).write_text("{}")
        return True

    progress = watcher.run(lambda _: None, spoil)

    assert not progress.window.open_questions
    spoilt = [str(tmp_path / name) for name in ("a.jsonl", "c.jsonl", "d.jsonl", *other)]
    assert sorted(doubt.split(": ")[0] for doubt in progress.needs_batch) == sorted(spoilt)


def test_watch_that_is_ended_before_its_first_step_has_the_verdict_of_the_batch_audit(
    spark: SparkSession, tmp_path: Path
) -> None:
    progress = Watcher(tmp_path).run(lambda _: None, lambda _: True)
    with pytest.raises(InputUnusable, match="no trace file in this folder"):
        _verdict(tmp_path, progress, [])

    (tmp_path / "abc.jsonl").write_text("\n".join(lines([*PAIR, *THIRD])) + "\n")
    progress = Watcher(tmp_path).run(lambda _: None, lambda _: True)
    answer = _verdict(tmp_path, progress, [])

    assert progress.events == 0
    assert (answer["verdict"], answer["events"], answer["counts"]) == ("fail", 9, {"causal-order": 1})


def test_what_is_read_to_its_end_is_in_no_doubt(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    (tmp_path / "empty.jsonl").touch()
    for _ in range(2):  # when it is started again nothing is new
        progress = Watcher(tmp_path).run(lambda _: None, lambda quiet: quiet > 1.5)
        assert (progress.events, progress.needs_batch) == (6, [])


def test_lines_that_are_no_utf8_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = "".join(f'{{"process":"{name}","seq":1,"event":"join"}}\n' for name in "éè")
    (tmp_path / "c.jsonl").write_bytes(rows.encode("latin-1"))

    progress = Watcher(tmp_path).run(lambda _: None, lambda quiet: quiet > 1.5)

    assert (progress.events, progress.bad) == (0, 2)


def test_a_folder_that_vanishes_is_one_clear_line(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    trace.mkdir()
    (trace / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    watcher = Watcher(trace, tmp_path / "state")

    def remove(quiet: float) -> bool:
        if watcher.progress.events == len(PAIR) and trace.is_dir():
            shutil.rmtree(trace)
        return quiet > 20

    with pytest.raises(InputUnusable, match=f"{trace}: cannot be followed: .*No such file") as raised:
        watcher.run(lambda _: None, remove)
    assert "Traceback" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_state_that_is_none_or_would_be_followed_is_refused(tmp_path: Path) -> None:
    trace, state = tmp_path / "trace", tmp_path / "state"
    trace.mkdir()
    state.mkdir()
    (state / "window.pickle").write_bytes(b"\x80\x05\x95")
    with pytest.raises(InputUnusable, match=r"window.pickle: no state of this version: remove .*state"):
        Watcher(trace, state)
    for inside in (trace, trace / "state"):
        with pytest.raises(InputUnusable, match="would be followed"):
            Watcher(trace, inside)


def test_a_step_of_watch_that_was_killed_is_no_unfinished_trace(tmp_path: Path) -> None:
    (tmp_path / "ab.jsonl").write_text("\n".join(lines(PAIR)) + "\n")
    state = tmp_path / WATCH_STATE
    state.mkdir()
    (state / ".findings-000000001.jsonl.tmp").write_text('{"prop')

    assert find_inputs([tmp_path]).unfinished == ()


def test_no_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputUnusable, match="no such folder"):
        Watcher(tmp_path / "absent")
