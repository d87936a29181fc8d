"""From columns of violations to findings that a person reads: named, explained, roots first, a bounded sample."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from causalcast.audit import violations as reasons
from causalcast.audit.findings_file import AT_ONCE
from causalcast.audit.result import Finding
from causalcast.audit.violations import KINDS, PROPERTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from causalcast.audit.clocks import Clock
    from causalcast.audit.conclusions import Conclusions
    from causalcast.audit.findings_file import FindingRows, FindingsFile
    from causalcast.audit.log_findings import LogFinding
    from causalcast.audit.result import FindingKind, SpaceTime
    from causalcast.audit.violations import Replay, Violations

    Ints = np.ndarray[Any, np.dtype[np.int64]]

SAMPLE: Final = 200
"""Findings of one kind that a result holds."""
SUSPECTS: Final = 10
_STABILITY: Final = frozenset({"stable-order", "unstable"})


@dataclass(frozen=True, slots=True)
class Case:
    """One violation with the places a witness needs: rows of the topic's clock and of the process's log."""

    kind: FindingKind
    process: str | None
    topic: str
    message: str | None
    cause: str | None
    row: int
    cause_row: int
    at: int
    cause_at: int
    root: bool
    detail: str
    effect_row: int = -1
    effect_at: int = 0
    culprit: str | None = None
    explains: int = 0
    settled: bool = False
    """Whether its messages are settled: then the clock does not have them any more, and its `picture` was drawn
    before, if it may be wanted."""
    picture: SpaceTime | None = None

    @property
    def order(self) -> tuple[Any, ...]:
        """Roots first, then by kind, then where it happened."""
        place = (self.process or "", self.at, self.message or "", self.cause or "")
        return (not self.root, KINDS.index(self.kind), *place)

    def finding(self) -> Finding:
        """Return the finding, without its picture."""
        return Finding(
            property=PROPERTY[self.kind],
            kind=self.kind,
            process=self.process,
            message=self.message,
            cause=self.cause,
            detail=self.detail,
            root=self.root,
            culprit=self.culprit,
            explains=self.explains,
        )


class Collection:
    """Counts all violations, keeps a sample of each kind, and hands every one to a file when there is one."""

    def __init__(self, clock: Clock, file: FindingsFile | FindingRows | None = None) -> None:
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.roots: Counter[str] = Counter()
        self.suspected: Counter[str] = Counter()
        """How many roots each process has."""
        self._sample: dict[FindingKind, list[Case]] = {kind: [] for kind in KINDS}
        self._bars: dict[FindingKind, tuple[bool, str]] = {}
        """Where the sample of a kind is full: whether the last of it is no root, and of which process it is."""
        self._file = file

    def add_log_findings(self, findings: Iterable[LogFinding]) -> list[Case]:
        """Add what the logs themselves brought to light; return it."""
        cases = [
            Case(
                kind=f.kind,
                process=f.process,
                topic=f.topic,
                message=None if f.origin is None or f.number is None else f"{f.origin}:{f.number}",
                cause=None,
                row=-1,
                cause_row=-1,
                at=0,
                cause_at=0,
                root=f.root,
                detail=f.detail,
            )
            for f in findings
        ]
        self._keep(cases)
        self.counts.update(case.kind for case in cases)
        self.roots.update(case.kind for case in cases if case.root)
        self.suspected.update(case.process for case in cases if case.root and case.process is not None)
        return cases

    def add_concluded(self, concluded: Conclusions) -> None:
        """Add what was found of messages that are settled; it is in the file already."""
        self._keep(concluded.sample)
        self.counts += concluded.counts
        self.roots += concluded.roots
        self.suspected += concluded.suspected

    def add(self, replay: Replay, names: Sequence[str]) -> None:
        """Add one process's violations; `names` are those that the process's log had when it was replayed."""
        for violations in replay.violations:
            kind = KINDS[violations.kind]
            self.counts[kind] += len(violations)
            if roots := int(violations.root.sum()):
                self.roots[kind] += roots
                self.suspected[replay.process] += roots
        shown = any(self._may_be_shown(replay.process, part) for part in replay.violations)
        if self._file is None and not shown:
            return
        naming = _Naming(replay, names, _first_effects(replay), _culprits(replay))
        if shown:
            explains = _explaining(replay, naming.culprits)
            for k, part in enumerate(replay.violations):
                some = np.lexsort((part.at, ~part.root))[:SAMPLE]
                cases = self._cases(naming, k, some)
                self._keep(_with_explained(case, explains[k].get(i, 0)) for case, i in zip(cases, some, strict=True))
        if self._file is not None:
            for cases in self._in_order(naming):
                self._file.add(cases)

    def _may_be_shown(self, process: str, violations: Violations) -> bool:
        """Return whether any of one process's violations can come before what a full sample has."""
        bar = self._bars.get(KINDS[violations.kind])
        return bar is None or (not bool(violations.root.any()), process) <= bar

    def sample(self) -> list[Case]:
        """Return the kept violations in the order in which a person should meet them."""
        for kept in self._sample.values():
            self._trim(kept)
        return sorted((case for cases in self._sample.values() for case in cases), key=lambda case: case.order)

    @property
    def suspects(self) -> tuple[tuple[str, int], ...]:
        """The processes with the most roots."""
        return tuple(sorted(self.suspected.items(), key=lambda item: (-item[1], item[0]))[:SUSPECTS])

    def _in_order(self, naming: _Naming) -> Iterator[list[Case]]:
        """Yield all violations of a process by topic, kind and row, some at once."""
        groups: dict[tuple[str, int], list[int]] = {}
        for k, part in enumerate(naming.replay.violations):
            groups.setdefault((part.topic, part.kind), []).append(k)
        for _, group in sorted(groups.items()):
            parts = [naming.replay.violations[k] for k in group]
            at = np.concatenate([part.at for part in parts])
            of = np.repeat(np.array(group, dtype=np.int64), [len(part) for part in parts])
            place = np.concatenate([np.arange(len(part)) for part in parts])
            order = np.argsort(at, kind="stable")
            for start in range(0, order.size, AT_ONCE):
                chosen = order[start : start + AT_ONCE]
                found = {k: iter(self._cases(naming, k, place[chosen[of[chosen] == k]])) for k in group}
                yield [next(found[k]) for k in of[chosen].tolist()]

    def _keep(self, cases: Iterable[Case]) -> None:
        for case in cases:
            kept = self._sample[case.kind]
            kept.append(case)
            if len(kept) > 4 * SAMPLE:
                self._trim(kept)
                self._bars[case.kind] = not kept[-1].root, kept[-1].process or ""

    def _trim(self, kept: list[Case]) -> None:
        kept.sort(key=lambda case: case.order)
        del kept[SAMPLE:]

    def _cases(self, naming: _Naming, number: int, chosen: Ints) -> list[Case]:
        violations, names, culprits = naming.replay.violations[number], naming.names, naming.culprits[number]
        process, effects = naming.replay.process, naming.effects
        topic = self.clock.topics[violations.topic]
        kind = KINDS[violations.kind]
        cases = []
        for i in chosen.tolist():
            row, cause = int(violations.message[i]), int(violations.cause[i])
            dot = None
            if violations.origin is not None and violations.counter is not None:
                dot = f"{names[int(violations.origin[i])]}:{int(violations.counter[i])}"
            message = topic.name(row) if row >= 0 else dot
            cause_name = topic.name(cause) if cause >= 0 else dot if row >= 0 else None
            effect = effects.get((violations.topic, row), (-1, 0)) if kind == "undelivered" else (-1, 0)
            at, cause_at = int(violations.at[i]), int(violations.cause_at[i])
            cases.append(
                Case(
                    kind=kind,
                    process=process,
                    topic=violations.topic,
                    message=message,
                    cause=cause_name,
                    row=row,
                    cause_row=cause,
                    at=at,
                    cause_at=cause_at,
                    root=bool(violations.root[i]),
                    detail=_detail(kind, violations.reason, process, message, cause_name, at, cause_at),
                    effect_row=effect[0],
                    effect_at=effect[1],
                    culprit=topic.name(int(culprits[i])) if culprits[i] >= 0 else dot,
                )
            )
        return cases


