"""Importers on public logs and on what users feed them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.trace import JsonLinesWriter, ParquetWriter, TraceEvent
from causalcast.trace.importers import (
    CLOCKS_FILE,
    REJECTED_FILE,
    ClockedEvent,
    ImportUnusable,
    Rejected,
    ShivizPatterns,
    TlaFields,
    opentelemetry,
    schema1,
    shiviz,
    tla,
    write_import,
)
from tests.trace.public_logs import AKKA, EVENTS, LOGS, folders, items

if TYPE_CHECKING:
    from collections.abc import Iterable


def clocked(found: Iterable[Any]) -> list[ClockedEvent]:
    return [item for item in found if isinstance(item, ClockedEvent)]


def rows(found: Iterable[Any]) -> list[TraceEvent]:
    return [item for item in found if isinstance(item, TraceEvent)]


def rejections(found: Iterable[Any]) -> list[tuple[int, str]]:
    return [(item.line, item.reason) for item in found if isinstance(item, Rejected)]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ------------------------------------------------------------------------------------------- public logs


@pytest.mark.parametrize("name", LOGS)
def test_every_event_of_a_public_log_is_imported(name: str) -> None:
    for excerpt in folders():
        found = items(name, excerpt=excerpt)

        assert len(clocked(found)) == EVENTS[name][excerpt]
        assert rejections(found) == []


def test_a_log_in_another_form_is_not_imported_in_part_as_if_it_were_whole(tmp_path: Path) -> None:
    log = write(tmp_path / "a.log", 'starting\na {"a":1}  \nstored\na {"a":2}\nread\n\nmore of it\nand more\n')

    found = list(shiviz(log))

    assert [event.clock for event in clocked(found)] == [{"a": 2}]
    reason = "no event as GoVector writes them; give the log's own expression by --regex"
    assert rejections(found) == [(1, reason), (7, reason)]
    assert rejections(shiviz(log, patterns=ShivizPatterns(r"(?<host>\w+) (?<clock>{.*})(?<event>.*)"))) == []


def test_the_broadcasts_of_the_akka_log_keep_their_senders_and_their_order() -> None:
    found = rows(items("shiviz_reliable-broadcast.log"))
    delivered: dict[str, list[tuple[str | None, int | None]]] = {}
    for row in found:
        if row.event == "deliver":
            delivered.setdefault(row.process, []).append((row.origin, row.counter))

    assert {row.process for row in found if row.event == "crash"} == {"node1"}
    assert delivered == {
        "node0": [("node3", 1), ("node0", 1), ("node0", 2)],
        "node2": [("node3", 1), ("node0", 1), ("node0", 2)],
        "node3": [("node0", 1), ("node0", 2), ("node3", 1)],
    }


def test_executions_of_one_file_are_kept_apart() -> None:
    found = clocked(items("shiviz_facebook-multiple.log"))

    assert {event.execution for event in found} == {"Execution #1", "Execution #2"}
    assert any("“Breakfast”" in (event.text or "") for event in found)


def test_zero_entries_of_clocks_are_dropped() -> None:
    assert all(0 not in (event.clock or {}).values() for event in clocked(items("shiviz_voldemort.log")))


# ------------------------------------------------------------------------------------------------ shiviz


def test_the_logs_of_several_hosts_are_one_run(tmp_path: Path) -> None:
    a = write(tmp_path / "a.log", 'a {"a":1}\ncast 7\n')
    b = write(tmp_path / "b.log", 'b {"b":1, "a":1}\ngot 7\n')
    patterns = ShivizPatterns(broadcast=r"cast (?<message>\d+)", deliver=r"got (?<message>\d+)")

    assert rows(shiviz(b, a, patterns=patterns)) == [
        TraceEvent("b", 1, "deliver", "a", 1),
        TraceEvent("a", 1, "broadcast", "a", 1),
    ]


def test_lines_of_a_host_may_stand_in_any_order(tmp_path: Path) -> None:
    log = write(tmp_path / "log", 'a {"a":2}\ncast y\na {"a":1}\ncast x\nb {"b":1,"a":1}\ngot x\n')
    patterns = ShivizPatterns(broadcast=r"cast (?<message>\w+)", deliver=r"got (?<message>\w+)")

    assert rows(shiviz(log, patterns=patterns))[-1] == TraceEvent("b", 1, "deliver", "a", 1)


def test_what_cannot_be_used_is_named_with_its_line(tmp_path: Path) -> None:
    log = write(
        tmp_path / "log",
        b'a {"a":1}\nok\na {"a":-1}\nnegative\na {"a":1.5}\nfraction\na {a}\nno json\n'
        b'a {"a":99999999999999999999}\nhuge\na {"a":2}\n\xff\n' + b"a {" + b"[" * 5000 + b"}\ndeep\n",
    )

    found = list(shiviz(log))

    assert len(clocked(found)) == 1
    assert [line for line, _ in rejections(found)] == [3, 5, 7, 9, 11, 13]


def test_a_delivery_of_an_unknown_message_is_rejected(tmp_path: Path) -> None:
    log = write(tmp_path / "log", 'a {"a":1}\ngot 7\n')

    found = list(shiviz(log, patterns=ShivizPatterns(deliver=r"got (?<message>\d+)")))

    assert rejections(found) == [(1, "a deliver event: no line broadcasts '7'")]


@pytest.mark.parametrize(
    ("patterns", "words"),
    [
        (ShivizPatterns("("), "no regular expression"),
        (ShivizPatterns("(?<host>.*)"), "no group clock"),
        (ShivizPatterns(broadcast="cast"), "no group message"),
        (ShivizPatterns(delimiter="["), "no regular expression"),
        (ShivizPatterns(r"(?<host>\d{9}) (?<clock>{})"), "no event matches"),
    ],
)
def test_an_expression_that_cannot_work_is_refused(patterns: ShivizPatterns, words: str, tmp_path: Path) -> None:
    log = write(tmp_path / "log", 'a {"a":1}\ntext\n')

    with pytest.raises(ImportUnusable, match=words):
        list(shiviz(log, patterns=patterns))


def test_back_references_are_javascripts(tmp_path: Path) -> None:
    log = write(tmp_path / "log", 'a a {"a":1}\nx b {"b":1}\n')

    found = clocked(shiviz(log, patterns=ShivizPatterns(r"(?<host>\w+) \k<host> (?<clock>{.*})")))

    assert [event.process for event in found] == ["a"]


# --------------------------------------------------------------------------------------------------- tla


def test_fields_of_tla_traces_can_be_named(tmp_path: Path) -> None:
    log = write(tmp_path / "log", json.dumps({"who": "a", "t": {"a": 1, "b": 0}, "event": "step"}) + "\n")

    found = clocked(tla(log, fields=TlaFields(process="who", clock="t")))

    assert [(event.process, event.clock, event.receives, event.exact) for event in found] == [("a", {"a": 1}, (), True)]


def test_bad_lines_of_tla_traces_are_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    good = {"event": "d", "node": 0, "pkt": {"vc": {"0": 1}}}
    send = {"event": ">", "node": 0, "pkt": {"snd": 1, "rcv": 0, "msg": 1, "vc": {"0": 1}}}
    lines = ['{"N":5}', json.dumps(good), "{", "[]", json.dumps(good | {"node": True}), json.dumps(send), '{"node":1}']
    log = write(tmp_path / "log", "\n".join(lines))

    found = list(tla(log))

    assert len(clocked(found)) == 1
    assert [line for line, _ in rejections(found)] == [3, 4, 5, 6, 7]


def test_an_endless_line_costs_no_memory(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.truncate(1 << 27)
    tracemalloc.start()
    try:
        found = list(tla(log))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert rejections(found) == [(1, "longer than 1,048,576 bytes")]
    assert peak < 8 << 20
    with pytest.raises(ImportUnusable, match=r"log:1: longer than 1,048,576 bytes"):
        list(shiviz(log, patterns=AKKA))


# --------------------------------------------------------------------------------------------- telemetry


def span(service: str, name: str, start: int, **more: Any) -> dict[str, Any]:
    one = {"traceId": "AB" * 16, "spanId": name, "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 5)}
    attributes = [{"key": "service.name", "value": {"stringValue": service}}]
    return {"resource": {"attributes": attributes}, "scopeSpans": [{"spans": [one | {"name": "work"} | more]}]}


def document(*spans: dict[str, Any]) -> str:
    return json.dumps({"resourceSpans": list(spans)})


PARENT, CHILD = span("web", "01", 100), span("store", "02", 7, parentSpanId="01")
LINKED = span("mail", "03", 1, links=[{"traceId": "ab" * 16, "spanId": "02"}])
AB = "ab" * 16


@pytest.mark.parametrize("text", [document(PARENT, CHILD, LINKED), "\n".join(map(document, (PARENT, CHILD, LINKED)))])
def test_spans_become_sends_and_receptions_whatever_the_clocks_say(text: str, tmp_path: Path) -> None:
    found = list(opentelemetry(write(tmp_path / "spans.json", text)))

    assert [(event.process, event.sends, event.receives) for event in clocked(found)] == [
        ("web", f"{AB}/01", ()),
        ("store", f"{AB}/02", (f"{AB}/01",)),
        ("mail", f"{AB}/03", (f"{AB}/02",)),
    ]
    assert set(rows(found)) == {
        TraceEvent("web", 1, "send", "web", 1, peer="store", time_ns=100),
        TraceEvent("store", 2, "send", "store", 1, peer="mail", time_ns=7),
        TraceEvent("store", 1, "receive", "web", 1, peer="web", time_ns=7),
        TraceEvent("mail", 1, "receive", "store", 1, peer="store", time_ns=6),
    }


def test_a_pretty_document_is_read_and_bad_spans_are_named(tmp_path: Path) -> None:
    bad = span("web", "04", 1, startTimeUnixNano="soon")
    nameless = span("web", "", 1)
    text = json.dumps(json.loads(document(PARENT, bad, nameless)), indent=2)

    found = list(opentelemetry(write(tmp_path / "spans.json", text)))

    assert len(clocked(found)) == 1
    assert len(rejections(found)) == 2


def test_what_is_no_otlp_is_refused(tmp_path: Path) -> None:
    for text in ("", "{}", "[1]", "nothing", "[" * 100_000):
        with pytest.raises(ImportUnusable, match="no OTLP JSON"):
            list(opentelemetry(write(tmp_path / "spans.json", text)))


# ---------------------------------------------------------------------------------------- schema 1, sink


def test_schema_1_comes_back_from_both_its_forms(tmp_path: Path) -> None:
    events = [TraceEvent("a", 1, "broadcast", "a", 1, context=(("b", 2),)), TraceEvent("b", 1, "crash", peer="a")]
    for writer, name in ((JsonLinesWriter, "t.jsonl"), (ParquetWriter, "t.parquet")):
        with writer(tmp_path / name) as file:
            for event in events:
                file.write(event)
        assert list(schema1(tmp_path / name)) == events


def test_bad_rows_of_schema_1_are_named(tmp_path: Path) -> None:
    lines = [
        '{"process":"a","seq":1,"event":"join"}',
        '{"process":"","seq":1,"event":"join"}',
        '{"process":"a","seq":0,"event":"join"}',
        '{"process":"a","seq":1,"event":"jump"}',
        '{"process":"a","seq":1,"event":"deliver"}',
        "\x00",
    ]
    found = list(schema1(write(tmp_path / "t.jsonl", "\n".join(lines))))

    assert len(rows(found)) == 1
    assert [line for line, _ in rejections(found)] == [2, 3, 4, 5, 6]
    with pytest.raises(ImportUnusable):
        list(schema1(write(tmp_path / "t.parquet", b"PAR1 but not really")))


def test_an_import_writes_what_there_is_and_mixes_with_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    event = ClockedEvent("a", "f", 1, {"a": 1})

    imported = write_import([event, Rejected("f", 2, "bad", "x")], out)

    assert (imported.events, imported.clocked, imported.rejected) == (0, 1, 1)
    assert sorted(path.name for path in out.iterdir()) == [CLOCKS_FILE, REJECTED_FILE]
    with pytest.raises(ImportUnusable, match="not empty"):
        write_import([event], out)


def test_an_import_that_is_killed_between_its_files_leaves_none_that_could_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was set aside gets its name first, clocks last: an audit refuses a folder with clocks that are not whole."""
    given = (TraceEvent("a", 1, "join"), ClockedEvent("a", "f", 1, {"a": 1}), Rejected("f", 2, "bad", "x"))
    named = Path.rename
    for killed_at in range(3):
        left = [killed_at]

        def rename(self: Path, target: Path, left: list[int] = left) -> Path:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return named(self, target)

        monkeypatch.setattr(Path, "rename", rename)
        monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # a kill removes nothing
        out = tmp_path / str(killed_at)
        with pytest.raises(KeyboardInterrupt):
            write_import(given, out)

        assert {path.name for path in out.iterdir()} >= {".clocks.import.tmp", *["rejected.import"][:killed_at]}


def test_nothing_to_import_leaves_nothing_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ImportUnusable, match=r"none of 1 rows can be used; the first: f:2: bad"):
        write_import([Rejected("f", 2, "bad", "x")], out)
    with pytest.raises(ImportUnusable, match="has no events"):
        write_import([], out)
    assert list(out.iterdir()) == []
