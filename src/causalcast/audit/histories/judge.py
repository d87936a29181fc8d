"""The check of a client history from file to verdict.

Formally (after Biswas and Enea, and Terry and others): a guarantee holds when there is one total order of the writing
transactions that extends happens-before (session order and reads-from) such that no read of a key returns a write
older than one that the guarantee demands it not to miss. Demands become edges, demanded write before returned write;
such an order exists exactly when happens-before and these edges have no circle. `guarantees` lists the demands.

Cost: clocks O(n k) for n transactions of k sessions, demands O(reads * sessions of the key * log), the circle
O(n + edges). From `SPARK_ROWS` reads and writes on Spark computes the demands, key by key in parallel.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from causalcast.audit.depot import Depot
from causalcast.audit.graph import circle
from causalcast.audit.histories.guarantees import CC, DEMANDS_SCHEMA, GUARANTEES, MW, ROWS, demand_batches, demands
from causalcast.audit.histories.lists import list_orders
from causalcast.audit.histories.longfork import long_forks
from causalcast.audit.histories.reading import Loaded, load_history
from causalcast.audit.histories.resolve import Past, Resolved, past_of, resolve
from causalcast.audit.histories.result import HistoryFinding, HistoryResult, Judgement, Unjudged, Verdict
from causalcast.audit.histories.words import Words
from causalcast.audit.session import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SPARK_ROWS: Final = 300_000
"""Reads and writes from which on starting Spark is worth it."""
SAMPLE: Final = 50
"""Findings of one property that a result holds."""
LONG_FORK: Final = "no-long-fork"
_FATAL: Final = ("aborted-read", "future-read", "intermediate-read")
_NOT_COVERED: Final = (
    "Not judged: real-time order, serializability, snapshot isolation, and whether keys converge. "
    "A history that passes may still violate these."
)


def check_history(
    path: Path,
    *,
    form: str | None = None,
    master: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> HistoryResult:
    """Check one history; `form` is one of `reading.FORMATS`, without it the file's name decides.

    Raises:
        InputUnusable: nothing in the file can be judged, or it is too large.
        EnvironmentUnusable: it is large and Spark cannot run here.
    """
    say = progress or (lambda _: None)
    say(f"Reading {path}")
    loaded = load_history(path, form)
    return judge_history(loaded, str(path), master=master, progress=say)


def judge_history(
    loaded: Loaded, source: str, *, master: str | None = None, progress: Callable[[str], None] | None = None
) -> HistoryResult:
    """Judge a history that has been read; see `check_history`."""
    return _Judge(loaded, source, master, progress or (lambda _: None)).run()


class _Judge:
    """One check."""

    def __init__(self, loaded: Loaded, source: str, master: str | None, say: Callable[[str], None]) -> None:
        self.loaded = loaded
        self.history = loaded.history
        self.master = master
        self.say = say
        self.source = source
        self.resolved: Resolved = resolve(self.history)
        self.words = Words(self.resolved, source)
        self.violated: Counter[str] = Counter()
        self.findings: list[HistoryFinding] = []
        self.unjudged: list[Unjudged] = []
        self.judged = list(GUARANTEES)
        self.rested = 0
        """Reads that the verdict rests on."""

    def run(self) -> HistoryResult:
        self._troubles()
        self.say("Ordering the transactions")
        past = past_of(self.resolved)
        if isinstance(past, list):
            self._round(past)
        else:
            self.say("Checking every key")
            self._demands(past)
            if self.rested == 0 and not self.history.snapshots:
                self.judged = []
                self.unjudged.append(Unjudged("no-reads", 1, "no read returned what one known operation wrote"))
        if self.history.snapshots:
            self.judged.append(LONG_FORK)
            forks = long_forks(self.resolved)
            if forks is None:
                self.judged.remove(LONG_FORK)
                self.unjudged.append(Unjudged("long-fork", 1, "keys with more than one value: long forks not judged"))
            else:
                self.violated[LONG_FORK] += len(forks)
                for first, second in forks[:SAMPLE]:
                    self._add(LONG_FORK, "long-fork", first, self.words.fork(first, second), count=False)
        return self._result()

    # --------------------------------------------------------------------------- reads by themselves

    def _troubles(self) -> None:
        phantom: dict[str, list[int]] = {}
        for trouble in self.resolved.troubles:
            if trouble.kind in _FATAL or trouble.kind == "own-write-missed":
                name = "read-your-writes" if trouble.kind == "own-write-missed" else "causal-consistency"
                self._add(name, trouble.kind, trouble.read, self.words.trouble(trouble))
                if name != "causal-consistency":
                    self.violated["causal-consistency"] += 1
            else:
                phantom.setdefault(trouble.kind, []).append(trouble.read)
        said = {"phantom-read": "nobody wrote", "ambiguous-read": "several operations wrote"}
        for kind, reads in phantom.items():
            first = self.words.read(reads[0])
            self.unjudged.append(Unjudged(kind, len(reads), f"reads of values that {said[kind]}; the first: {first}"))
        if self.resolved.repeated.size:
            first = self.words.write(int(self.resolved.repeated[0]))
            detail = f"writes of values that another write of the key has too; the first: {first}"
            self.unjudged.append(Unjudged("repeated-value", int(self.resolved.repeated.size), detail))
        if self.loaded.lost:
            line, reason = self.loaded.set_aside[0]
            detail = f"operations that cannot be used; the first: {self.source}:{line}: {reason}"
            self.unjudged.append(Unjudged("set-aside", self.loaded.lost, detail))

    def _round(self, nodes: list[int]) -> None:
        """Happens-before itself goes round: nothing else can be said."""
        self.violated["causal-consistency"] += 1
        self.findings.append(
            HistoryFinding(
                "causal-consistency",
                "cyclic-order",
                self.words.session(nodes[0]),
                f"{len(nodes)} transactions each happened before the next, and the last before the first",
                self.words.walk(nodes),
            )
        )
        self.judged = ["causal-consistency"]

    # ------------------------------------------------------------------------------------- guarantees

    def _demands(self, past: Past) -> None:
        found = self._unmet(past)
        guarantee, read, needed, returned = (np.asarray(found.column(name)) for name in found.column_names)
        registers = self.history.model == "register"
        orders: tuple[Ints, Ints] = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        if registers:
            known = returned >= 0
            kept = np.flatnonzero(known)
            older, newer = returned[kept], needed[kept]
            stale = np.zeros(read.size, dtype=bool)
            stale[kept] = past.precedes(older, newer)
            settled = np.zeros(read.size, dtype=bool)
            settled[kept] = past.precedes(newer, older)
            direct = ~known | stale
            edges = known & ~stale & ~settled
        else:
            direct = np.ones(read.size, dtype=bool)
            edges = ~direct
            if self.history.model == "list":
                orders = self._lists(past)
        self._direct(guarantee[direct], read[direct], needed[direct], returned[direct])
        for number, name in enumerate(GUARANTEES):
            chosen = edges & (guarantee == number)
            self._circle(name, needed[chosen], returned[chosen], read[chosen], orders)

    def _unmet(self, past: Past) -> pa.Table:
        table = self._rows()
        registers = self.history.model == "register"
        if table.num_rows < SPARK_ROWS:
            return demands(table, past, registers=registers)
        self.say(f"Starting Spark for {table.num_rows:,} reads and writes")
        with (
            spark_session(self.master) as session,
            tempfile.TemporaryDirectory(prefix="causalcast-history-") as scratch,
        ):
            local = (session.sparkContext.master or "").startswith("local")
            depot = Depot(scratch if local else None)
            token = depot.put(past)
            stage = demand_batches(lambda: depot.get(token), registers=registers)
            rows = session.createDataFrame(table).repartition("key").mapInArrow(stage, DEMANDS_SCHEMA)
            return rows.toArrow()

    def _rows(self) -> pa.Table:
        """Writes, and the reads that can be judged: of a register, those with one known write of another one."""
        resolved = self.resolved
        writes = resolved.write_txn.size
        every = np.arange(resolved.read_txn.size)
        starts = resolved.read_starts
        usable = resolved.seen >= 0
        usable[usable] = resolved.chain[resolved.write_txn[resolved.seen[usable]]] >= 0
        lengths = np.diff(starts)
        keep = np.arange(writes)
        if self.history.model == "register":
            good = np.ones(every.size, dtype=bool)
            owner = np.repeat(every, lengths)
            good[owner[~usable]] = False
            own = resolved.write_txn[np.maximum(resolved.seen, 0)] == resolved.read_txn[owner] if writes else usable
            good[owner[own & usable]] = False
            every = every[good & (resolved.own < 0)]
        else:
            keep = np.setdiff1d(keep, resolved.repeated)
        self.rested = int(every.size + (resolved.own >= 0).sum())
        numbers = resolved.seen.copy()
        if self.history.model == "register" and writes:
            numbers = np.where(usable, resolved.write_txn[np.maximum(resolved.seen, 0)], -1)
        parts = [numbers[starts[read] : starts[read + 1]] for read in every.tolist()]
        flat = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        ends = np.cumsum([0, *([0] * keep.size), *[part.size for part in parts]])
        return pa.Table.from_arrays(
            [
                pa.array(np.concatenate((resolved.write_key[keep], resolved.read_key[every]))),
                pa.array(np.concatenate((resolved.write_txn[keep], resolved.read_txn[every]))),
                pa.array(np.concatenate((keep, np.full(every.size, -1)))),
                pa.array(np.concatenate((np.full(keep.size, -1), every))),
                pa.array(np.concatenate((resolved.write_order[keep], resolved.read_order[every]))),
                pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(flat)),
            ],
            schema=ROWS,
        )

    def _direct(self, guarantee: Ints, read: Ints, needed: Ints, returned: Ints) -> None:
        """Report reads that miss a write by themselves, each under the most specific guarantee that it breaks."""
        if read.size == 0:
            return
        for number, name in enumerate(GUARANTEES):
            self.violated[name] += int(np.unique(read[guarantee == number]).size)
        order = np.lexsort((needed, guarantee, read))
        first = order[np.r_[True, read[order][1:] != read[order][:-1]]]
        for at in first.tolist():
            name = GUARANTEES[guarantee[at]]
            if self._has_room(name):  # to describe one costs a look at all writes
                kind, text = self.words.missed(int(read[at]), int(needed[at]), int(returned[at]))
                self._add(name, kind, int(read[at]), text, count=False)

    def _circle(self, name: str, needed: Ints, returned: Ints, read: Ints, orders: tuple[Ints, Ints]) -> None:
        resolved = self.resolved
        if needed.size == 0 and (orders[0].size == 0 or name != GUARANTEES[CC]):
            return
        before = np.concatenate((resolved.before, needed, orders[0]))
        after = np.concatenate((resolved.after, returned, orders[1]))
        nodes = circle(self.history.transactions, before, after)
        if not nodes:
            return
        self.violated[name] += 1
        if name != GUARANTEES[CC]:
            self.violated[GUARANTEES[CC]] += 1
        why = {(int(a), int(b)): int(r) for a, b, r in zip(needed, returned, read, strict=True)}
        detail = f"the reads demand an order of {len(nodes)} writing transactions that goes round"
        witness = self.words.walk(nodes, why)
        if not any(finding.witness == witness for finding in self.findings):
            self.findings.append(
                HistoryFinding(name, "conflicting-order", self.words.session(nodes[0]), detail, witness)
            )

    def _lists(self, past: Past) -> tuple[Ints, Ints]:
        """Check the order in which lists show their elements; return it as edges between transactions."""
        orders = list_orders(self.resolved, past)
        for kind, read, one, other in orders.troubles:
            name = GUARANTEES[MW] if kind == "reordered-writes" else GUARANTEES[CC]
            if name != GUARANTEES[CC]:
                self.violated[GUARANTEES[CC]] += 1
            self._add(name, kind, read, self.words.listed(kind, read, one, other))
        return orders.before, orders.after

    # ----------------------------------------------------------------------------------------- result

    def _add(self, name: str, kind: str, read: int, text: tuple[str, tuple[str, ...]], *, count: bool = True) -> None:
        if count:
            self.violated[name] += 1
        if self._has_room(name):
            session = self.words.session(int(self.resolved.read_txn[read]))
            self.findings.append(HistoryFinding(name, kind, session, *text))

    def _has_room(self, name: str) -> bool:
        return sum(finding.property == name for finding in self.findings) < SAMPLE

    def _result(self) -> HistoryResult:
        counts = +self.violated
        names = [*GUARANTEES, *([LONG_FORK] if self.history.snapshots else [])]
        guarantees: dict[str, Judgement] = {
            name: "violated" if counts[name] else "holds" if name in self.judged else "not judged" for name in names
        }
        doubtful = {"ambiguous-read", "set-aside", "long-fork", "no-reads"}
        verdict: Verdict = "fail" if counts else "pass"
        if not counts and any(item.kind in doubtful for item in self.unjudged):
            verdict = "undecided"
        resolved = self.resolved
        return HistoryResult(
            source=self.source,
            model=self.history.model,
            verdict=verdict,
            guarantees=guarantees,
            transactions=self.history.transactions,
            sessions=len(self.history.sessions),
            reads=int(resolved.read_txn.size),
            writes=int(resolved.write_txn.size),
            counts=dict(counts),
            findings=tuple(sorted(self.findings, key=lambda finding: names.index(finding.property))),
            unjudged=tuple(self.unjudged),
            notes=(*self.history.notes, _NOT_COVERED),
        )
