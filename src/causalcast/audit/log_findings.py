"""What is wrong with the logs themselves, whatever the system did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.audit.digests import LogIndex
    from causalcast.audit.result import FindingKind


@dataclass(frozen=True, slots=True)
class LogFinding:
    """A finding about the logs themselves; `number` is the message's number when one is meant."""

    kind: FindingKind
    process: str | None
    origin: str | None
    number: int | None
    topic: str
    detail: str
    root: bool = True


def findings_in(log: LogIndex) -> Iterator[LogFinding]:
    """Yield what one log alone shows: missing rows, rows that contradict each other, numbers used twice."""
    if log.missing:
        shown = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in log.missing[:5])
        more = "" if len(log.missing) <= 5 else f" and {len(log.missing) - 5} more ranges"
        detail = f"rows {shown}{more} of its log are missing ({log.missing_rows} in all)"
        yield LogFinding("absent-log", log.process, None, None, "", detail)
    if log.conflicts:
        shown = ", ".join(str(seq) for seq in log.conflicts[:5])
        detail = f"two different rows claim to be number {shown}: two logs were written under one name"
        yield LogFinding("reused-identifier", log.process, None, None, "", detail)
    for topic, index in log.odd_topics():
        for number in index.reused.tolist():
            detail = "its sender broadcast two messages under this number"
            yield LogFinding("reused-identifier", log.process, log.process, number, topic, detail)
        foreign = zip(index.foreign_origin.tolist(), index.foreign_counter.tolist(), strict=True)
        for origin, number in foreign:
            name = log.names[origin]
            detail = f"{log.process} broadcast under the name of {name}"
            yield LogFinding("reused-identifier", log.process, name, number, topic, detail)
