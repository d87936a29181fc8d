"""Late joins, departures, returns, topics, crashes, evictions and absent logs, all at once, against the oracle."""

from __future__ import annotations

import random

import pytest

from causalcast.audit import clocks, ranges, tags
from tests.audit.churn import Churn, Row
from tests.audit.histories import mutate
from tests.audit.local import judge
from tests.audit.oracle import Oracle
from tests.audit.test_agreement import compare


def churning(seed: int) -> tuple[random.Random, list[Row]]:
    rng = random.Random(seed)
    return rng, Churn(rng).run(rng.randint(5, 60))


def test_correct_runs_have_no_findings_whoever_comes_and_goes() -> None:
    events: set[str] = set()
    for seed in range(400):
        _, rows = churning(seed)
        events |= {row["event"] for row in rows}
        if rows:
            assert judge(rows) == [], seed
            assert Oracle(rows).judge() == set(), seed

    assert {"join", "leave", "subscribe", "unsubscribe", "crash", "evict", "stable"} <= events


@pytest.mark.parametrize(("block", "at_once"), [(0, ranges.AT_ONCE), (1, 5)])
@pytest.mark.parametrize("many_origins", [1, 128])
def test_faulty_runs_are_judged_as_the_properties_say(
    block: int, at_once: int, many_origins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the closure for few origins and with that for many, and with tags and joiners in one portion and in many."""
    monkeypatch.setattr(clocks, "MANY_ORIGINS", many_origins)
    for module in (ranges, tags):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    for seed in range(100_000 + block * 150, 100_000 + (block + 1) * 150):
        rng, rows = churning(seed)
        if not rows:
            continue
        rows, crashed = mutate(rng, rows)
        if rng.random() < 0.3:
            gone = rng.choice(rows)["process"]
            rows = [row for row in rows if row["process"] != gone] or rows
        compare(seed, judge(rows, crashed), rows, crashed)


def told(process: str, *events: tuple[str, str | None]) -> list[Row]:
    """The log of a process: events, each with its message as `origin:counter`."""
    rows: list[Row] = []
    for seq, (event, message) in enumerate(events, 1):
        row: Row = {"process": process, "seq": seq, "event": event}
        if message is not None:
            origin, _, counter = message.partition(":")
            row |= {"origin": origin, "counter": int(counter)}
        rows.append(row)
    return rows


def test_a_joiner_may_report_stable_what_came_with_its_state_and_nobody_else_what_it_never_delivered() -> None:
    sent = told("a", ("broadcast", "a:1"), ("stable", "a:1"), ("broadcast", "a:2"), ("broadcast", "a:3"))
    rest = (("deliver", "a:2"), ("stable", "a:2"), ("deliver", "a:3"))
    given = told("b", ("join", None), ("stable", "a:1"), *rest)
    assert not any(case.kind == "stable-order" for case in judge([*sent, *given]))
    never = told("b", ("stable", "a:1"), *rest)
    assert [case.finding().message for case in judge([*sent, *never]) if case.kind == "stable-order"] == ["a:1"]
    # What it is entitled to did not come with the state: it delivered an earlier message of that origin.
    skipped = told("b", ("join", None), ("deliver", "a:1"), ("stable", "a:1"), ("stable", "a:2"), ("deliver", "a:3"))
    assert "a:2" in [case.finding().message for case in judge([*sent, *skipped]) if case.kind == "stable-order"]
