"""Trace files that are easily passed over or misread: links, names that are patterns, odd lines and columns.

In each of these what is passed over would make the difference between pass and fail.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causalcast.audit import direct, files, ingest, lines, pipeline
from causalcast.audit.depot import Depot
from causalcast.audit.errors import InputUnusable
from causalcast.audit.pipeline import run_audit
from tests.audit.test_trouble import PAIR, log
from tests.audit.test_trouble import lines as lines_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

THIRD = log("c", "deliver b:1", "deliver a:1", "deliver a:2")
"""Delivers an effect before its cause."""


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines_of(rows)))


# ------------------------------------------------------------------------------------- files


def test_folders_that_are_linked_are_searched_once(tmp_path: Path) -> None:
    trace, elsewhere = tmp_path / "trace", tmp_path / "elsewhere"
    write(trace / "ab.jsonl", PAIR)
    write(elsewhere / "c.jsonl", THIRD)
    (trace / "c").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(trace)

    assert ingest.find_inputs([trace]).json == (str(trace / "ab.jsonl"), str(elsewhere / "c.jsonl"))


@pytest.mark.parametrize("target", ["nowhere", "c.jsonl"])
def test_a_link_to_nothing_is_named(tmp_path: Path, target: str) -> None:
    write(tmp_path / "ab.jsonl", PAIR)
    (tmp_path / "c.jsonl").symlink_to(tmp_path / target)

    for without in (None, tmp_path / "out"):
        with pytest.raises(InputUnusable, match=f"{tmp_path}/c.jsonl: cannot be read"):
            ingest.find_inputs([tmp_path], without=without)


@pytest.mark.parametrize("name", ["c.jsonl.zst", "c.JSONL", "c.Json.GZ", "c.parquet.zip"])
def test_a_file_named_much_like_a_trace_is_not_left_out(tmp_path: Path, name: str) -> None:
    write(tmp_path / "ab.jsonl", PAIR)
    write(tmp_path / name, THIRD)
    (tmp_path / "notes.txt").write_text("not asked for")

    with pytest.raises(InputUnusable, match=f"{tmp_path}/{name}: such a name is not read"):
        ingest.find_inputs([tmp_path])


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "ab.jsonl", PAIR)
    write(tmp_path / "closed" / "c.jsonl", THIRD)
    listed = os.scandir

    def refuse(path: str) -> Any:  # root, who runs tests in containers, may list everything
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputUnusable, match=f"{tmp_path}/closed: cannot be read: Permission denied"):
        ingest.find_inputs([tmp_path])


def test_a_folder_that_holds_all_output_is_no_input(tmp_path: Path) -> None:
    write(tmp_path / "ab.jsonl", PAIR)

    with pytest.raises(InputUnusable, match="is the folder for the output"):
        ingest.find_inputs([tmp_path], without=tmp_path)


def test_a_trace_beside_clocks_that_cannot_be_read_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "clocks.import").write_text("")
    (tmp_path / "trace.jsonl").symlink_to(tmp_path / "nowhere")

    with pytest.raises(InputUnusable, match=f"{tmp_path}/trace.jsonl: cannot be read"):
        run_audit([tmp_path])


@pytest.mark.parametrize("name", ["a[1].jsonl", "a{1}.jsonl", "a*.jsonl", "a?.jsonl", "a\\1.jsonl", "a %231#.jsonl"])
def test_a_name_that_is_a_pattern_is_the_name_of_one_file(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Spark reads the file, for the list in it; read as a pattern its name is another file's."""
    write(tmp_path / "a1.jsonl", PAIR)
    (tmp_path / name).write_text(json.dumps(THIRD) + "\n")

    result = run_audit([tmp_path])

    assert (result.events, result.counts) == (9, {"causal-order": 1})


# ------------------------------------------------------------------------------------- lines

TWO = (
    "".join(lines_of(THIRD)),
    ",".join(lines_of(THIRD)),
    " ".join(lines_of(THIRD)),
    lines_of(THIRD)[0] + "]" + lines_of(THIRD)[1],
    json.dumps(THIRD[:1]) + json.dumps(THIRD[1:]),
    lines_of(THIRD)[0] + "x",
    lines_of(THIRD)[0] + ',"\u2403"',
)


