"""The audit on Spark against one NumPy process that does the same check.

Both sides are processes of their own and are charged for everything they start (the JVM, the Python workers):
CPU seconds from the kernel's accounting, peak memory as the sum over all their processes, sampled. Spark's Python
daemon ignores the end of its workers, and the kernel charges nobody for a child whose parent does so: what such a
worker used is sampled too. The NumPy side reads the same Parquet files with pyarrow and runs the audit's kernels
without Spark, all in one process.

    python -m benchmarks.bench_audit [--sizes EVENTS,... | --again EVENTS | --only PART]

Without options it runs 1, 10 and 100 million events, and a million in several shapes; with sizes, those only. What
needs more memory than there is free is left out, and said to be.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.audit_traces import (
    without_one_each,
    write_crash,
    write_hub,
    write_joined,
    write_lines,
    write_topics,
    write_trace,
    write_turnover,
)
from benchmarks.published_checks import algorithm_14, algorithm_16
from benchmarks.report import Case, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.audit.digests import LogBody, LogIndex

TARGET: Final = 3.0
MILLION: Final = 1_000_000
SIZES: Final = (MILLION, 10 * MILLION, 100 * MILLION)
PUBLISHED: Final = (
    *((10, 1_000), (10, 10_000), (50, 10_000), (10, 30_000), (100, 30_000)),
    *((10, MILLION), (50, MILLION), (100, MILLION)),
)
"""Processes and events of the runs that the published checkers judge."""
CROSSING: Final = (10_000, 400_000)
"""Events between which the kernels come to be cheaper than algorithm 14."""
SQUARE: Final = 30_000
"""Events up to which algorithm 16 is run: it grows with their square."""
NUMPY: Final = 20 * MILLION
"""Events up to which the NumPy process is run too: it holds them all at once."""
AGAIN: Final = 2 * MILLION
LITTLE: Final = 100_000
MEMORY: Final = 120
"""Bytes for each event, by which it is judged whether there is memory enough."""
_SUBREAPER: Final = 36
_PERIOD: Final = 0.1
"""Seconds between two samples of the processes."""


def numpy_audit(folder: Path) -> dict[str, Any]:
    """Check a folder of Parquet files in this process, with the audit's kernels and no Spark."""
    from causalcast.audit.bundles import split  # noqa: PLC0415
    from causalcast.audit.clocks import build_clock  # noqa: PLC0415 - only the measured process pays for it
    from causalcast.audit.events import EVENT_CODES  # noqa: PLC0415
    from causalcast.audit.findings import Collection  # noqa: PLC0415
    from causalcast.audit.logs import digest  # noqa: PLC0415
    from causalcast.audit.replay import replay  # noqa: PLC0415

    pa.set_cpu_count(1)
    codes = pa.array(list(EVENT_CODES))
    digests: list[tuple[LogIndex, LogBody]] = []
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file, use_threads=False)
        event = pc.index_in(table.column("event"), codes)
        valid = pc.and_(pc.is_valid(event), pc.greater(table.column("seq"), 0))
        valid = pc.and_(valid, pc.and_(pc.is_valid(table.column("origin")), pc.greater(table.column("counter"), 0)))
        none = pa.nulls(table.num_rows, pa.string())
        table = table.set_column(table.schema.get_field_index("event"), "event", event)
        for name, column in (
            ("topic", none),
            ("peer", none),
            ("overhead_bytes", pa.nulls(table.num_rows, pa.int64())),
            ("context", none),
        ):
            table = table.append_column(name, column)
        digests.extend(digest(process, rows) for process, rows in split(table.filter(valid)))
    logs = {index.process: index for index, _ in digests}
    known = build_clock(list(logs.values()))
    collection = Collection(known.clock)
    collection.add_log_findings(known.findings)
    for _, body in digests:
        collection.add(replay(body, logs[body.process].marks, known.clock), body.names)
    return {"verdict": "fail" if collection.counts else "pass", "events": sum(log.rows for log in logs.values())}


