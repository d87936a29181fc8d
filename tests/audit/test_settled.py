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

from causalcast.audit import pipeline
from causalcast.audit.continued import Continuation
from causalcast.audit.pipeline import run_audit
from tests.audit import unsparked
from tests.audit.steady import grown, steady_trace
from tests.audit.test_incremental import audit_until

if TYPE_CHECKING:
    from pathlib import Path

OUTPUTS = ("findings", "processes", "quarantine", "metrics")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Run the stages in this process, without a JVM; note of each run with a state whether it went on from there."""
    monkeypatch.setattr(pipeline, "spark_session", unsparked.session)
    noted: list[bool] = []
    run = Continuation.run

    def noting(self: Continuation, *arguments: Any) -> Any:
        before = bool(self.kept.manifest.files)
        found = run(self, *arguments)
        if before:
            noted.append(found is not None)
        return found

    monkeypatch.setattr(Continuation, "run", noting)
    return noted


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def same_outputs(one: Path, other: Path) -> bool:
    names = [*OUTPUTS, *(["timeline"] if (other / "timeline.parquet").exists() else [])]
    tables = all(pq.read_table(one / f"{n}.parquet") == pq.read_table(other / f"{n}.parquet") for n in names)
    return tables and (one / "audit.json").read_bytes() == (other / "audit.json").read_bytes()


@pytest.mark.parametrize("seeds", [range(first, first + 5) for first in (0, 5)])
def test_a_run_that_goes_on_says_what_a_run_from_the_start_says(runs: list[bool], tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        rows, crashed = steady_trace(rng)
        trace, out = tmp_path / f"{seed}", tmp_path / f"{seed}.out"
        trace.mkdir()
        for _ in grown(rng, rows, trace, append):
            found = run_audit([trace], out=out, crashed=crashed)
            assert found == run_audit([trace], crashed=crashed), seed
        assert run_audit([trace], out=out, crashed=crashed) == found, seed
        run_audit([trace], out=tmp_path / f"{seed}.whole", crashed=crashed)
        assert same_outputs(out, tmp_path / f"{seed}.whole"), seed

    assert sum(runs) > 3


# ------------------------------------------------------------------------------------- one thing at a time


NAMES = ("a", "b", "c")


class Logs:
    """Logs in rounds: each process broadcasts and delivers what the others broadcast before it in the round."""

    def __init__(self, trace: Path, topics: tuple[str | None, ...] = (None,)) -> None:
        self.trace = trace
        self.topics = topics
        self.seq: dict[str, int] = {}
        self.sent: dict[tuple[str, str | None], int] = {}
        trace.mkdir()

    def add(self, process: str, event: str, dot: tuple[str, int] | None = None, **more: Any) -> None:
        seq = self.seq[process] = self.seq.get(process, 0) + 1
        row = {"process": process, "seq": seq, "event": event, "time_ns": 10**9 + 1000 * seq, **more}
        if dot is not None:
            row |= {"origin": dot[0], "counter": dot[1]}
        append(self.trace / f"{process}.jsonl", {key: value for key, value in row.items() if value is not None})

    def send(self, process: str, topic: str | None = None, **more: Any) -> tuple[str, int]:
        number = self.sent[process, topic] = self.sent.get((process, topic), 0) + 1
        self.add(process, "broadcast", (process, number), topic=topic, payload_bytes=8, **more)
        return process, number

    def rounds(self, number: int) -> None:
        for _ in range(number):
            for topic in self.topics:
                for name in NAMES:
                    dot = self.send(name, topic)
                    for other in NAMES:
                        if other != name:
                            self.add(other, "deliver", dot, topic=topic)


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
    logs.add("d", "join")
    logs.add("d", "broadcast", ("d", 1))


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


GOES_ON = (duplicate_of_new, absent_cause_that_comes_later, crash, altered)
BEGINS_ANEW = (
    *(duplicate_of_old, newcomer, first_subscription, own_delivery, first_tag, first_stability, hole),
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


def test_topics_go_on_by_themselves(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace", ("s", "t")), tmp_path / "out"
    for name in NAMES:
        for topic in logs.topics:
            logs.add(name, "subscribe", topic=topic)
    logs.rounds(20)
    run_audit([logs.trace], out=out)
    for topic in ("s", "t", "u"):
        logs.add("d", "subscribe", topic="u") if topic == "u" else logs.send("b", topic)
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True, True, False]


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
