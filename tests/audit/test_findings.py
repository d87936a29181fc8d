"""The sample of findings is the same whatever process comes first, and the file has them all."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from causalcast.audit import findings, findings_file
from causalcast.audit.bundles import split
from causalcast.audit.clocks import build_clock
from causalcast.audit.findings import SAMPLE, Case, Collection
from causalcast.audit.findings_file import FindingsFile
from causalcast.audit.judgement import Judged
from causalcast.audit.logs import digest
from causalcast.audit.measures import Measures
from causalcast.audit.replay import replay
from causalcast.audit.violations import KINDS
from tests.audit.local import judge, table

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import LogBody
    from causalcast.audit.violations import Replay


def replays(processes: int) -> tuple[Clock, list[tuple[Replay, LogBody]]]:
    """Of processes that miss ten of thirty messages each."""
    rows: list[dict[str, Any]] = [
        {"process": "s", "seq": n, "event": "broadcast", "origin": "s", "counter": n} for n in range(1, 31)
    ]
    for number in range(processes):
        for seq, n in enumerate([n for n in range(1, 31) if n % 3 != number % 3], 1):
            rows.append({"process": f"p{number:02}", "seq": seq, "event": "deliver", "origin": "s", "counter": n})
    digests = [digest(process, columns) for process, columns in split(table(rows))]
    logs = {index.process: index for index, _ in digests}
    clock = build_clock(list(logs.values())).clock
    return clock, [(replay(body, logs[body.process].marks, clock), body) for _, body in digests]


def test_a_full_sample_holds_what_comes_first_in_whatever_order_processes_come() -> None:
    clock, found = replays(90)
    every: list[Case] = []
    for result, body in found:
        alone = Collection(clock)
        alone.add(result, body.names)
        every += alone.sample()
    kinds = Counter(case.kind for case in every)
    assert min(kinds.values()) > 4 * SAMPLE
    ordered = sorted(every, key=lambda case: case.order)
    first = [case for kind in kinds for case in [each for each in ordered if each.kind == kind][:SAMPLE]]

    for seed in range(4):
        random.Random(seed).shuffle(found)
        collection = Collection(clock)
        for result, body in found:
            collection.add(result, body.names)

        assert collection.sample() == sorted(first, key=lambda case: case.order)
        assert collection.counts == kinds
        assert collection.roots == Counter(case.kind for case in every if case.root)


def test_the_file_has_all_findings_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "AT_ONCE", 7)
    monkeypatch.setattr(findings_file, "AT_ONCE", 7)
    clock, found = replays(40)
    with FindingsFile(tmp_path / "findings.parquet") as file:
        collection = Collection(clock, file)
        for result, body in found:
            collection.add(result, body.names)

    rows = pq.read_table(tmp_path / "findings.parquet").to_pylist()
    assert Counter(row["kind"] for row in rows) == collection.counts
    order = [(row["process"], KINDS.index(row["kind"]), row["seq"] or 0) for row in rows]
    assert order == sorted(order)
    assert pq.ParquetFile(tmp_path / "findings.parquet").num_row_groups > 10


def test_a_file_that_was_not_finished_takes_the_place_of_no_other(tmp_path: Path) -> None:
    path = tmp_path / "findings.parquet"
    with FindingsFile(path):
        pass
    before = path.read_bytes()
    with pytest.raises(KeyError), FindingsFile(path, findings_file.SCHEMA.empty_table()):
        raise KeyError

    assert path.read_bytes() == before


def test_what_was_never_broadcast_keeps_its_name_when_a_log_is_digested_anew() -> None:
    # A digest that was of no more use may be made again, with other logs or alone, and has its names in another order.
    ghost = {"process": "b", "seq": 1, "event": "deliver", "origin": "c", "counter": 99}
    others = [{"process": p, "seq": 1, "event": "broadcast", "origin": p, "counter": 1} for p in ("a", "c")]
    first, again = (
        {index.process: (index, body) for index, body in (digest(p, part) for p, part in split(table(rows)))}
        for rows in ([*others, ghost], [ghost, *others[::-1]])
    )
    known = build_clock([index for index, _ in first.values()])
    result = replay(first["b"][1], (), known.clock)
    judged = Judged({p: index for p, (index, _) in again.items()}, known, Measures(), [result])

    assert first["b"][1].names != again["b"][0].names
    assert "c:99" in {case.message for case in judged.collect().sample()}


def test_the_first_root_of_a_culprit_explains_what_follows_from_it() -> None:
    def row(process: str, seq: int, event: str, origin: str, counter: int) -> dict[str, Any]:
        return {"process": process, "seq": seq, "event": event, "origin": origin, "counter": counter}

    # B delivers a:2 and a:3 before a:1, and that three times.
    rows = [row("a", number, "broadcast", "a", number) for number in (1, 2, 3)]
    rows += [row("b", seq, "deliver", "a", number) for seq, number in enumerate((2, 3, 1, 1, 1), start=1)]
    found = [(case.kind, case.at, case.explains) for case in judge(rows) if case.root]

    assert sorted(found) == [("duplicate", 4, 1), ("duplicate", 5, 0), ("fifo-order", 1, 0)]
