"""What it costs to write a trace: CPU nanoseconds per event, for each writer, on one broadcast to four deliveries."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path

from causalcast.trace import JsonLinesWriter, ParquetWriter, TraceEvent

EVENTS = 200_000
ROUNDS = 5
OUTPUT = Path("build/bench/trace.json")


def typical_events(number: int) -> list[TraceEvent]:
    """A process's log with one broadcast to four deliveries, as the runtime writes it."""
    start = time.time_ns()
    return [
        TraceEvent(
            "paris",
            seq,
            "broadcast",
            origin="paris",
            counter=seq // 5,
            time_ns=start + seq,
            payload_bytes=64,
            overhead_bytes=38,
            context=(("london", seq), ("berlin", seq)),
        )
        if seq % 5 == 0
        else TraceEvent("paris", seq, "deliver", origin="london", counter=seq, time_ns=start + seq)
        for seq in range(1, number + 1)
    ]


def measure(kind: type[JsonLinesWriter | ParquetWriter], path: Path, events: list[TraceEvent]) -> float:
    """CPU nanoseconds per event, file closed."""
    start = time.process_time_ns()
    with kind(path) as writer:
        for event in events:
            writer.write(event)
    return (time.process_time_ns() - start) / len(events)


def main() -> None:
    """Measure, print, and keep the figures."""
    events = typical_events(EVENTS)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in (JsonLinesWriter, ParquetWriter):
            path = Path(folder) / kind.__name__
            best = min(measure(kind, path, events) for _ in range(ROUNDS))
            cases.append(
                {
                    "case": kind.__name__,
                    "events": EVENTS,
                    "ns_per_event": round(best),
                    "bytes_per_event": round(path.stat().st_size / EVENTS, 1),
                }
            )
            print(f"{kind.__name__:16} {best:7,.0f} ns/event  {cases[-1]['bytes_per_event']:6} B/event")
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps({"bench": "trace", "machine": machine, "cases": cases}, indent=2) + "\n")


if __name__ == "__main__":
    main()