@dataclass(frozen=True, slots=True)
class _Naming:
    """What tells of one process's violations what they are called."""

    replay: Replay
    names: Sequence[str]
    effects: dict[tuple[str, int], tuple[int, int]]
    culprits: list[Ints]


def _first_effects(replay: Replay) -> dict[tuple[str, int], tuple[int, int]]:
    """Return, per topic and missing message, the first message delivered in spite of it and where."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for violations in replay.violations:
        if KINDS[violations.kind] != "missing-cause":
            continue
        for i in np.argsort(violations.at, kind="stable").tolist():
            key = (violations.topic, int(violations.cause[i]))
            found.setdefault(key, (int(violations.message[i]), int(violations.at[i])))
    return found


def _culprits(replay: Replay) -> list[Ints]:
    """Return, for the violations of each part, the row of the message at fault, -1 where the clock has none."""
    absent: dict[tuple[str, bool], tuple[Ints, Ints]] = {}
    for part in replay.violations:
        if part.because is not None:
            absent[part.topic, KINDS[part.kind] in _STABILITY] = (
                part.message,
                _first_reasons(part.message, part.because),
            )
    found = []
    for part in replay.violations:
        culprit = part.message
        if KINDS[part.kind] != "tag-mismatch":
            culprit = np.where(part.cause >= 0, part.cause, part.message)
        rows, first = absent.get((part.topic, KINDS[part.kind] in _STABILITY), (culprit[:0], culprit[:0]))
        if rows.size:
            at = np.minimum(np.searchsorted(rows, culprit), rows.size - 1)
            culprit = np.where(rows[at] == culprit, first[at], culprit)
        found.append(culprit)
    return found


def _first_reasons(rows: Ints, because: Ints) -> Ints:
    """Follow each row's reason to the one that has none; halving the way with each step."""
    to = np.where(because >= 0, np.searchsorted(rows, because), np.arange(rows.size))
    while True:
        further = to[to]
        if np.array_equal(further, to):
            return rows[to]
        to = further


