"""Processes that come and go by what is new: it is judged here, and says what a run from the start says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit.continued import Continuation
from causalcast.audit.events import EVENT_CODES
from causalcast.audit.pipeline import run_audit
from causalcast.audit.settled import Settled
from causalcast.simulation import NS_PER_MS as MS
from causalcast.simulation import Crash, Join, Leave, Simulator, process_names
from tests.audit.steady import Coming
from tests.audit.test_settled import NAMES, Logs, Rows, append, grow
from tests.audit.test_settled_stays import same
from tests.protocols.overlay.judged import Judge
from tests.simulation.test_tcb_dynamic import STACK, Talk, with_suspicions

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = {code: event for event, code in EVENT_CODES.items()}


@pytest.fixture
def taken(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Note, of each run that goes on, the events of its new rows."""
    noted: list[set[str]] = []
    new: set[str] = set()
    takes, run = Settled.takes, Continuation.run

    def noting(self: Settled, rows: Any, log: Any) -> bool:
        new.update(EVENTS[code] for code in rows.event.tolist())
        return takes(self, rows, log)

    def running(self: Continuation, *arguments: Any) -> Any:
        new.clear()
        found = run(self, *arguments)
        if found is not None:
            noted.append(set(new))
        return found

    monkeypatch.setattr(Settled, "takes", noting)
    monkeypatch.setattr(Continuation, "run", running)
    return noted


def with_a_late_one(trace: Path) -> Logs:
    """Return logs with tags, in which D joined and sent two messages."""
    logs = Logs(trace)
    logs.rounds(2, told=True, stable=False)
    logs.add("D", "join")
    logs.rounds(1, NAMES, "D", told=True, stable=False)
    logs.rounds(2, (*NAMES, "D"), told=True, stable=False)
    return logs


@pytest.mark.parametrize("seeds", [(2, 38, 44, 59, 87), (22, 36, 71, 98, 105, 121), (74, 99, 138, 141, 162)])
def test_a_run_that_goes_on_says_what_a_run_from_the_start_says(
    taken: list[set[str]], tmp_path: Path, seeds: tuple[int, ...]
) -> None:
    for seed in seeds:
        grow(tmp_path, seed, Coming)

    assert {"join", "subscribe", "unsubscribe"} <= set().union(*taken)
    assert {"leave", "evict"} & set().union(*taken)


