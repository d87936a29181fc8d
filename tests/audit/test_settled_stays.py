"""What is settled where processes come again: what is judged of it later, and what that says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit.pipeline import run_audit
from causalcast.audit.settled import Settled
from tests.audit.steady import Returning
from tests.audit.test_settled import NAMES, Logs, grow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from causalcast.audit.result import AuditResult


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many rows each run that goes on judges."""
    noted: list[int] = []
    judge = Settled.judge

    def noting(self: Settled, rows: Any, log: Any) -> Any:
        noted.append(log.size)
        return judge(self, rows, log)

    monkeypatch.setattr(Settled, "judge", noting)
    return noted


def same(logs: Logs, out: Path) -> AuditResult:
    """Audit what grew; it must say what a run from the start says."""
    found = run_audit([logs.trace], out=out)
    assert found == run_audit([logs.trace])
    return found


def turning(logs: Logs, number: int, comes: Callable[[str], None], goes: Callable[[str], None]) -> None:
    """Let one of four be away at a time, in turn, and say nothing until it heard of the others again."""
    names = ("a", "b", "c", "d")
    for i in range(number):
        away, staying = names[i % 4], tuple(name for name in names if name != names[i % 4])
        goes(away)
        logs.rounds(2, staying)
        comes(away)
        logs.rounds(1, staying, away)
        logs.rounds(2, names)


