"""Traces whose verdict is known from elsewhere; see `shared/data/NOTES.md`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causalcast.audit.outputs import to_json
from causalcast.audit.pipeline import run_audit
from tests.audit.foreign_traces import shiviz_reliable_broadcast, synthetic, write_jsonl
from tests.audit.local import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the shared traces are not at {DATA}")

VERDICTS: dict[str, list[tuple[str, str | None, str | None, str | None]]] = {
    "ok": [],
    "m_causal": [("causal-order", "p3", "p2:5", "p7:3")],
    "m_dup": [("duplicate", "p4", "p1:5", None)],
    "m_gap": [("undelivered", "p4", "p1:5", None)],
    "m_latejoin": [],
    "m_nosend": [("absent-log", "p2", "p2:11", None)],
    "m_selfdeliver": [],
}


@pytest.mark.parametrize("name", VERDICTS)
def test_synthetic_traces_have_their_verdict(name: str) -> None:
    rows = synthetic(DATA / "synthetic" / f"{name}.txt", late=[6] if name == "m_latejoin" else [])

    cases = judge(rows)

    assert [(c.kind, c.process, c.message, c.cause) for c in cases if c.root] == VERDICTS[name]


def test_what_follows_from_one_missing_message_is_no_root() -> None:
    cases = judge(synthetic(DATA / "synthetic" / "m_gap.txt"))

    assert {(c.kind, c.process, c.cause) for c in cases if not c.root} == {("missing-cause", "p4", "p1:5")}


def test_a_late_joiner_that_is_not_known_as_one_is_held_to_everything() -> None:
    cases = judge(synthetic(DATA / "synthetic" / "m_latejoin.txt"))

    assert {c.process for c in cases} == {"p6"}


@pytest.mark.parametrize("name", ["shiviz_reliable-broadcast", "shiviz_simple-reliable-broadcast"])
def test_a_real_run_with_late_self_delivery_and_a_crash_passes(name: str) -> None:
    rows = shiviz_reliable_broadcast(DATA / f"{name}.log")

    assert rows
    assert judge(rows) == []


def test_an_unexcused_crash_is_undelivered() -> None:
    rows = shiviz_reliable_broadcast(DATA / "shiviz_reliable-broadcast.log")
    rows = [row if row["event"] != "crash" else row | {"event": "recover"} for row in rows]

    assert {(c.kind, c.process) for c in judge(rows)} == {("undelivered", "node1")}
    assert judge(rows, crashed=["node1"]) == []


def test_the_whole_pipeline_agrees_on_a_known_trace(spark: SparkSession, tmp_path: Path) -> None:
    trace = write_jsonl(synthetic(DATA / "synthetic" / "m_causal.txt"), tmp_path / "trace.jsonl")

    answer = to_json(run_audit([trace]))

    assert answer["verdict"] == "fail"
    assert answer["counts"] == {"causal-order": 1}
    assert (answer["events"], answer["processes"], answer["messages"]) == (4000, 10, 400)
    finding = answer["findings"][0]
    assert (finding["property"], finding["kind"], finding["process"]) == ("P3", "causal-order", "p3")
    assert (finding["message"], finding["cause"]) == ("p2:5", "p7:3")
