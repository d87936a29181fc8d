"""CPTCast in the simulator by the size of the group: what it costs for members to join, and for each message they get.

Everybody joins at the beginning; from the 80th second on, when HyParView has exchanged neighbours, 100 processes
broadcast once each, within ten seconds, 1 kB over links of 5 to 15 ms. Each size runs in a process of its own, and is
cut where everybody has everything. Run with `python -m benchmarks.bench_overlay`, `--quick` for two small sizes.
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
from causalcast.simulation import NS_PER_MS, Broadcasts, Network, Simulator, Uniform, process_names

STACK = "cptcast"
MESSAGES = 100
BEGIN_NS = 80_000 * NS_PER_MS
WITHIN_NS = 10_000 * NS_PER_MS
END_NS = BEGIN_NS + WITHIN_NS + 10_000 * NS_PER_MS


def measure(nodes: int) -> dict[str, float]:
    """The figures of one size; the caller is a process of its own."""
    before = _peak_bytes()
    workload = Broadcasts(1, Uniform(0, WITHIN_NS), payload_bytes=1000, senders=MESSAGES, begin_ns=BEGIN_NS)
    network = Network(Uniform(5 * NS_PER_MS, 15 * NS_PER_MS), tick_ns=100_000)
    simulator = Simulator(stack(STACK), process_names(nodes), workload, network=network, seed=1)
    marks: dict[str, tuple[float, int]] = {}
    start = process_time()

    def mark(name: str, _: None) -> None:
        marks[name] = (process_time() - start, simulator.counters.events)

    simulator.queue.push(BEGIN_NS, mark, "joined")
    simulator.run(until_ns=END_NS)
    mark("end", None)
    (joined, events_before), (spent, events) = marks["joined"], marks["end"]
    deliveries = simulator.counters.deliveries
    if deliveries != MESSAGES * (nodes - 1):
        raise SystemExit(f"{deliveries:,} deliveries among {nodes:,} processes, not {MESSAGES * (nodes - 1):,}")
    return {
        "cpu_seconds": spent,
        "events_per_cpu_second": events / spent,
        "join_ms_per_node": joined / nodes * 1e3,
        "us_per_delivery": (spent - joined) / deliveries * 1e6,
        "events_per_delivery": (events - events_before) / deliveries,
        "bytes_per_node": (_peak_bytes() - before) / nodes,
    }


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_apart(nodes: int) -> dict[str, float]:
    """The figures of one size, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_overlay", "--nodes", str(nodes)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 and 400 nodes instead of 1,000 and 10,000")
    parser.add_argument("--nodes", type=int, help="print the figures of this size as JSON, and nothing else")
    arguments = parser.parse_args()
    if arguments.nodes is not None:
        print(json.dumps(measure(arguments.nodes)))
        return
    sizes = (100, 400) if arguments.quick else (1_000, 10_000)
    write(
        "overlay",
        [Case(f"{STACK}, {nodes:,} nodes, {MESSAGES} broadcasts", measure_apart(nodes)) for nodes in sizes],
    )


if __name__ == "__main__":
    main()
