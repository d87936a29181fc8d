"""The audit from end to end: traces in, `AuditResult` out. The command line and the demo call `run_audit`."""

from __future__ import annotations

import contextlib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from causalcast.audit import files, state
from causalcast.audit.carried import add_carried, check_carried, find_carried
from causalcast.audit.clocks import Known, build_clock
from causalcast.audit.continued import Continuation, settle
from causalcast.audit.depot import Depot
from causalcast.audit.errors import AuditError, BoxDamaged, FolderNotShared, InputUnusable
from causalcast.audit.identity import ReplayKeys
from causalcast.audit.intake import Intake
from causalcast.audit.judgement import Judged
from causalcast.audit.measures import measured
from causalcast.audit.notes import bad_row_findings, unfinished_findings
from causalcast.audit.outputs import FINDINGS, write_outputs
from causalcast.audit.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from causalcast.audit.digests import LogIndex
    from causalcast.audit.replay import Replays
    from causalcast.audit.result import AuditResult

STATE: Final = ".state"
"""The folder in the output folder that keeps what a later run need not do again."""


def run_audit(
    sources: Sequence[str | Path],
    *,
    out: Path | None = None,
    master: str | None = None,
    crashed: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> AuditResult:
    """Audit the traces in `sources`.

    Args:
        sources: trace files and folders.
        out: a folder for `audit.json` and the Parquet files with all findings, quarantined rows and processes, and for
            what a later run with the same folder need not do again; it is not searched for traces.
        master: a Spark master URL; `None` is local mode.
        crashed: processes whose obligations end with their logs.
        progress: called with a short sentence at the start of each stage.

    Raises:
        InputUnusable: there is nothing to judge.
        EnvironmentUnusable: Spark cannot run here.
    """
    # PySpark is imported where it is needed: the command line must start without it.
    from causalcast.audit import ingest  # noqa: PLC0415

    say = progress or (lambda _: None)
    carried = find_carried(sources)
    inputs = ingest.find_inputs(carried.traces, without=out) if carried.traces or not carried else None
    named = tuple(str(source) for source in sources)
    with contextlib.ExitStack() as stack:
        if out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="causalcast-audit-")))
        else:
            out.mkdir(parents=True, exist_ok=True)
            folder = out / STATE
        kept = stack.enter_context(state.State(folder.resolve()))
        if out is not None and inputs is not None and not carried:
            again = Continuation(Depot(str(kept.folder)), kept, inputs, frozenset(crashed), say)
            result = again.run(named, out)
            if result is not None:
                write_outputs(result, out)
                return result
        say("Starting Spark")
        session = stack.enter_context(spark_session(master))
        local = (session.sparkContext.master or "").startswith("local")
        result = None
        if inputs is not None:

            def run(depot: Depot) -> AuditResult:
                intake = Intake(session, depot, kept, inputs, named, say)
                return _Audit(intake, frozenset(crashed), out).run()

            # The executors of a cluster may see the output folder or not: that shows when they use it.
            try:
                result = run(Depot(str(kept.folder) if local or out is not None else None))
            except FolderNotShared as error:
                say(f"Reading everything through Spark, since executors do not share {error}")
                result = run(Depot(None))
        if carried:
            say("Checking the clocks that the traces carry")
            with _named_errors(None):
                found = check_carried(session, carried)
            result = add_carried(result, found, named)
        assert result is not None
        if out is not None:
            write_outputs(result, out)
    return result


@contextlib.contextmanager
def _named_errors(folder: str | None) -> Iterator[None]:
    """Say what Spark's errors say while it runs: they are mute once it has ended."""
    from pyspark.errors import PythonException  # noqa: PLC0415

    from causalcast.audit import ingest  # noqa: PLC0415

    try:
        yield
    except PythonException as error:
        text = str(error)
        for kind in (InputUnusable, FolderNotShared, BoxDamaged):
            if said := files.raised(text, kind):
                raise kind(said) from error
        said = files.said(text)
        if found := re.match(r"OSError: \[Errno \d+\] (.*)", said):
            raise AuditError(f"{folder}: {found[1]}") from error
        raise RuntimeError(said) from error
    except ingest.UNREADABLE as error:
        raise InputUnusable(f"the traces cannot be read: {ingest.first_line(error)}") from error


