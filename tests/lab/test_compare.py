"""Verdicts on results made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from causalcast.lab.compare import Row, compare
from causalcast.lab.estimate import NotMeasuredError, estimate, interval
from causalcast.lab.experiment import Answer, Check, Experiment, Selection, expected_of, tolerance_of
from causalcast.lab.page import to_csv
from causalcast.lab.references import references
from causalcast.lab.summary import Cell, Machine, Summary, repeat
from causalcast.lab.tolerance import InvalidToleranceError, accepts, check_tolerance, expected_number

MACHINE = Machine("Linux", "x86_64", 2, "3.11.7")


def results(**cells: list[float | str | None]) -> Summary:
    """One cell for each name, `stack_nodes`, with the values of one metric for each seed."""
    made = []
    for name, values in cells.items():
        stack, _, nodes = name.partition("_")
        made.append(Cell({"stack": stack, "nodes": int(nodes)}, {"size": {"mean": tuple(values)}}))
    seeds = tuple(range(1, len(next(iter(cells.values()))) + 1))
    return Summary("made", "by hand", "0", MACHINE, seeds, 0.0, tuple(made))


def experiment(*answers: Answer) -> Experiment:
    return Experiment("t", "s", "w", grid={"stack": ("a", "b"), "nodes": (4, 8)}, answers=answers)


def verdict(summary: Summary | None, *checks: Check, explained: str = "", identifier: str = "TCB-07") -> Row:
    answer = Answer(identifier, checks, explained)
    summaries = {} if summary is None else {"made": summary}
    compared = compare({"made": experiment(answer)}, summaries, everything=False)
    assert compared.summary[compared.rows[0].verdict] == 1 == len(compared.rows)
    return compared.rows[0]


def size(stack: str = "a", nodes: int | None = 4, **more: Any) -> Check:
    where: dict[str, Any] = {"stack": stack} | ({} if nodes is None else {"nodes": nodes})
    return Check("size", "mean", where, **more)


@pytest.mark.parametrize(
    ("tolerance", "expected", "good", "bad"),
    [
        ("exact", 3, [3, 3 + 1e-12], [3.01, 2]),
        ("exact", "{A2,C1}", ["{A2,C1}"], ["{A2}"]),
        ("abs 0.5", 3, [2.5, 3.5], [2.4, 3.6]),
        ("abs 2 points", 10, [8, 12], [7.9]),
        ("abs 1e-4", 0.1329, [0.13293], [0.1331]),
        ("abs 10 u.t.", 100, [110], [111]),
        ("relative 5%", 200, [190, 210], [189, 211]),
        ("relative 20% or abs 30", 10, [12, 40, -20], [41]),
        ("factor 1.5", 30, [20, 45], [19, 46, 0]),
        ("<=80 (+10%)", None, [88, 0], [88.1]),
        ("<=10% (+2)", None, [12], [12.1]),
        ("<6", None, [5.9], [6]),
        (">=3", None, [3], [2.9]),
        (">0", None, [0.1], [0]),
        ("in [25, 50]", None, [25, 50], [24, 51]),
    ],
)
def test_tolerances(tolerance: str, expected: float | str | None, good: list[Any], bad: list[Any]) -> None:
    check_tolerance(tolerance, expected)
    assert all(accepts(tolerance, expected, value) for value in good)
    assert not any(accepts(tolerance, expected, value) for value in bad)


@pytest.mark.parametrize("tolerance", ["", "ordering", "about 5", "relative 5", "exactly", "in [1]"])
def test_words_are_no_tolerance(tolerance: str) -> None:
    with pytest.raises(InvalidToleranceError):
        check_tolerance(tolerance, 1.0)


def test_what_needs_an_expected_value_says_so() -> None:
    with pytest.raises(InvalidToleranceError, match="needs an expected value"):
        check_tolerance("relative 5%", None)
    with pytest.raises(InvalidToleranceError, match="exactly"):
        check_tolerance("abs 1", "{A2}")


@pytest.mark.parametrize(
    ("text", "number"), [("232", 232), ("100%", 100), ("1.79x", 1.79), ("~533 u.t.", 533), ("at worst 80", None)]
)
def test_plain_expectations_are_read_from_the_references(text: str, number: float | None) -> None:
    assert expected_number(text) == number


def test_the_regular_rows_of_the_references_need_no_numbers_of_their_own() -> None:
    regular = 0
    for reference in references().values():
        try:
            check_tolerance(tolerance_of(Check("m"), reference.id), expected_of(Check("m"), reference.id))
        except InvalidToleranceError:
            continue
        regular += 1
    assert len(references()) == 320
    assert regular >= 100


def test_met_and_missed_by_how_much() -> None:
    summary = results(a_4=[9.0, 10.0, 11.0])
    met = verdict(summary, size(expected=10.5, tolerance="abs 1"))
    assert (met.verdict, met.measured, met.reason) == ("met", 10.0, "")
    assert met.interval == pytest.approx((10 - 2.484, 10 + 2.484), abs=1e-3)
    missed = verdict(summary, size(expected=8, tolerance="relative 5%"))
    assert missed.verdict == "missed"
    assert "10, off by +2, +25.0 %; allowed: relative 5%" in missed.reason
    assert "10, not <9" in verdict(summary, size(tolerance="<9")).reason


def test_exact_means_for_every_seed() -> None:
    assert verdict(results(a_4=[9.0, 11.0]), size(expected=10, tolerance="exact")).verdict == "missed"
    assert verdict(results(a_4=[10, 10.0]), size(expected=10, tolerance="exact")).verdict == "met"
    assert verdict(results(a_4=["{A}", "{A}"]), size(expected="{A}", tolerance="exact")).verdict == "met"
    assert verdict(results(a_4=["{A}", "{B}"]), size(expected="{A}", tolerance="exact")).measured == "{A} or {B}"


def test_an_explanation_counts_only_where_a_check_fails_or_there_is_none() -> None:
    summary = results(a_4=[10.0])
    assert verdict(summary, size(tolerance="<11"), explained="why").verdict == "met"
    failed = verdict(summary, size(tolerance="<9"), explained="why")
    assert (failed.verdict, failed.reason, failed.measured) == ("explained", "why", 10.0)
    bare = verdict(None, explained="why")
    assert (bare.verdict, bare.reason, bare.measured) == ("explained", "why", None)


def test_without_results_nothing_is_answered() -> None:
    assert "causalcast lab run made" in verdict(None, size(tolerance="<9")).reason
    for row in (
        verdict(None, size(tolerance="<9")),
        verdict(results(b_4=[1.0]), size(tolerance="<9")),
        verdict(results(a_4=[None]), size(tolerance="<9")),
        verdict(results(a_4=[1.0], a_8=[1.0]), size(nodes=None, tolerance="<9")),
    ):
        assert (row.verdict, row.measured) == ("unanswered", None)
        assert row.reason


def test_all_checks_must_hold_and_the_first_that_does_not_decides() -> None:
    summary = results(a_4=[10.0], a_8=[20.0])
    row = verdict(summary, size(tolerance="<11"), size(nodes=8, tolerance="<15"), size(nodes=8, tolerance="<5"))
    assert (row.verdict, row.measured, row.tolerance) == ("missed", 20.0, "<15")
    assert [check.holds for check in row.checks] == [True, False, False]


@pytest.mark.parametrize(
    ("relation", "value"), [("ratio", 0.75), ("difference", -5), ("percent_less", 25), ("percent_more", -25)]
)
def test_comparison_with_another_cell(relation: Any, value: float) -> None:
    summary = results(a_4=[15.0], b_4=[20.0])
    check = size(over=Selection(where={"stack": "b"}), relation=relation)
    assert estimate(check, summary).value == value


def test_each_cell_is_compared_with_its_own_and_the_worst_decides() -> None:
    summary = results(a_4=[1.0, 1.0], b_4=[2.0, 4.0], a_8=[9.0, 3.0], b_8=[10.0, 4.0])
    check = size(nodes=None, over=Selection(where={"stack": "b"}), fold="max", tolerance="<1")
    assert estimate(check, summary).each == (0.9, 0.75)
    with pytest.raises(NotMeasuredError, match="compare with"):
        estimate(check, results(a_4=[1.0]))


@pytest.mark.parametrize(
    ("fold", "value"), [("mean", 4), ("median", 3), ("sum", 12), ("spread", 125), ("rise", 1.5), ("fall", 7 / 3)]
)
def test_folds(fold: Any, value: float) -> None:
    summary = Summary("m", "c", "0", MACHINE, (1,), 0.0, tuple(
        Cell({"stack": "a", "nodes": nodes}, {"size": {"mean": (size_of,)}})
        for nodes, size_of in ((2, 2.0), (4, 3.0), (8, 7.0))
    ))  # fmt: skip
    assert estimate(size(nodes=None, fold=fold), summary).value == pytest.approx(value)


def test_an_interval_needs_two_values_and_shrinks_with_more() -> None:
    assert interval([1.0]) is None
    few, many = interval([1.0, 3.0]), interval([1.0, 3.0] * 20)
    assert few is not None
    assert many is not None
    assert few == pytest.approx((2 - 12.706, 2 + 12.706))
    assert many[1] - many[0] < 1


def test_everything_has_all_rows_and_the_json_and_csv_say_the_same() -> None:
    compared = compare({"made": experiment(Answer("TCB-07", (size(tolerance="<11"),)))}, {}, everything=True)
    assert [row.id for row in compared.rows] == list(references())
    assert compared.summary == {"met": 0, "missed": 0, "explained": 0, "unanswered": 320}
    assert to_csv(compared).count("\nTCB-07,004,") == 1


def test_a_repetition_is_held_against_the_same_cell_and_seed() -> None:
    kept, found = results(a_4=[1.0, 2.0], a_8=[5.0, 6.0]), results(a_8=[5.0, 6.5])
    repetition = repeat(experiment(), kept, found)
    assert repetition.same == 1
    assert [(one.seed, one.was, one.found) for one in repetition.different] == [(2, 6.0, 6.5)]
