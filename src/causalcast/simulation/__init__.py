"""The simulated host: virtual time, one thread, one seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols import stack
from causalcast.simulation.faults import (
    Churn,
    Crash,
    Cut,
    Fault,
    Flap,
    Join,
    Leave,
    Partition,
    Pause,
    Suspicion,
    Turnover,
    UnsupportedFaultError,
    draw_faults,
)
from causalcast.simulation.host import Application, SimulatedHost
from causalcast.simulation.models import (
    NS_PER_MS,
    Constant,
    Delay,
    Exponential,
    InvalidModelError,
    Normal,
    Uniform,
    Weibull,
    parse_delay,
)
from causalcast.simulation.network import Link, Matrix, Network, Rise, Sites, read_matrix
from causalcast.simulation.simulator import Counters, Simulator, Workload
from causalcast.simulation.workload import AnyWorkload, Broadcasts, Publications, Replies, Stream
from causalcast.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.simulation.world import Step
    from causalcast.trace.writer import TraceSink

__all__ = [
    "NS_PER_MS",
    "AnyWorkload",
    "Application",
    "Broadcasts",
    "Churn",
    "Constant",
    "Counters",
    "Crash",
    "Cut",
    "Delay",
    "Exponential",
    "Fault",
    "Flap",
    "InvalidModelError",
    "Join",
    "Leave",
    "Link",
    "Matrix",
    "Network",
    "Normal",
    "Partition",
    "Pause",
    "Publications",
    "Replies",
    "Rise",
    "SimulatedHost",
    "Simulator",
    "Sites",
    "Stream",
    "Suspicion",
    "Turnover",
    "Uniform",
    "UnsupportedFaultError",
    "Weibull",
    "Workload",
    "World",
    "draw_faults",
    "parse_delay",
    "process_names",
    "read_matrix",
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
    messages: int = 100,
    workload: Workload | None = None,
    seed: int = 0,
    network: Network | None = None,
    thinking: Delay | None = None,
    faults: Sequence[Fault] = (),
    trace: TraceSink | None = None,
    record: Callable[[Step], None] | None = None,
    progress: Callable[[Simulator], None] | None = None,
) -> Simulator:
    """Run `nodes` processes to quiescence; returns the finished simulator.

    Unless a `workload` says otherwise, each process broadcasts `messages` payloads of 64 bytes, one every 5 to 15 ms.
    By default a message takes 5 to 15 ms on FIFO links.
    """
    simulator = Simulator(
        stack(stack_name),
        process_names(nodes),
        workload or Broadcasts(messages),
        network=network,
        seed=seed,
        thinking=thinking,
        faults=faults,
        trace=trace,
        record=record,
    )
    simulator.run(progress=progress)
    return simulator
