"""Reference values beside ours: expected, measured, verdict.

- `met`: all checks of the answer hold.
- `missed`: one does not. Nothing is tuned to fit: the row says by how much.
- `explained`: one does not, or none can be made, and the answer says why: the document contradicts itself, or leaves
  out what decides it.
- `unanswered`: no experiment answers the row, or its results are not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from causalcast.lab.estimate import Estimate, NotMeasuredError, estimate
from causalcast.lab.experiment import Answer, Check, Experiment, expected_of, tolerance_of
from causalcast.lab.references import Reference, references
from causalcast.lab.tolerance import accepts, needs_expected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.lab.summary import Summary

Verdict: TypeAlias = Literal["met", "missed", "explained", "unanswered"]
VERDICTS: Final[tuple[Verdict, ...]] = ("met", "missed", "explained", "unanswered")
NO_ANSWER: Final = "no experiment answers it"


class Checked(msgspec.Struct, frozen=True):
    """One check of an answer."""

    says: str
    expected: float | str | None
    tolerance: str
    measured: float | str | None
    interval: tuple[float, float] | None
    holds: bool | None
    """`None`: it could not be made."""
    off: str = ""
    """By how much it does not hold."""


class Row(msgspec.Struct, frozen=True):
    """One reference value."""

    id: str
    document: str
    where: str
    system: str
    metric: str
    expected: str
    """As the references have it."""
    measured: float | str | None
    """Of the check that decides: the first that does not hold, or else the first."""
    interval: tuple[float, float] | None
    verdict: Verdict
    reason: str
    experiment: str | None
    tolerance: str
    checks: tuple[Checked, ...] = ()
    repetitions: int = 0


class Comparison(msgspec.Struct, frozen=True):
    """All rows, and how many there are of each verdict."""

    rows: tuple[Row, ...]
    summary: dict[str, int]


def compare(experiments: Mapping[str, Experiment], summaries: Mapping[str, Summary], *, everything: bool) -> Comparison:
    """The rows that these experiments answer, in the order of the references; with `everything`, all rows."""
    answers: dict[str, tuple[str, Answer]] = {}
    for name, experiment in experiments.items():
        answers.update((answer.id, (name, answer)) for answer in experiment.answers)
    rows = []
    for reference in references().values():
        found = answers.get(reference.id)
        if found is not None:
            name, answer = found
            rows.append(row(reference, answer, name, summaries.get(name)))
        elif everything:
            rows.append(_row(reference, "unanswered", NO_ANSWER))
    return Comparison(tuple(rows), {verdict: sum(row.verdict == verdict for row in rows) for verdict in VERDICTS})


def row(reference: Reference, answer: Answer, name: str, summary: Summary | None) -> Row:
    """The verdict on one reference value."""
    if not answer.checks:
        return _row(reference, "explained", answer.explained, name)
    if summary is None:
        return _row(reference, "unanswered", f"no results of it yet: run `causalcast lab run {name}`", name)
    try:
        checks = tuple(_checked(check, answer.id, summary) for check in answer.checks)
    except NotMeasuredError as error:
        return _row(reference, "unanswered", str(error), name)
    failed = [check for check in checks if not check.holds]
    decides = failed[0] if failed else checks[0]
    verdict: Verdict = "met" if not failed else "explained" if answer.explained else "missed"
    reason = "" if not failed else answer.explained or "; ".join(check.off for check in failed)
    return _row(reference, verdict, reason, name, decides, checks, len(summary.seeds))


def _row(
    reference: Reference,
    verdict: Verdict,
    reason: str,
    experiment: str | None = None,
    decides: Checked | None = None,
    checks: Sequence[Checked] = (),
    repetitions: int = 0,
) -> Row:
    return Row(
        reference.id,
        reference.document,
        reference.where,
        reference.system,
        reference.metric,
        reference.expected,
        decides.measured if decides is not None else None,
        decides.interval if decides is not None else None,
        verdict,
        " ".join(reason.split()),
        experiment,
        decides.tolerance if decides is not None else reference.tolerance,
        tuple(checks),
        repetitions,
    )


def _checked(check: Check, identifier: str, summary: Summary) -> Checked:
    expected, tolerance = expected_of(check, identifier), tolerance_of(check, identifier)
    found = estimate(check, summary)
    holds = _holds(tolerance, expected, found)
    return Checked(
        check.says or _described(check),
        expected if needs_expected(tolerance) else None,
        tolerance,
        found.value,
        found.interval,
        holds,
        "" if holds else _off(check.says or _described(check), tolerance, expected, found),
    )


def _holds(tolerance: str, expected: float | str | None, found: Estimate) -> bool:
    """An exact value must come out for every seed, any other on average over the seeds."""
    if tolerance == "exact":
        return all(accepts(tolerance, expected, value) for value in found.each)
    return accepts(tolerance, expected, found.value)


def _off(what: str, tolerance: str, expected: float | str | None, found: Estimate) -> str:
    if isinstance(found.value, str) or isinstance(expected, str):
        return f"{what}: {found.value}, not {expected}"
    if expected is None or not needs_expected(tolerance):
        return f"{what}: {found.value:.4g}, not {tolerance}"
    by = found.value - expected
    share = f", {100 * by / expected:+.1f} %" if expected else ""
    return f"{what}: {found.value:.4g}, off by {by:+.4g}{share}; allowed: {tolerance}"


def _described(check: Check) -> str:
    name = check.metric if check.statistic == "value" else f"{check.statistic} of {check.metric}"
    return name if check.fold is None else f"{check.fold} of the {name}"
