"""From logs, clock and replays to the result: what was found, what was measured, and what the verdict rests on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from causalcast.audit.conclusions import NOTHING_CONCLUDED, PICTURES, Conclusions
from causalcast.audit.findings import Case, Collection
from causalcast.audit.findings_file import FindingsFile
from causalcast.audit.measures import summary
from causalcast.audit.notes import notes, summaries
from causalcast.audit.result import AuditResult, Finding
from causalcast.audit.timeline import summarise, transport
from causalcast.audit.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from causalcast.audit.clocks import Known
    from causalcast.audit.digests import LogIndex
    from causalcast.audit.ingest import BadRows
    from causalcast.audit.log_findings import LogFinding
    from causalcast.audit.measures import Measures
    from causalcast.audit.violations import Replay


@dataclass(frozen=True, slots=True)
class Judged:
    """A trace that was judged: its logs, what is known of its messages, its measures, and who needed a closer look.

    Of what is settled there are the measures alone, and what was found of it.
    """

    logs: dict[str, LogIndex]
    known: Known
    measures: Measures
    closely: list[Replay]
    concluded: Conclusions = NOTHING_CONCLUDED

    def collect(self, findings: Iterable[LogFinding] = (), path: Path | None = None) -> Collection:
        """Collect all findings, those of the logs themselves first, and write them to `path` when there is one."""
        if path is None:
            return self._collected(findings, None)
        with FindingsFile(path, self.concluded.rows) as file:
            return self._collected(findings, file)

    def _collected(self, findings: Iterable[LogFinding], file: FindingsFile | None) -> Collection:
        collection = Collection(self.known.clock, file)
        of_logs = collection.add_log_findings(findings)
        if file is not None:
            file.add_of_logs(of_logs)
        collection.add_concluded(self.concluded)
        for replay in self.closely:
            collection.add(replay, replay.names)
        return collection

    def result(
        self, collection: Collection, bad: BadRows, crashed: frozenset[str], sources: tuple[str, ...]
    ) -> AuditResult:
        """Return the result, with pictures."""
        logs, known, measures = self.logs, self.known, self.measures
        latency, grid = measures.latency, known.clock.grid
        said = notes(logs, known, crashed, bad, latency, measures.excused, measures.unproven)
        return AuditResult(
            verdict="fail" if collection.counts else "pass",
            events=sum(log.rows for log in logs.values()),
            processes=summaries(logs, known),
            messages=measures.messages,
            deliveries=sum(log.deliveries for log in logs.values()),
            quarantined=bad.count,
            counts=dict(sorted(collection.counts.items())),
            findings=tuple(_with_pictures(collection.sample(), Witness(known.clock, logs))),
            quarantine=bad.rows,
            latency=latency.milliseconds(),
            stability_delay=measures.stability_delay.milliseconds(),
            payload_bytes=summary(measures.payload),
            overhead_bytes=summary(measures.overhead),
            notes=tuple(said),
            sources=sources,
            roots=dict(sorted(collection.roots.items())),
            suspects=collection.suspects,
            timeline=summarise(measures.timeline, measures.broadcasts, grid, logs),
            transport=transport(measures.timeline, logs.values(), latency.count),
        )


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
        picture = case.picture if case.settled else witness.picture(case) if i in drawn else None
        yield replace(finding, picture=picture) if i in drawn else finding
