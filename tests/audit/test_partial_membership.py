"""Late joins, departures, returns, topics, crashes, evictions and absent logs, all at once, against the oracle."""

from __future__ import annotations

import random

import pytest

from causalcast.audit import clocks
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


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("many_origins", [1, 128])
def test_faulty_runs_are_judged_as_the_properties_say(
    block: int, many_origins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the closure for few origins and with that for many."""
    monkeypatch.setattr(clocks, "MANY_ORIGINS", many_origins)
    for seed in range(100_000 + block * 150, 100_000 + (block + 1) * 150):
        rng, rows = churning(seed)
        if not rows:
            continue
        rows, crashed = mutate(rng, rows)
        if rng.random() < 0.3:
            gone = rng.choice(rows)["process"]
            rows = [row for row in rows if row["process"] != gone] or rows
        compare(seed, judge(rows, crashed), rows, crashed)
