"""A trace of another schema version is never judged: one line names the file and the version, whoever reads it."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from causalcast.audit import files, pipeline
from causalcast.audit.depot import Depot
from causalcast.audit.errors import InputUnusable
from causalcast.audit.live import Watcher
from causalcast.audit.pipeline import run_audit
from causalcast.cli import app
from causalcast.trace import JsonLinesWriter, ParquetWriter, TraceEvent
from tests.audit.test_trouble import PAIR

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Row = dict[str, Any]

READ = ", and what is read here is schema 1"


def write(path: Path, rows: list[Row]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def saying(version: object, *, row: int = 1) -> list[Row]:
    """The log of `a`, of which one row says a version."""
    rows = [dict(each) for each in PAIR[:3]]
    rows[row]["schema"] = version
    return rows


@pytest.fixture(params=["workers read", "Spark reads"])
def folder(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a good log of `b`, audited in each of the two ways."""
    if request.param == "Spark reads":
        monkeypatch.setattr(pipeline, "Depot", lambda _: Depot(None))
    write(tmp_path / "b.jsonl", [PAIR[3] | {"schema": 1}, *PAIR[4:]])
    return tmp_path


def refused(folder: Path) -> str:
    with pytest.raises(InputUnusable) as raised:
        run_audit([folder])
    return str(raised.value)


def test_a_line_of_another_version_is_named(folder: Path) -> None:
    write(folder / "a.jsonl", saying(2))

    assert refused(folder) == f"{folder}/a.jsonl:2: trace schema 2{READ}"


def test_one_odd_version_among_many_bad_rows_is_found(folder: Path) -> None:
    bad = [{"process": "a", "seq": seq, "event": "joyn"} for seq in range(10, 1100)]
    write(folder / "a.jsonl.gz", [*bad, *saying("2.1 draft")])

    assert refused(folder) == f"{folder}/a.jsonl.gz:1092: trace schema 2.1 draft{READ}"


def test_a_row_that_is_no_event_of_version_1_is_one_of_another(folder: Path) -> None:
    write(folder / "a.jsonl", [*PAIR[:3], {"schema": 3, "who": "a", "seq": {"at": 4}}])

    assert refused(folder) == f"{folder}/a.jsonl:4: trace schema 3{READ}"


def test_a_parquet_file_says_it_in_its_metadata_or_in_a_column(folder: Path) -> None:
    table = pa.Table.from_pylist(PAIR[:3])
    pq.write_table(table.replace_schema_metadata({"causalcast.schema": "2"}), folder / "a.parquet")
    in_metadata = refused(folder)
    pq.write_table(table.append_column("schema", pa.array([None, 1, 7], pa.int16())), folder / "a.parquet")
    in_column = refused(folder)

    assert in_metadata == f"{folder}/a.parquet: trace schema 2{READ}"
    assert in_column == f"{folder}/a.parquet: trace schema 7{READ}"


def test_version_1_and_none_pass_in_all_forms(folder: Path) -> None:
    write(folder / "b.jsonl", saying(None))
    with ParquetWriter(folder / "b.parquet") as columns, JsonLinesWriter(folder / "a.jsonl") as lines:
        for row in PAIR:
            (columns if row["process"] == "b" else lines).write(TraceEvent(**row))
    column = pa.Table.from_pylist(PAIR[3:]).append_column("schema", pa.array([1, None, 1]))
    pq.write_table(column, folder / "c.parquet")
    write(folder / "d.ndjson", [row | {"schema": 1} for row in PAIR[3:]])

    result = run_audit([folder])

    assert (result.verdict, result.events, result.quarantined) == ("pass", 6, 0)


def test_a_uri_that_only_spark_may_see_is_looked_into_too(spark: SparkSession, tmp_path: Path) -> None:
    parts = tmp_path / "spark.parquet"
    parts.mkdir()
    table = pa.Table.from_pylist(PAIR)
    pq.write_table(table, parts / "part-0.parquet")
    pq.write_table(table.replace_schema_metadata({"causalcast.schema": "2"}), parts / "part-1.parquet")

    with pytest.raises(InputUnusable, match=rf"part-1\.parquet: trace schema 2{READ}"):
        run_audit([f"file://{parts}"])


def test_watch_ends_with_the_line_that_says_it(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [*PAIR[:3], {"process": "a", "seq": 4, "event": "leave", "schema": 2}])
    write(tmp_path / "b.jsonl", PAIR[3:])

    with pytest.raises(InputUnusable) as raised:
        Watcher(tmp_path).run(lambda _: None, lambda quiet: quiet > 60)

    assert str(raised.value) == f"{tmp_path}/a.jsonl:4: trace schema 2{READ}"
    assert Watcher(tmp_path).progress.events == 0  # so that it comes to the same when it is started again


def test_the_command_says_one_line_and_ends_with_2(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.jsonl", saying(2))
    for command in (["audit"], ["import", "schema1", "--out", str(tmp_path / "out")]):
        named = tmp_path / "a.jsonl" if command[0] == "import" else tmp_path
        monkeypatch.setattr("sys.argv", ["causalcast", *command, str(named)])
        with pytest.raises(SystemExit) as raised:
            app.main()

        shown = capsys.readouterr().err
        assert raised.value.code == 2
        assert f"a.jsonl:2: trace schema 2{READ}" in " ".join(shown.split())
        assert "Traceback" not in shown


def test_a_line_that_only_looks_like_it_says_no_version(tmp_path: Path) -> None:
    rows = [PAIR[0] | {"origin": '"schema":2'}, PAIR[1] | {"note": {"schema": 2}}]
    write(tmp_path / "a.jsonl", rows)

    assert files.first_other_schema(str(tmp_path / "a.jsonl")) is None
    (tmp_path / "a.jsonl").write_text('{"s\\u0063hema": 2}\n')
    assert files.first_other_schema(str(tmp_path / "a.jsonl")) == f"{tmp_path}/a.jsonl:1: trace schema 2{READ}"
