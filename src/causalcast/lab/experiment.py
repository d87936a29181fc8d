"""Experiments as data: what is run, how often, what is measured, and which reference values that answers.

An experiment is a TOML file; `docs/lab.md` describes it. What is loaded here is checked as far as it can be without
running anything, so that a mistake is one line that names the file and the field.
"""

from __future__ import annotations

import tomllib
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from causalcast.lab.errors import ExperimentInvalidError, UnknownExperimentError
from causalcast.lab.histogram import InvalidStatisticError, check_statistic
from causalcast.lab.references import references
from causalcast.lab.tolerance import InvalidToleranceError, check_tolerance, expected_number

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Scalar: TypeAlias = bool | int | float | str
Fold: TypeAlias = Literal["mean", "median", "min", "max", "sum", "spread", "rise", "fall"]
Relation: TypeAlias = Literal["ratio", "difference", "percent_more", "percent_less"]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of an experiment file."""


class Selection(_Part, frozen=True):
    """One statistic of one metric in some cells of the grid; as a denominator, what differs from its check."""

    metric: str | None = None
    statistic: str | None = None
    where: dict[str, Scalar | tuple[Scalar, ...]] = {}


class Check(_Part, frozen=True):
    """One number or text, made from the results, and what it should be."""

    metric: str
    statistic: str = "value"
    where: dict[str, Scalar | tuple[Scalar, ...]] = {}
    """Parameter to the value, or the values, that a cell must have."""
    scale: float = 1.0
    over: Selection | None = None
    """Compare with the cell that differs in this alone; each cell with its own."""
    relation: Relation = "ratio"
    fold: Fold | None = None
    """How several cells become one value; needed if there are several."""
    expected: float | str | None = None
    """The row's own, if it is a plain number and nothing is given."""
    tolerance: str | None = None
    """The row's own, if it has a regular form and nothing is given."""
    says: str = ""
    """What this check compares, for whoever reads the verdict."""


class Answer(_Part, frozen=True):
    """Which results decide a reference value; or why none can."""

    id: str
    checks: tuple[Check, ...] = ()
    explained: str = ""
    """Why ours may differ: the document contradicts itself, or leaves out what decides it."""


class Plot(_Part, frozen=True):
    """A figure of the document, drawn from our results."""

    figure: str
    title: str
    metric: str
    x: str
    """The parameter along the horizontal axis."""
    statistic: str = "value"
    where: dict[str, Scalar | tuple[Scalar, ...]] = {}
    series: tuple[str, ...] = ()
    """The parameters whose values make a line each."""
    scale: float = 1.0
    label: str = ""
    """What stands along the vertical axis."""
    log_x: bool = False
    log_y: bool = False


class Quick(_Part, frozen=True):
    """The part of the grid that `--quick` repeats."""

    repetitions: int = 1
    grid: dict[str, tuple[Scalar, ...]] = {}
    """Parameter to those of its values that are run."""


class Experiment(_Part, frozen=True, dict=True):
    """One file."""

    title: str
    source: str
    """Document, section, figures."""
    shows: str
    probes: dict[str, dict[str, Any]] = {}
    """Name in `metrics.PROBES` to its options."""
    calculate: tuple[str, ...] = ()
    """Names in `metrics.CALCULATIONS`."""
    run: dict[str, Any] = {}
    """What each run is, as `spec.RunSpec`, with `$parameter` and `@number` in it."""
    parameters: dict[str, Scalar] = {}
    """Fixed ones."""
    grid: dict[str, tuple[Scalar, ...]] = {}
    """Every combination of these is a cell."""
    together: tuple[dict[str, tuple[Scalar, ...]], ...] = ()
    """Parameters that move together: lists of equal length."""
    values: dict[str, dict[str, Any]] = {}
    """Parameter to what each of its values stands for where `$parameter` is written."""
    repetitions: int = 1
    traces: bool = False
    """Whether traces are written and audited without being asked for."""
    quick: Quick = Quick()
    plots: tuple[Plot, ...] = ()
    answers: tuple[Answer, ...] = ()

    @cached_property
    def names(self) -> frozenset[str]:
        """All parameters."""
        return frozenset((*self.parameters, *self.grid, *(name for group in self.together for name in group)))

    @cached_property
    def statistics(self) -> dict[str, frozenset[str]]:
        """Metric to the statistics that plots and answers ask of it: what a summary keeps."""
        asked: dict[str, set[str]] = {}
        for check in self.checks():
            asked.setdefault(check.metric, set()).add(check.statistic)
            if check.over is not None:
                metric, statistic = check.over.metric or check.metric, check.over.statistic or check.statistic
                asked.setdefault(metric, set()).add(statistic)
        for plot in self.plots:
            asked.setdefault(plot.metric, set()).add(plot.statistic)
        return {metric: frozenset(statistics) for metric, statistics in asked.items()}

    def checks(self) -> Iterator[Check]:
        """Of all answers."""
        for answer in self.answers:
            yield from answer.checks


EXPERIMENTS: Final = files("causalcast.lab").joinpath("experiments")


def names() -> tuple[str, ...]:
    """The experiments that come with causalcast."""
    return tuple(
        sorted(file.name.removesuffix(".toml") for file in EXPERIMENTS.iterdir() if file.name.endswith(".toml"))
    )


def name_of(name_or_path: str) -> str:
    """What an experiment's results are called."""
    return Path(name_or_path).stem if name_or_path.endswith(".toml") else name_or_path


