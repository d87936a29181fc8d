"""Logs that grow: the window comes to the batch audit's verdict in any order of arrival, and stays small."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from causalcast.audit.bundles import split
from causalcast.audit.window import Window
from tests.audit.churn import Churn
from tests.audit.histories import mutate
from tests.audit.local import judge, table

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]


def arriving(rng: random.Random, rows: list[Row], most: int = 4) -> Iterator[list[Row]]:
    """Cut the logs into steps: of each process the next few rows, of some none."""
    logs: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["seq"]):
        logs.setdefault(row["process"], []).append(row)
    begun = 1
    while any(logs.values()):
        step = []
        for log in logs.values():
            size = rng.randint(begun, most)
            step.extend(log[:size])
            del log[:size]
        begun = 0
        yield step


def fed(rng: random.Random, rows: list[Row], crashed: tuple[str, ...] = ()) -> Window:
    window = Window(crashed=frozenset(crashed), lag=3)
    for step in arriving(rng, rows):
        window.advance(split(table(step)) if step else ())
    return window


def test_the_window_agrees_with_the_batch_audit_however_rows_arrive() -> None:
    judged = forgot = failed = 0
    for seed in range(100):
        rng = random.Random(seed)
        rows = Churn(rng).run(rng.randint(20, 80))
        if not rows:
            continue
        crashed: tuple[str, ...] = ()
        if rng.random() < 0.6:
            rows, crashed = mutate(rng, rows)
        window = fed(rng, rows, crashed)
        forgot += bool(window.forgotten)
        if window.open_questions:
            continue
        expected = {case.kind for case in judge(rows, crashed)}
        assert set(window.total) == expected, seed
        judged += 1
        failed += bool(expected)

    assert judged > 35
    assert forgot > 20
    assert failed > 3


def test_what_is_shown_early_is_in_the_verdict() -> None:
    shown = 0
    for seed in range(1000, 1050):
        rng = random.Random(seed)
        rows = Churn(rng).run(rng.randint(20, 60))
        if not rows:
            continue
        rows, crashed = mutate(rng, rows)
        window, early = Window(crashed=frozenset(crashed)), []
        for step in arriving(rng, rows):
            early += window.advance(split(table(step)) if step else ())
        if not window.open_questions:
            assert not early or window.total, seed
            shown += bool(early)

    assert shown > 0


def test_a_long_run_is_held_in_a_small_window() -> None:
    names = [f"p{i}" for i in range(4)]
    seqs = dict.fromkeys(names, 0)
    window, largest = Window(), 0
    for number in range(1, 101):
        rows: list[Row] = []
        for origin in names:
            for process in names:
                seqs[process] += 1
                event = "broadcast" if process == origin else "deliver"
                rows.append(
                    {"process": process, "seq": seqs[process], "event": event, "origin": origin, "counter": number}
                )
        assert window.advance(split(table(rows))) == []
        largest = max(largest, window.rows)

    assert window.rows_read == 100 * 16
    assert largest <= 8 * 16
    assert (window.total, window.doubts) == ({}, [])


def test_what_no_later_row_explains_is_shown_at_once_and_needs_no_batch_audit() -> None:
    rows: list[Row] = []
    for process, events in (
        ("a", ("deliver a:1", "broadcast a:1", "leave a:0")),
        ("b", ("deliver a:1", "deliver a:1")),
    ):
        for seq, text in enumerate(events, start=1):
            event, _, number = text.replace(" a:", " ").partition(" ")
            rows.append({"process": process, "seq": seq, "event": event, "origin": "a", "counter": int(number)})
    window = Window()

    shown = [window.advance(split(table(part))) for part in (rows[3:], rows[:2], rows[2:3])]

    assert [[(f.kind, f.process, f.message) for f in step] for step in shown] == [
        [("duplicate", "b", "a:1")],
        [("not-broadcast", "a", "a:1")],
        [],
    ]
    assert window.open_questions == []
    assert window.total == {"duplicate": 1, "not-broadcast": 1}
    assert {case.kind for case in judge(rows)} == {"duplicate", "not-broadcast"}
