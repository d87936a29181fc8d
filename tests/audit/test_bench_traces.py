"""The traces that the benchmarks measure on are what they say: correct, but for what was left out or repeated."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from benchmarks import bench_watch
from benchmarks.audit_traces import without_one_each, write_joined, write_topics, write_turnover
from benchmarks.bench_audit import _cross, _published
from benchmarks.report import Case
from causalcast.trace import read_jsonl
from tests.audit.local import judge

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


ROW = ("process", "seq", "event", "origin", "counter", "peer")


def test_one_delivery_of_each_process_or_topic_is_missing(tmp_path: Path) -> None:
    for write, column, number in ((write_joined, "process", 12), (write_topics, "topic", 16)):
        rows = without_one_each(write, column)(tmp_path, number, 600)
        table = pq.read_table(tmp_path / "all.parquet")
        cases = judge([{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()])

        assert table.num_rows == rows
        missing = [case for case in cases if case.kind == "undelivered"]
        lacking = Counter(case.process if column == "process" else case.topic for case in missing)
        assert set(lacking.values()) == {1}
        # In a topic, what a process misses before its first broadcast may have been before it subscribed.
        assert number / 2 < len(lacking) <= number
        assert {case.kind for case in cases} <= {"undelivered", "missing-cause"}
        (tmp_path / "all.parquet").unlink()


def test_processes_that_come_and_go_lack_nothing(tmp_path: Path) -> None:
    number = write_turnover(tmp_path, 15, 15 * 600)
    rows = [
        {name: value for name in ROW if (value := getattr(event, name)) is not None}
        for path in sorted(tmp_path.glob("*.jsonl"))
        for event in read_jsonl(path)
    ]

    assert len(rows) == number
    happened = Counter(row["event"] for row in rows)
    assert (happened["join"], happened["leave"], happened["crash"], happened["evict"]) == (3, 2, 1, 12)
    assert judge(rows) == []


def test_what_watch_is_measured_on_repeats_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_watch, "BETWEEN_FAULTS", 0.02)
    repeated: dict[tuple[str, str], float] = {}
    for place in range(bench_watch.WRITERS):
        repeated |= bench_watch.write_rounds(tmp_path, place, 40, 1_000)
    rows = [
        {name: getattr(event, name) for name in ROW[:5]}
        for path in tmp_path.glob("*.jsonl")
        for event in read_jsonl(path)
    ]

    assert {(case.kind, case.process, case.message) for case in judge(rows)} == {
        ("duplicate", *key) for key in repeated
    }
    assert len(repeated) >= bench_watch.WRITERS


def test_the_crossing_is_looked_for_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def figures(_: int, events: int, *, square: int) -> Case:
        assert square == 0
        return Case("", {"kernels_to_algorithm_14": 70_500 / events})

    monkeypatch.setattr(f"{_published.__module__}._published", figures)
    found = _cross(10).figures

    assert found["algorithm_14_is_cheaper_at_events"] < 70_500 < found["kernels_are_cheaper_at_events"]
    assert found["kernels_are_cheaper_at_events"] <= 1.25 * found["algorithm_14_is_cheaper_at_events"]
