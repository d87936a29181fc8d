"""Traces survive being written and read, and say what is wrong when they cannot be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.trace import (
    EVENTS,
    JsonLinesWriter,
    OtherSchemaError,
    ParquetWriter,
    TraceEvent,
    TraceReadError,
    TraceWriteError,
    read_jsonl,
    read_parquet,
)
from causalcast.trace.importers import ImportUnusable, schema1

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
COUNTS = st.integers(1, 2**63 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
EVENT = st.builds(
    TraceEvent,
    process=NAMES,
    seq=COUNTS,
    event=st.sampled_from(sorted(EVENTS)),
    origin=NAMES,
    counter=COUNTS,
    topic=st.none() | NAMES,
    peer=st.none() | NAMES,
    time_ns=st.none() | TIMES,
    payload_bytes=st.none() | COUNTS,
    overhead_bytes=st.none() | COUNTS,
    context=st.none() | st.lists(st.tuples(NAMES, COUNTS), max_size=4).map(tuple),
)


@settings(deadline=None, max_examples=50)
@given(events=st.lists(EVENT, max_size=20))
def test_events_come_back_as_they_were_written(
    events: list[TraceEvent], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    with JsonLinesWriter(folder / "a.jsonl") as lines, ParquetWriter(folder / "a.parquet") as columns:
        for event in events:
            lines.write(event)
            columns.write(event)
    assert list(read_jsonl(folder / "a.jsonl")) == events
    assert list(read_parquet(folder / "a.parquet")) == events


def test_fields_that_do_not_apply_are_left_out(tmp_path: Path) -> None:
    with JsonLinesWriter(tmp_path / "a.jsonl") as writer:
        writer.write(TraceEvent("p", 1, "broadcast", origin="p", counter=1, context=(("q", 2),)))
    expected = b'{"process":"p","seq":1,"event":"broadcast","origin":"p","counter":1,"context":[["q",2]],"schema":1}\n'
    assert (tmp_path / "a.jsonl").read_bytes() == expected


def test_a_flush_leaves_whole_lines_and_close_may_be_repeated(tmp_path: Path) -> None:
    writer = JsonLinesWriter(tmp_path / "a.jsonl")
    writer.write(TraceEvent("p", 1, "join"))
    assert (tmp_path / "a.jsonl").read_bytes() == b""
    writer.flush()
    assert [event.seq for event in read_jsonl(tmp_path / "a.jsonl")] == [1]
    writer.write(TraceEvent("p", 2, "leave"))
    writer.close()
    writer.close()
    assert [event.seq for event in read_jsonl(tmp_path / "a.jsonl")] == [1, 2]


def test_a_buffer_that_is_full_goes_to_the_file_by_itself(tmp_path: Path) -> None:
    with JsonLinesWriter(tmp_path / "a.jsonl") as writer:
        for seq in range(1, 2_001):
            writer.write(TraceEvent("p", seq, "join"))
        assert (tmp_path / "a.jsonl").stat().st_size > 0
    assert sum(1 for _ in read_jsonl(tmp_path / "a.jsonl")) == 2_000


def test_a_full_disk_is_named_with_its_path_and_what_to_do() -> None:
    writer = JsonLinesWriter("/dev/full")
    writer.write(TraceEvent("p", 1, "join"))
    with pytest.raises(TraceWriteError, match=r"/dev/full: No space left on device; make room") as failure:
        writer.flush()
    assert isinstance(failure.value, OSError)
    writer.close()


def test_a_full_disk_is_named_for_parquet_too() -> None:
    with pytest.raises(TraceWriteError, match=r"/dev/full"), ParquetWriter("/dev/full") as writer:
        writer.write(TraceEvent("p", 1, "join"))


@pytest.mark.parametrize("kind", [JsonLinesWriter, ParquetWriter])
def test_a_folder_that_is_not_there_is_named(kind: type[JsonLinesWriter | ParquetWriter], tmp_path: Path) -> None:
    with pytest.raises(TraceWriteError, match=r"absent/a\.trace.*check that the folder exists"):
        kind(tmp_path / "absent" / "a.trace")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"process":"p","seq":2', "truncated"),
        (b"\xff\xfe", "invalid"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"process":"p","seq":"2","event":"join"}', r"Expected `int`, got `str` - at `\$.seq`"),
        (b'{"process":"p","seq":2,"event":"joyn"}', "'joyn' is no event"),
        (b'{"process":"p","seq":0,"event":"join"}', "seq is 0"),
        (b'{"process":"p","seq":2,"event":"deliver"}', "needs origin and counter"),
        (b'{"process":"p","seq":2,"event":"deliver","origin":"q","counter":0}', "counter is 0"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_reason(line: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(b'{"process":"p","seq":1,"event":"join"}\n\n' + line + b"\n")
    events = read_jsonl(file)
    assert next(events).seq == 1
    with pytest.raises(TraceReadError, match=rf"bad\.jsonl:3: .*{reason}"):
        next(events)


def test_a_bad_parquet_file_and_a_bad_row_are_named(tmp_path: Path) -> None:
    (tmp_path / "no.parquet").write_bytes(b"this is no parquet file")
    with pytest.raises(TraceReadError, match=r"no\.parquet:0: "):
        next(read_parquet(tmp_path / "no.parquet"))
    with ParquetWriter(tmp_path / "bad.parquet") as writer:
        writer.write(TraceEvent("p", 1, "join"))
        writer.write(TraceEvent("p", 2, "deliver"))
    with pytest.raises(TraceReadError, match=r"bad\.parquet:2: a deliver event needs"):
        list(read_parquet(tmp_path / "bad.parquet"))


def test_files_say_their_schema_version(tmp_path: Path) -> None:
    for append in (False, True):
        with JsonLinesWriter(tmp_path / "a.jsonl", append=append) as lines:
            lines.write(TraceEvent("p", 1, "join"))
            lines.write(TraceEvent("p", 2, "leave"))
    with ParquetWriter(tmp_path / "a.parquet") as columns:
        columns.write(TraceEvent("p", 1, "join"))

    said = [json.loads(line).get("schema") for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert said == [1, None, 1, None]
    assert pq.read_metadata(tmp_path / "a.parquet").metadata[b"causalcast.schema"] == b"1"


@pytest.mark.parametrize("said", ["2", '"2"', "1.0", "true", '{"a": 1}', '""'])
def test_a_line_of_another_schema_version_is_refused(said: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"process":"p","seq":1,"event":"join","schema":1}\n{"seq":[],"s\\u0063hema":' + said + "}\n")

    with pytest.raises(OtherSchemaError, match=r"a\.jsonl:2: trace schema .*, and what is read here is schema 1"):
        list(read_jsonl(file))
    with pytest.raises(ImportUnusable, match=r"a\.jsonl:2: trace schema "):
        list(schema1(file))


def test_a_parquet_file_of_another_schema_version_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{"process": "p", "seq": seq, "event": "join"} for seq in (1, 2)])
    pq.write_table(table.replace_schema_metadata({"causalcast.schema": "2"}), tmp_path / "a.parquet")
    pq.write_table(table.append_column("schema", pa.array([1, 2])), tmp_path / "b.parquet")

    for name, place in (("a.parquet", "a.parquet:0"), ("b.parquet", "b.parquet:2")):
        with pytest.raises(OtherSchemaError, match=rf"{place}: trace schema 2, and"):
            list(read_parquet(tmp_path / name))
        with pytest.raises(ImportUnusable, match=rf"{name}.*: trace schema 2, and"):
            list(schema1(tmp_path / name))