def spark_audit(folder: Path, out: Path | None) -> dict[str, Any]:
    """Run the audit as the command does, but for its report."""
    from causalcast.audit.pipeline import run_audit  # noqa: PLC0415

    began = time.perf_counter()

    def say(stage: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {stage}", file=sys.stderr)

    result = run_audit([folder], out=out, progress=say)
    return {"verdict": result.verdict, "events": result.events}


def measure(side: str, folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Run one side in a process of its own and charge it for all its descendants."""
    command = [sys.executable, "-m", "benchmarks.bench_audit", "--side", side, str(folder)]
    command += ["--out", str(out)] if out is not None else []
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    samples = _Samples(process.pid)
    output, _ = process.communicate()
    reaped = _reap_orphans()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    samples.stop()
    if process.returncode != 0:
        raise SystemExit(f"{side} failed on {folder}")
    answer: dict[str, Any] = json.loads(output)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + samples.uncharged_seconds(reaped)
    return answer | {"cpu_seconds": cpu, "wall_seconds": wall, "peak_mib": samples.peak_mib}


def _adopt_orphans() -> None:
    """Become the parent of what outlives its own parent, so that nothing started escapes the accounting."""
    ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _reap_orphans() -> set[int]:
    """Wait for what outlived its parent; the kernel has charged this process for these."""
    reaped = set()
    while True:
        try:
            reaped.add(os.wait()[0])
        except ChildProcessError:
            return reaped


class _Samples:
    """Samples the processes of a session: their resident memory, and the CPU of those that no parent waits for."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._stop = threading.Event()
        self._pages = 0
        self._ticks: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak_mib(self) -> float:
        """The highest sum over all processes."""
        return self._pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def uncharged_seconds(self, reaped: set[int]) -> float:
        """Return the CPU of processes whose parent ignored their end, but for those `reaped` here after all.

        Up to one period of sampling is missing of each.
        """
        return sum(ticks for pid, ticks in self._ticks.items() if pid not in reaped) / os.sysconf("SC_CLK_TCK")

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            pages, ignoring = 0, {}
            for path in Path("/proc").glob("[0-9]*/stat"):
                try:
                    fields = path.read_text().rpartition(")")[2].split()
                    if int(fields[3]) != self._session:
                        continue
                    pages += int(fields[21])
                    parent = int(fields[1])
                    if parent not in ignoring:
                        ignoring[parent] = _ignores_children(parent)
                except OSError:
                    continue
                if ignoring[parent]:
                    self._ticks[int(path.parent.name)] = int(fields[11]) + int(fields[12])
            self._pages = max(self._pages, pages)


def _ignores_children(pid: int) -> bool:
    """Whether a process ignores the signal that a child of it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn:")).split()[1], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", help="numbers of events, with commas between them", type=_sizes, default=[])
    parser.add_argument("--again", help="only a run of so many events and one on 1 %% more", type=int, metavar="EVENTS")
    parser.add_argument("--only", choices=PARTS, help="run this part alone")
    parser.add_argument("--side", choices=["numpy", "spark"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        answer = (
            numpy_audit(arguments.folder) if arguments.side == "numpy" else spark_audit(arguments.folder, arguments.out)
        )
        print(json.dumps(answer))
        return
    _adopt_orphans()
    if arguments.again:
        write("audit_again", _both_again(arguments.again))
        return
    if arguments.sizes:
        write("audit_sizes", [case for events in arguments.sizes for case in _cases(events)])
    for part, run in PARTS.items():
        if arguments.only == part or not (arguments.only or arguments.sizes):
            run()
    if arguments.only is None and not arguments.sizes:
        write("audit", [case for events in SIZES for case in _cases(events)])
    print("verdicts: as they must be")
    if arguments.only is None:
        print(f"target: ratio_to_numpy at most {TARGET} at 10 million events")


def _sizes(text: str) -> list[int]:
    return [int(number.replace("_", "")) for number in text.split(",")]


def _cases(events: int) -> list[Case]:
    if events <= NUMPY:
        return [_case(processes, events) for processes in (10, 50)]
    if _free() < MEMORY * events:
        print(f"{events // MILLION} M events: left out, since {MEMORY * events / 2**30:.0f} GiB of memory are not free")
        return []
    return [_large(10, events)]


def _free() -> int:
    """Return the bytes of memory that the kernel has to give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1])


