"""What a result says beside its findings on processes: what it rests on, what was set aside, who took part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.audit.log_findings import LogFinding
from causalcast.audit.result import ProcessSummary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from causalcast.audit.clocks import Known
    from causalcast.audit.digests import LogIndex
    from causalcast.audit.ingest import BadRows, Inputs
    from causalcast.audit.metrics import Histogram

MAX_NOTED: Final = 8


def bad_row_findings(bad: BadRows) -> Iterator[LogFinding]:
    """A row set aside may have held anything, so no audit that set rows aside passes."""
    files = sorted({file for file, _, _ in bad.per_file})
    for file in files:
        number = sum(count for name, _, count in bad.per_file if name == file)
        first = next((row for row in bad.rows if row.file == file), None)
        example = f"; the first: {place_of_row(file, first.line)}: {first.reason}" if first is not None else ""
        rows = "1 row" if number == 1 else f"{number} rows"
        yield LogFinding("absent-log", None, None, None, "", f"{rows} of {file} could not be used{example}")


def unfinished_findings(inputs: Inputs) -> Iterator[LogFinding]:
    """What a file will hold that is still being written is unknown too."""
    for file in inputs.unfinished:
        detail = f"{file} is not whole yet, by its name: what it holds was not judged"
        yield LogFinding("absent-log", None, None, None, "", detail)


def place_of_row(file: str, line: int | None) -> str:
    """Return `file:line`, or the file where a line has no number."""
    return file if line is None else f"{file}:{line}"


def summaries(logs: dict[str, LogIndex], known: Known) -> tuple[ProcessSummary, ...]:
    """Return a row of the report for each process, also for those without a log."""
    found = [
        ProcessSummary(
            process=process,
            events=log.rows,
            broadcasts=log.broadcasts,
            deliveries=log.deliveries,
            stables=log.stables,
            fate=known.clock.members[process].fate,
        )
        for process, log in logs.items()
    ]
    found.extend(ProcessSummary(process, 0, 0, 0, 0, "absent") for process in known.absent)
    return tuple(sorted(found, key=lambda summary: summary.process))


def notes(
    logs: dict[str, LogIndex],
    known: Known,
    crashed: frozenset[str],
    bad: BadRows,
    latency: Histogram,
    excused: int,
    unproven: int,
) -> Iterator[str]:
    """Say what the verdict rests on."""
    members = known.clock.members
    fates: dict[str, list[str]] = {}
    for process, member in members.items():
        fates.setdefault(member.fate, []).append(process)
    why = {
        "crashed": "their obligations end with their logs",
        "evicted": "their obligations end with their logs and with the eviction",
        "left": "they owe nothing after they left",
        "joined late": "they owe what was broadcast after their join, as far as the logs tell",
    }
    for fate, reason in why.items():
        if fate in fates:
            yield f"{fate}: {listed(fates[fate])}; {reason}."
    if known.absent:
        yield f"No log: {listed(known.absent)}; their messages are judged by what others say of them."
    if unknown := sorted(crashed - members.keys()):
        yield f"Named as crashed, but not in the trace: {listed(unknown)}."
    if holes := [process for process, member in members.items() if member.holes]:
        yield (
            f"Rows are missing from the logs of {listed(holes)}: what is absent there proves nothing, so "
            f"{unproven} messages that they do not show as delivered are not held against them."
        )
    if excused:
        yield f"{excused} deliveries did not take place and were not owed: those processes were not entitled to them."
    if bad.count:
        yield f"{bad.count} rows were set aside; what they held is unknown, so the verdict cannot be a pass."
    if repeated := sum(log.repeated for log in logs.values()):
        yield f"{repeated} rows stand in the traces more than once and were counted once."
    yield from _unjudged(logs, known)
    if latency.negative:
        yield f"{latency.negative} latencies are below zero: clocks disagree. Clocks never decide order here."


def _unjudged(logs: dict[str, LogIndex], known: Known) -> Iterator[str]:
    """Say which properties the trace says nothing about."""
    topics = known.clock.topics
    if not any(log.tags for log in logs.values()):
        yield "No broadcast carries a tag: exact tags (P4) were not judged."
    if not any(log.stables for log in logs.values()):
        yield "No process reports stability: P5 and P6 were not judged."
    elif not topics.stability_owed:
        yield "A crashed member was not evicted, so nothing need become stable: P6 was not judged."


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:MAX_NOTED])
    return shown if len(names) <= MAX_NOTED else f"{shown} and {len(names) - MAX_NOTED} more"
