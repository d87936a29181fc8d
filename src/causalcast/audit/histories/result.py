"""What the check of a history finds, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["pass", "fail", "undecided"]
Judgement: TypeAlias = Literal["holds", "violated", "not judged"]


@dataclass(frozen=True, slots=True)
class HistoryFinding:
    """One violation: the guarantee, why, one sentence, and the operations that show it, each with file and line."""

    property: str
    kind: str
    session: str
    detail: str
    witness: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Input that no verdict can rest on: what it is, how often, and the first place."""

    kind: str
    number: int
    detail: str


@dataclass(frozen=True, slots=True)
class HistoryResult:
    """The verdict on a history.

    `pass`: every guarantee holds. `fail`: at least one is violated. `undecided`: none is, but values that are not
    unique, or operations that could not be read, may hide a violation.
    """

    source: str
    model: str
    verdict: Verdict
    guarantees: dict[str, Judgement]
    transactions: int
    sessions: int
    reads: int
    writes: int
    counts: dict[str, int]
    """Violations by property, shown or not."""
    findings: tuple[HistoryFinding, ...]
    unjudged: tuple[Unjudged, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What the verdict rests on, and what it does not cover."""