def _case(processes: int, events: int) -> Case:
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as name:
        folder = Path(name)
        rows = write_trace(folder, processes, events)
        alone = measure("numpy", folder)
        spark = measure("spark", folder)
    if not alone["verdict"] == spark["verdict"] == "pass" or not alone["events"] == spark["events"] == rows:
        raise SystemExit(f"the two sides disagree: {alone}, {spark}")
    return Case(
        f"{rows // MILLION} M events, {processes} processes",
        {
            "numpy_cpu_seconds": alone["cpu_seconds"],
            "numpy_cpu_seconds_per_million": alone["cpu_seconds"] / rows * 1e6,
            "spark_cpu_seconds": spark["cpu_seconds"],
            "spark_cpu_seconds_per_million": spark["cpu_seconds"] / rows * 1e6,
            "ratio_to_numpy": spark["cpu_seconds"] / alone["cpu_seconds"],
            "spark_wall_seconds": spark["wall_seconds"],
            "numpy_peak_mib": alone["peak_mib"],
            "spark_peak_mib": spark["peak_mib"],
        },
    )


def _large(processes: int, events: int) -> Case:
    """A run on Spark only."""
    return _shape(
        f"{events // MILLION} M events, {processes} processes", lambda folder: write_trace(folder, processes, events)
    )


def _shape(name: str, make: Callable[[Path], int], verdict: str = "pass") -> Case:
    """A run of an unusual shape, on Spark only."""
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as folder:
        rows = make(Path(folder))
        spark = measure("spark", Path(folder))
    if spark["verdict"] != verdict or spark["events"] != rows:
        raise SystemExit(f"the verdict is not {verdict}: {name}: {spark}")
    return Case(name, {"events": rows} | _figures(spark, rows))


def _both_again(events: int) -> list[Case]:
    return [
        _again("10 processes", lambda folder, rows: write_lines(folder, 10, rows), events),
        _again("50 processes that come and go", lambda folder, rows: write_turnover(folder, 50, rows), events),
        _again(
            "50 that come and go, two of them in the last 1 %",
            lambda folder, rows: write_turnover(folder, 50, rows, to_the_end=True),
            events,
        ),
        _again(
            "10 processes that deliver two in the wrong order after each 2,000 rows",
            lambda folder, rows: write_lines(folder, 10, rows, faults=2_000),
            events,
            "fail",
        ),
    ]


