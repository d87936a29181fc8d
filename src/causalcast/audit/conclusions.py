"""What was found of settled messages alone (see `settled`): no later row changes it, so it is kept as it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from causalcast.audit.findings import SAMPLE, Collection
from causalcast.audit.findings_file import FindingRows, merged
from causalcast.audit.violations import CODE
from causalcast.audit.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from causalcast.audit.findings import Case
    from causalcast.audit.judgement import Judged
    from causalcast.audit.violations import Replay

PICTURES: Final = 20
"""Roots that are drawn, spread over their kinds."""
_TAGS: Final = CODE["tag-mismatch"]


@dataclass(frozen=True, slots=True)
class Conclusions:
    """Counts of findings, the first of each kind with the pictures that may be wanted, and all as rows."""

    counts: Counter[str] = field(default_factory=Counter)
    roots: Counter[str] = field(default_factory=Counter)
    suspected: Counter[str] = field(default_factory=Counter)
    """How many roots each process has."""
    sample: tuple[Case, ...] = ()
    rows: pa.Table | None = None
    tags: frozenset[str] = frozenset()
    """The topics with findings about tags: who comes again may excuse what a tag says."""

    def with_others(self, others: Conclusions) -> Conclusions:
        """Return both together."""
        if self.rows is None or others.rows is None:
            return others if self.rows is None else self
        return Conclusions(
            self.counts + others.counts,
            self.roots + others.roots,
            self.suspected + others.suspected,
            _first((*self.sample, *others.sample)),
            merged([self.rows, others.rows]),
            self.tags | others.tags,
        )


NOTHING_CONCLUDED: Final = Conclusions()


def conclude(judged: Judged, replays: Sequence[Replay]) -> Conclusions:
    """Keep these replays, of messages that are settled now, as they are."""
    if not replays:
        return NOTHING_CONCLUDED
    rows = FindingRows()
    collection = Collection(judged.known.clock, rows)
    for replay in replays:
        collection.add(replay, replay.names)
    witness = Witness(judged.known.clock, judged.logs)
    sample = [
        replace(case, settled=True, picture=witness.picture(case) if drawn else None)
        for case, drawn in _drawn(collection.sample())
    ]
    tags = {part.topic for replay in replays for part in replay.violations if part.kind == _TAGS}
    return Conclusions(
        collection.counts, collection.roots, collection.suspected, tuple(sample), merged(rows.tables), frozenset(tags)
    )


def _first(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the first cases of each kind, in order, and the pictures of those that may be drawn."""
    ordered = sorted(cases, key=lambda case: case.order)
    kinds = Counter[str]()
    first: list[Case] = []
    for case in ordered:
        kinds[case.kind] += 1
        if kinds[case.kind] <= SAMPLE:
            first.append(case)
    return tuple(case if drawn else replace(case, picture=None) for case, drawn in _drawn(first))


def _drawn(cases: Iterable[Case]) -> Iterable[tuple[Case, bool]]:
    """Yield each case, and whether it may come to be drawn: of no kind more than `PICTURES` are."""
    kinds = Counter[str]()
    for case in cases:
        kinds[case.kind] += case.root
        yield case, case.root and kinds[case.kind] <= PICTURES
