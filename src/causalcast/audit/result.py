"""What an audit finds, as plain values: the pipeline makes them, the JSON object and the report show them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

FindingKind: TypeAlias = Literal[
    "duplicate",
    "not-broadcast",
    "altered",
    "undelivered",
    "causal-order",
    "fifo-order",
    "missing-cause",
    "unstable",
    "stable-order",
    "tag-mismatch",
    "reused-identifier",
    "absent-log",
    "clock-malformed",
    "clock-gap",
    "clock-order",
    "unlogged-send",
]

Role: TypeAlias = Literal["message", "cause", "path", "context"]
"""Why an event is in a picture: it is of the offending message, of its cause, on the path between, or beside."""


@dataclass(frozen=True, slots=True)
class PictureEvent:
    """One event in a space-time picture; `column` orders events from left to right, consistently with causality.

    The event `never` stands behind a process's log and says that the message was not delivered in it.
    """

    process: str
    seq: int
    column: int
    event: str
    message: str
    role: Role


@dataclass(frozen=True, slots=True)
class SpaceTime:
    """A small excerpt of the traces: processes as lines, their events, and arrows as pairs of `events` indices."""

    processes: tuple[str, ...]
    events: tuple[PictureEvent, ...]
    arrows: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation. `message` and `cause` are written `origin:counter`; `root` says no other finding explains it."""

    property: str
    kind: FindingKind
    process: str | None
    message: str | None
    cause: str | None
    detail: str
    root: bool = True
    picture: SpaceTime | None = None
    culprit: str | None = None
    """The message at fault: late, missing, delivered twice. Findings of one process and culprit have one root."""
    explains: int = 0
    """Findings, shown or not, that this root explains."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A row that could not be read or breaks the schema: where it stands and why it was set aside."""

    file: str
    line: int | None
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """Count, mean and quantiles of a measured quantity; `unit` is `ms` or `B`. Empty when nothing was measured."""

    unit: str
    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Measures by time: one value a slice of `width_ns` nanoseconds from `start_ns` on, `None` where there is none.

    `columns` has only what the trace tells: `messages`, `payload_bytes` and `overhead_bytes` (means) by the time of
    the broadcast; `deliveries`; `latency_p50_ms`, `latency_p99_ms` by the time of the broadcast; `under_way`
    (broadcast and not yet delivered, over all processes) at the end of the slice; `stability_p50_ms`,
    `stability_p99_ms`, `not_yet_stable` from delivery to report at the same process; `redundancy`, `buffered`,
    `buffer_p99_ms` of receptions; `members`.
    """

    start_ns: int
    width_ns: int
    columns: dict[str, tuple[float | None, ...]]
    strangers: tuple[str, ...] = ()
    """Processes whose clocks lie outside."""


@dataclass(frozen=True, slots=True)
class Transport:
    """What the logs say of single links; `redundancy` is receptions per first reception, less one."""

    sends: int
    receives: int
    redundant: int
    redundancy: float | None
    wait: Distribution
    """From the first reception of a message to its delivery, at one process."""


@dataclass(frozen=True, slots=True)
class ProcessSummary:
    """One process's row in the report."""

    process: str
    events: int
    broadcasts: int
    deliveries: int
    stables: int
    fate: str
    """`member`, or what the trace and the command line say: `crashed`, `left`, `evicted`, `absent`, `joined late`."""


@dataclass(frozen=True, slots=True)
class AuditResult:
    """All that an audit knows when it is done."""

    verdict: Literal["pass", "fail"]
    events: int
    processes: tuple[ProcessSummary, ...]
    messages: int
    deliveries: int
    quarantined: int
    counts: dict[str, int]
    """Finding kind to number, over all findings, shown or not."""
    findings: tuple[Finding, ...]
    """Roots first; at most a bounded sample of each kind, all of them are in the output folder's Parquet."""
    quarantine: tuple[Quarantined, ...] = ()
    latency: Distribution = field(default_factory=lambda: Distribution("ms"))
    stability_delay: Distribution = field(default_factory=lambda: Distribution("ms"))
    payload_bytes: Distribution = field(default_factory=lambda: Distribution("B"))
    overhead_bytes: Distribution = field(default_factory=lambda: Distribution("B"))
    notes: tuple[str, ...] = ()
    """What the verdict rests on: who was excused and why, which properties the trace says nothing about."""
    sources: tuple[str, ...] = ()
    roots: dict[str, int] = field(default_factory=dict)
    """Finding kind to number of roots."""
    suspects: tuple[tuple[str, int], ...] = ()
    """The processes with the most roots, and how many."""
    timeline: Timeline | None = None
    """`None` where the trace carries no times."""
    transport: Transport | None = None
    """`None` where the trace has no sends and receptions."""
