"""What a delivery of publish/subscribe costs in the simulator (document 002, section 5.6.3).

All nodes subscribe to one topic, and each of the publishers publishes one message of 50 bytes within 1,000 units of
time, over VCube-PS: processing and transmission take 1 unit, propagation 100. Each size runs in a process of its own.
Memory is the peak of its resident set. Run with `python -m benchmarks.bench_pubsub`; `--nodes 4096` is the largest
system of the document, 16.8 million deliveries, and takes a quarter of an hour or more.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from time import process_time

from benchmarks.report import Case, write
from causalcast.protocols import stack
from causalcast.simulation import Broadcasts, Constant, Network, Simulator, Uniform, process_names

UNIT_NS = 1_000_000
SIZES = ((256, 256), (1_024, 256), (1_024, 1_024))
"""Nodes and publishers."""


def measure(nodes: int, publishers: int) -> dict[str, float]:
    """Run it here; figures by name."""
    network = Network(
        Constant(100 * UNIT_NS), fifo=False, processing_ns=UNIT_NS, transmission_ns=UNIT_NS, tick_ns=UNIT_NS
    )
    workload = Broadcasts(1, Uniform(0, 1_000 * UNIT_NS), payload_bytes=50, senders=publishers)
    simulator = Simulator(stack("vcube-ps"), process_names(nodes), workload, network=network, seed=1)
    before = process_time()
    counters = simulator.run()
    seconds = process_time() - before
    if counters.deliveries != publishers * (nodes - 1):
        raise SystemExit(f"{counters.deliveries:,} deliveries instead of {publishers * (nodes - 1):,}")
    return {
        "deliveries": counters.deliveries,
        "messages": counters.sends,
        "cpu_s": seconds,
        "deliveries_per_cpu_s": counters.deliveries / seconds,
        "us_per_delivery": seconds / counters.deliveries * 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_apart(nodes: int, publishers: int) -> dict[str, float]:
    """The same from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_pubsub", "--here", str(nodes), str(publishers)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, help="one size, all of whose nodes publish, instead of three")
    parser.add_argument(
        "--here", type=int, nargs=2, metavar=("NODES", "PUBLISHERS"), help="print the figures as JSON, and nothing else"
    )
    arguments = parser.parse_args()
    if arguments.here is not None:
        print(json.dumps(measure(*arguments.here)))
        return
    sizes = SIZES if arguments.nodes is None else ((arguments.nodes, arguments.nodes),)
    write(
        "pubsub", [Case(f"{nodes:,} nodes, {some:,} publishers", measure_apart(nodes, some)) for nodes, some in sizes]
    )


if __name__ == "__main__":
    main()