@pytest.mark.parametrize("shared", [True, False])
def test_what_follows_a_row_on_its_line_is_not_passed_over(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    write(tmp_path / "ab.jsonl", PAIR)
    (tmp_path / "c.jsonl").write_text("".join(f"{line}\n" for line in TWO))
    if not shared:
        monkeypatch.setattr(pipeline, "Depot", lambda _: Depot(None))

    result = run_audit([tmp_path])

    assert (result.verdict, result.events, result.quarantined) == ("fail", len(PAIR), len(TWO))
    assert [row.line for row in result.quarantine] == list(range(1, len(TWO) + 1))


def test_text_that_is_no_utf8_names_nobody(spark: SparkSession, tmp_path: Path) -> None:
    """Two names that cannot be read are not one."""
    write(tmp_path / "ab.jsonl", PAIR)
    rows = "".join(f'{{"process":"{name}","seq":1,"event":"join"}}\n' for name in "éè")
    (tmp_path / "c.jsonl").write_bytes(rows.encode("latin-1"))

    result = run_audit([tmp_path])

    assert (result.verdict, result.events, result.quarantined) == ("fail", len(PAIR), 2)


def test_a_packed_file_without_a_byte_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl.gz"
    path.touch()

    with pytest.raises(InputUnusable, match=f"{path}: cannot be read: it is empty"):
        lines.unpacked(lines.Lines(str(path), 0, -1), b"")


# ------------------------------------------------------------------------------------- columns


def table(**columns: Any) -> pa.Table:
    given = pa.Table.from_pylist(PAIR)
    for name, values in columns.items():
        at = given.schema.get_field_index(name)
        given = given.append_column(name, values) if at < 0 else given.set_column(at, name, values)
    return given


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("seq", pa.array([[1]] * 6)),
        ("seq", pa.array([True] * 6)),
        ("seq", pa.array([1, 2, 3, 1, 2, 3], pa.timestamp("us"))),
        ("time_ns", pa.array(range(6), pa.timestamp("ns"))),
        ("time_ns", pa.array(range(6), pa.timestamp("us"))),
        ("event", pa.array([{"x": "join"}] * 6)),
        ("context", pa.array([[1]] * 6)),
        ("context", pa.array([[("b", 1)]] * 6, pa.map_(pa.string(), pa.int64()))),
    ],
)
def test_a_column_of_another_kind_is_named(tmp_path: Path, name: str, values: pa.Array) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(**{name: values}), path)

    named = rf"{path}: no trace: its column {name} is of type"
    with pytest.raises(InputUnusable, match=named):
        direct.load(direct.RowGroups(str(path), 0, -1))
    with pytest.raises(InputUnusable, match=named):
        files.refuse_foreign_parquet([str(path)])


def test_two_columns_of_one_name_are_named(tmp_path: Path) -> None:
    given = pa.Table.from_pylist(PAIR)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_arrays([*given.columns, given["seq"]], names=[*given.column_names, "seq"]), path)

    with pytest.raises(InputUnusable, match=rf"{path}: no trace: it has two columns of one name"):
        files.refuse_foreign_parquet([str(path)])


@pytest.mark.parametrize("shared", [True, False])
def test_parts_of_a_number_and_tags_that_are_none_are_set_aside(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    pq.write_table(table(seq=pa.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.7])), tmp_path / "1.parquet")
    tags = pa.array(["oops", None, None, '[["b", "1"]]', None, None])
    pq.write_table(table(context=tags), tmp_path / "2.parquet")
    if not shared:
        monkeypatch.setattr(pipeline, "Depot", lambda _: Depot(None))

    for name, reason in (("1", "seq is absent or below 1"), ("2", "context is not a list of [origin, counter]")):
        result = run_audit([tmp_path / f"{name}.parquet"])

        assert (result.verdict, [row.reason for row in result.quarantine]) == ("fail", [reason])


@pytest.mark.parametrize("shared", [True, False])
def test_the_parts_of_a_tag_are_known_by_their_names(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    tags = pa.array([None, None, [{"counter": 1, "origin": "b"}], None, None, None])
    pq.write_table(table(context=tags), tmp_path / "t.parquet")
    if not shared:
        monkeypatch.setattr(pipeline, "Depot", lambda _: Depot(None))

    assert run_audit([tmp_path]).verdict == "pass"
