"""What is settled is left out of a later run, and changes nothing of what it says."""

from __future__ import annotations

import json
import multiprocessing
import random
import shutil
import signal
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from causalcast.audit.pipeline import run_audit
from causalcast.simulation import NS_PER_MS as MS
from causalcast.simulation import Crash, Join, Leave, Simulator, process_names
from tests.audit.steady import Steady, Subscribing, Turning, grown, steady_trace
from tests.audit.test_incremental import audit_until
from tests.protocols.overlay.judged import Judge
from tests.simulation.test_tcb_dynamic import STACK, Talk, with_suspicions

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast.trace.schema import TraceEvent

OUTPUTS = ("findings", "processes", "quarantine", "metrics")


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def same_outputs(one: Path, other: Path) -> bool:
    names = [*OUTPUTS, *(["timeline"] if (other / "timeline.parquet").exists() else [])]
    tables = all(pq.read_table(one / f"{n}.parquet") == pq.read_table(other / f"{n}.parquet") for n in names)
    return tables and (one / "audit.json").read_bytes() == (other / "audit.json").read_bytes()


def grow(
    tmp_path: Path, seed: int, kind: type[Steady] = Steady, *, traffic: bool = False, faults: bool = False
) -> set[str]:
    """Audit a random trace each time that it has grown; return the events that it has."""
    rng, other = random.Random(seed), random.Random(~seed)
    rows, crashed = steady_trace(rng, kind, traffic=other if traffic else None, faults=other if faults else None)
    trace, out = tmp_path / f"{seed}", tmp_path / f"{seed}.out"
    trace.mkdir()
    for _ in grown(rng, rows, trace, append):
        found = run_audit([trace], out=out, crashed=crashed)
        assert found == run_audit([trace], crashed=crashed), seed
    assert run_audit([trace], out=out, crashed=crashed) == found, seed
    run_audit([trace], out=tmp_path / f"{seed}.whole", crashed=crashed)
    assert same_outputs(out, tmp_path / f"{seed}.whole"), seed
    return {row["event"] for row in rows}


