"""One task of a sweep: a run, what it measured, and where asked its trace."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from causalcast.lab import records
from causalcast.lab.metrics import CALCULATIONS, Probe, arguments, probe
from causalcast.lab.observe import prepare
from causalcast.trace import ParquetWriter

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast.lab.grid import Run
    from causalcast.lab.metrics import Measured
    from causalcast.trace.writer import TraceSink


class Failure(NamedTuple):
    """A run that did not come to its end."""

    run: Run
    reason: str


def measure(run: Run, trace: TraceSink | None = None) -> records.Record:
    """Run it here and now."""
    started = time.process_time()
    measured: dict[str, Measured] = {
        name: CALCULATIONS[name](**arguments(name, run.parameters)) for name in run.calculate
    }
    if run.spec is not None:
        probes: list[Probe] = [probe(name, options) for name, options in run.probes.items()]
        simulator = prepare(run.spec, run.seed, probes, trace)
        simulator.run(until_ns=run.spec.until_ns)
        for each in probes:
            measured |= each.result()
    return records.Record(run.key, run.parameters, run.seed, measured, time.process_time() - started)


def execute(run: Run, folder: Path, traces: Path | None) -> Failure | None:
    """Run it, and leave its files in these folders: what is there is whole, and the record comes last."""
    try:
        if traces is None or run.spec is None:
            record = measure(run)
        else:
            hidden = traces / f".{run.key}{records.SUFFIX}"
            with ParquetWriter(hidden) as writer:
                record = measure(run, writer)
            os.replace(hidden, records.path_of(traces, run.key))
        records.write(record, folder)
    except Exception as error:  # one run of many: the others go on, and the sweep ends with what went wrong
        return Failure(run, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return None
