"""The properties of PROTOCOLS.md, checked as naively as they are written: sets of messages, loops, no arrays.

Shares nothing with the pipeline. Exponential care is not needed: histories have a few dozen rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]
Dot = tuple[str, int]

FOREVER = 10**9


class Fault(NamedTuple):
    """What is compared with the pipeline's findings. `root` is `None` where the oracle does not say."""

    kind: str
    process: str | None
    message: str | None
    cause: str | None = None
    root: bool | None = None


class Contradiction(Exception):  # noqa: N818 - not an error of the oracle
    """The logs have a cycle: no execution wrote them."""


@dataclass
class Log:
    process: str
    rows: list[Row]
    holes: bool
    first_hole: int
    marks: list[Row] = field(default_factory=list)


def _dot(row: Row) -> Dot:
    return row["origin"], row["counter"]


def _name(dot: Dot) -> str:
    return f"{dot[0]}:{dot[1]}"


class Oracle:
    """Judges one history."""

    def __init__(self, rows: list[Row], crashed: tuple[str, ...] = ()) -> None:
        self.all_rows = rows
        self.logs: dict[str, Log] = {}
        self.faults: set[Fault] = set()
        for process in sorted({row["process"] for row in rows}):
            self.logs[process] = self._log(process, [row for row in rows if row["process"] == process])
        self.crashed = set(crashed)
        self.evictions: dict[str, list[tuple[str, int]]] = {}
        for log in self.logs.values():
            for row in log.rows:
                if row["event"] == "evict":
                    self.evictions.setdefault(row["peer"], []).append((log.process, row["seq"]))
            crashes = [row["seq"] for row in log.rows if row["event"] == "crash"]
            recoveries = [row["seq"] for row in log.rows if row["event"] == "recover"]
            if crashes and max(crashes) >= max(recoveries, default=0):
                self.crashed.add(log.process)
        self.subscriptions = any(row["event"] == "subscribe" for row in rows)

    def _log(self, process: str, rows: list[Row]) -> Log:
        rows = sorted(rows, key=lambda row: row["seq"])
        seqs = {row["seq"] for row in rows}
        missing = [seq for seq in range(1, max(seqs) + 1) if seq not in seqs]
        if missing:
            self.faults.add(Fault("absent-log", process, None))
        return Log(process, rows, bool(missing), missing[0] if missing else FOREVER)

    def judge(self) -> set[Fault]:
        for topic in sorted({row.get("topic") or "" for row in self.all_rows if "origin" in row}):
            _Topic(self, topic).judge()
        return self.faults

    def correct(self, process: str) -> bool:
        return process in self.logs and process not in self.crashed and process not in self.evictions

    def joined(self, process: str) -> bool:
        first = [row["event"] for row in self.logs[process].rows if row["event"] in ("join", "leave")]
        return bool(first) and first[0] == "join"