def _again(name: str, make: Callable[[Path, int], int], events: int, verdict: str = "pass") -> Case:
    """A run, and a second one with the same output folder after every log has grown by one per cent.

    What a run costs that has little to do is measured too, and taken from each: a full run of a trace of `LITTLE`
    events, and a second one of it to which nothing was added.
    """
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as folder:
        trace, out, little = (Path(folder) / each for each in ("trace", "out", "little"))
        trace.mkdir()
        little.mkdir()
        rows = make(trace, events)
        make(little, LITTLE)
        whole = {path: path.read_bytes() for path in trace.iterdir()}
        most = max(map(len, whole.values()))
        for path, data in whole.items():
            # The log of one who is gone does not grow, unless it goes at last. That of one who comes then is new.
            gone = b"origin" not in data[data.rindex(b"\n", 0, -1) :] and len(data) < most * 9 // 10
            kept = data if gone else data[: data.rindex(b"\n", 0, len(data) * 99 // 100) + 1]
            path.write_bytes(kept if len(data) > most // 50 else b"")
        measure("spark", trace, out)
        for path, data in whole.items():
            with path.open("ab") as file:
                file.write(data[path.stat().st_size :])
        second = measure("spark", trace, out)
        full = measure("spark", trace, Path(folder) / "full")
        start = measure("spark", little, Path(folder) / "little out")
        again = measure("spark", little, Path(folder) / "little out")
    if not (second["verdict"] == full["verdict"] == verdict and second["events"] == full["events"] == rows):
        raise SystemExit(f"the later run and the full one disagree: {second}, {full}")
    work = full["cpu_seconds"] - start["cpu_seconds"]
    figures = _figures(full, rows) | {
        "second_cpu_seconds": second["cpu_seconds"],
        "second_to_full": second["cpu_seconds"] / full["cpu_seconds"],
        "start_cpu_seconds": start["cpu_seconds"],
        "second_start_cpu_seconds": again["cpu_seconds"],
        "second_to_full_without_start": (second["cpu_seconds"] - again["cpu_seconds"]) / work,
        "second_peak_mib": second["peak_mib"],
    }
    return Case(f"{rows:,} events as JSON lines, {name}: in full, and a second run after the last 1 %", figures)


def _figures(spark: dict[str, Any], rows: int) -> dict[str, float]:
    return {
        "spark_cpu_seconds": spark["cpu_seconds"],
        "spark_cpu_seconds_per_million": spark["cpu_seconds"] / rows * 1e6,
        "spark_wall_seconds": spark["wall_seconds"],
        "spark_peak_mib": spark["peak_mib"],
    }


SHAPES: Final[tuple[tuple[str, Callable[[Path], int]], ...]] = (
    ("a thousand events: what it takes to start", lambda folder: write_trace(folder, 10, 1_000)),
    ("10 processes", lambda folder: write_trace(folder, 10, MILLION)),
    ("10,000 processes, in one file", lambda folder: write_joined(folder, 10_000, MILLION)),
    ("10,000 processes, in 10,000 files", lambda folder: write_trace(folder, 10_000, MILLION)),
    ("10,000 topics of 4 processes each", lambda folder: write_topics(folder, 10_000, MILLION)),
    ("one process has half of all events", lambda folder: write_hub(folder, 10, MILLION)),
    ("one process delivers half, and crashes", lambda folder: write_crash(folder, 10, MILLION)),
    ("JSON lines, 10 processes", lambda folder: write_lines(folder, 10, MILLION)),
)


LACKING: Final[tuple[tuple[str, Callable[[Path], int]], ...]] = (
    (
        "10,000 topics, in each one delivery is missing",
        lambda folder: without_one_each(write_topics, "topic")(folder, 10_000, MILLION),
    ),
    (
        "10,000 processes, each misses one delivery",
        lambda folder: without_one_each(write_joined, "process")(folder, 10_000, MILLION),
    ),
)


def _published(processes: int, events: int, square: int = SQUARE) -> Case:
    """The published checkers and the kernels, each in this process; seconds of CPU.

    The checkers are given the logs as lists that were made before. The kernels read the files. Algorithm 16 is run on
    up to `square` events.
    """
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as name:
        folder = Path(name)
        write_trace(folder, processes, events)
        logs = []
        began = time.process_time()
        for file in sorted(folder.glob("*.parquet")):
            table = pq.read_table(file, columns=["origin", "counter"])
            origins = [int(origin[1:]) for origin in table.column("origin").to_pylist()]
            logs.append(list(zip(origins, table.column("counter").to_pylist(), strict=True)))
        figures = {"reading_for_them_cpu_seconds": time.process_time() - began}
        for label, check in (("algorithm_16", algorithm_16), ("algorithm_14", algorithm_14)):
            if check is algorithm_16 and events > square:
                continue
            began = time.process_time()
            if not check(logs):
                raise SystemExit(f"{label} fails a correct run")
            figures[f"{label}_cpu_seconds"] = time.process_time() - began
        began = time.process_time()
        numpy_audit(folder)
        figures["kernels_cpu_seconds"] = time.process_time() - began
        figures["kernels_to_algorithm_14"] = figures["kernels_cpu_seconds"] / figures["algorithm_14_cpu_seconds"]
    return Case(f"{events:,} events, {processes} processes", figures)


def _cross(processes: int) -> Case:
    """Look for the number of events from which on the kernels are cheaper than algorithm 14, to within a quarter."""
    ratios: dict[int, float] = {}

    def dearer(events: int) -> bool:
        ratios[events] = _published(processes, events, square=0).figures["kernels_to_algorithm_14"]
        return ratios[events] > 1

    low, high = CROSSING
    if not dearer(low) or dearer(high):
        raise SystemExit(f"no crossing between {low:,} and {high:,} events: {ratios}")
    while high > 1.25 * low:
        middle = 1000 * round((low * high) ** 0.5 / 1000)
        low, high = (middle, high) if dearer(middle) else (low, middle)
    figures = {"algorithm_14_is_cheaper_at_events": low, "kernels_to_14_there": ratios[low]}
    return Case(
        f"{processes} processes", figures | {"kernels_are_cheaper_at_events": high, "to_14_there": ratios[high]}
    )


def _all_published() -> None:
    _published(*PUBLISHED[0])  # which imports what the others would be charged for
    write("audit_published", [_published(processes, events) for processes, events in PUBLISHED])


PARTS: Final[dict[str, Callable[[], None]]] = {
    "published": _all_published,
    "crossing": lambda: write("audit_crossing", [_cross(processes) for processes in (10, 50, 100)]),
    "shapes": lambda: write("audit_shapes", [_shape(*shape) for shape in SHAPES]),
    "lacking": lambda: write("audit_lacking", [_shape(*shape, verdict="fail") for shape in LACKING]),
    "again": lambda: write("audit_again", _both_again(AGAIN)),
}


if __name__ == "__main__":
    main()
