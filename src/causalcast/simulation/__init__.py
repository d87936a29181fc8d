"""The simulated host: virtual time, one thread, one seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols import stack
from causalcast.simulation.network import NS_PER_MS, Constant, Delay, Network, Uniform
from causalcast.simulation.simulator import Application, Counters, SimulatedHost, Simulator
from causalcast.simulation.workload import Broadcasts
from causalcast.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.trace.writer import TraceSink

__all__ = [
    "NS_PER_MS",
    "Application",
    "Broadcasts",
    "Constant",
    "Counters",
    "Delay",
    "Network",
    "SimulatedHost",
    "Simulator",
    "Uniform",
    "World",
    "process_names",
    "simulate",
]


def process_names(nodes: int) -> list[str]:
    """`nodes` names that sort in the order of their numbers: p0, p1, ... or p00, p01, ..."""
    width = len(str(nodes - 1))
    return [f"p{number:0{width}}" for number in range(nodes)]


def simulate(  # noqa: PLR0913 - each is a parameter of the experiment, all but the first by name
    stack_name: str,
    *,
    nodes: int,
    messages: int,
    seed: int = 0,
    network: Network | None = None,
    interval: Delay | None = None,
    payload_bytes: int = 64,
    thinking: Delay | None = None,
    trace: TraceSink | None = None,
    progress: Callable[[Simulator], None] | None = None,
) -> Simulator:
    """Run `nodes` processes that broadcast `messages` payloads each, to quiescence; returns the finished simulator.

    By default a message takes 5 to 15 ms on FIFO links, and each process broadcasts every 5 to 15 ms.
    """
    workload = Broadcasts(messages, interval or Uniform(5 * NS_PER_MS, 15 * NS_PER_MS), payload_bytes, seed)
    simulator = Simulator(
        stack(stack_name),
        process_names(nodes),
        workload,
        network=network,
        seed=seed,
        thinking=thinking,
        trace=trace,
    )
    simulator.run(progress=progress)
    return simulator
