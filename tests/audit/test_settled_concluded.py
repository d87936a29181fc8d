"""What was found of settled messages stays as it is: later runs judge what is new, and say what full runs say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit import settlement
from causalcast.audit.continued import Continuation
from causalcast.audit.findings import SAMPLE
from causalcast.audit.pipeline import run_audit
from causalcast.audit.settled import Settled
from tests.audit.steady import Coming, Returning, Steady, Turning
from tests.audit.test_settled import NAMES, Logs, grow, same_outputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def kept(runs: list[bool], monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settled, int]]:
    """Note, of each run that goes on, what was settled before, and how many rows it judged."""
    noted: list[tuple[Settled, int]] = []
    last: list[tuple[Settled, int]] = []
    judge, run = Settled.judge, Continuation.run

    def judging(self: Settled, rows: Any, log: Any) -> Any:
        last.append((self, log.size))
        return judge(self, rows, log)

    def running(self: Continuation, *arguments: Any) -> Any:
        last.clear()
        found = run(self, *arguments)
        if found is not None:
            noted.append(last[0])
        return found

    monkeypatch.setattr(Settled, "judge", judging)
    monkeypatch.setattr(Continuation, "run", running)
    return noted


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (Steady, (2, 10, 11, 23, 35)),
        (Turning, (11, 22, 24, 28)),
        (Returning, (0, 15, 16, 22)),
        (Coming, (2, 28, 36, 38)),
    ],
)
def test_a_run_that_goes_on_says_what_a_run_from_the_start_says(
    kept: list[tuple[Settled, int]], tmp_path: Path, kind: type[Steady], seeds: tuple[int, ...]
) -> None:
    for seed in seeds:
        grow(tmp_path, seed, kind, faults=True)

    assert sum(settled.concluded.rows is not None for settled, _ in kept) > 2


# ------------------------------------------------------------------------------------- one thing at a time


def duplicate(logs: Logs) -> None:
    logs.add("b", "deliver", ("a", 2))


def altered(logs: Logs) -> None:
    dot = sent(logs, "a")
    logs.add("b", "deliver", dot, payload_bytes=99)
    logs.add("c", "deliver", dot)
    stable(logs, dot)


def out_of_order(logs: Logs) -> None:
    """B delivers what C sent before what that follows."""
    first = sent(logs, "a")
    logs.add("c", "deliver", first)
    second = sent(logs, "c")
    for process, dot in (("b", second), ("b", first), ("a", second)):
        logs.add(process, "deliver", dot)
    for dot in (first, second):
        stable(logs, dot)


def out_of_fifo_order(logs: Logs) -> None:
    first, second = sent(logs, "a"), sent(logs, "a")
    for process, dot in (("b", second), ("b", first), ("c", first), ("c", second)):
        logs.add(process, "deliver", dot)
    for dot in (first, second):
        stable(logs, dot)


def tag_that_names_too_much(logs: Logs) -> None:
    one, other = sent(logs, "a"), sent(logs, "b")
    for process, dot in (("b", one), ("a", other), ("c", one), ("c", other)):
        logs.add(process, "deliver", dot)
    for dot in (one, other):
        stable(logs, dot)
    logs.heads = [list(one), list(other)]


def tag_that_names_too_little(logs: Logs) -> None:
    logs.heads = [["a", 1]]
    told(logs, sent(logs, "a"), "b", "c")


def stable_twice(logs: Logs) -> None:
    logs.add("b", "stable", ("a", 3))


def stable_before_it_was_delivered(logs: Logs) -> None:
    dot = sent(logs, "a")
    logs.add("b", "stable", dot)
    for process in ("b", "c"):
        logs.add(process, "deliver", dot)
    for process in ("a", "c"):
        logs.add(process, "stable", dot)


def stable_out_of_order(logs: Logs) -> None:
    dots = [sent(logs, "a") for _ in range(2)]
    for dot in dots:
        for process in ("b", "c"):
            logs.add(process, "deliver", dot)
    for process, order in (("a", dots), ("b", dots[::-1]), ("c", dots)):
        for dot in order:
            logs.add(process, "stable", dot)


def sent(logs: Logs, process: str) -> tuple[str, int]:
    """Send with a tag that names the last message of all."""
    dot = logs.send(process, **({"context": logs.heads} if logs.told else {}))
    logs.heads = [list(dot)]
    return dot


def told(logs: Logs, dot: tuple[str, int], *others: str) -> None:
    for process in others:
        logs.add(process, "deliver", dot)
    stable(logs, dot)


def stable(logs: Logs, dot: tuple[str, int]) -> None:
    for process in NAMES if logs.stable else ():
        logs.add(process, "stable", dot)


ALWAYS = (
    (duplicate, "duplicate"),
    (altered, "altered"),
    (out_of_order, "causal-order"),
    (out_of_fifo_order, "fifo-order"),
)
TOLD = (
    (tag_that_names_too_much, "tag-mismatch"),
    (tag_that_names_too_little, "tag-mismatch"),
    (stable_twice, "stable-order"),
    (stable_before_it_was_delivered, "stable-order"),
    (stable_out_of_order, "stable-order"),
)


@pytest.mark.parametrize(
    ("fault", "kind", "tags"),
    [*((*each, False) for each in ALWAYS), *((*each, True) for each in (*ALWAYS, *TOLD))],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_comes_after_a_fault_is_settled(
    kept: list[tuple[Settled, int]], tmp_path: Path, fault: Callable[[Logs], None], kind: str, tags: bool
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(10, told=tags)
    fault(logs)
    logs.rounds(40, told=tags)
    run_audit([logs.trace], out=out)
    for _ in range(3):
        logs.rounds(2, told=tags)
        found = run_audit([logs.trace], out=out)

        assert found == run_audit([logs.trace])
        assert found.counts == {kind: 1}
    run_audit([logs.trace], out=tmp_path / "whole")
    assert same_outputs(out, tmp_path / "whole")
    assert [settled.concluded.counts for settled, _ in kept] == [{kind: 1}] * 3
    assert max(rows for _, rows in kept) < 80


def test_a_delivery_before_the_broadcast_is_concluded(kept: list[tuple[Settled, int]], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    for number in range(1, 60):
        early = number == 9
        if early:
            logs.add("a", "deliver", ("a", number))
        dot = logs.send("a")
        for process in NAMES[early:]:
            logs.add(process, "deliver", dot)
    run_audit([logs.trace], out=out)
    logs.add("a", "deliver", logs.send("a"))
    found = run_audit([logs.trace], out=out)

    assert found == run_audit([logs.trace])
    assert kept[0][0].concluded.counts == {"not-broadcast": 1}


def test_a_finding_that_names_what_is_not_settled_is_found_again(
    kept: list[tuple[Settled, int]], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(20)
    first = logs.send("a")
    logs.add("c", "deliver", first)
    second = logs.send("c")
    logs.add("b", "deliver", second)
    logs.add("b", "deliver", first)
    run_audit([logs.trace], out=out)
    # A has not delivered it yet.
    logs.send("b")
    assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
    logs.add("a", "deliver", second)
    logs.rounds(20)
    for _ in range(2):
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
        logs.rounds(1)

    assert [settled.concluded.counts["causal-order"] for settled, _ in kept] == [0, 0, 1]


def test_more_of_a_kind_than_a_result_holds_are_kept_and_explained(
    kept: list[tuple[Settled, int]], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    for _ in range(6):
        for _ in range(SAMPLE // 4):
            first, *later = [logs.send("a") for _ in range(3)]
            for dot in (*later, first):
                logs.add("b", "deliver", dot)
            for dot in (first, *later):
                logs.add("c", "deliver", dot)
            logs.add("c", "deliver", first)
        logs.rounds(1)
        found = run_audit([logs.trace], out=out)
        assert found == run_audit([logs.trace])
    run_audit([logs.trace], out=tmp_path / "whole")

    assert same_outputs(out, tmp_path / "whole")
    assert kept[-1][0].concluded.counts["duplicate"] == 5 * SAMPLE // 4
    assert {finding.explains for finding in found.findings if finding.root and finding.kind == "fifo-order"} == {1}
    assert sum(finding.picture is not None for finding in found.findings) == 20


def test_only_so_many_are_kept(
    runs: list[bool], kept: list[tuple[Settled, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "MOST_CONCLUDED", 3)
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(20)
    for number in range(1, 5):
        logs.add("b", "deliver", ("a", number))
        logs.rounds(20)
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
        logs.rounds(1)
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True, False, True, False, True, False, False]


def test_who_comes_again_may_excuse_what_a_tag_said(
    runs: list[bool], kept: list[tuple[Settled, int]], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(3, told=True, stable=False)
    tag_that_names_too_much(logs)
    logs.rounds(40, told=True, stable=False)
    assert run_audit([logs.trace], out=out).counts["tag-mismatch"] == 1
    steps = (
        lambda: (altered(logs), logs.rounds(30, told=True, stable=False)),
        lambda: (logs.add("z", "join"), logs.rounds(3, told=True, stable=False)),
        lambda: logs.add("b", "leave"),
        lambda: logs.add("b", "join"),
    )
    for step in steps:
        step()
        found = run_audit([logs.trace], out=out)
        assert found == run_audit([logs.trace])

    assert runs == [True, True, True, False]
    assert kept[1][0].concluded.counts == {"tag-mismatch": 1, "altered": 1}


def test_who_came_late_may_do_so_too(runs: list[bool], kept: list[tuple[Settled, int]], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(2, told=True, stable=False)
    logs.add("z", "join")
    logs.rounds(2, (*NAMES, "z"), told=True, stable=False)
    one, other = sent(logs, "a"), sent(logs, "b")
    for process, dot in (("b", one), ("a", other), ("c", one), ("c", other), ("z", one), ("z", other)):
        logs.add(process, "deliver", dot)
    logs.heads = [list(one), list(other)]
    logs.rounds(40, (*NAMES, "z"), told=True, stable=False)
    assert run_audit([logs.trace], out=out).counts == {"tag-mismatch": 1}
    logs.rounds(2, (*NAMES, "z"), told=True, stable=False)
    assert run_audit([logs.trace], out=out) == run_audit([logs.trace])
    logs.add("z", "leave")
    logs.add("z", "join")
    found = run_audit([logs.trace], out=out)

    assert found == run_audit([logs.trace])
    assert found.counts == {}
    assert kept[0][0].concluded.tags == {""}
    assert runs == [True, False]


def test_a_finding_about_the_last_settled_message_of_a_sender_is_found_again(
    kept: list[tuple[Settled, int]], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(3, (*NAMES, "z"), told=True, stable=False)
    logs.add("b", "deliver", ("z", 3))
    logs.rounds(40, NAMES, "z", told=True, stable=False)
    run_audit([logs.trace], out=out)
    for _ in range(2):
        logs.rounds(1, NAMES, "z", told=True, stable=False)
        found = run_audit([logs.trace], out=out)
        assert found == run_audit([logs.trace])

    assert found.counts == {"duplicate": 1}
    assert [settled.concluded.rows for settled, _ in kept] == [None, None]
    assert max(rows for _, rows in kept) < 80


def test_a_finding_about_two_messages_of_which_one_is_the_last_of_its_sender(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(3, (*NAMES, "z"), told=True, stable=False)
    first = sent(logs, "z")
    for process in ("a", "c"):
        logs.add(process, "deliver", first)
    second = sent(logs, "a")
    for process, dot in (("b", second), ("b", first), ("c", second), ("z", second)):
        logs.add(process, "deliver", dot)
    logs.rounds(40, NAMES, "z", told=True, stable=False)
    for _ in range(3):
        found = run_audit([logs.trace], out=out)
        assert found == run_audit([logs.trace])
        assert found.counts == {"causal-order": 1}
        logs.rounds(1, NAMES, "z", told=True, stable=False)


def test_a_finding_about_the_last_settled_message_and_a_later_one_leaves_those_before_settled(
    runs: list[bool], tmp_path: Path
) -> None:
    logs, out = Logs(tmp_path / "trace"), tmp_path / "out"
    logs.rounds(40, told=True, stable=False)
    first = sent(logs, "c")
    logs.add("a", "deliver", first)
    second = sent(logs, "a")
    for process, dot in (("b", second), ("b", first)):
        logs.add(process, "deliver", dot)
    run_audit([logs.trace], out=out)
    logs.add("c", "deliver", second)
    found = run_audit([logs.trace], out=out)

    assert found == run_audit([logs.trace])
    assert found.counts == {"causal-order": 1}
    assert runs == [True]
