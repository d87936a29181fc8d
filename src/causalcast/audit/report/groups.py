"""Findings as the page shows them: kinds, in each its roots, in each root what it explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from causalcast.audit.report.words import MEANINGS

if TYPE_CHECKING:
    from causalcast.audit.result import AuditResult, Finding


@dataclass(frozen=True, slots=True)
class Shown:
    """A root with its number in the page, from 1, and those of the findings it explains that the page shows."""

    number: int
    finding: Finding
    derived: tuple[Finding, ...]

    @property
    def more(self) -> int:
        """How many findings it explains beside those."""
        return max(self.finding.explains - len(self.derived), 0)


@dataclass(frozen=True, slots=True)
class Group:
    """All roots of one kind: what the page shows of them and how many there are."""

    kind: str
    meaning: str
    total: int
    """Findings of this kind, roots or not."""
    root_count: int
    roots: tuple[Shown, ...]
    orphans: tuple[Finding, ...]
    """Findings whose root is not in the result's sample."""


def group_findings(result: AuditResult, most_roots: int, most_derived: int) -> list[Group]:
    """Put every finding of the sample under its root, and roots under their kinds; kinds with roots come first."""
    children: dict[tuple[str, ...], list[Finding]] = {}
    for finding in result.findings:
        if not finding.root:
            children.setdefault(_at_fault(finding), []).append(finding)
    kinds: dict[str, list[Finding]] = {kind: [] for kind in (*MEANINGS, *result.counts)}
    explained: dict[tuple[str, ...], list[Finding]] = {}
    for finding in result.findings:
        if finding.root:
            kinds.setdefault(finding.kind, []).append(finding)
            explained.setdefault(_at_fault(finding), children.pop(_at_fault(finding), []))
    orphans: dict[str, list[Finding]] = {}
    for finding in (finding for left in children.values() for finding in left):
        orphans.setdefault(finding.kind, []).append(finding)
        kinds.setdefault(finding.kind, [])
    groups, number = [], 0
    for kind in sorted(kinds, key=lambda kind: not kinds[kind]):
        roots, lost = kinds[kind], orphans.get(kind, [])
        total = max(result.counts.get(kind, 0), len(roots) + len(lost))
        if total == 0:
            continue
        shown = []
        for finding in roots[:most_roots]:
            number += 1
            derived = explained.pop(_at_fault(finding), [])
            shown.append(Shown(number, finding, tuple(derived[:most_derived])))
        meaning = next((text for known, text in MEANINGS.items() if known == kind), "")
        root_count = max(result.roots.get(kind, 0), len(roots))
        groups.append(Group(kind, meaning, total, root_count, tuple(shown), tuple(lost[:most_derived])))
    return groups


def _at_fault(finding: Finding) -> tuple[str, ...]:
    """Return what all findings of one root have in common."""
    about = "stability" if finding.kind in ("stable-order", "unstable") else "delivery"
    return about, finding.process or "", finding.culprit or finding.cause or finding.message or ""