def _explaining(replay: Replay, culprits: list[Ints]) -> list[dict[int, int]]:
    """Return, for each part, which roots explain how many derived violations, those with the same culprit.

    Where several roots share a culprit, the first has all.
    """
    derived: Counter[tuple[str, bool, int]] = Counter()
    for part, culprit in zip(replay.violations, culprits, strict=True):
        rows, numbers = np.unique(culprit[~part.root], return_counts=True)
        stability = KINDS[part.kind] in _STABILITY
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            derived[part.topic, stability, row] += number
    found: list[dict[int, int]] = []
    for part, culprit in zip(replay.violations, culprits, strict=True):
        roots = np.flatnonzero(part.root & (culprit >= 0)) if derived else culprit[:0]
        roots = roots[np.argsort(part.at[roots], kind="stable")]
        causes, first = np.unique(culprit[roots], return_index=True)
        stability = KINDS[part.kind] in _STABILITY
        explained = [derived.pop((part.topic, stability, row), 0) for row in causes.tolist()]
        found.append(dict(zip(roots[first].tolist(), explained, strict=True)))
    return found


def _with_explained(case: Case, number: int) -> Case:
    return replace(case, explains=number) if number else case


def _detail(
    kind: FindingKind, reason: int, process: str, message: str | None, cause: str | None, at: int, cause_at: int
) -> str:
    """Say in one sentence what happened and where it stands in the log."""
    where = f"(row {at} of its log)"
    if kind in ("causal-order", "fifo-order"):
        why = "sent before it by the same process" if kind == "fifo-order" else "which happened before it"
        return f"{process} delivered {message} {where} before {cause} (row {cause_at}), {why}"
    if kind == "missing-cause":
        return f"{process} delivered {message} {where} and never {cause}, which happened before it"
    if kind == "undelivered":
        return f"{process} was entitled to {message} and never delivered it"
    if kind == "duplicate":
        earlier = f" after row {cause_at}" if cause_at else ""
        return f"{process} delivered {message} again {where}{earlier}"
    if kind == "not-broadcast":
        if reason == reasons.EARLY_DELIVERY:
            return f"{process} delivered its own {message} {where} before it broadcast it (row {cause_at})"
        return f"{process} delivered {message} {where}, which its sender's log never broadcast"
    if kind == "altered":
        return f"{process} delivered {message} {where} with another size than it was broadcast with"
    if kind == "unstable":
        return f"{process} delivered {message} {where} and never reported it stable"
    if kind == "tag-mismatch":
        return _tag_detail(reason, message, cause)
    return _stability_detail(reason, process, message, cause, at, cause_at)


def _tag_detail(reason: int, message: str | None, cause: str | None) -> str:
    if reason == reasons.TAG_UNDER:
        return f"the tag of {message} leaves out {cause}, which happened before it"
    if reason == reasons.TAG_UNKNOWN:
        return f"the tag of {message} names {cause}, which no log knows"
    return f"the tag of {message} names {cause}, which did not happen before it"


def _stability_detail(reason: int, process: str, message: str | None, cause: str | None, at: int, cause_at: int) -> str:
    where = f"(row {at} of its log)"
    if reason == reasons.TWICE_STABLE:
        return f"{process} reported {message} stable again {where} after row {cause_at}"
    if reason == reasons.STABLE_UNDELIVERED:
        return f"{process} reported {message} stable {where} and never delivered it"
    if reason == reasons.STABLE_BEFORE_DELIVERY:
        return f"{process} reported {message} stable {where} before it delivered it (row {cause_at})"
    if reason == reasons.STABLE_OUT_OF_ORDER:
        return f"{process} reported {message} stable {where} before {cause} (row {cause_at}), which happened before it"
    if reason == reasons.STABLE_SKIPPED:
        return f"{process} reported {message} stable {where} and never {cause}, which happened before it"
    if cause is None:
        return f"{process} reported {message} stable {where} and delivered a concurrent message later"
    return (
        f"{process} reported {message} stable {where} and delivered {cause} later (row {cause_at}), concurrent with it"
    )
