"""A later run on a trace that grew by little: what is settled (see `settled`) stays as it was, the rest is judged here.

That takes no Spark. Where anything is not as it must be for that, the run is one that looks at the whole trace.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from causalcast.audit import files, stages, state
from causalcast.audit.coming import with_processes
from causalcast.audit.notes import unfinished_findings
from causalcast.audit.outputs import FINDINGS
from causalcast.audit.parts import merge, select
from causalcast.audit.settled import shortened
from causalcast.audit.settlement import Settlement, without_settled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from causalcast.audit.bundles import Bundle
    from causalcast.audit.depot import Depot
    from causalcast.audit.digests import Bodies
    from causalcast.audit.ingest import Inputs
    from causalcast.audit.judgement import Judged
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.result import AuditResult
    from causalcast.audit.settled import Settled

    Ints = NDArray[np.int64]

MOST_BYTES: Final = 256 * 2**20
"""Of files, up to which what is new is read here."""


class Grown(NamedTuple):
    """A trace that grew: the rows that are not settled, and whose each is."""

    settled: Settled
    """What was settled, with the logs of those who are new, and what is to be known of the new rows."""
    rows: LogColumns
    log: Ints
    last: Ints
    """The last row of each log."""


class Continuation:
    """One later run; `run` is the whole of it."""

    def __init__(
        self, depot: Depot, kept: state.State, inputs: Inputs, crashed: frozenset[str], say: Callable[[str], None]
    ) -> None:
        self.depot = depot
        self.kept = kept
        self.inputs = inputs
        self.crashed = crashed
        self.say = say

    def run(self, sources: tuple[str, ...], out: Path) -> AuditResult | None:
        """Return the result, `None` where the whole trace has to be looked at.

        Raises:
            InputUnusable: a file cannot be read, or was written to meanwhile.
        """
        from causalcast.audit.ingest import NO_BAD_ROWS  # noqa: PLC0415 - needs PySpark

        token = self.kept.manifest.settled
        if not token:
            return None
        settled: Settled = self.depot.get(token.encode())
        fresh = self._fresh(settled)
        if fresh is None or not self._read(fresh):
            return None
        found = self._judge(settled, fresh)
        if found is None:
            return None
        judged, collected = found
        collection = judged.collect(unfinished_findings(self.inputs), out / FINDINGS)
        files.refuse_changed(self.inputs.sizes)
        self.kept.manifest.settled = collected
        self.kept.commit(last=True)
        self.say("Writing the findings")
        return judged.result(collection, NO_BAD_ROWS, self.crashed, sources)

    def _fresh(self, settled: Settled) -> list[state.Planned] | None:
        """Return the pieces that are new, `None` where they are too large or an old one is gone."""
        pieces, others = self.kept.plan(self.inputs)
        if others or settled.crashed != self.crashed:
            return None
        known = {planned.key for planned in pieces} & settled.covered
        fresh = [planned for planned in pieces if planned.key not in settled.covered]
        joined = {key for planned in fresh for key in planned.piece.joins}
        if settled.covered - known - joined or sum(map(self._size, fresh)) > MOST_BYTES:
            return None
        self.say(f"Reading what is new: {len(fresh)} of {len(pieces)} pieces")
        return fresh

    def _size(self, planned: state.Planned) -> int:
        piece = planned.piece
        return piece.last - piece.first if planned.plain else self.inputs.sizes[planned.path]

    def _read(self, fresh: Sequence[state.Planned]) -> bool:
        """Read pieces into bundles; return whether all of their rows can be used."""
        wanted = [planned for planned in fresh if planned.wanted]
        rows = [(i, p.kind, p.path, p.piece.first, p.piece.last) for i, p in enumerate(wanted)]
        named = [dict(zip(stages.PIECES.names, row, strict=True)) for row in rows]
        batches = [pa.RecordBatch.from_pylist(named, schema=stages.PIECES)] if wanted else []
        for batch in stages.read_pieces(self.depot)(iter(batches)):
            for fact in batch.to_pylist():
                state.record(wanted[fact["number"]], fact)
        return not any(planned.wanted or planned.piece.bad or planned.piece.odd for planned in fresh)

    def _judge(self, settled: Settled, fresh: Sequence[state.Planned]) -> tuple[Judged, str] | None:
        """Return what was found in the whole trace, and the token of what is settled now."""
        grown = self._grown(settled, fresh)
        if grown is None:
            return None
        settled, rows, log, last = grown
        self.say("Judging what is new")
        found = settled.judge(rows, log)
        if found is None or settled.fall_short(found[0]):
            return None
        judged, bodies = found
        sums = settled.sums(judged.known.clock.grid)
        if sums is None:
            return None
        judged.measures.add(sums)
        where = {process: (bodies, place) for place, process in enumerate(settled.processes)}
        covered = frozenset(planned.key for planned in self.kept.plan(self.inputs)[0])
        now = Settlement(judged, where, self.crashed, settled).run([(rows, log)], covered, last)
        return judged, "" if now is None else self.depot.put(now).decode()

    def _grown(self, settled: Settled, fresh: Sequence[state.Planned]) -> Grown | None:
        pieces = [planned.piece for planned in fresh if planned.piece.rows]
        if not pieces:
            return Grown(settled, settled.rows, settled.log, settled.last.copy())
        bundles: list[Bundle] = [self.depot.get(piece.token.encode()) for piece in pieces]
        owners = {
            owner for piece, rows in zip(pieces, bundles, strict=True) for owner in rows.processes_in(piece.place)
        }
        known = with_processes(settled, owners - set(settled.processes))
        if known is None:
            return None
        place = {process: i for i, process in enumerate(known.processes)}
        parts: list[LogColumns] = []
        logs: list[Ints] = []
        for piece, bundle in zip(pieces, bundles, strict=True):
            rows, log = part_of(bundle, [piece.place], place)
            old = rows.seq <= known.last[log]
            if int(old.sum()) != piece.again:
                return None
            if old.any():
                rows, log = select(rows, ~old, np.ones(rows.context_origin.size, dtype=bool)), log[~old]
            parts.append(rows)
            logs.append(log)
        rows, log = merge(parts), np.concatenate(logs)
        if not known.takes(rows, log):
            return None
        last = known.last.copy()
        np.maximum.at(last, log, rows.seq)
        known = replace(known, short=known.short | shortened(rows, known.upto, known.standing.begun))
        rows, log = without_settled(rows, log, known.upto, known.reach)
        return Grown(known, merge([known.rows, rows]), np.concatenate((known.log, log)), last)


def part_of(bundle: Bundle, pieces: Sequence[int], place: Mapping[str, int]) -> tuple[LogColumns, Ints]:
    """Return the rows of some pieces in a bundle, and whose each is."""
    groups = np.flatnonzero(np.isin(bundle.piece, pieces))
    owners = [place[bundle.owner(group)] for group in groups.tolist()]
    sizes = bundle.starts[groups + 1] - bundle.starts[groups]
    return bundle.parts(groups), np.repeat(np.array(owners, dtype=np.int64), sizes)


def settle(
    depot: Depot,
    pieces: Sequence[state.Planned],
    judged: Judged,
    bodies: Mapping[str, state.Digested],
    crashed: frozenset[str],
) -> str:
    """Return the token of what is settled in a trace that was judged as a whole; empty where that is nothing."""
    if any(planned.wanted or planned.piece.bad or planned.piece.odd for planned in pieces):
        return ""
    place = {process: i for i, process in enumerate(sorted(judged.logs))}
    last = np.zeros(len(place), dtype=np.int64)
    bundles: dict[str, list[int]] = {}
    for planned in pieces:
        if planned.piece.rows:
            bundles.setdefault(planned.piece.token, []).append(planned.piece.place)

    def parts() -> Iterator[tuple[LogColumns, Ints]]:
        for token, places in bundles.items():
            read = part_of(depot.get(token.encode()), places, place)
            np.maximum.at(last, read[1], read[0].seq)
            yield read

    whole: dict[str, Bodies] = {token: depot.get(token.encode()) for token in {each.body for each in bodies.values()}}
    where = {process: (whole[digested.body], digested.place) for process, digested in bodies.items()}
    settled = Settlement(judged, where, crashed, None).run(parts(), frozenset(p.key for p in pieces), last)
    return "" if settled is None else depot.put(settled).decode()
