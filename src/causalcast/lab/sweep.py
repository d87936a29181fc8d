"""A sweep on Spark: one task for each run, a file for each finished one, nothing done twice.

Runs leave their records, and traces where asked, in folders that driver and workers share. The name of a file is the
key of its run, so a sweep that was killed, or that another grid shares runs with, goes on with what is missing.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from causalcast.audit.session import spark_session
from causalcast.lab import records
from causalcast.lab.metrics import AUDIT
from causalcast.lab.task import Failure, execute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark import SparkContext

    from causalcast.lab.grid import Run

POLL_SECONDS: Final = 0.5


class Progress(NamedTuple):
    """How far a sweep is."""

    done: int
    of: int
    what: str


class Audited(msgspec.Struct, frozen=True):
    """What the audit says of the trace of one run."""

    key: str
    verdict: str
    findings: int
    counts: dict[str, int]


class Swept(NamedTuple):
    """What a sweep did."""

    ran: int
    skipped: int
    """Finished before."""
    failures: tuple[Failure, ...]
    audits: tuple[Audited, ...]


class Folders(NamedTuple):
    """Where the files of one experiment go."""

    runs: Path
    traces: Path
    audits: Path

    @classmethod
    def under(cls, out: Path, name: str) -> Folders:
        """Made where they are missing. Absolute, since workers have working folders of their own."""
        folders = cls(*(out.absolute() / name / part for part in cls._fields))
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        return folders


def sweep(
    tasks: Sequence[Run],
    folders: Folders,
    *,
    master: str | None = None,
    traces: bool = False,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Swept:
    """Bring every run to its end, and its trace before the audit if `traces`.

    Raises `audit.errors.EnvironmentUnusable`.
    """
    missing = [run for run in tasks if not _finished(run, folders, traces)]
    unaudited = [run for run in tasks if traces and run.spec is not None and not _audit_file(folders, run).exists()]
    failures: tuple[Failure, ...] = ()
    if missing or unaudited:
        progress(Progress(0, len(missing), "Starting Spark"))
        with spark_session(master) as session:
            if missing:
                failures = _run(session.sparkContext, missing, folders, traces, progress)
            failed = {failure.run.key for failure in failures}
            for place, run in enumerate(unaudited):
                if run.key not in failed:
                    progress(Progress(place, len(unaudited), "Auditing"))
                    _audit(run, folders, master)
    audits = tuple(_audited(folders, run) for run in tasks if traces and _audit_file(folders, run).exists())
    return Swept(len(missing) - len(failures), len(tasks) - len(missing), failures, audits)


def with_audits(found: Iterable[records.Record], audits: Iterable[Audited]) -> Iterator[records.Record]:
    """The records, with the number of findings among what was measured where the audit has seen the trace."""
    findings = {audited.key: float(audited.findings) for audited in audits}
    for record in found:
        more = {AUDIT.name: findings[record.key]} if record.key in findings else {}
        yield msgspec.structs.replace(record, measured=record.measured | more)


def _finished(run: Run, folders: Folders, traces: bool) -> bool:
    wants_trace = traces and run.spec is not None
    return records.path_of(folders.runs, run.key).exists() and (
        not wants_trace or records.path_of(folders.traces, run.key).exists()
    )


def _run(
    context: SparkContext,
    missing: Sequence[Run],
    folders: Folders,
    traces: bool,
    progress: Callable[[Progress], None],
) -> tuple[Failure, ...]:
    """The largest first, so that none of them is still running when all others are done."""
    ordered = sorted(missing, key=lambda run: run.spec.nodes if run.spec is not None else 0, reverse=True)
    where = (folders.runs, folders.traces if traces else None)
    group = f"lab-{ordered[0].key}"
    context.setJobGroup(group, "causalcast lab", interruptOnCancel=True)

    def done() -> int:
        return sum(records.path_of(folders.runs, run.key).exists() for run in ordered)

    before = done()
    with _told(lambda: progress(Progress(done() - before, len(ordered), "Running"))):
        found = context.parallelize(ordered, len(ordered)).map(lambda run: execute(run, *where)).collect()
    return tuple(failure for failure in found if failure is not None)


@contextlib.contextmanager
def _told(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` now and then, in a thread of its own, for as long as Spark keeps this one."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(POLL_SECONDS):
            tell()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _audit_file(folders: Folders, run: Run) -> Path:
    return folders.audits / f"{run.key}.json"


def _audited(folders: Folders, run: Run) -> Audited:
    return msgspec.json.decode(_audit_file(folders, run).read_bytes(), type=Audited)


def _audit(run: Run, folders: Folders, master: str | None) -> None:
    """Each run is a group of its own, with the same names as the others: each is judged by itself."""
    from causalcast.audit.pipeline import run_audit  # noqa: PLC0415 - most sweeps keep no traces

    result = run_audit([records.path_of(folders.traces, run.key)], master=master)
    said = Audited(run.key, result.verdict, sum(result.counts.values()), dict(result.counts))
    hidden = folders.audits / f".{run.key}.json"
    hidden.write_bytes(msgspec.json.encode(said))
    hidden.replace(_audit_file(folders, run))