class _Topic:
    def __init__(self, oracle: Oracle, topic: str) -> None:
        self.oracle = oracle
        self.topic = topic
        self.rows = {
            process: [row for row in log.rows if "origin" in row and (row.get("topic") or "") == topic]
            for process, log in oracle.logs.items()
        }
        self.sent: dict[Dot, Row] = {}
        for process, rows in self.rows.items():
            for row in rows:
                if row["event"] == "broadcast":
                    if _dot(row) in self.sent:
                        oracle.faults.add(Fault("reused-identifier", process, _name(_dot(row))))
                    else:
                        self.sent[_dot(row)] = row
        # Numbers run on across topics, so what was sent in another topic is neither a gap nor lost here.
        self.arrivals = {process: self._arrivals(log) for process, log in oracle.logs.items()}
        self.elsewhere = {
            _dot(row)
            for row in oracle.all_rows
            if row["event"] == "broadcast" and (row.get("topic") or "") != topic and row["origin"] == row["process"]
        }
        seen = {_dot(row) for rows in self.rows.values() for row in rows if row["event"] in ("deliver", "stable")}
        self.lost = {dot for dot in seen - self.sent.keys() if self._is_lost(dot)}
        self.universe = self.sent.keys() | self.lost
        self._report_absent()
        self.past = self._pasts()
        self.stability = any(row["event"] == "stable" for rows in self.rows.values() for row in rows)

    def _arrivals(self, log: Log) -> list[int]:
        """Return when the process may have been given a state: joins, and subscriptions in the midst of its log."""
        found = []
        for row in log.rows:
            before = {other["seq"] for other in log.rows if other["seq"] < row["seq"] and other["event"] == "subscribe"}
            at_the_start = len(before) == row["seq"] - 1
            here = (row.get("topic") or "") == self.topic
            if row["event"] == "join" or (row["event"] == "subscribe" and here and not at_the_start):
                found.append(row["seq"])
        return found

    def _is_lost(self, dot: Dot) -> bool:
        origin, counter = dot
        if dot in self.elsewhere:
            return False
        log = self.oracle.logs.get(origin)
        if log is None or log.holes or origin in self.oracle.crashed:
            return True
        return counter < max((c for o, c in self.sent if o == origin), default=0)

    def _report_absent(self) -> None:
        for origin in {o for o, _ in self.lost} | {o for o, _ in self.sent}:
            if origin not in self.oracle.logs:
                self.oracle.faults.add(Fault("absent-log", origin, None))
                continue
            have = {c for o, c in self.sent.keys() | self.elsewhere if o == origin}
            start = min(have, default=1) if self.oracle.joined(origin) else 1
            lost = {c for o, c in self.lost if o == origin}
            gone = (set(range(start, max(have | lost, default=0))) - have) | lost if have else lost
            for counter in gone:
                if counter - 1 not in gone:
                    self.oracle.faults.add(Fault("absent-log", origin, f"{origin}:{counter}"))

    def _pasts(self) -> dict[Dot, set[Dot]]:
        direct: dict[Dot, set[Dot]] = {
            dot: {other for other in self.universe if other[0] == dot[0] and other[1] < dot[1]} for dot in self.universe
        }
        for rows in self.rows.values():
            before: set[Dot] = set()
            for row in rows:
                if row["event"] == "broadcast" and self.sent[_dot(row)] is row:
                    direct[_dot(row)] |= before
                elif row["event"] == "deliver" and _dot(row) in self.universe and row["origin"] != row["process"]:
                    before.add(_dot(row))
        past = {}
        for dot in self.universe:
            found: set[Dot] = set()
            todo = list(direct[dot])
            while todo:
                cause = todo.pop()
                if cause not in found:
                    found.add(cause)
                    todo.extend(direct[cause])
            if dot in found:
                raise Contradiction
            past[dot] = found
        return past

    def in_doubt(self, dot: Dot) -> bool:
        return any(self._own_doubt(cause) for cause in self.past[dot] | {dot})

    def _own_doubt(self, dot: Dot) -> bool:
        return dot in self.lost or self.sent[dot]["seq"] > self.oracle.logs[dot[0]].first_hole

    # ----------------------------------------------------------------------------------------------- one process

    def judge(self) -> None:
        for process in self.oracle.logs:
            self._judge_process(process)

    def _judge_process(self, q: str) -> None:
        position = self._positions(q)
        owed, owed_to_the_end = self._owed(q, position)
        self._integrity(q, position)
        self._order(q, position, owed, owed_to_the_end)
        gone = {m for m in owed_to_the_end if m not in position and self._agreement_owed(m)}
        for m in gone:
            self._fault("undelivered", q, m, root=not self.past[m] & gone)
        self._tags(q, position, owed)
        if self.stability:
            self._stable(q, position, owed)

    def _fault(self, kind: str, q: str, m: Dot, cause: Dot | None = None, root: bool | None = None) -> None:
        self.oracle.faults.add(Fault(kind, q, _name(m), None if cause is None else _name(cause), root))

    def _explicit(self, q: str) -> bool:
        return any(r["event"] == "deliver" and r["origin"] == q and _dot(r) in self.sent for r in self.rows[q])

    def _positions(self, q: str) -> dict[Dot, int]:
        position: dict[Dot, int] = {}
        for row in self.rows[q]:
            counts = row["event"] == "deliver" or (
                row["event"] == "broadcast" and not self._explicit(q) and self.sent[_dot(row)] is row
            )
            if counts and _dot(row) in self.universe:
                position.setdefault(_dot(row), row["seq"])
        return position

    def _integrity(self, q: str, position: dict[Dot, int]) -> None:
        seen: set[Dot] = set()
        for row in self.rows[q]:
            if row["event"] != "deliver":
                continue
            dot = _dot(row)
            if dot in seen:
                self._fault("duplicate", q, dot)
            seen.add(dot)
            if dot not in self.universe:
                self._fault("not-broadcast", q, dot)
            sent = self.sent.get(dot, {}).get("payload_bytes")
            got = row.get("payload_bytes")
            if sent is not None and got is not None and sent != got:
                self._fault("altered", q, dot)
        for dot, at in position.items():
            if dot[0] == q and dot in self.sent and at < self.sent[dot]["seq"]:
                self._fault("not-broadcast", q, dot)

    def _order(self, q: str, position: dict[Dot, int], owed: set[Dot], owed_to_the_end: set[Dot]) -> None:
        late: dict[Dot, tuple[Dot, int]] = {}
        missing: dict[Dot, Dot] = {}
        for m, at in position.items():
            after = [c for c in self.past[m] if position.get(c, 0) > at]
            if after:
                cause = max(after, key=lambda c: position[c])
                late[m] = (cause, at)
            absent = sorted(c for c in self.past[m] if c not in position and c in owed)
            if absent:
                missing[m] = absent[0]
        for m, (cause, at) in late.items():
            previous = max((c for c in self.universe if c[0] == m[0] and c[1] < m[1]), default=None)
            kind = "fifo-order" if cause == previous else "causal-order"
            root = at == min(p for c, p in late.values() if c == cause)
            self._fault(kind, q, m, cause, root)
        for m, cause in missing.items():
            first = position[m] == min(position[n] for n, c in missing.items() if c == cause)
            explained = cause in owed_to_the_end and self._agreement_owed(cause)
            self._fault("missing-cause", q, m, cause, first and not explained)

    def _agreement_owed(self, m: Dot) -> bool:
        origin = m[0]
        if origin not in self.oracle.logs or self.oracle.correct(origin):
            return True
        return any(
            _dot(row) == m and row["event"] in ("deliver", "stable")
            for process, rows in self.rows.items()
            if process != origin
            for row in rows
        )

    # ----------------------------------------------------------------------------------------------- entitlement

    def _intervals(self, q: str) -> list[tuple[int, int]]:
        member = not self.oracle.joined(q)
        subscribed = not self.oracle.subscriptions
        found: list[tuple[int, int]] = []
        start = 0 if member and subscribed else None
        for row in self.oracle.logs[q].rows:
            here = (row.get("topic") or "") == self.topic
            if row["event"] in ("join", "leave"):
                member = row["event"] == "join"
            elif row["event"] in ("subscribe", "unsubscribe") and here:
                subscribed = row["event"] == "subscribe"
            if member and subscribed and start is None:
                start = row["seq"]
            if not (member and subscribed) and start is not None:
                found.append((start, row["seq"]))
                start = None
        return found + ([(start, FOREVER)] if start is not None else [])

    def _owed(self, q: str, position: dict[Dot, int]) -> tuple[set[Dot], set[Dot]]:
        if self.oracle.logs[q].holes:
            return set(), set()
        owed: set[Dot] = set()
        to_the_end: set[Dot] = set()
        for start, end in self._intervals(q):
            to_the_end_here = end == FOREVER and self.oracle.correct(q)
            for m in self.universe:
                if m[0] == q and not (self._explicit(q) and m in self.sent):
                    continue
                if self._joined_before(q, m, start, end) and (
                    to_the_end_here or self._not_gone(q, m, position, start, end)
                ):
                    owed.add(m)
                    if to_the_end_here:
                        to_the_end.add(m)
        return owed, to_the_end

    def _joined_before(self, q: str, m: Dot, start: int, end: int) -> bool:
        if start == 0:
            return True
        for row in self.rows[q]:
            inside = start < row["seq"] < end
            dot = _dot(row)
            if inside and row["event"] == "broadcast" and self.sent[dot] is row and dot in self.past[m] | {m}:
                return True
            if inside and row["event"] == "deliver" and dot in self.universe and dot[0] == m[0] and dot[1] <= m[1]:
                return True
        return False

    def _not_gone(self, q: str, m: Dot, position: dict[Dot, int], start: int, end: int) -> bool:
        known = any(start < at < end and m in self.past[seen] | {seen} for seen, at in position.items())
        for evictor, seq in self.oracle.evictions.get(q, []):
            for after in self.sent:
                if after[0] == evictor and self.sent[after]["seq"] > seq and after in self.past[m] | {m}:
                    return False
        return known

    # ----------------------------------------------------------------------------------------------- tags, stability

    def _tags(self, q: str, position: dict[Dot, int], owed: set[Dot]) -> None:
        for m, row in self.sent.items():
            if m[0] != q or row.get("context") is None or self.in_doubt(m):
                continue
            context = {(origin, counter) for origin, counter in row["context"]}
            beyond = context - self.past[m]
            if self.arrivals[q]:
                beyond = {d for d in beyond if d in self.universe and (d in owed or d in position)}
            for j in self.oracle.logs:
                if j != q and self.arrivals[j] and self._after_join(m, j, last=False):
                    beyond = {d for d in beyond if d in self.universe and self._after_join(d, j, last=True)}
            cover = {c for d in context if d in self.universe for c in self.past[d] | {d}}
            joiners = [j for j in self.oracle.logs if self.arrivals[j]]
            touched = [j for j in joiners if any(self._after_join(c, j, last=False) for c in cover)]
            left_out = {c for c in self.past[m] - cover if all(self._after_join(c, j, last=True) for j in touched)}
            if beyond or left_out:
                self._fault("tag-mismatch", q, m)

    def _maybe_inherited(self, m: Dot, n: Dot) -> bool:
        """Whether a joiner may have come by m with its state, so that n follows m although no log says so."""
        joiners = [p for p in self.oracle.logs if self.arrivals[p]]
        unsettled = any(not self._after_join(m, j, last=True) for j in joiners if self._broadcast_here(j))
        return unsettled and any(self._after_join(n, j, last=False) for j in joiners)

    def _broadcast_here(self, process: str) -> bool:
        return any(origin == process for origin, _ in self.universe)

    def _after_join(self, m: Dot, joiner: str, *, last: bool) -> bool:
        since = self.arrivals[joiner][-1 if last else 0]
        return any(d[0] == joiner and d in self.sent and self.sent[d]["seq"] > since for d in self.past[m] | {m})

    def _stable(self, q: str, position: dict[Dot, int], owed: set[Dot]) -> None:
        stable: dict[Dot, int] = {}
        for row in self.rows[q]:
            if row["event"] != "stable":
                continue
            dot = _dot(row)
            if dot not in self.universe or dot in stable:
                self._fault("stable-order", q, dot)
            if dot in self.universe:
                stable.setdefault(dot, row["seq"])
        came = self.arrivals[q]
        foreign = {m for m, at in position.items() if m not in owed or at <= came[-1]} if came else set()
        expected = set(position) - foreign
        nobody_stopped = all(p in self.oracle.evictions for p in self.oracle.crashed if p in self.oracle.logs)
        spans = self._intervals(q)
        stays = bool(spans) and spans[-1][1] == FOREVER
        must = nobody_stopped and self.oracle.correct(q) and stays and not self.oracle.logs[q].holes
        for m, at in stable.items():
            if m not in position:
                given = bool(came) and m not in owed
                if not self.oracle.logs[q].holes and not given:
                    self._fault("stable-order", q, m)
            elif position[m] > at:
                self._fault("stable-order", q, m)
            after = [c for c in self.past[m] if stable.get(c, 0) > at]
            skipped = [c for c in self.past[m] if c in expected and c not in stable]
            later = [
                n
                for n, p in position.items()
                if p > at
                and n != m
                and m not in self.past[n]
                and n not in self.past[m]
                and not self.in_doubt(n)
                and not self._maybe_inherited(m, n)
            ]
            if after or (skipped and not self.oracle.logs[q].holes) or later:
                self._fault("stable-order", q, m)
        for m in expected if must else ():
            if m not in stable:
                self._fault("unstable", q, m)
