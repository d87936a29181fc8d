"""One run of the simulator as data, as the table `run` of an experiment file has it."""

from __future__ import annotations

import msgspec

from causalcast.simulation import AnyWorkload, Broadcasts, Delay, Fault, Network


class RunSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `simulation.Simulator` takes, but for the seed."""

    stack: str
    nodes: int
    workload: AnyWorkload = Broadcasts(100)
    network: Network = Network()
    faults: tuple[Fault, ...] = ()
    thinking: Delay | None = None
    until_ns: int | None = None
    """Of a run that never becomes quiet: where it ends."""
