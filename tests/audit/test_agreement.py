"""The pipeline and the brute-force oracle agree on thousands of small random histories."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit import ingest, stages
from causalcast.audit.depot import Depot
from tests.audit.foreign_traces import write_jsonl
from tests.audit.histories import Execution, mutate
from tests.audit.local import findings_of, judge
from tests.audit.oracle import Contradiction, Oracle

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from causalcast.audit.findings import Case

Row = dict[str, Any]

BLOCKS = 10
BLOCK = 200
WITH_CAUSE = {"causal-order", "fifo-order", "missing-cause"}
WITH_ROOT = WITH_CAUSE | {"undelivered"}


def history(seed: int) -> tuple[list[Row], tuple[str, ...]]:
    """Return a faulty history."""
    rng = random.Random(seed)
    rows = Execution(rng).run(rng.randint(4, 30))
    return mutate(rng, rows) if rows else ([], ())


def comparable(found: list[Any], rows: list[Row]) -> set[tuple[Any, ...]]:
    """Reduce findings of either side to what both say.

    Numbers run on across topics: which of several topics reports a lost number is no matter.
    """
    topics = any("topic" in row for row in rows)
    return {
        (
            f.kind,
            f.process,
            None if topics and f.kind == "absent-log" else f.message,
            f.cause if f.kind in WITH_CAUSE else None,
            f.root if f.kind in WITH_ROOT else None,
        )
        for f in found
    }


def compare(seed: int, cases: list[Case], rows: list[Row], crashed: tuple[str, ...]) -> None:
    try:
        faults = Oracle(rows, crashed).judge()
    except Contradiction:
        # No execution wrote such logs. Nothing can be said but that they are no proof.
        assert cases, seed
        return
    assert comparable(cases, rows) == comparable(list(faults), rows), seed


@pytest.mark.parametrize("block", range(BLOCKS))
def test_faulty_histories(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        rows, crashed = history(seed)
        if rows:
            compare(seed, judge(rows, crashed), rows, crashed)


def test_correct_histories_have_no_findings() -> None:
    for seed in range(10_000, 10_250):
        rng = random.Random(seed)
        rows = Execution(rng).run(rng.randint(4, 40))
        if rows:
            assert judge(rows) == [], seed
            assert Oracle(rows).judge() == set(), seed


def test_every_kind_of_fault_is_drawn() -> None:
    kinds: set[str] = set()
    for seed in range(250):
        rows, crashed = history(seed)
        if rows:
            kinds |= {case.kind for case in judge(rows, crashed)}

    assert len(kinds) == 12


def test_hundreds_of_histories_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    """One job reads, checks and digests them all; every name carries its history's number."""
    drawn = {seed: marked(f"{seed}/", *history(seed)) for seed in range(20_000, 20_300)}
    rows = [row for found, _ in drawn.values() for row in found]
    random.Random(1).shuffle(rows)
    for part in range(3):
        write_jsonl(rows[part::3], tmp_path / f"part{part}.jsonl")

    depot = Depot(None)
    read = ingest.read(spark, ingest.find_inputs([tmp_path]))
    parts = ingest.usable(read).mapInArrow(stages.pack_batches(depot), stages.PART_SCHEMA)
    job = parts.repartition(2, "process").mapInArrow(stages.digest_batches(depot, depot.put({})), stages.DIGEST_SCHEMA)
    together = [(depot.get(bytes(row["log_index"])), depot.get(bytes(row["body"]))) for row in job.collect()]
    digests = [(i.log(place), b.log(place)) for i, b in together for place in range(len(i.processes))]

    for seed, (found, crashed) in drawn.items():
        mine = [(index, body) for index, body in digests if index.process.startswith(f"{seed}/")]
        if mine:
            compare(seed, findings_of(mine, crashed), found, crashed)


def marked(mark: str, rows: list[Row], crashed: tuple[str, ...]) -> tuple[list[Row], tuple[str, ...]]:
    """Put a mark before every name of a history."""
    found = []
    for row in rows:
        named = row | {key: mark + row[key] for key in ("process", "origin", "peer") if key in row}
        if row.get("context") is not None:
            named["context"] = [[mark + origin, counter] for origin, counter in row["context"]]
        found.append(named)
    return found, tuple(mark + process for process in crashed)