def load(name_or_path: str) -> Experiment:
    """An experiment by name, or from a file of one's own (`.toml`).

    Raises `UnknownExperimentError`, `ExperimentInvalidError`.
    """
    if name_or_path.endswith(".toml"):
        try:
            content = Path(name_or_path).read_bytes()
        except OSError as error:
            raise ExperimentInvalidError(name_or_path, error.strerror or str(error)) from None
        return parse(content, name_or_path)
    if name_or_path not in names():
        raise UnknownExperimentError(name_or_path, names())
    file = f"{name_or_path}.toml"
    return parse(EXPERIMENTS.joinpath(file).read_bytes(), file)


def parse(content: bytes, file: str) -> Experiment:
    """The experiment that `content` describes; `file` is named in errors. Raises `ExperimentInvalidError`."""
    try:
        experiment = msgspec.convert(tomllib.loads(content.decode()), Experiment)
    except UnicodeDecodeError:
        raise ExperimentInvalidError(file, "is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ExperimentInvalidError(file, f"is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise ExperimentInvalidError(file, str(error)) from None
    for mistake in _mistakes(experiment):
        raise ExperimentInvalidError(file, mistake)
    return experiment


def _mistakes(experiment: Experiment) -> Iterator[str]:
    """What is wrong beyond the types, each naming its field."""
    if experiment.repetitions < 1:
        yield f"repetitions: {experiment.repetitions} is less than 1"
    if not 1 <= experiment.quick.repetitions <= experiment.repetitions:
        yield f"quick.repetitions: {experiment.quick.repetitions} is not from 1 to {experiment.repetitions}"
    yield from _grid_mistakes(experiment)
    yield from _measure_mistakes(experiment)
    for place, plot in enumerate(experiment.plots):
        where = f"plots[{place}] (figure {plot.figure})"
        for parameter in (plot.x, *plot.series, *plot.where):
            if parameter not in experiment.names:
                yield f"{where}: no parameter is called {parameter!r}"
        yield from _statistic_mistakes(where, plot.statistic)
    seen: set[str] = set()
    for answer in experiment.answers:
        if answer.id in seen:
            yield f"answers: {answer.id} is answered twice"
        seen.add(answer.id)
        yield from _answer_mistakes(experiment, answer)


def _grid_mistakes(experiment: Experiment) -> Iterator[str]:
    groups = [*([{name: values} for name, values in experiment.grid.items()]), *experiment.together]
    seen = set(experiment.parameters)
    for group in groups:
        for name, values in group.items():
            if name in seen:
                yield f"grid: the parameter {name!r} is given twice"
            seen.add(name)
            if not values:
                yield f"grid: the parameter {name!r} has no value"
            if len(set(values)) != len(values) and len(group) == 1:
                yield f"grid.{name}: a value is given twice"
        if len({len(values) for values in group.values()}) != 1:
            yield f"together: {', '.join(group)} have lists of different lengths"
    yield from _value_mistakes(experiment, {name: values for group in groups for name, values in group.items()})


def _value_mistakes(experiment: Experiment, known: Mapping[str, tuple[Scalar, ...]]) -> Iterator[str]:
    for name, values in experiment.quick.grid.items():
        for value in values:
            if value not in known.get(name, ()):
                yield f"quick.grid.{name}: {value!r} is no value of the full grid"
    for name, meanings in experiment.values.items():
        if name not in experiment.names:
            yield f"values: no parameter is called {name!r}"
        for value in known.get(name, ()):
            if str(value) not in meanings:
                yield f"values.{name}: nothing says what {value!r} stands for"


def _measure_mistakes(experiment: Experiment) -> Iterator[str]:
    from causalcast.lab.metrics import CALCULATIONS, PROBES, metrics_of  # noqa: PLC0415 - metrics measure experiments

    for name in experiment.probes:
        if name not in PROBES:
            yield f"probes: no probe is called {name!r}; there are {', '.join(sorted(PROBES))}"
            return
    for name in experiment.calculate:
        if name not in CALCULATIONS:
            yield f"calculate: nothing is called {name!r}; there are {', '.join(sorted(CALCULATIONS))}"
            return
    if experiment.probes and not experiment.run:
        yield "run: missing, but probes need something to observe"
    for metric in experiment.statistics:
        if not metrics_of(experiment.probes, experiment.calculate).find(metric):
            yield f"{metric!r} is measured by none of the probes and calculations of this file"


def _answer_mistakes(experiment: Experiment, answer: Answer) -> Iterator[str]:
    where = f"answers ({answer.id})"
    reference = references().get(answer.id)
    if reference is None:
        yield f"{where}: no reference value has this id"
        return
    if not answer.checks and not answer.explained:
        yield f"{where}: has neither checks nor an explanation"
    for check in answer.checks:
        selections = [check.where] + ([check.over.where] if check.over is not None else [])
        for parameter in (name for selection in selections for name in selection):
            if parameter not in experiment.names:
                yield f"{where}: no parameter is called {parameter!r}"
        yield from _statistic_mistakes(where, check.statistic)
        if check.over is not None and check.over.statistic is not None:
            yield from _statistic_mistakes(where, check.over.statistic)
        try:
            check_tolerance(tolerance_of(check, answer.id), expected_of(check, answer.id))
        except InvalidToleranceError as error:
            yield f"{where}: {error}"


def _statistic_mistakes(where: str, statistic: str) -> Iterator[str]:
    try:
        check_statistic(statistic)
    except InvalidStatisticError as error:
        yield f"{where}: {error}"


def expected_of(check: Check, identifier: str) -> float | str | None:
    """What `check` expects, of its own or of its row."""
    return check.expected if check.expected is not None else expected_number(references()[identifier].expected)


def tolerance_of(check: Check, identifier: str) -> str:
    """How far it may be off, of its own or of its row."""
    return check.tolerance if check.tolerance is not None else references()[identifier].tolerance
