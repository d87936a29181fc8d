"""What can be measured: probes, which observe a run, and calculations, which need none.

To add one: a subclass of `Probe` with its `metrics`, or a function of parameters, and a line in the registry here.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final

from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.lab.metrics.flow import Latency, Traffic
from causalcast.lab.metrics.formulas import CALCULATIONS as FORMULAS
from causalcast.lab.metrics.hypercube import HYPERCUBE_CALCULATIONS
from causalcast.lab.metrics.metadata import Entries, Memory
from causalcast.lab.metrics.overlay import Comings, Links, Openings, Pings, Redundancy, Tables
from causalcast.lab.metrics.overlay_cases import OVERLAY_CALCULATIONS
from causalcast.lab.metrics.packets import Dependencies, Packets, Waits
from causalcast.lab.metrics.topics import TOPIC_CALCULATIONS, Brokers, Publications, Queues, Reception, Trees, Ways
from causalcast.lab.metrics.work import Cpu, Operations
from causalcast.model import CausalcastError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["AUDIT", "CALCULATIONS", "PROBES", "Measured", "Metric", "MetricOptionsError", "Metrics", "Probe"]

PROBES: Final[dict[str, type[Probe]]] = {
    "brokers": Brokers,
    "comings": Comings,
    "cpu": Cpu,
    "dependencies": Dependencies,
    "entries": Entries,
    "latency": Latency,
    "links": Links,
    "memory": Memory,
    "openings": Openings,
    "operations": Operations,
    "packets": Packets,
    "pings": Pings,
    "publications": Publications,
    "queues": Queues,
    "reception": Reception,
    "redundancy": Redundancy,
    "tables": Tables,
    "traffic": Traffic,
    "trees": Trees,
    "waits": Waits,
    "ways": Ways,
}
CALCULATIONS: Final = FORMULAS | TOPIC_CALCULATIONS | HYPERCUBE_CALCULATIONS | OVERLAY_CALCULATIONS

AUDIT: Final = Metric("findings", "findings", "what the audit finds wrong in the trace of the run")
"""Measured wherever traces are written."""


class MetricOptionsError(CausalcastError, ValueError):
    """A probe with options, or a calculation with parameters, that it does not take."""


class Metrics:
    """The metrics of one experiment, by name."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}

    def find(self, name: str) -> Metric | None:
        """What is known of the metric called `name`; `None` where no probe or calculation yields it."""
        return self._metrics.get(name) or self._metrics.get(f"{name.partition('.')[0]}.*")


def metrics_of(probes: Iterable[str], calculations: Iterable[str]) -> Metrics:
    """The metrics that these yield together, and what the audit adds."""
    found = [AUDIT]
    for name in probes:
        found.extend(PROBES[name].metrics)
    for name in calculations:
        found.append(Metric(name, "", (inspect.getdoc(CALCULATIONS[name]) or "").partition("\n")[0]))
    return Metrics(found)


def probe(name: str, options: Mapping[str, Any]) -> Probe:
    """A probe for one run. Raises `MetricOptionsError`."""
    kind = PROBES[name]
    known = list(inspect.signature(kind).parameters)
    for option in options:
        if option not in known:
            there = f"; it takes {', '.join(known)}" if known else "; it takes none"
            raise MetricOptionsError(f"probes.{name}: it has no option {option!r}{there}")
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise MetricOptionsError(f"probes.{name}: {error}") from None


def arguments(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the calculation called `name` takes of the parameters of a cell. Raises `MetricOptionsError`."""
    chosen = {}
    for parameter in inspect.signature(CALCULATIONS[name]).parameters:
        if parameter not in parameters:
            raise MetricOptionsError(f"calculate: {name!r} needs a parameter called {parameter!r}")
        chosen[parameter] = parameters[parameter]
    return chosen
