"""`causalcast watch` while processes write: how late findings are shown, rows a second, and the state that is kept.

    python -m benchmarks.bench_watch [--seconds SECONDS]

Processes of their own write a correct exchange at an even rate, but for a delivery that each repeats now and then; the
line that repeats it is noted with the time. `watch` is a process of its own too, and the time at which it prints a
finding is when its line arrives here. Its state is looked at once a second. Then the same exchange is there as a whole
before it is started: how fast that is read is the most that it can follow.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.report import Case, write
from causalcast.trace import JsonLinesWriter, TraceEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.audit.live import Progress

WRITERS: Final = 3
ROWS_PER_SECOND: Final = 500
"""Of all writers."""
BETWEEN_FAULTS: Final = 2.0
"""Seconds, in each process."""
BACKLOG: Final = 100_000
"""Rows that are there before watch starts."""
_TURN: Final = 0.01
_PATIENCE: Final = 240.0
_WATCH: Final = "from causalcast.cli.app import main; main()"
_FOUND: Final = re.compile(r"P1 duplicate: (w\d+) delivered (w\d+:\d+) again")


def write_rounds(folder: Path, place: int, rounds: int, per_second: float | None) -> dict[tuple[str, str], float]:
    """Write one process's log: in each round it broadcasts and then delivers what the others broadcast in it.

    Returns when which delivery was repeated.
    """
    names = [f"w{i}" for i in range(WRITERS)]
    repeated: dict[tuple[str, str], float] = {}
    began = time.time()
    fault = began + BETWEEN_FAULTS * (1 + place / WRITERS)
    with JsonLinesWriter(folder / f"{names[place]}.jsonl") as trace:
        seq = 0
        for number in range(1, rounds + 1):
            for origin in names[place:] + names[:place]:
                seq += 1
                kind = "broadcast" if origin == names[place] else "deliver"
                trace.write(TraceEvent(names[place], seq, kind, origin, number, time_ns=time.time_ns()))
            if per_second is None:
                continue
            if time.time() >= fault:
                fault += BETWEEN_FAULTS
                seq += 1
                trace.write(TraceEvent(names[place], seq, "deliver", origin, number, time_ns=time.time_ns()))
                trace.flush()
                repeated[names[place], f"{origin}:{number}"] = time.time()
            due = began + seq / per_second
            if due > time.time() + _TURN:
                trace.flush()
                time.sleep(due - time.time())
    return repeated


@dataclass
class Watched:
    """What was seen of one run of watch."""

    shown: dict[tuple[str, str], float] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """All other lines that it printed."""
    samples: list[tuple[float, Progress, int]] = field(default_factory=list)
    """When, what had been judged by then, and the bytes of the state."""

    def look(self, state: Path) -> int:
        """Sample the state; return how many rows have been judged."""
        try:
            data = (state / "window.pickle").read_bytes()
        except FileNotFoundError:
            return 0
        progress: Progress = pickle.loads(data)
        self.samples.append((time.time(), progress, len(data)))
        return progress.events


@contextmanager
def watching(folder: Path, state: Path) -> Iterator[Watched]:
    """Run watch on a folder; it is ended by Ctrl-C and must then say what it found."""
    command = [sys.executable, "-c", _WATCH, "watch", str(folder), "--state", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watched = Watched()

    def read() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            if found := _FOUND.search(line):
                watched.shown.setdefault((found[1], found[2]), time.time())
            else:
                watched.said.append(line)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield watched
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    reader.join()
    expected = 1 if watched.shown else 0
    if process.returncode != expected:
        raise SystemExit(
            f"watch ended with {process.returncode} and not with {expected}:\n{''.join(watched.said[-20:])}"
        )


def follow(watched: Watched, state: Path, rows: int) -> None:
    """Sample the state until all rows are judged."""
    deadline = time.time() + _PATIENCE
    while watched.look(state) < rows:
        if time.time() > deadline:
            raise SystemExit(f"watch has not judged {rows:,} rows after {_PATIENCE} seconds")
        time.sleep(1)


def paced(seconds: float) -> Case:
    """Follow writers."""
    rounds = int(seconds * ROWS_PER_SECOND / WRITERS**2)
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as name:
        folder, state = Path(name) / "trace", Path(name) / "state"
        folder.mkdir()
        with watching(folder, state) as watched, multiprocessing.get_context("spawn").Pool(WRITERS) as pool:
            # The first line that is judged shows that watch has started; the others come after that.
            arguments = [(folder, place, rounds, ROWS_PER_SECOND / WRITERS) for place in range(WRITERS)]
            (folder / "early.jsonl").write_text('{"process":"early","seq":1,"event":"leave"}\n')
            follow(watched, state, 1)
            running = pool.starmap_async(write_rounds, arguments)
            while not running.ready():
                watched.look(state)
                time.sleep(1)
            repeated = {key: at for part in running.get() for key, at in part.items()}
            follow(watched, state, 1 + rounds * WRITERS**2 + len(repeated))
    if watched.shown.keys() != repeated.keys():
        raise SystemExit(f"shown is not what was repeated: {watched.shown.keys() ^ repeated.keys()}")
    delays = [watched.shown[key] - at for key, at in repeated.items()]
    judged = [sample for sample in watched.samples if sample[1].events > WRITERS**2]
    part = max(len(judged) // 4, 1)
    figures = {
        "rows": float(judged[-1][1].events),
        "findings": float(len(delays)),
        "delay_median_seconds": float(np.median(delays)),
        "delay_longest_seconds": max(delays),
        "step_median_seconds": float(np.median([progress.seconds for _, progress, _ in judged])),
    }
    for label, some in (("second", judged[part : 2 * part]), ("last", judged[-part:])):
        figures[f"rows_held_{label}_quarter"] = float(np.median([progress.window.rows for _, progress, _ in some]))
        figures[f"state_kib_{label}_quarter"] = float(np.median([size for _, _, size in some])) / 1024
    return Case(f"{WRITERS} processes write {ROWS_PER_SECOND:,} rows a second for {seconds:.0f} s", figures)


def backlog() -> Case:
    """Read what is there already."""
    rounds = BACKLOG // WRITERS**2
    with tempfile.TemporaryDirectory(prefix="causalcast-bench-") as name:
        folder, state = Path(name) / "trace", Path(name) / "state"
        folder.mkdir()
        for place in range(WRITERS):
            write_rounds(folder, place, rounds, None)
        with watching(folder, state) as watched:
            follow(watched, state, rounds * WRITERS**2)
    progress = watched.samples[-1][1]
    return Case(
        f"{progress.events:,} rows that are there already",
        {"rows": float(progress.events), "rows_per_second": progress.events / progress.seconds},
    )


def main() -> None:
    """Measure, print, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the processes write")
    arguments = parser.parse_args()
    write("watch", [paced(arguments.seconds)])
    write("watch_backlog", [backlog()])


if __name__ == "__main__":
    main()