class _Audit:
    """One run: its stages in order."""

    def __init__(self, intake: Intake, crashed: frozenset[str], out: Path | None) -> None:
        self.intake = intake
        self.depot = intake.depot
        self.kept = intake.kept
        self.crashed = crashed
        self.out = out
        self.say = intake.say

    def run(self) -> AuditResult:
        with _named_errors(self.depot.folder):
            self.intake.read()
            digests = self.intake.digest()
            try:
                logs, bodies = self.intake.collect(digests)
                return self._judge_all(logs, bodies)
            finally:
                digests.unpersist()

    def _judge_all(self, logs: dict[str, LogIndex], bodies: DataFrame | dict[str, state.Digested]) -> AuditResult:
        bad = self.intake.quarantine()
        if not logs:
            raise InputUnusable(self.intake.nothing_usable(bad))
        self.say(f"Ordering the messages of {len(logs)} processes")
        known = build_clock(list(logs.values()), self.crashed, self.intake.doubtful(bad, logs))
        self.say("Replaying every process")
        with self._replays(logs, bodies, known) as replays:
            judged = Judged(logs, known, *measured(known.clock, replays))
        found = (
            *bad_row_findings(bad),
            *unfinished_findings(self.intake.inputs),
            *self.intake.located(known.findings),
        )
        collection = judged.collect(found, self.out / FINDINGS if self.out is not None else None)
        files.refuse_changed(self.intake.inputs.sizes)
        if self.intake.shared:
            self.kept.manifest.settled = ""
            if self.out is not None and isinstance(bodies, dict):
                pieces, others = self.kept.plan(self.intake.inputs)
                if not others:
                    self.kept.manifest.settled = settle(self.depot, pieces, judged, bodies, self.crashed)
            self.kept.commit(last=True)
        self.say("Writing the findings")
        return judged.result(collection, bad, self.crashed, self.intake.sources)

    @contextlib.contextmanager
    def _replays(
        self, logs: dict[str, LogIndex], bodies: DataFrame | dict[str, state.Digested], known: Known
    ) -> Iterator[Iterable[tuple[Replays, list[int]]]]:
        """Yield the replays of all processes: some, and which of them count. Those of nothing new are taken over."""
        from pyspark import StorageLevel  # noqa: PLC0415
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        from causalcast.audit import stages  # noqa: PLC0415

        stage = stages.replay_batches(self.depot, self.depot.put(known.clock))
        if not isinstance(bodies, dict):
            places = F.lit(None).cast("array<long>").alias("places")
            frame = bodies.where("body is not null").select("body", places).mapInArrow(stage, stages.REPLAY_SCHEMA)
            frame = frame.persist(StorageLevel.DISK_ONLY)
            try:
                frame.count()
                yield ((self.depot.get(bytes(row["result"])), row["places"]) for row in frame.toLocalIterator())
            finally:
                frame.unpersist()
            return
        now = self._taken_over(logs, bodies, known)
        wanted: dict[str, list[int]] = {}
        for process, replayed in now.items():
            if not replayed.result:
                wanted.setdefault(bodies[process].body, []).append(bodies[process].place)
        if wanted:
            rows = [(token.encode(), places) for token, places in wanted.items()]
            frame = self.intake.frame(rows, stages.BODIES, tasks=4).mapInArrow(stage, stages.REPLAY_SCHEMA)
            for row in frame.collect():
                for process, place in zip(row["processes"], row["places"], strict=True):
                    now[process].result = bytes(row["result"]).decode()
                    now[process].place, now[process].share = place, 1 / len(row["processes"])
        self.kept.manifest.replays = now
        of: dict[str, list[int]] = {}
        for replayed in now.values():
            of.setdefault(replayed.result, []).append(replayed.place)
        yield ((self.depot.get(token.encode()), places) for token, places in of.items())

    def _taken_over(
        self, logs: dict[str, LogIndex], bodies: dict[str, state.Digested], known: Known
    ) -> dict[str, state.Replayed]:
        """Return the replays of an earlier run, and empty ones where there is none that rests on the same."""
        if self.out is None:
            return {process: state.Replayed("") for process in bodies}
        keys, before = ReplayKeys(known.clock), self.kept.manifest.replays
        found = {}
        for process, digested in bodies.items():
            key = keys.key(digested.key, logs[process])
            earlier = before.get(process)
            found[process] = earlier if earlier is not None and earlier.key == key else state.Replayed(key)
        return found
