"""Measures by time: told from the right clock, added up, and silent where the trace says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from causalcast.audit.bundles import split
from causalcast.audit.clocks import build_clock
from causalcast.audit.logs import digest
from causalcast.audit.measures import Measures
from causalcast.audit.replay import replay
from causalcast.audit.timeline import SLICES, ProcessTimeline, summarise, transport
from tests.audit.local import table

if TYPE_CHECKING:
    from causalcast.audit.result import Timeline, Transport

Row = dict[str, Any]
MS = 10**6


def measure(rows: list[Row]) -> tuple[Timeline | None, Transport | None]:
    digests = [digest(process, columns) for process, columns in split(table(rows))]
    logs = {index.process: index for index, _ in digests}
    known = build_clock(list(logs.values()))
    whole, deliveries = ProcessTimeline(), 0
    for index, body in digests:
        result = replay(body, index.marks, known.clock)
        whole.merge(result.timeline)
        deliveries += result.latency.count
    broadcasts = Measures.of(known.clock).broadcasts
    return summarise(whole, broadcasts, known.clock.grid, logs), transport(whole, logs.values(), deliveries)


def log(process: str, *events: tuple[str, int | None]) -> list[Row]:
    """Write a log of `("deliver a:1", milliseconds)`."""
    rows: list[Row] = []
    for seq, (text, at) in enumerate(events, start=1):
        event, _, dot = text.partition(" ")
        row: Row = {"process": process, "seq": seq, "event": event, "time_ns": None if at is None else at * MS}
        if dot:
            origin, _, counter = dot.partition(":")
            row |= {"origin": origin, "counter": int(counter)}
        rows.append(row)
    return rows


def values(timeline: Timeline | None, column: str) -> list[float]:
    assert timeline is not None
    return [value for value in timeline.columns[column] if value is not None]


def test_latency_stability_and_what_is_under_way() -> None:
    timeline, links = measure(
        [
            *log("a", ("broadcast a:1", 0), ("broadcast a:2", 300), ("stable a:1", 500)),
            *log("b", ("deliver a:1", 100), ("deliver a:2", 600), ("stable a:1", 150)),
        ]
    )

    assert values(timeline, "latency_p50_ms") == pytest.approx([100, 300], rel=0.05)
    assert values(timeline, "stability_p50_ms") == pytest.approx([500, 50], rel=0.05)  # at a since 0, at b since 100
    assert max(values(timeline, "under_way")) == 1
    assert values(timeline, "under_way")[-1] == 0
    assert max(values(timeline, "not_yet_stable")) == 2
    assert sum(values(timeline, "messages")) == 2
    assert links is None


def test_receptions_give_redundancy_and_buffers_by_one_clock() -> None:
    timeline, links = measure(
        [
            *log("a", ("broadcast a:1", 0), ("broadcast a:2", 10)),
            *log(
                "b",
                ("receive a:2", 100_000),  # b's clock is far ahead of a's, and only b's counts here
                ("receive a:1", 100_040),
                ("deliver a:1", 100_050),
                ("deliver a:2", 100_060),
                ("receive a:1", 100_070),
            ),
        ]
    )

    assert links is not None
    assert (links.receives, links.redundant, links.redundancy) == (3, 1, 0.5)
    assert links.wait.count == 2
    assert links.wait.maximum == pytest.approx(60)
    assert max(values(timeline, "buffered")) == 2
    assert values(timeline, "buffered")[-1] == 0


def test_members_come_go_and_are_evicted() -> None:
    timeline, _ = measure(
        [
            *log("a", ("broadcast a:1", 0), ("broadcast a:2", 1000)),
            *log("b", ("join", 200), ("deliver a:1", 210), ("leave", 800)),
            *[row | ({"peer": "c"} if row["event"] == "evict" else {}) for row in log("d", ("evict", 500))],
            *log("c", ("deliver a:1", 10)),
        ]
    )

    members = values(timeline, "members")
    assert SLICES // 2 < len(members) <= SLICES
    assert [int(members[len(members) * i // 100]) for i in (0, 30, 60, 99)] == [3, 4, 3, 2]


def test_without_times_there_is_no_timeline_and_with_one_far_clock_the_others_keep_theirs() -> None:
    assert measure([*log("a", ("broadcast a:1", None)), *log("b", ("deliver a:1", None))])[0] is None

    far = 50 * 365 * 86_400_000
    timeline, _ = measure(
        [
            *log("a", ("broadcast a:1", far), ("broadcast a:2", far + 1000)),
            *log("b", ("deliver a:1", far + 10), ("deliver a:2", far + 1010)),
            *log("c", ("deliver a:1", 0)),
        ]
    )

    assert timeline is not None
    assert timeline.strangers == ("c",)
    assert timeline.width_ns * len(values(timeline, "messages")) < 2_000 * MS


def test_parts_add_up_whatever_their_order() -> None:
    rng = np.random.default_rng(1)
    rows = [*log("a", *((f"broadcast a:{i}", 10 * i) for i in range(1, 200)))]
    for name in "bcd":
        lags = np.sort(rng.integers(1, 500, 199))
        rows += log(name, *((f"deliver a:{i}", int(10 * i + lags[i - 1])) for i in range(1, 200)))

    forward, _ = measure(rows)
    assert forward == measure(rows[::-1])[0]
    assert sum(values(forward, "deliveries")) == 3 * 199
