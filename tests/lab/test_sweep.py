"""Sweeps on Spark: nothing is run twice, nothing half done is taken for done, traces are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causalcast.lab import records
from causalcast.lab.experiment import load
from causalcast.lab.grid import runs
from causalcast.lab.sweep import Folders, Progress, sweep, with_audits
from tests.lab.tiny import write_tiny

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.usefixtures("spark")
def test_a_sweep_that_was_killed_goes_on_with_what_is_missing(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    tasks = runs(load(path), path)
    folders = Folders.under(tmp_path, "tiny")
    first = sweep(tasks[:3], folders)
    assert (first.ran, first.skipped, first.failures) == (3, 0, ())
    # As a killed worker leaves it: a hidden file that was never renamed.
    (folders.runs / f".{tasks[3].key}.parquet").write_bytes(b"PAR1 half of it")
    before = {file.name: file.stat().st_mtime_ns for file in folders.runs.glob("[!.]*")}
    told: list[Progress] = []
    second = sweep(tasks, folders, progress=told.append)
    assert (second.ran, second.skipped) == (5, 3)
    after = {file.name: file.stat().st_mtime_ns for file in folders.runs.glob("[!.]*")}
    assert after.keys() == {f"{run.key}.parquet" for run in tasks}
    assert before == {name: after[name] for name in before}
    assert told[0] == Progress(0, 5, "Starting Spark")
    third = sweep(tasks, folders, progress=lambda _: pytest.fail("nothing is left to do"))
    assert (third.ran, third.skipped) == (0, 8)


@pytest.mark.usefixtures("spark")
def test_a_failed_run_stops_no_other_and_is_tried_again(tmp_path: Path) -> None:
    path = write_tiny(tmp_path)
    tasks = runs(load(path), path)[:2]
    broken = tasks[0]._replace(calculate=("weibull_mean",))
    folders = Folders.under(tmp_path, "tiny")
    swept = sweep([broken, tasks[1]], folders)
    assert (swept.ran, len(swept.failures)) == (1, 1)
    assert "weibull_mean" in swept.failures[0].reason
    assert sweep(tasks, folders).ran == 1


def test_traces_are_audited_once_each_by_itself(tmp_path: Path, spark: SparkSession) -> None:
    path = write_tiny(
        tmp_path,
        ('stack = ["tcb", "cbcast"]', 'stack = ["tcb", "unordered"]'),
        ('stack = "cbcast"', 'stack = "unordered"'),
        ('delay = "weibull:10"', 'delay = "uniform:1:90", fifo = false'),
        ("messages = 3", "messages = 8"),
    )
    tasks = [run for run in runs(load(path), path) if run.seed == 1 and run.parameters["nodes"] == 4]
    folders = Folders.under(tmp_path, "tiny")
    assert sweep(tasks, folders).ran == 2
    swept = sweep(tasks, folders, traces=True)
    assert swept.ran == 2
    assert spark.read.parquet(str(records.path_of(folders.traces, tasks[0].key))).count() > 8 * 4 * 4
    assert [audited.verdict for audited in swept.audits] == ["pass", "fail"]
    found = [records.read(folders.runs, run.key) for run in tasks]
    findings = [record.measured["findings"] for record in with_audits(found, swept.audits)]
    assert findings[0] == 0
    assert isinstance(findings[1], float)
    assert findings[1] > 0
    again = sweep(tasks, folders, traces=True, progress=lambda _: pytest.fail("nothing is left to do"))
    assert again.audits == swept.audits
