"""The audit from end to end: traces in, `AuditResult` out. The command line and the demo call `run_audit`."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit import files, state
from causalcast.audit.carried import add_carried, check_carried, find_carried
from causalcast.audit.clocks import Known, build_clock
from causalcast.audit.depot import Depot
from causalcast.audit.errors import FolderNotShared, InputUnusable
from causalcast.audit.findings import Case, Collection
from causalcast.audit.identity import ReplayKeys
from causalcast.audit.intake import Intake
from causalcast.audit.metrics import Histogram, sizes
from causalcast.audit.notes import bad_row_findings, notes, summaries, unfinished_findings
from causalcast.audit.outputs import FINDINGS, write_outputs
from causalcast.audit.result import AuditResult, Finding
from causalcast.audit.session import spark_session
from causalcast.audit.timeline import ProcessTimeline, summarise, transport
from causalcast.audit.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame

    from causalcast.audit.digests import LogIndex
    from causalcast.audit.replay import Replays
    from causalcast.audit.violations import Replay

STATE: Final = ".state"
"""The folder in the output folder that keeps what a later run need not do again."""
PICTURES: Final = 20
"""Roots that are drawn, spread over their kinds."""


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
            result = add_carried(result, check_carried(session, carried), named)
        assert result is not None
        if out is not None:
            write_outputs(result, out)
    return result


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
        from pyspark.errors import PythonException  # noqa: PLC0415

        from causalcast.audit import ingest  # noqa: PLC0415

        try:
            self.intake.read()
            digests = self.intake.digest()
            try:
                logs, bodies = self.intake.collect(digests)
                return self._judge_all(logs, bodies)
            finally:
                digests.unpersist()
        except PythonException as error:
            for kind in (InputUnusable, FolderNotShared):
                if said := files.raised(str(error), kind):
                    raise kind(said) from error
            raise  # a fault of ours, not of the traces
        except ingest.UNREADABLE as error:
            raise InputUnusable(f"the traces cannot be read: {ingest.first_line(error)}") from error

    def _judge_all(self, logs: dict[str, LogIndex], bodies: DataFrame | dict[str, state.Digested]) -> AuditResult:
        bad = self.intake.quarantine()
        if not logs:
            raise InputUnusable(self.intake.nothing_usable(bad))
        self.say(f"Ordering the messages of {len(logs)} processes")
        known = build_clock(list(logs.values()), self.crashed, self.intake.doubtful(bad, logs))
        self.say("Replaying every process")
        path = self.out / FINDINGS if self.out is not None else None
        clock = known.clock
        latency, delay, whole = Histogram(), Histogram(), ProcessTimeline()
        excused = unproven = 0
        with self._replays(logs, bodies, known) as replays, Collection(clock, path) as collection:
            collection.add_log_findings(bad_row_findings(bad))
            collection.add_log_findings(unfinished_findings(self.intake.inputs))
            collection.add_log_findings(self.intake.located(known.findings))
            closely: list[Replay] = []
            for some, places in replays:
                some.tally.add_to(latency, whole, np.array(places))
                excused += clock.messages * len(places) + int(some.excused[places].sum())
                closely += [some.found[place] for place in places if place in some.found]
            for replay in sorted(closely, key=lambda replay: replay.process):
                collection.add(replay, logs[replay.process].names)
                latency.merge(replay.latency)
                delay.merge(replay.stability_delay)
                whole.merge(replay.timeline)
                excused += replay.excused
                unproven += replay.unproven
        files.refuse_changed(self.intake.inputs.sizes)
        if self.intake.shared:
            self.kept.commit(last=True)
        self.say("Writing the findings")
        return AuditResult(
            verdict="fail" if collection.counts else "pass",
            events=sum(log.rows for log in logs.values()),
            processes=summaries(logs, known),
            messages=clock.messages,
            deliveries=sum(log.total(log.source.deliveries) for log in logs.values()),
            quarantined=bad.count,
            counts=dict(sorted(collection.counts.items())),
            findings=tuple(_with_pictures(collection.sample(), Witness(clock, logs))),
            quarantine=bad.rows,
            latency=latency.milliseconds(),
            stability_delay=delay.milliseconds(),
            payload_bytes=sizes(payload for _, payload, _ in clock.topics.measures()),
            overhead_bytes=sizes(overhead for _, _, overhead in clock.topics.measures()),
            notes=tuple(notes(logs, known, self.crashed, bad, latency, excused, unproven)),
            sources=self.intake.sources,
            roots=dict(sorted(collection.roots.items())),
            suspects=collection.suspects,
            timeline=summarise(whole, clock, logs),
            transport=transport(whole, logs.values(), latency.count),
        )

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


def _with_pictures(cases: list[Case], witness: Witness) -> Iterator[Finding]:
    drawn: set[int] = set()
    roots = [i for i, case in enumerate(cases) if case.root]
    per_kind: dict[str, int] = {}
    for i in roots:
        kind = cases[i].kind
        per_kind[kind] = per_kind.get(kind, 0) + 1
        if per_kind[kind] <= 5 and len(drawn) < PICTURES:
            drawn.add(i)
    drawn.update([i for i in roots if i not in drawn][: PICTURES - len(drawn)])
    for i, case in enumerate(cases):
        finding = case.finding()
        yield replace(finding, picture=witness.picture(case)) if i in drawn else finding