@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in (0, 5)])
def test_a_run_that_goes_on_says_what_a_run_from_the_start_says(runs: list[bool], tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        grow(tmp_path, seed)

    assert sum(runs) > 3


@pytest.mark.parametrize("seeds", [(3, 7, 12), (1, 6, 11, 13)])
def test_it_does_where_members_join_leave_and_crash(runs: list[bool], tmp_path: Path, seeds: tuple[int, ...]) -> None:
    went_on: set[str] = set()
    for seed in seeds:
        before = len(runs)
        events = grow(tmp_path, seed, Turning)
        # The last run has nothing new.
        if any(runs[before:-1]):
            went_on |= events

    assert {"join", "leave", "crash"} <= went_on


@pytest.mark.parametrize("seeds", [(29, 30)])
def test_it_does_where_subscribers_come_and_go(runs: list[bool], tmp_path: Path, seeds: tuple[int, ...]) -> None:
    went_on: set[str] = set()
    for seed in seeds:
        before = len(runs)
        events = grow(tmp_path, seed, Subscribing)
        if any(runs[before:-1]):
            went_on |= events

    assert {"subscribe", "unsubscribe"} <= went_on


@pytest.mark.parametrize(("seeds", "kind"), [((7, 10, 11, 12), Steady), ((11, 12, 15), Turning)])
def test_it_does_where_sends_and_receptions_are_logged(
    runs: list[bool], tmp_path: Path, seeds: tuple[int, ...], kind: type[Steady]
) -> None:
    went_on: set[str] = set()
    for seed in seeds:
        before = len(runs)
        events = grow(tmp_path, seed, kind, traffic=True)
        if any(runs[before:-1]):
            went_on |= events

    assert {"send", "receive", *(("join", "leave", "crash") if kind is Turning else ())} <= went_on


# ------------------------------------------------------------------------------------- one thing at a time


NAMES = ("a", "b", "c")


class Logs:
    """Logs in rounds: each process broadcasts and delivers what the others broadcast before it in the round."""

    def __init__(self, trace: Path, topics: tuple[str | None, ...] = (None,)) -> None:
        self.trace = trace
        self.topics = topics
        self.together = False
        """Whether messages of all topics are numbered together."""
        self.seq: dict[str, int] = {}
        self.sent: dict[tuple[str, str | None], int] = {}
        self.heads: list[list[Any]] = []
        self.told = self.stable = False
        trace.mkdir()

    def add(self, process: str, event: str, dot: tuple[str, int] | None = None, **more: Any) -> None:
        seq = self.seq[process] = self.seq.get(process, 0) + 1
        row = {"process": process, "seq": seq, "event": event, "time_ns": 10**9 + 1000 * seq, **more}
        if dot is not None:
            row |= {"origin": dot[0], "counter": dot[1]}
        append(self.trace / f"{process}.jsonl", {key: value for key, value in row.items() if value is not None})

    def send(self, process: str, topic: str | None = None, **more: Any) -> tuple[str, int]:
        of = None if self.together else topic
        number = self.sent[process, of] = self.sent.get((process, of), 0) + 1
        self.add(process, "broadcast", (process, number), topic=topic, payload_bytes=8, **more)
        return process, number

    def rounds(
        self, number: int, names: tuple[str, ...] = NAMES, *others: str, told: bool = False, stable: bool = True
    ) -> None:
        """Let `names` broadcast and `others` deliver only; with `told`, with tags and, but for `stable`, stability."""
        self.told, self.stable = told, told and stable
        for _ in range(number):
            for topic in self.topics:
                for name in names:
                    tag = {"context": self.heads} if told else {}
                    dot = self.send(name, topic, **tag)
                    self.heads = [list(dot)]
                    for other in (*names, *others):
                        if other != name:
                            self.add(other, "deliver", dot, topic=topic)
                    for other in (*names, *others) if self.stable else ():
                        self.add(other, "stable", dot, topic=topic)


def duplicate_of_old(logs: Logs) -> None:
    logs.add("b", "deliver", ("a", 2))


def duplicate_of_new(logs: Logs) -> None:
    dot = logs.send("a")
    logs.add("b", "deliver", dot)
    logs.add("b", "deliver", dot)


def absent_cause_that_comes_later(logs: Logs) -> None:
    first, second = logs.send("a"), logs.send("a")
    logs.add("b", "deliver", second)
    logs.add("c", "deliver", first)
    logs.add("c", "deliver", second)


def newcomer(logs: Logs) -> None:
    logs.add("z", "join")
    logs.add("a", "deliver", logs.send("z"))


def newcomer_that_did_not_join(logs: Logs) -> None:
    logs.send("z")


def newcomer_that_somebody_evicted(logs: Logs) -> None:
    logs.add("a", "evict", peer="y")
    run_audit([logs.trace], out=logs.trace.parent / "out")
    logs.add("y", "join")
    logs.send("y")


def crash(logs: Logs) -> None:
    logs.add("c", "crash")
    logs.add("a", "deliver", ("b", logs.send("b")[1]))


def first_subscription(logs: Logs) -> None:
    logs.add("c", "subscribe", topic="t")


def own_delivery(logs: Logs) -> None:
    logs.add("a", "deliver", logs.send("a"))


def first_tag(logs: Logs) -> None:
    logs.send("a", context=[["b", 2]])


def first_stability(logs: Logs) -> None:
    logs.add("a", "stable", ("b", 1))


def hole(logs: Logs) -> None:
    logs.seq["a"] += 1
    logs.send("a")


def number_left_out(logs: Logs) -> None:
    logs.sent["a", None] += 1
    logs.send("a")


def another_topic(logs: Logs) -> None:
    logs.sent["a", "t"] = logs.sent["a", None]
    logs.send("a", "t")


def altered(logs: Logs) -> None:
    logs.add("b", "deliver", logs.send("a"), payload_bytes=9)


def far_time(logs: Logs) -> None:
    logs.add("a", "broadcast", ("a", logs.sent["a", None] + 1), time_ns=10**15)
    logs.sent["a", None] += 1


GOES_ON = (duplicate_of_new, absent_cause_that_comes_later, crash, altered, newcomer)
BEGINS_ANEW = (
    *(duplicate_of_old, newcomer_that_did_not_join, first_subscription, own_delivery, first_tag, first_stability, hole),
    *(number_left_out, another_topic, far_time),
)


@pytest.mark.parametrize("change", [*GOES_ON, *BEGINS_ANEW], ids=lambda change: change.__name__)
def test_what_comes_new_is_judged_here_or_everything_is(runs: list[bool], tmp_path: Path, change: Any) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(40)
    run_audit([logs.trace], out=out)
    for step in (lambda: logs.rounds(1), lambda: change(logs), lambda: logs.rounds(2)):
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[:2] == [True, change in GOES_ON]


def test_what_may_follow_something_unknown_is_not_settled(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(40)
    logs.add("a", "deliver", ("b", 41))
    dot = logs.send("a")
    logs.add("b", "deliver", dot)
    logs.add("c", "deliver", dot)
    run_audit([logs.trace], out=out)
    logs.send("b")
    found = run_audit([logs.trace], out=out)

    assert found == run_audit([logs.trace])
    assert found.counts["not-broadcast"] == 1


STAYING = ("a", "b", "c", "d")


def turned(trace: Path, *, told: bool) -> Logs:
    """Return logs of which `d` joined, `e` left, `f` crashed and was evicted, and `g` only delivers."""
    logs = Logs(trace)
    logs.rounds(4, ("a", "b", "c", "e", "f"), "g", told=told)
    logs.add("e", "leave")
    logs.add("f", "crash")
    logs.add("a", "evict", peer="f")
    logs.add("d", "join")
    logs.rounds(30, STAYING, "g", told=told)
    return logs


def row_of_one_that_left(logs: Logs) -> None:
    logs.add("e", "deliver", logs.send("a"))


def recovery(logs: Logs) -> None:
    logs.add("f", "recover")


def joined_again(logs: Logs) -> None:
    logs.add("e", "join")
    logs.add("e", "deliver", logs.send("a"))
    logs.add("b", "deliver", logs.send("e"))


def joined_again_though_it_was_evicted(logs: Logs) -> None:
    logs.add("f", "join")
    logs.add("f", "deliver", logs.send("a"))


def row_before_it_joined_again(logs: Logs) -> None:
    dot = logs.send("a")
    logs.add("e", "deliver", dot)
    logs.add("e", "join")


def second_join(logs: Logs) -> None:
    logs.add("d", "join")


def join_of_one_that_was_there(logs: Logs) -> None:
    logs.add("b", "join")


def own_eviction(logs: Logs) -> None:
    logs.add("d", "evict", peer="d")
    dot = logs.send("a")
    logs.add("d", "join")
    logs.add("d", "deliver", dot)


def leaver(logs: Logs) -> None:
    logs.add("b", "leave")


def eviction(logs: Logs) -> None:
    logs.add("a", "evict", peer="c")


def duplicate_at_joiner(logs: Logs) -> None:
    logs.add("d", "deliver", ("a", 8))


def late_at_joiner(logs: Logs) -> None:
    logs.add("d", "deliver", ("a", 2))


def late_from_one_that_left(logs: Logs) -> None:
    logs.add("d", "deliver", ("e", 4))


def stable_at_joiner(logs: Logs) -> None:
    logs.add("d", "stable", ("a", 2))


def new_origin(logs: Logs) -> None:
    dot = logs.send("g", context=logs.heads if logs.told else None)
    logs.add("d", "deliver", dot)
    logs.heads = [list(dot)]


def crash_of_joiner(logs: Logs) -> None:
    logs.add("b", "deliver", logs.send("d"))
    logs.add("d", "crash")


def joiner_lags(logs: Logs) -> None:
    logs.rounds(1, ("a", "b", "c"), "g")
    logs.add("d", "deliver", ("c", logs.sent["c", None]))


def tag_that_names_too_much(logs: Logs) -> None:
    logs.send("a", context=[["b", 5], ["d", 1000]])


def tag_that_names_too_little(logs: Logs) -> None:
    logs.send("a", context=[])


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        *((change, True) for change in (new_origin, crash, crash_of_joiner, joiner_lags)),
        *((change, True) for change in (newcomer, leaver, eviction, own_eviction, joined_again, second_join)),
        (join_of_one_that_was_there, True),
        *((change, False) for change in (row_of_one_that_left, recovery, row_before_it_joined_again)),
        *((change, False) for change in (newcomer_that_did_not_join, newcomer_that_somebody_evicted)),
        (joined_again_though_it_was_evicted, False),
        *((change, False) for change in (duplicate_at_joiner, late_at_joiner, stable_at_joiner)),
        *((change, None) for change in (late_from_one_that_left, tag_that_names_too_much, tag_that_names_too_little)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_where_some_came_and_some_are_gone_too(
    runs: list[bool], tmp_path: Path, change: Any, goes_on: bool | None, told: bool
) -> None:
    logs, out = turned(tmp_path / "trace", told=told), tmp_path / "out"
    run_audit([logs.trace], out=out)
    steps = (
        lambda: logs.rounds(1, STAYING, "g", told=told),
        lambda: change(logs),
        lambda: logs.rounds(2, STAYING, "g", told=told),
        lambda: logs.rounds(2, STAYING, "g", told=told),
    )
    for step in steps:
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[0]
    if goes_on is not None and not (told and change is crash_of_joiner):
        assert runs[1 + (change is newcomer_that_somebody_evicted)] == goes_on


def test_a_crash_that_stops_stability_does_not_stop_what_is_settled(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(4, (*NAMES, "f"), told=True)
    logs.add("f", "crash")
    logs.rounds(30, told=True, stable=False)
    run_audit([logs.trace], out=out)
    steps = (
        lambda: logs.rounds(2, told=True, stable=False),
        lambda: logs.add("b", "stable", ("a", 20)),
        lambda: logs.add("f", "recover"),
        lambda: logs.rounds(2, told=True, stable=False),
    )
    for step in steps:
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[:3] == [True, False, False]


def test_what_only_a_crashed_sender_has_holds_up_nothing(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(4, (*NAMES, "f"), told=True)
    lost = logs.send("f", context=logs.heads)
    logs.add("f", "crash")
    logs.add("a", "evict", peer="f")
    logs.rounds(30, told=True)
    run_audit([logs.trace], out=out)
    for step in (lambda: logs.rounds(2, told=True), lambda: logs.add("b", "deliver", lost)):
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True, False]


def test_stability_is_measured_alike_whatever_other_rows_have_times(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    for number in range(60):
        name = NAMES[number % 3]
        dot = logs.send(name)
        for other in NAMES:
            # The sender's own delivery of its last message has no time.
            untimed = {"time_ns": None} if number == 59 and other == name else {}
            logs.add(other, "deliver", dot, **untimed)
        for other in NAMES if number < 59 else NAMES[1:]:
            logs.add(other, "stable", dot)
    for _ in range(2):
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
        logs.send("a")

    assert runs == [True]


class Rows(list[dict[str, Any]]):
    """Takes a trace as rows."""

    def write(self, event: TraceEvent) -> None:
        told = {
            name: getattr(event, name) for name in ("process", "seq", "event", "origin", "counter", "peer", "time_ns")
        }
        told["context"] = None if event.context is None else [list(dot) for dot in event.context]
        self.append({name: value for name, value in told.items() if value is not None})


def test_dynamic_membership_goes_on(runs: list[bool], tmp_path: Path) -> None:
    names = process_names(5)
    faults = [Join("x", 500 * MS, "p1"), Crash("p3", 900 * MS), Leave("p4", 1_500 * MS), Join("y", 1_800 * MS, "p2")]
    rows = Rows()
    talk = Talk(Judge(), [number * 100 * MS for number in range(1, 70)])
    told = with_suspicions(faults, names[:2], 200 * MS)
    Simulator(STACK, names, talk, seed=5, faults=told, trace=rows).run(until_ns=8_000 * MS)
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    done = 0
    for share in (0.6, 0.7, 0.8, 0.9, 0.95):
        for row in rows[done : int(share * len(rows))]:
            append(trace / f"{row['process']}.jsonl", row)
        done = int(share * len(rows))
        assert run_audit([trace], out=out) == run_audit([trace])

    assert {"join", "leave", "evict", "crash", "stable"} <= {row["event"] for row in rows}
    assert runs == [True] * 4


def test_a_later_run_that_is_killed_anywhere_is_repeated(runs: list[bool], tmp_path: Path) -> None:
    logs, base, whole = Logs(tmp_path / "trace"), tmp_path / "base", tmp_path / "whole"
    logs.rounds(12)
    run_audit([logs.trace], out=base)
    logs.rounds(1)
    logs.send("a")
    expected = run_audit([logs.trace], out=whole)
    step, finished = 0, False
    while not finished:
        step += 1
        out = tmp_path / f"out{step}"
        shutil.copytree(base, out)
        child = multiprocessing.get_context("fork").Process(target=audit_until, args=(logs.trace, out, step))
        child.start()
        child.join(60)
        finished = child.exitcode == 0
        assert finished or child.exitcode == -signal.SIGKILL
        assert run_audit([logs.trace], out=out) == expected
        assert runs.pop()
        assert same_outputs(out, whole)
    assert step > 8
