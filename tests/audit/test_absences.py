"""Many sections that lack messages, or have them out of order, are judged at once as they are one by one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from causalcast.audit import absences, clocks
from causalcast.audit.clocks import build_clock
from causalcast.audit.replay import replay_logs
from tests.audit.churn import Churn
from tests.audit.histories import Execution
from tests.audit.local import findings_of
from tests.audit.oracle import Contradiction, Oracle
from tests.audit.test_agreement import comparable, marked
from tests.audit.test_together import judged, together

if TYPE_CHECKING:
    from causalcast.audit.absences import Present

Row = dict[str, Any]


def spoil(rng: random.Random, rows: list[Row]) -> list[Row]:
    """Let processes miss deliveries, or have two of them the other way round; all go on as if nothing had been."""
    share, swaps = rng.choice([0.02, 0.1, 0.4, 0.9]), rng.choice([0.0, 0.0, 0.05, 0.3])
    logs: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        if row["event"] != "deliver" or rng.random() >= share:
            logs.setdefault(row["process"], []).append(row)
    found = []
    for log in logs.values():
        for i in [i for i, row in enumerate(log) if row["event"] == "deliver" and rng.random() < swaps]:
            j = rng.choice([k for k, row in enumerate(log) if row["event"] == "deliver"])
            log[i], log[j] = log[j], log[i]
        found += [row | {"seq": seq} for seq, row in enumerate(log, 1)]
    return found


def history(seed: int) -> list[Row]:
    """Return a run without tags or stability, spoilt, with times."""
    rng = random.Random(seed)
    made = Churn(rng) if rng.random() < 0.5 else Execution(rng)
    made.tags = made.stability = False
    rows = spoil(rng, made.run(rng.randint(10, 50)))
    for row in rows:
        if rng.random() < 0.8:
            row["time_ns"] = row["seq"] * 1_000 + len(row["process"])
    return rows


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sections were judged together by each call."""
    sizes: list[int] = []
    judge = absences.Absences.judge

    def counting(self: absences.Absences, present: Present, since: Any) -> None:
        sizes.append(present.log.size)
        judge(self, present, since)

    monkeypatch.setattr(absences.Absences, "judge", counting)
    return sizes


def several(block: int) -> tuple[list[Row], tuple[str, ...]]:
    """Return many histories as one trace, each with its own names and topics; in odd blocks all have subscriptions."""
    rng, found, fallen = random.Random(block), [], []
    for seed in range(30 * block, 30 * block + 30):
        rows = history(seed)
        if any(row["event"] == "subscribe" for row in rows) != (block % 2 == 1):
            continue
        names = sorted({row["process"] for row in rows})
        rows, crashed = marked(f"{seed}/", rows, tuple(name for name in names if rng.random() < 0.05))
        found += [row | {"topic": f"{seed} {row.get('topic')}"} for row in rows]
        fallen += crashed
    return found, tuple(fallen)


@pytest.mark.parametrize(("many_origins", "cells"), [(128, 4_000_000), (128, 40), (2, 4_000_000)])
def test_sections_with_absences_are_judged_together_as_one_by_one(
    many_origins: int, cells: int, counted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "MANY_ORIGINS", many_origins)
    monkeypatch.setattr(absences, "_CELLS", cells)
    kinds: set[int] = set()
    for block in range(4):
        rows, crashed = several(block)
        digests = together(rows)
        closely = judged(digests, crashed, inspect=lambda _: None)

        clock = build_clock([index for index, _ in digests], crashed).clock
        bodies = digests[0][1].source
        all_at_once = replay_logs(bodies, np.arange(len(bodies.processes)), clock)
        assert judged(digests, crashed) == closely
        for place, process in enumerate(bodies.processes):
            found = all_at_once.found[place].violations if place in all_at_once.found else []
            kinds.update(part.kind for part in found)
            mine = [(part.topic, part.kind, part.message.tolist(), part.cause.tolist()) for part in found]
            assert mine == [(part[0], part[1], part[3], part[4]) for part in closely[process][0]], process
    assert max(counted) > 20
    assert len(kinds) >= 4


def test_sections_with_absences_are_judged_as_the_oracle_does(counted: list[int]) -> None:
    for block in range(10):
        drawn = {seed: marked(f"{seed}/", history(seed), ()) for seed in range(1_000 + 8 * block, 1_008 + 8 * block)}
        digests = together([row for rows, _ in drawn.values() for row in rows])
        for seed, (rows, _) in drawn.items():
            mine = [(index, body) for index, body in digests if index.process.startswith(f"{seed}/")]
            try:
                faults = Oracle(rows).judge()
            except Contradiction:
                continue
            assert comparable(findings_of(mine), rows) == comparable(list(faults), rows), seed
    assert sum(counted) > 100
