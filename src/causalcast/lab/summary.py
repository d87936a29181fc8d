"""The summary of an experiment's results: a small file that says what was measured and how it came about."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from causalcast.lab.errors import ResultsUnusableError
from causalcast.lab.experiment import Experiment, Scalar
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics import metrics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from causalcast.lab.metrics import Measured
    from causalcast.lab.records import Record

DIGITS: Final = 6
"""Significant ones that a summary keeps of a number that is not whole."""

Number: TypeAlias = int | float | str | None


class Machine(msgspec.Struct, frozen=True):
    """Where the runs were made."""

    system: str
    processor: str
    cores: int
    python: str


class Cell(msgspec.Struct, frozen=True):
    """The results of one cell of the grid: for each metric and statistic, a value for each seed."""

    parameters: dict[str, Scalar]
    measured: dict[str, dict[str, tuple[Number, ...]]]


class Summary(msgspec.Struct, frozen=True):
    """The results of one experiment."""

    experiment: str
    command: str
    version: str
    """Of causalcast, and a digest of the code that decides what a run yields."""
    machine: Machine
    seeds: tuple[int, ...]
    cpu_seconds: float
    """Of all runs together."""
    cells: tuple[Cell, ...]


class Difference(msgspec.Struct, frozen=True):
    """Where a repetition does not give what a summary holds."""

    parameters: dict[str, Scalar]
    metric: str
    statistic: str
    seed: int
    was: Number
    found: Number


class Repetition(msgspec.Struct, frozen=True):
    """How a repeated part of the grid compares with a summary, where figures must repeat."""

    same: int
    different: tuple[Difference, ...]


def this_machine() -> Machine:
    """The one that runs this."""
    return Machine(platform.system(), platform.machine(), os.cpu_count() or 1, platform.python_version())


def summarize(
    experiment: Experiment,
    records: Iterable[Record],
    seeds: Sequence[int],
    *,
    name: str,
    command: str,
    version: str,
) -> Summary:
    """What the plots and answers of `experiment` ask of its results. Cells come in the order of the records."""
    cells: dict[bytes, tuple[dict[str, Scalar], dict[int, Mapping[str, Measured]]]] = {}
    seconds = 0.0
    for record in records:
        place = msgspec.json.encode(record.parameters, order="sorted")
        cells.setdefault(place, (record.parameters, {}))[1][record.seed] = record.measured
        seconds += record.seconds
    return Summary(
        name,
        command,
        version,
        this_machine(),
        tuple(seeds),
        round(seconds, 1),
        tuple(
            Cell(
                parameters,
                {
                    metric: {
                        statistic: tuple(_number(by_seed.get(seed, {}).get(metric), statistic) for seed in seeds)
                        for statistic in sorted(statistics)
                    }
                    for metric, statistics in sorted(experiment.statistics.items())
                },
            )
            for parameters, by_seed in cells.values()
        ),
    )


def _number(measured: Measured, statistic: str) -> Number:
    found: float | str | None
    found = measured.statistic(statistic) if isinstance(measured, Histogram) else measured
    if not isinstance(found, float):
        return found
    return int(found) if found.is_integer() and abs(found) < 1e15 else float(f"{found:.{DIGITS}g}")


def file_of(folder: Path, name: str) -> Path:
    """Where the summary of an experiment is."""
    return folder / f"{name}.json"


def write(summary: Summary, folder: Path) -> Path:
    """One cell a line, so that versions of the file can be compared."""
    folder.mkdir(parents=True, exist_ok=True)
    head = msgspec.json.encode({name: getattr(summary, name) for name in Summary.__struct_fields__ if name != "cells"})
    cells = ",\n".join(msgspec.json.encode(cell).decode() for cell in summary.cells)
    path = file_of(folder, summary.experiment)
    hidden = folder / f".{path.name}"
    hidden.write_text(f'{head.decode()[:-1]},"cells":[\n{cells}\n]}}\n', encoding="utf-8")
    hidden.replace(path)
    return path


def read(folder: Path, name: str) -> Summary | None:
    """The summary of an experiment, if there is one. Raises `ResultsUnusableError`."""
    path = file_of(folder, name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Summary)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ResultsUnusableError(f"{path}: {error}") from error


def repeat(experiment: Experiment, kept: Summary, found: Summary) -> Repetition:
    """Compare figures that the same seed must give again: all but CPU times."""
    same, different = 0, []
    cells = {_place(cell.parameters): cell for cell in kept.cells}
    metrics = metrics_of(experiment.probes, experiment.calculate)
    for cell in found.cells:
        before = cells.get(_place(cell.parameters))
        if before is None:
            continue
        for metric, statistics in cell.measured.items():
            known = metrics.find(metric)
            if known is not None and not known.repeats:
                continue
            for statistic, values in statistics.items():
                was = dict(zip(kept.seeds, before.measured.get(metric, {}).get(statistic, ()), strict=False))
                for seed, value in zip(found.seeds, values, strict=True):
                    if seed not in was:
                        continue
                    if was[seed] == value:
                        same += 1
                    else:
                        different.append(Difference(cell.parameters, metric, statistic, seed, was[seed], value))
    return Repetition(same, tuple(different))


def _place(parameters: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(parameters, order="sorted")
