"""Clock checks: public logs are valid, random valid clocks pass, and a clock that is off by anything is found."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.audit import clock_stages as stages
from causalcast.audit.errors import InputUnusable
from causalcast.audit.outputs import to_json
from causalcast.audit.pipeline import run_audit
from causalcast.trace.importers import ClockedEvent, opentelemetry, write_import
from tests.trace.public_logs import LOGS, folders, items
from tests.trace.test_importers import document, span

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

_EVENTS = pa.schema(
    [
        ("process", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("clock", pa.map_(pa.string(), pa.int64())),
        ("sends", pa.string()),
        ("receives", pa.list_(pa.string())),
        ("exact", pa.bool_()),
        ("execution", pa.string()),
    ]
)


def breaches(events: Iterable[Any]) -> Counter[str]:
    """The stages without Spark: what they count."""
    fields = [
        {name: getattr(event, name) for name in _EVENTS.names} | {"clock": list((event.clock or {}).items())}
        for event in events
        if isinstance(event, ClockedEvent)
    ]
    logs = list(stages.check_logs(iter(pa.Table.from_pylist(fields, schema=_EVENTS).to_batches())))
    rows = pa.Table.from_batches(logs, schema=stages.ROWS)

    def only(*kinds: str) -> Any:
        chosen = [kind in kinds for kind in rows.column("row").to_pylist()]
        return iter(rows.filter(pa.array(chosen)).to_batches())

    found = [*logs, *stages.answer(only("log", "ask")), *stages.pair(only("send", "receive"))]
    counts: Counter[str] = Counter()
    for row in pa.Table.from_batches(found, schema=stages.ROWS).to_pylist():
        if row["row"] == "count":
            counts[row["kind"]] += row["number"]
    return counts


# ------------------------------------------------------------------------------------------- public logs


@pytest.mark.parametrize("name", LOGS)
def test_the_clocks_of_public_logs_are_valid(name: str) -> None:
    for excerpt in folders():
        found = breaches(items(name, excerpt=excerpt))

        missing = found.pop("unlogged-send", 0)
        assert not found
        assert (missing > 0) == name.startswith("ewd998")
        if name.startswith("ewd998") and not excerpt:
            assert missing == 128


def test_the_audit_judges_a_public_log_and_its_clocks(spark: SparkSession, tmp_path: Path) -> None:
    write_import(items("shiviz_reliable-broadcast.log"), tmp_path / "in")

    answer = to_json(run_audit([tmp_path / "in"]))

    assert (answer["verdict"], answer["counts"], answer["messages"]) == ("pass", {}, 3)
    assert any("116 vectors of 4 logs are well-formed, gap-free and equal" in note for note in answer["notes"])
    assert any("crashed: node1" in note for note in answer["notes"])


def test_lost_sends_are_reported_apart_and_clocks_alone_are_enough(spark: SparkSession, tmp_path: Path) -> None:
    write_import(items("ewd998_EWD998ChanTrace.ndjson", excerpt=True), tmp_path / "in")

    answer = to_json(run_audit([tmp_path / "in"], out=tmp_path / "out"))

    assert set(answer["counts"]) == {"unlogged-send"}
    assert {finding["property"] for finding in answer["findings"]} == {"trace"}
    assert any("90 vectors of 5 logs are well-formed" in note for note in answer["notes"])
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["counts"] == answer["counts"]


def test_what_an_import_set_aside_or_lost_is_never_a_pass(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_import([ClockedEvent("a", "log", 1, {"a": 1}), ClockedEvent("a", "log", 2, {"a": 3, "b": 1})], folder)
    (folder / "rejected.import").write_text('{"file":"log","line":3,"reason":"bad","text":"x"}\n')
    with (folder / "clocks.import").open("a") as file:
        file.write("{torn\n")

    answer = to_json(run_audit([folder]))

    assert answer["verdict"] == "fail"
    assert answer["counts"] == {"absent-log": 3, "clock-gap": 1}
    assert answer["quarantine"] == [{"file": "log", "line": 3, "reason": "bad"}]
    assert any("goes from 1 to event 3: 1 event is missing (log:2)" in f["detail"] for f in answer["findings"])


def test_clocks_without_an_event_and_imports_that_were_killed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "clocks.import").write_text("")
    with pytest.raises(InputUnusable, match=f"{tmp_path}: no rows"):
        run_audit([tmp_path])

    (tmp_path / "trace.jsonl").write_text('{"process":"a","seq":1,"event":"join"}\n')
    (tmp_path / "clocks.import").rename(tmp_path / ".clocks.import.tmp")
    with pytest.raises(InputUnusable, match=r"\.clocks\.import\.tmp: an import was ended before it was done"):
        run_audit([tmp_path])


def test_spans_are_checked_for_their_causes(spark: SparkSession, tmp_path: Path) -> None:
    spans = [
        span("web", "01", 1),
        span("store", "02", 1, parentSpanId="99"),
        span("store", "01", 1),
        span("mail", "03", 1, parentSpanId="04"),
        span("mail", "04", 1, links=[{"traceId": "ab" * 16, "spanId": "03"}]),
    ]
    (tmp_path / "spans.json").write_text(document(*spans))
    write_import(opentelemetry(tmp_path / "spans.json"), tmp_path / "in")

    answer = to_json(run_audit([tmp_path / "in"]))

    assert answer["counts"] == {"clock-order": 1, "reused-identifier": 1, "unlogged-send": 1}
    assert any("an event is its own cause" in finding["detail"] for finding in answer["findings"])


# ---------------------------------------------------------------------------------------- random clocks


@st.composite
def executions(draw: st.DrawFn) -> list[ClockedEvent]:
    """A few processes that send, receive and work, with the clocks that this gives them."""
    names = ["p", "q", "r"]
    clocks: dict[str, dict[str, int]] = {name: {} for name in names}
    flying: list[tuple[str, dict[str, int]]] = []
    events: list[ClockedEvent] = []
    for step in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(names))
        clock = clocks[name]
        sends, receives = None, ()
        kind = draw(st.sampled_from(["send", "receive", "work"]))
        if kind == "receive" and flying:
            message, carried = flying.pop(draw(st.integers(0, len(flying) - 1)))
            receives = (message,)
            for other, count in carried.items():
                clock[other] = max(clock.get(other, 0), count)
        clock[name] = clock.get(name, 0) + 1
        if kind == "send":
            sends = f"m{step}"
            flying.append((sends, dict(clock)))
        events.append(ClockedEvent(name, "log", step + 1, dict(clock), sends, receives, exact=True))
    return events


@settings(max_examples=60, deadline=None)
@given(executions(), st.randoms(use_true_random=False))
def test_true_clocks_pass_in_any_order_of_lines(events: list[ClockedEvent], random: Any) -> None:
    random.shuffle(events)

    assert not breaches(events)
    assert not breaches(msgspec.structs.replace(event, receives=None, exact=False) for event in events)


@settings(max_examples=120, deadline=None)
@given(executions(), st.data())
def test_any_clock_that_is_not_the_true_one_is_found(events: list[ClockedEvent], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(events) - 1))
    name = data.draw(st.sampled_from(["p", "q", "r"]))
    clock = dict(events[at].clock or {})
    value = data.draw(st.integers(-1, 6).filter(lambda value: value != clock.get(name, 0)))
    clock[name] = value
    if value == 0:
        del clock[name]
    events[at] = msgspec.structs.replace(events[at], clock=clock)

    assert breaches(events)


def test_an_event_that_no_log_has_is_an_absent_log_and_no_order() -> None:
    found = breaches([ClockedEvent("a", "log", 1, {"a": 1, "ghost": 7})])

    assert found == {"absent-log": 1}


def test_two_executions_are_judged_apart() -> None:
    events = [ClockedEvent("a", "log", line, {"a": 1}, execution=name) for line, name in ((1, "x"), (2, "y"))]

    assert not breaches(events)
    assert breaches(msgspec.structs.replace(event, execution=None) for event in events) == {"clock-gap": 1}


def test_all_violations_are_counted_and_some_described() -> None:
    events = [ClockedEvent("a", "log", line, {"a": 2 * line}) for line in range(1, 1001)]

    assert breaches(events) == {"clock-gap": 1000}