def test_dynamic_membership_goes_on_while_it_changes(taken: list[set[str]], tmp_path: Path) -> None:
    names = process_names(5)
    joins = [Join("x", 300 * MS, "p1"), Join("y", 3_000 * MS, "p2"), Join("z", 6_000 * MS, "p1")]
    faults = [*joins, Crash("p3", 4_000 * MS), Leave("p4", 5_000 * MS), Leave("x", 7_000 * MS)]
    rows = Rows()
    talk = Talk(Judge(), [number * 100 * MS for number in range(1, 90)])
    told = with_suspicions(sorted(faults, key=lambda fault: fault.at_ns), names[:2], 200 * MS)
    Simulator(STACK, names, talk, seed=5, faults=told, trace=rows).run(until_ns=10_000 * MS)
    trace, out = tmp_path / "trace", tmp_path / "out"
    trace.mkdir()
    done, pieces = 0, 16
    for piece in range(4, pieces + 1):
        cut = len(rows) * piece // pieces
        for row in rows[done:cut]:
            append(trace / f"{row['process']}.jsonl", row)
        done = cut
        assert run_audit([trace], out=out) == run_audit([trace])

    assert {"join", "leave", "evict", "crash", "stable"} <= set().union(*taken)
    assert len(taken) >= pieces - 4


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
def test_little_is_judged_again_where_members_come_and_go(
    runs: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(100, told=told)
    run_audit([logs.trace], out=out)
    judged: list[int] = []
    judge = Settled.judge

    def noting(self: Settled, rows: Any, log: Any) -> Any:
        judged.append(log.size)
        return judge(self, rows, log)

    monkeypatch.setattr(Settled, "judge", noting)
    staying = NAMES
    for number in range(8):
        logs.add(f"n{number}", "join")
        logs.rounds(1, staying, f"n{number}", told=told)
        if number == 4:
            logs.add("b", "leave")
        if number == 5:
            logs.add("a", "evict", peer="n4")
            logs.add("c", "evict", peer="n4")
        gone = {"b": number >= 4, "n4": number >= 5}
        staying = tuple(name for name in (*NAMES, *(f"n{i}" for i in range(number + 1))) if not gone.get(name))
        logs.rounds(2, staying, told=told)
        found = same(logs, out)
        judged.clear()
        logs.add(staying[-1], "deliver", logs.send("a", context=logs.heads if told else None))
        logs.heads = [["a", logs.sent["a", None]]]
        same(logs, out)
        assert judged[0] < found.events / 6
        for name in staying[1:-1]:
            logs.add(name, "deliver", ("a", logs.sent["a", None]))
        for name in staying if told else ():
            logs.add(name, "stable", ("a", logs.sent["a", None]))

    assert all(runs)
    assert same(logs, out).verdict == "pass"


@pytest.mark.parametrize("timed", [{}, {"time_ns": None}], ids=["timed", "untimed"])
def test_a_joiner_is_owed_to_and_owes_from_then_on(runs: list[bool], tmp_path: Path, timed: dict[str, None]) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(20)
    run_audit([logs.trace], out=out)
    logs.add("z", "join", **timed)
    logs.add("z", "deliver", logs.send("a"), **timed)
    same(logs, out)
    logs.send("a")
    assert same(logs, out).counts == {"undelivered": 1 + 2 * 2}  # one that z lacks, and two that b and c do
    assert all(runs)


def test_what_a_leaver_lacks_is_not_owed_any_more(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(20)
    run_audit([logs.trace], out=out)
    logs.add("b", "deliver", logs.send("a"))
    assert same(logs, out).counts == {"undelivered": 1}
    logs.add("c", "leave")
    assert same(logs, out).verdict == "pass"
    logs.rounds(2, ("a", "b"))
    same(logs, out)
    logs.add("c", "join")
    logs.add("c", "deliver", logs.send("b"))
    logs.add("a", "deliver", ("b", logs.sent["b", None]))
    assert same(logs, out).verdict == "pass"
    logs.add("a", "deliver", logs.send("b"))

    assert same(logs, out).counts == {"undelivered": 1}
    assert all(runs)


def test_who_was_there_from_the_start_and_joins_first_owes_from_then_on(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(6, (*NAMES, "d"))
    logs.add("d", "evict", peer="d")
    logs.rounds(14)
    run_audit([logs.trace], out=out)
    logs.add("d", "join")
    logs.rounds(1, NAMES, "d")
    logs.rounds(1)

    assert same(logs, out).counts == {"undelivered": 3}
    assert runs == [True]


def test_an_eviction_of_one_that_crashed_has_stability_owed_again(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(4, (*NAMES, "f"), told=True)
    logs.add("f", "crash")
    logs.rounds(30, told=True, stable=False)
    assert run_audit([logs.trace], out=out).verdict == "pass"
    logs.rounds(1, told=True, stable=False)
    assert same(logs, out).verdict == "pass"
    logs.add("a", "evict", peer="f")

    assert same(logs, out).counts["unstable"] > 90
    assert runs == [True, False]


def test_whether_a_tag_names_too_much_is_seen_once_that_is_known(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(3, told=True, stable=False)
    logs.add("d", "join")
    logs.rounds(2, NAMES, "d", told=True, stable=False)
    dot = logs.send("d", context=[*logs.heads, ["d", 9]])
    for name in NAMES:
        logs.add(name, "deliver", dot)
    logs.heads = [list(dot)]
    logs.rounds(5, (*NAMES, "d"), told=True, stable=False)
    # For all that is known d joined with a state that has it.
    assert run_audit([logs.trace], out=out).verdict == "pass"
    for _ in range(2):
        logs.rounds(1, (*NAMES, "d"), told=True, stable=False)
        assert same(logs, out).verdict == "pass"
    logs.rounds(1, (*NAMES, "d"), told=True, stable=False)

    assert logs.sent["d", None] == 9
    assert same(logs, out).counts == {"tag-mismatch": 1}


@pytest.mark.parametrize("left_out", [False, True])
def test_a_tag_may_name_what_followed_an_earlier_stay(runs: list[bool], tmp_path: Path, left_out: bool) -> None:
    logs, out = with_a_late_one(tmp_path / "trace"), tmp_path / "out"
    followed = ["c", logs.sent["c", None]] if left_out else logs.heads[0]
    logs.add("D", "leave")
    logs.rounds(2, told=True, stable=False)
    logs.add("D", "join")
    logs.rounds(20, NAMES, "D", told=True, stable=False)
    run_audit([logs.trace], out=out)
    logs.rounds(1, NAMES, "D", told=True, stable=False)
    one = logs.send("a", context=logs.heads)
    for name in ("b", "c", "D"):
        logs.add(name, "deliver", one)
    logs.send("c", context=[followed])

    # What D sent in its first stay, and the tag reaches, may have been followed by more than the logs say.
    assert "tag-mismatch" not in same(logs, out).counts
    assert runs == [not left_out]


def test_what_a_tag_leaves_out_may_be_in_question_once_somebody_comes_again(runs: list[bool], tmp_path: Path) -> None:
    logs, out = with_a_late_one(tmp_path / "trace"), tmp_path / "out"
    followed = ["c", logs.sent["c", None]]
    logs.rounds(20, (*NAMES, "D"), told=True, stable=False)
    run_audit([logs.trace], out=out)
    dot = logs.send("c", context=[followed])
    for name in ("a", "b", "D"):
        logs.add(name, "deliver", dot)
    logs.heads = [list(dot)]
    assert same(logs, out).counts == {"tag-mismatch": 1}
    logs.rounds(1, (*NAMES, "D"), told=True, stable=False)
    same(logs, out)
    logs.add("D", "leave")
    logs.add("D", "join")

    # What the tag leaves out came before that, so it may have been known by the state.
    assert same(logs, out).verdict == "pass"


def test_what_a_newcomer_sends_follows_nothing_that_is_left_out(runs: list[bool], tmp_path: Path) -> None:
    logs, out = with_a_late_one(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(20, (*NAMES, "D"), told=True, stable=False)
    run_audit([logs.trace], out=out)
    logs.add("z", "join")
    first, second = logs.send("z", context=[]), logs.send("z", context=[["z", 1]])
    for dot in (first, second):
        logs.add("a", "deliver", dot)
    logs.send("a", context=[list(first)])
    found = same(logs, out)

    assert [(each.kind, each.cause) for each in found.findings if each.property == "P4"] == [("tag-mismatch", "z:2")]
    assert runs == [True]


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
def test_what_one_sends_who_returns_follows_what_it_had_before_it_left(
    runs: list[bool], tmp_path: Path, told: bool
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(2, NAMES, "z", told=told)
    logs.add("w", "join")
    logs.rounds(1, (*NAMES, "w"), "z", told=told)
    logs.add("z", "leave")
    logs.rounds(30, (*NAMES, "w"), told=told)
    run_audit([logs.trace], out=out)
    logs.rounds(2, (*NAMES, "w"), told=told)
    assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
    logs.add("z", "join")
    dot = logs.send("z", context=logs.heads if told else None)
    for process in NAMES:
        logs.add(process, "deliver", dot)
    found = run_audit([logs.trace], out=out)

    assert found == run_audit([logs.trace])
    assert found.counts["undelivered"] == 1
    assert runs == [True, True]


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
def test_what_one_delivers_who_does_not_subscribe_and_nobody_is_known_to_have_sent(
    runs: list[bool], tmp_path: Path, told: bool
) -> None:
    logs, out = Logs(tmp_path / "trace", ("t",)), tmp_path / "out"
    for process in ("a", "b", "p"):
        logs.add(process, "subscribe", topic="t")
    logs.rounds(20, ("a", "b"), "p", told=told, stable=False)
    logs.add("p", "unsubscribe", topic="t")
    first, second = logs.send("b", "t", context=logs.heads if told else None), ("a", logs.sent["a", "t"] + 1)
    last = logs.send("b", "t", context=[list(first)] if told else None)
    for process, dot in (("a", first), ("a", last), ("p", second), ("p", first)):
        logs.add(process, "deliver", dot, topic="t")
    assert same(logs, out).counts == {"not-broadcast": 1}
    logs.send("a", "t", context=[list(last)] if told else None)
    logs.add("b", "deliver", second, topic="t")

    assert same(logs, out).counts == {"causal-order": 1}


@pytest.mark.parametrize("turn", ["leaves", "comes again"])
def test_what_one_delivers_who_is_gone_and_nobody_is_known_to_have_sent(
    runs: list[bool], tmp_path: Path, turn: str
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(10, NAMES, "p")
    first, second = logs.send("b"), ("a", logs.sent["a", None] + 1)
    for process in ("a", "c"):
        logs.add(process, "deliver", first)
    if turn == "comes again":
        logs.add("p", "leave")
    for dot in (second, first):
        logs.add("p", "deliver", dot)
    if turn == "leaves":
        logs.add("p", "leave")
    assert same(logs, out).counts == {"not-broadcast": 1}
    if turn == "comes again":
        logs.add("p", "join")
        logs.add("c", "deliver", logs.send("b"))
    # Also by a run with nothing new it is not forgotten.
    same(logs, out)
    logs.send("a")
    for process in ("b", "c"):
        logs.add(process, "deliver", second)

    assert same(logs, out).counts["causal-order"] == 1
    assert runs[0]