def test_little_is_judged_again_where_subscribers_come_again(
    runs: list[bool], judged: list[int], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace", ("s",)), tmp_path / "out"

    def comes(name: str) -> None:
        logs.add(name, "subscribe", topic="s")

    def goes(name: str) -> None:
        logs.add(name, "unsubscribe", topic="s")

    for name in ("a", "b", "c", "d"):
        comes(name)
    turning(logs, 12, comes, goes)
    whole = run_audit([logs.trace], out=out)
    before = whole.events
    judged.clear()
    for _ in range(3):
        turning(logs, 2, comes, goes)
        found = same(logs, out)
        # The first is the run itself, the second judges what it will leave to the next.
        assert judged[0] - (found.events - before) < 60 < whole.events // 10
        before = found.events
        judged.clear()

    assert runs == [True, True, True]
    assert found.verdict == "pass"


@pytest.mark.parametrize("goes", ["leave", "evict"])
@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
def test_little_is_judged_again_where_members_came_again(
    runs: list[bool], judged: list[int], tmp_path: Path, goes: str, told: bool
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(3, (*NAMES, "d", "e"), told=told)
    logs.add("e", goes, peer="e" if goes == "evict" else None)  # and stays away
    for _ in range(3):
        logs.add("d", goes, peer="d" if goes == "evict" else None)
        logs.rounds(2, told=told)
        logs.add("d", "join")
        logs.rounds(2, NAMES, "d", told=told)
        logs.rounds(3, (*NAMES, "d"), told=told)
    logs.rounds(2, (*NAMES, "d"), told=told)
    before = run_audit([logs.trace], out=out).events
    judged.clear()
    for _ in range(2):
        logs.rounds(1, (*NAMES, "d"), told=told)
        found = same(logs, out)
        assert judged[0] - (found.events - before) < 60 < found.events // 3
        before = found.events
        judged.clear()
    logs.add("d", "deliver", ("b", 4))  # of its time away
    same(logs, out)

    assert runs == [True, True, False]


@pytest.mark.parametrize("sent", [False, True], ids=["silent-since", "sent-since"])
def test_a_tag_may_leave_out_what_followed_only_an_earlier_stay(runs: list[bool], tmp_path: Path, sent: bool) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(2, told=True, stable=False)
    for _ in range(2):
        logs.add("d", "join")
        logs.rounds(1, NAMES, "d", told=True, stable=False)
        logs.rounds(2, (*NAMES, "d"), told=True, stable=False)
        logs.add("d", "leave")
        logs.rounds(2, told=True, stable=False)
    logs.add("d", "join")
    logs.rounds(2, NAMES, "d", told=True, stable=False)
    if sent:
        logs.rounds(2, (*NAMES, "d"), told=True, stable=False)
    logs.rounds(4, NAMES, "d", told=True, stable=False)
    run_audit([logs.trace], out=out)
    one, other = (logs.send(name, context=logs.heads) for name in ("a", "b"))
    for name in (*NAMES, "d"):
        for dot in (one, other):
            if name != dot[0]:
                logs.add(name, "deliver", dot)
    logs.send("c", context=[list(one)])

    # What d sends may follow, by the state that it came with, what nobody can know of.
    assert same(logs, out).counts.get("tag-mismatch", 0) == sent
    assert runs == [True]


def subscribed(tmp_path: Path, *others: str) -> Logs:
    """Return logs of a topic to which all subscribed, and `others` that did to another one."""
    logs = Logs(tmp_path / "trace", ("s",))
    for name in (*NAMES, "d"):
        logs.add(name, "subscribe", topic="s")
    for name in others:
        logs.add(name, "subscribe", topic=f"of-{name}")
        logs.send(name, f"of-{name}")
    return logs


def reach(logs: Logs, dot: tuple[str, int], *names: str) -> None:
    for name in names:
        logs.add(name, "deliver", dot, topic="s")


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("heard", [False, True], ids=["at-once", "when-it-heard-of-the-others"])
def test_who_comes_again_is_owed_by_those_that_it_follows(
    runs: list[bool], tmp_path: Path, heard: bool, waits: bool
) -> None:
    logs, out = subscribed(tmp_path, "q"), tmp_path / "out"
    logs.rounds(6, (*NAMES, "d"))
    logs.add("d", "unsubscribe", topic="s")
    # While d is away q comes, and its first message is soon everywhere.
    logs.add("q", "subscribe", topic="s")
    reach(logs, logs.send("q", "s"), *NAMES)
    logs.rounds(14, (*NAMES, "q"))
    run_audit([logs.trace], out=out)
    logs.add("d", "subscribe", topic="s")
    if waits:
        dot = logs.send("a", "s")
        reach(logs, dot, "b", "c")
        same(logs, out)
        reach(logs, dot, "q")
    if heard:
        reach(logs, logs.send("a", "s"), "b", "c", "q", "d")
    reach(logs, logs.send("d", "s"), *NAMES)  # and not q
    assert same(logs, out).counts.get("undelivered", 0) == heard
    reach(logs, logs.send("d", "s"), *NAMES, "q")
    same(logs, out)
    reach(logs, logs.send("d", "s"), *NAMES)
    assert same(logs, out).counts["undelivered"] == 1 + heard

    assert all(runs)


def test_who_comes_again_is_owed_by_those_that_it_heard_before_it_went(runs: list[bool], tmp_path: Path) -> None:
    logs, out = subscribed(tmp_path, "q"), tmp_path / "out"
    logs.rounds(6, (*NAMES, "d"))
    logs.add("q", "subscribe", topic="s")
    logs.rounds(2, (*NAMES, "q"), "d")
    logs.add("d", "unsubscribe", topic="s")
    run_audit([logs.trace], out=out)
    for _ in range(3):
        logs.rounds(2, (*NAMES, "q"))
        same(logs, out)
    logs.add("d", "subscribe", topic="s")
    reach(logs, logs.send("d", "s"), *NAMES)  # and not q

    assert same(logs, out).counts == {"undelivered": 1}
    assert all(runs)


@pytest.mark.parametrize("sends", [False, True])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_subscription_that_begins_again_is_one_of_its_own(
    runs: list[bool], tmp_path: Path, sends: bool, at_once: bool
) -> None:
    logs, out = subscribed(tmp_path), tmp_path / "out"
    logs.rounds(10, NAMES if not sends else (*NAMES, "d"), *(() if sends else ("d",)))
    run_audit([logs.trace], out=out)
    logs.add("d", "unsubscribe", topic="s")
    reach(logs, logs.send("a", "s"), "b", "c")
    if not at_once:
        same(logs, out)
    logs.add("d", "subscribe", topic="s")
    reach(logs, logs.send("b", "s"), "a", "c")
    if not at_once:
        same(logs, out)
    reach(logs, logs.send("a", "s"), "b", "c", "d")
    reach(logs, logs.send("a", "s"), "b", "c")
    assert same(logs, out).counts == {"undelivered": 1}
    logs.add("d", "unsubscribe", topic="s")
    logs.add("d", "subscribe", topic="s")
    reach(logs, logs.send("a", "s"), "b", "c", "d")
    # What it did not have before it unsubscribed is not owed any more.
    assert same(logs, out).verdict == "pass"
    logs.rounds(1, NAMES)

    assert same(logs, out).counts["undelivered"] == 1
    assert all(runs)


def test_a_stay_that_is_over_owes_what_it_owed(runs: list[bool], tmp_path: Path) -> None:
    logs, out = subscribed(tmp_path), tmp_path / "out"
    logs.rounds(20, NAMES, "d")
    reach(logs, logs.send("a", "s"), "b", "c")
    reach(logs, logs.send("b", "s"), "a", "c", "d")  # which follows what d does not have
    logs.add("d", "unsubscribe", topic="s")
    logs.add("d", "subscribe", topic="s")
    run_audit([logs.trace], out=out)
    for _ in range(2):
        logs.rounds(1, NAMES, "d")
        assert same(logs, out).counts["missing-cause"] > 3

    assert all(runs)


def test_who_only_listens_is_owed_by_those_that_it_met(runs: list[bool], tmp_path: Path) -> None:
    logs, out = subscribed(tmp_path, "q"), tmp_path / "out"
    logs.rounds(3)
    logs.add("q", "subscribe", topic="s")
    logs.rounds(12, NAMES, "d", "q")
    run_audit([logs.trace], out=out)
    for number in (1, 2):
        reach(logs, logs.send("a", "s"), "b", "c", "d")
        assert same(logs, out).counts == {"undelivered": number}

    assert all(runs)


@pytest.mark.parametrize("stays_away", [False, True])
def test_what_a_subscription_owes_is_not_settled_while_it_delivered_what_is_not_known(
    runs: list[bool], tmp_path: Path, stays_away: bool
) -> None:
    logs, out = subscribed(tmp_path), tmp_path / "out"
    logs.rounds(6, (*NAMES, "d"))
    logs.add("d", "deliver", ("a", logs.sent["a", "s"] + 1), topic="s")
    logs.add("d", "unsubscribe", topic="s")
    if not stays_away:
        logs.add("d", "subscribe", topic="s")
    run_audit([logs.trace], out=out)
    # What d delivered follows what it does not have.
    reach(logs, logs.send("b", "s"), "a")
    reach(logs, logs.send("a", "s"), "b", "c")
    assert same(logs, out).counts["missing-cause"] > 1
    logs.rounds(2, NAMES, *(() if stays_away else ("d",)))
    same(logs, out)

    assert not runs[0]


@pytest.mark.parametrize(("met", "heard"), [(False, False), (False, True), (True, False)])
def test_who_did_not_subscribe_may_be_owed_by_those_who_did(
    runs: list[bool], tmp_path: Path, met: bool, heard: bool
) -> None:
    logs, out = subscribed(tmp_path, "x", "q"), tmp_path / "out"
    reach(logs, logs.send("x", "s"), *NAMES, "d")
    logs.rounds(4, (*NAMES, "d"))
    logs.add("q", "subscribe", topic="s")
    logs.rounds(10, (*NAMES, "d", "q"))
    if met:
        reach(logs, logs.send("x", "s"), *NAMES, "d", "q")
    if heard:
        reach(logs, ("q", logs.sent["q", "s"]), "x")
    logs.rounds(2, (*NAMES, "d", "q"))
    run_audit([logs.trace], out=out)
    reach(logs, logs.send("x", "s"), *NAMES, "d")

    assert same(logs, out).counts == ({"undelivered": 1} if met or heard else {})
    assert runs == [True]


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
@pytest.mark.parametrize("lacks", [False, True])
def test_new_senders_go_on_once_their_first_message_is_everywhere(
    runs: list[bool], tmp_path: Path, lacks: bool, told: bool
) -> None:
    logs, out = subscribed(tmp_path, "q"), tmp_path / "out"
    logs.send("q", "of-q2")  # it numbers its messages in each topic anew
    logs.rounds(12, NAMES, "d", told=told, stable=False)
    logs.add("q", "subscribe", topic="s")
    logs.rounds(2, NAMES, "d", "q", told=told, stable=False)
    run_audit([logs.trace], out=out)
    dot = logs.send("q", "s", **({"context": logs.heads} if told else {}))
    reach(logs, dot, "a", "b", *(() if lacks else ("c", "d")))
    logs.heads = [list(dot)]
    same(logs, out)
    logs.rounds(1, (*NAMES, "q"), *(() if lacks else ("d",)), told=told, stable=False)
    same(logs, out)

    assert runs == [not lacks, not (lacks and told)]


@pytest.mark.parametrize("seeds", [(26, 36, 54), (81, 105, 129, 144)])
def test_it_does_where_processes_come_again(runs: list[bool], tmp_path: Path, seeds: tuple[int, ...]) -> None:
    went_on: set[str] = set()
    for seed in seeds:
        before = len(runs)
        events = grow(tmp_path, seed, Returning)
        # The last run has nothing new.
        if any(runs[before:-1]):
            went_on |= events

    assert {"subscribe", "unsubscribe", "join", "leave", "evict"} <= went_on
