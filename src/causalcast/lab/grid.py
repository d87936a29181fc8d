"""From an experiment to its runs: one for each cell of the grid and each seed, with all values in place.

In the table `run` of an experiment file `"$name"` stands for a parameter, of whatever type it is, `"weibull:$name"` for
one inside of a text, and `"@3"` for the name of process number 3. Where a time is drawn a short form will do, as on the
command line: `"exponential:10"`, in milliseconds.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from causalcast.lab.errors import ExperimentInvalidError
from causalcast.lab.metrics import MetricOptionsError, arguments, probe
from causalcast.lab.observe import prepare
from causalcast.lab.spec import RunSpec
from causalcast.model import CausalcastError
from causalcast.simulation import parse_delay, process_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable

    from causalcast.lab.experiment import Experiment, Scalar

DELAY_FIELDS: Final = frozenset({"across", "delay", "interval", "wait", "thinking"})
"""Where a text is the short form of a random time."""
_PARAMETER: Final = re.compile(r"\$(\w+)")
_PROCESS: Final = re.compile(r"@(\d+)")
_DECIDES: Final = (
    "model", "protocols", "simulation", "lab/metrics", "lab/histogram.py", "lab/observe.py", "lab/task.py",
)  # fmt: skip
"""The parts of causalcast whose code decides what a run yields."""


class Run(NamedTuple):
    """One task of a sweep."""

    key: str
    """Of everything that decides its results: what was finished under this key is not run again."""
    parameters: dict[str, Scalar]
    seed: int
    spec: RunSpec | None
    """`None` where there is nothing to simulate, only to calculate."""
    probes: dict[str, dict[str, Any]]
    """Name to options."""
    calculate: tuple[str, ...]


def cells(experiment: Experiment, *, quick: bool = False) -> list[dict[str, Scalar]]:
    """The parameters of each combination, in the order of the file."""
    groups: list[list[dict[str, Scalar]]] = [[{name: value} for value in v] for name, v in experiment.grid.items()]
    for group in experiment.together:
        groups.append([dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)])
    found = []
    for combination in itertools.product(*groups):
        cell = dict(experiment.parameters)
        for part in combination:
            cell |= part
        if not quick or all(cell[name] in values for name, values in experiment.quick.grid.items()):
            found.append(cell)
    return found


def seeds_of(experiment: Experiment, *, quick: bool = False) -> tuple[int, ...]:
    """1, 2, ... as many as there are repetitions."""
    return tuple(range(1, (experiment.quick.repetitions if quick else experiment.repetitions) + 1))


def runs(experiment: Experiment, file: str, *, quick: bool = False, seeds: Sequence[int] | None = None) -> list[Run]:
    """All tasks of a sweep. Raises `ExperimentInvalidError`, naming `file`, if one of them cannot be run."""
    made = code_version()
    tasks = []
    for cell in cells(experiment, quick=quick):
        spec, probes = _resolve(experiment, cell, file)
        for seed in seeds if seeds is not None else seeds_of(experiment, quick=quick):
            decides = (made, cell, seed, spec, probes, experiment.calculate)
            key = hashlib.sha256(msgspec.json.encode(decides, order="sorted")).hexdigest()[:24]
            tasks.append(Run(key, cell, seed, spec, probes, experiment.calculate))
    return tasks


def _resolve(
    experiment: Experiment, cell: Mapping[str, Scalar], file: str
) -> tuple[RunSpec | None, dict[str, dict[str, Any]]]:
    try:
        values = _Values(experiment, cell)
        options = values.put(experiment.probes)
        for name, chosen in options.items():
            probe(name, chosen)
        for name in experiment.calculate:
            arguments(name, cell)
        if not experiment.run:
            return None, options
        nodes = values.put(experiment.run.get("nodes"))
        names = process_names(nodes) if isinstance(nodes, int) and nodes > 0 else ()
        spec = msgspec.convert(_Values(experiment, cell, names).put(experiment.run), RunSpec, strict=True)
        if spec.nodes < 1:
            raise ExperimentInvalidError(file, f"run.nodes: {spec.nodes} is less than 1")
        prepare(spec, 0)
    except ExperimentInvalidError:
        raise
    except MetricOptionsError as error:
        raise ExperimentInvalidError(file, str(error)) from None
    except (msgspec.ValidationError, CausalcastError) as error:
        where = ", ".join(f"{name} {value}" for name, value in cell.items())
        raise ExperimentInvalidError(file, f"run: {error}" + (f" (in the cell {where})" if where else "")) from None
    return spec, options


class _Values:
    """What stands for a parameter and for a process in one cell."""

    def __init__(self, experiment: Experiment, cell: Mapping[str, Scalar], names: Sequence[str] = ()) -> None:
        self._cell = cell
        self._names = names
        self._meanings = experiment.values

    def put(self, value: Any, field: str = "") -> Any:
        """`value` with everything in its place. Nesting is bounded by what a TOML parser accepts."""
        if isinstance(value, dict):
            return {key: self.put(each, key) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.put(each, field) for each in value]
        if not isinstance(value, str):
            return value
        whole = _PARAMETER.fullmatch(value)
        if whole is not None:
            meaning = self._meaning(whole[1])
            return meaning if meaning == value else self.put(meaning, field)
        text = _PARAMETER.sub(lambda found: str(self._meaning(found[1])), value)
        text = _PROCESS.sub(lambda found: self._process(int(found[1])), text)
        return msgspec.to_builtins(parse_delay(text)) if field in DELAY_FIELDS else text

    def _meaning(self, name: str) -> Any:
        if name not in self._cell:
            raise UnknownParameterError(f"${name}: no parameter is called {name!r}")
        value = self._cell[name]
        return self._meanings[name][str(value)] if name in self._meanings else value

    def _process(self, number: int) -> str:
        if number >= len(self._names):
            raise UnknownParameterError(f"@{number}: there are {len(self._names)} processes, the first is @0")
        return self._names[number]


class UnknownParameterError(CausalcastError, ValueError):
    """A `$parameter` or `@process` that there is not."""


def code_version() -> str:
    """The version of causalcast and a digest of the code that decides what a run yields."""
    digest = hashlib.sha256()
    for part in _DECIDES:
        for file in _sources(files("causalcast").joinpath(part)):
            digest.update(file.read_bytes())
    return f"{version('causalcast')}+{digest.hexdigest()[:8]}"


def _sources(part: Traversable) -> Iterator[Traversable]:
    """The Python file `part`, or those below this folder, in order of name."""
    if part.is_file():
        yield part
        return
    folders = [part]
    for each in folders:
        for entry in sorted(each.iterdir(), key=lambda entry: entry.name):
            if entry.is_dir():
                folders.append(entry)
            elif entry.name.endswith(".py"):
                yield entry
