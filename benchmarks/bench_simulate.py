"""The simulator under a flooding-like load of `tcb` at 128 members: events per CPU second.

Run with `python -m benchmarks.bench_simulate`.
"""

from __future__ import annotations

import argparse
from time import process_time

from benchmarks.report import Case, write
from causalcast.simulation import simulate


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the messages")
    quick = parser.parse_args().quick
    cases = []
    for stack_name, nodes, messages in (("tcb", 8, 1600), ("tcb", 128, 2), ("unordered", 128, 8)):
        messages_each = max(messages // (4 if quick else 1), 1)
        start = process_time()
        counters = simulate(stack_name, nodes=nodes, messages=messages_each, seed=1).counters
        spent = process_time() - start
        cases.append(
            Case(
                f"{stack_name}, {nodes} members, {messages_each} broadcasts each",
                {
                    "events": counters.events,
                    "deliveries": counters.deliveries,
                    "cpu_seconds": spent,
                    "events_per_cpu_second": counters.events / spent,
                },
            )
        )
    write("simulate", cases)


if __name__ == "__main__":
    main()
