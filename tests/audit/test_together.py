"""Many logs and topics at once come to what each of them comes to alone, odd or not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from causalcast.audit import plain
from causalcast.audit.bundles import bundle
from causalcast.audit.clocks import build_clock
from causalcast.audit.logs import digest, digest_logs
from causalcast.audit.replay import replay, replay_logs
from tests.audit.churn import Churn
from tests.audit.histories import mutate
from tests.audit.local import judge, table

if TYPE_CHECKING:
    import pytest

    from causalcast.audit.digests import LogBody, LogIndex
    from causalcast.audit.violations import Replay

Row = dict[str, Any]


def trace(seed: int) -> tuple[list[Row], tuple[str, ...]]:
    """Return a run, correct or faulty, with times, sizes, sends and receptions, its rows shuffled."""
    rng = random.Random(seed)
    rows = Churn(rng).run(rng.randint(5, 60))
    crashed: tuple[str, ...] = ()
    if rng.random() < 0.6 and rows:
        rows, crashed = mutate(rng, rows)
    if rng.random() < 0.5:
        rows = [row | {"seq": 3 * row["seq"]} for row in rows]
        for row in [row for row in rows if row["event"] == "deliver"]:
            rows.append(row | {"event": "receive", "seq": row["seq"] - 1})
            rows.append(row | {"event": "send", "seq": row["seq"] - 2})
    for row in rows:
        if rng.random() < 0.8:
            row["time_ns"] = row["seq"] * 1_000 + len(row["process"])
        if row["event"] in ("broadcast", "deliver") and rng.random() < 0.5:
            row["payload_bytes"] = 7 if rng.random() < 0.99 else 8
    rng.shuffle(rows)
    return rows, crashed


def together(rows: list[Row]) -> list[tuple[LogIndex, LogBody]]:
    """Digest all logs by one call."""
    whole = bundle(table(rows))
    groups = np.arange(whole.process.size)
    log = np.repeat(groups, np.diff(whole.starts))
    indices, bodies = digest_logs([whole.owner(group) for group in groups.tolist()], whole.parts(groups), log)
    return [(indices.log(place), bodies.log(place)) for place in groups.tolist()]


def one_by_one(rows: list[Row]) -> list[tuple[LogIndex, LogBody]]:
    whole = bundle(table(rows))
    return [digest(whole.owner(group), whole.part(group)) for group in range(whole.process.size)]


def told(result: Replay, names: Any) -> tuple[Any, ...]:
    """Return all that a replay says, with names for codes."""
    found = [
        (
            *(part.topic, part.kind, part.reason, part.message.tolist(), part.cause.tolist(), part.at.tolist()),
            *(part.cause_at.tolist(), part.root.tolist()),
            None if part.origin is None else [names[code] for code in part.origin.tolist()],
            None if part.counter is None else part.counter.tolist(),
            None if part.because is None else part.because.tolist(),
        )
        for part in result.violations
    ]
    line, latency = result.timeline, result.latency
    spreads = [(s.keys.tolist(), s.numbers.tolist()) for s in (line.latency, line.stability, line.buffered)]
    measures = [(h.bins, h.count, h.total, h.maximum) for h in (latency, result.stability_delay, line.wait)]
    return found, spreads, measures, line.counts.tolist(), result.excused, result.unproven


def judged(
    digests: list[tuple[LogIndex, LogBody]], crashed: tuple[str, ...], **how: Any
) -> dict[str, tuple[object, ...]]:
    clock = build_clock([index for index, _ in digests], crashed).clock
    return {body.process: told(replay(body, index.marks, clock, **how), body.names) for index, body in digests}


def test_logs_are_digested_and_judged_together_as_one_by_one() -> None:
    faulty = 0
    for seed in range(60):
        rows, crashed = trace(seed)
        if not rows:
            continue
        alone, all_at_once = one_by_one(rows), together(rows)
        expected = judged(alone, crashed)
        assert judged(all_at_once, crashed) == expected, seed
        clock = build_clock([index for index, _ in all_at_once], crashed).clock
        bodies = all_at_once[0][1].source
        found = replay_logs(bodies, np.arange(len(bodies.processes)), clock).found
        faulty += any(result.violations for result in found.values())
        for _, body in all_at_once:
            clean = not expected[body.process][0]
            assert clean == (body.place not in found or not found[body.place].violations), seed
    assert faulty > 8


def test_what_is_found_clean_is_clean_when_it_is_looked_at_closely() -> None:
    screened = 0
    for seed in range(1_000, 1_060):
        rows, crashed = trace(seed)
        if not rows:
            continue
        digests = together(rows)
        looked_at: list[object] = []
        closely = judged(digests, crashed, inspect=looked_at.append)
        assert judged(digests, crashed) == closely, seed
        clock = build_clock([index for index, _ in digests], crashed).clock
        bodies = digests[0][1].source
        screened += len(looked_at) > len(replay_logs(bodies, np.arange(len(bodies.processes)), clock).found)
    assert screened > 8


def test_clocks_made_side_by_side_are_those_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small, made = plain.SMALL, 0
    for seed in range(2_000, 2_060):
        rows, crashed = trace(seed)
        if not rows:
            continue
        indices = [index for index, _ in together(rows)]
        monkeypatch.setattr(plain, "SMALL", small)
        quick = build_clock(indices, crashed)
        monkeypatch.setattr(plain, "SMALL", -1)
        slow = build_clock(indices, crashed)
        assert quick.findings == slow.findings, seed
        assert quick.absent == slow.absent
        assert list(quick.clock.topics) == list(slow.clock.topics)
        assert not slow.clock.flat[0].topics
        made += len(quick.clock.flat[0].topics)
        for name, topic in quick.clock.topics.items():
            other = slow.clock.topics[name]
            for field in (f for f in topic.__dataclass_fields__ if f != "predecessors"):
                mine, theirs = getattr(topic, field), getattr(other, field)
                assert np.array_equal(mine, theirs) if isinstance(mine, np.ndarray) else mine == theirs, (seed, field)
    assert made > 20


def test_a_digest_keeps_no_subscription_of_a_log_that_is_not_asked_for() -> None:
    rows = [
        {"process": "a", "seq": 1, "event": "broadcast", "origin": "a", "counter": 1},
        {"process": "b", "seq": 1, "event": "subscribe", "topic": "t"},
    ]
    first, second = together(rows)

    assert build_clock([first[0], second[0]]).clock.subscriptions
    assert not build_clock([first[0]]).clock.subscriptions


def test_a_stable_report_of_what_nobody_broadcast_is_judged_with_a_time_too() -> None:
    rows = [{"process": "a", "seq": 1, "event": "stable", "origin": "b", "counter": 1, "time_ns": 5}]
    rows.append({"process": "b", "seq": 1, "event": "join", "time_ns": 5})

    assert "stable-order" in [case.kind for case in judge(rows)]
