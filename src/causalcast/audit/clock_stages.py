"""The Spark stages that check carried vector clocks; each is given a partition and works on it as a whole.

`check_logs` has all events of a process: it looks at each clock and at the one before it. An entry that grew names
an event of another process, so it also writes a *question* for that process. `answer` has a process's events and
all questions about them. `pair` has all sends and receptions of a message. Every clock is moved once, and once more
for each entry by which it grew.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from causalcast.audit.vectors import clocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SAMPLE: Final = 200
"""Violations of one kind that a partition describes; all are counted."""
LOG, ASK, SEND, RECEIVE, BREACH, COUNT = "log", "ask", "send", "receive", "breach", "count"
_CLOCK: Final = pa.map_(pa.string(), pa.int64())
ROWS: Final = pa.schema(
    [
        ("row", pa.string()),
        ("execution", pa.string()),
        ("target", pa.string()),
        ("number", pa.int64()),
        ("process", pa.string()),
        ("own", pa.int64()),
        ("clock", _CLOCK),
        ("news", _CLOCK),
        ("exact", pa.bool_()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("kind", pa.string()),
        ("cause", pa.string()),
        ("detail", pa.string()),
    ]
)
"""What all stages write. `target` is the process that a question is about, or the message of a send or reception."""
ROWS_SCHEMA: Final = (
    "row string, execution string, target string, number long, process string, own long, clock map<string,long>, "
    "news map<string,long>, exact boolean, file string, line long, kind string, cause string, detail string"
)


def check_logs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check each log of the partition by itself, and write its events, questions, sends and receptions."""
    table = _whole(batches)
    if table is not None:
        yield from _Logs(table).rows()


def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer the questions: does the event that a clock names exist, and is its clock contained in the other?"""
    table = _whole(batches)
    if table is not None:
        yield from _answers(table)


def pair(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compare the clocks of each message's send and receptions."""
    table = _whole(batches)
    if table is not None:
        yield from _pairs(table)


def _whole(batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    held = [batch for batch in batches if batch.num_rows]
    return pa.Table.from_batches(held).combine_chunks() if held else None


class _Report:
    """Collects the violations of a partition: all counted, some described."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.counts: Counter[str] = Counter()
        self.described: Counter[str] = Counter()
        self.rows: list[dict[str, Any]] = []

    def some(self, kind: str, number: int) -> range:
        """Count `number` violations; return how many of them, from the first, to describe."""
        self.counts[kind] += number
        return range(min(number, SAMPLE - self.described[kind]))

    def describe(self, kind: str, row: int, detail: str, cause: str | None = None) -> None:
        """Describe a counted violation that row `row` of the table shows."""
        self.described[kind] += 1
        fields = ("execution", "process", "own", "file", "line")
        place = {name: self.table.column(name)[row].as_py() for name in fields}
        self.rows.append({"row": BREACH, "kind": kind, "detail": detail, "cause": cause} | place)

    def batches(self) -> Iterator[pa.RecordBatch]:
        counted = [{"row": COUNT, "kind": kind, "number": number} for kind, number in sorted((+self.counts).items())]
        rows = self.rows + counted
        if rows:
            yield from pa.Table.from_pylist(rows, schema=ROWS).to_batches()


class _Logs:
    """The logs of a partition while they are checked."""

    def __init__(self, table: pa.Table) -> None:
        names: dict[str, int] = {}
        self.count = table.num_rows
        self.clocks = clocks_of(_column(table, "clock"), names)
        words = _column(table, "process").dictionary_encode()
        local = np.array([names.setdefault(n, len(names)) for n in words.dictionary.to_pylist()], dtype=np.int64)
        self.process = local[np.asarray(words.indices)]
        self.execution = _codes(table, "execution")
        self.names = list(names)
        self.own = self.clocks.values(np.arange(self.count), self.process)
        self.table = table.append_column("own", pa.array(self.own))
        self.report = _Report(self.table)

    def rows(self) -> Iterator[pa.RecordBatch]:
        good = self._well_formed()
        order = np.flatnonzero(good)
        line = np.asarray(_column(self.table, "line"))
        order = order[np.lexsort((line[order], self.own[order], self.process[order], self.execution[order]))]
        first = np.ones(order.size, dtype=bool)
        if order.size:
            same = self.process[order[1:]] == self.process[order[:-1]]
            first[1:] = ~(same & (self.execution[order[1:]] == self.execution[order[:-1]]))
        before = np.where(first, self.count, np.roll(order, 1)) if order.size else order
        again = self._gap_free(order, before, first)
        self._monotone(order[~again], before[~again])
        order, before = order[~again], before[~again]
        grown = self._grown(order, before)
        yield from self._logs(order)
        yield from self._questions(order, grown)
        yield from self._messages(order, grown)
        yield from self.report.batches()

    def _well_formed(self) -> Mask:
        good = self.own > 0
        nameless = np.flatnonzero(self.own == 0)
        for i in self.report.some("clock-malformed", nameless.size):
            row = int(nameless[i])
            self.report.describe("clock-malformed", row, f"the clock has no entry of its own process {self._name(row)}")
        negative = np.unique(np.searchsorted(self.clocks.starts, np.flatnonzero(self.clocks.value < 0), "right") - 1)
        for i in self.report.some("clock-malformed", negative.size):
            row = int(negative[i])
            self.report.describe("clock-malformed", row, f"the clock of {self._event(row)} has a negative entry")
        good[negative] = False
        return good

    def _gap_free(self, order: Ints, before: Ints, first: Mask) -> Mask:
        """Report where own entries do not run 1, 2, 3, ...; return the rows that repeat one."""
        own = np.append(self.own, 0)
        step = own[order] - own[before]
        gaps = np.flatnonzero(step > 1)
        for i in self.report.some("clock-gap", gaps.size):
            at = int(gaps[i])
            row, missing = int(order[at]), int(step[at]) - 1
            since = "begins with" if first[at] else f"goes from {int(own[before[at]])} to"
            events = "1 event is" if missing == 1 else f"{missing} events are"
            detail = f"the log of {self._name(row)} {since} event {int(own[row])}: {events} missing"
            self.report.describe("clock-gap", row, detail)
        again: Mask = (step == 0) & ~first
        twice = order[again]
        for i in self.report.some("clock-gap", twice.size):
            row = int(twice[i])
            detail = f"two events of {self._name(row)} have the number {int(own[row])} in their clocks"
            self.report.describe("clock-gap", row, detail)
        return again

    def _monotone(self, order: Ints, before: Ints) -> None:
        at, process, value, there = self.clocks.exceeding(before, self.clocks, order)
        for i in self.report.some("clock-order", at.size):
            row = int(order[at[i]])
            of, knew = self.names[process[i]], int(value[i])
            knows = f"{int(there[i])} events" if there[i] else "nothing"
            detail = f"{self._event(row)} knows {knows} of {of}, of which the event before it knew {knew}"
            self.report.describe("clock-order", row, detail, f"{of}:{knew}")

    def _grown(self, order: Ints, before: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the entries of others that grew: the place in `order`, the process, the new value."""
        at, process, value, _ = self.clocks.exceeding(order, self.clocks, before)
        other = process != self.process[order[at]]
        at, process, value = at[other], process[other], value[other]
        silent = np.asarray(pc.fill_null(pc.list_value_length(_column(self.table, "receives")), -1)) == 0
        silent &= np.asarray(pc.fill_null(_column(self.table, "exact"), False))
        unheard = np.flatnonzero(silent[order[at]])
        for i in self.report.some("clock-order", unheard.size):
            j = int(unheard[i])
            row, event = int(order[at[j]]), f"{self.names[process[j]]}:{int(value[j])}"
            detail = f"{self._event(row)} received nothing and came to know {event}"
            self.report.describe("clock-order", row, detail, event)
        return at, process, value

    def _logs(self, order: Ints) -> Iterator[pa.RecordBatch]:
        yield from self._write(LOG, order, target=self._column("process", order), number=pa.array(self.own[order]))

    def _questions(self, order: Ints, grown: tuple[Ints, Ints, Ints]) -> Iterator[pa.RecordBatch]:
        at, process, value = grown
        target = pa.array(self.names, pa.string()).take(pa.array(process))
        yield from self._write(ASK, order[at], target=target, number=pa.array(value))

    def _messages(self, order: Ints, grown: tuple[Ints, Ints, Ints]) -> Iterator[pa.RecordBatch]:
        sends = order[np.asarray(_column(self.table, "sends").is_valid())[order]]
        yield from self._write(SEND, sends, target=self._column("sends", sends))
        lists = _column(self.table, "receives")
        size = np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
        rows = order[size[order] > 0]
        if rows.size == 0:
            return
        taken = lists.take(pa.array(rows))
        parent = np.asarray(pc.list_parent_indices(taken)).astype(np.int64)
        names, value = self.names, grown[2]
        news: list[list[tuple[str, int]]] = [[] for _ in range(self.count)]
        for i, process in zip(grown[0].tolist(), range(value.size), strict=True):
            news[int(order[i])].append((names[int(grown[1][process])], int(value[process])))
        single = np.asarray(pc.fill_null(_column(self.table, "exact"), False)) & (size == 1)
        yield from self._write(
            RECEIVE,
            rows[parent],
            target=pc.list_flatten(taken),
            news=pa.array([news[row] if single[row] else [] for row in rows[parent].tolist()], _CLOCK),
        )

    def _write(self, kind: str, rows: Ints, **columns: Any) -> Iterator[pa.RecordBatch]:
        if rows.size == 0:
            return
        columns["row"] = pa.array([kind] * rows.size)
        for name in ("execution", "process", "own", "clock", "exact", "file", "line"):
            columns[name] = self._column(name, rows)
        whole = [columns.get(field.name, pa.nulls(rows.size, field.type)) for field in ROWS]
        yield from pa.Table.from_arrays(whole, schema=ROWS).to_batches(max_chunksize=50_000)

    def _column(self, name: str, rows: Ints) -> Any:
        return _column(self.table, name).take(pa.array(rows))

    def _name(self, row: int) -> str:
        return str(self.names[self.process[row]])

    def _event(self, row: int) -> str:
        return f"{self._name(row)}:{int(self.own[row])}"


def _answers(table: pa.Table) -> Iterator[pa.RecordBatch]:
    report = _Report(table)
    names: dict[str, int] = {}
    clocks = clocks_of(_column(table, "clock"), names)
    known = list(names)
    targets = _column(table, "target").to_pylist()
    group = _codes(table, "execution") * (table.num_rows + 1) + _codes(table, "target")
    number = np.asarray(_column(table, "number"))
    is_log = np.asarray(pc.equal(_column(table, "row"), LOG))
    log, ask = np.flatnonzero(is_log), np.flatnonzero(~is_log)
    order = log[np.lexsort((number[log], group[log]))]
    place = _places(group, number, order, ask)
    missing = ask[place < 0]
    _, distinct = np.unique(np.stack((group[missing], number[missing])), axis=1, return_index=True)
    distinct.sort()
    logged = set(group[log].tolist())
    for i in report.some("absent-log", distinct.size):
        row = int(missing[distinct[i]])
        event = f"{targets[row]}:{int(number[row])}"
        why = "is not in its log" if int(group[row]) in logged else f"has no log: no event is of {targets[row]!r}"
        report.describe("absent-log", row, f"{_event_of(table, row)} knows {event}, which {why}", event)
    asked, found = ask[place >= 0], place[place >= 0]
    at, process, value, there = clocks.exceeding(found, clocks, asked)
    for i in report.some("clock-order", at.size):
        row = int(asked[at[i]])
        event = f"{targets[row]}:{int(number[row])}"
        of, knew = known[process[i]], int(value[i])
        knows = f"only {int(there[i])}" if there[i] else "none"
        detail = f"{_event_of(table, row)} knows {event}, which knew {knew} events of {of}; it knows {knows} itself"
        report.describe("clock-order", row, detail, f"{of}:{knew}")
    yield from report.batches()


def _places(group: Ints, number: Ints, order: Ints, ask: Ints) -> Ints:
    """Return the row of the event that each question is about, -1 where there is none."""
    if order.size == 0:
        return np.full(ask.size, -1, dtype=np.int64)
    # Group and number as one rank each, so that one search finds both.
    pairs = np.stack((np.concatenate((group[order], group[ask])), np.concatenate((number[order], number[ask]))))
    rank = np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1)
    have, want = rank[: order.size], rank[order.size :]
    at = np.minimum(np.searchsorted(have, want), have.size - 1)
    place: Ints = np.where(have[at] == want, order[at], -1)
    return place


def _pairs(table: pa.Table) -> Iterator[pa.RecordBatch]:
    report = _Report(table)
    names: dict[str, int] = {}
    clocks = clocks_of(_column(table, "clock"), names)
    news = clocks_of(_column(table, "news").fill_null(pa.scalar([], _CLOCK)), names)
    known = list(names)
    messages = _column(table, "target").to_pylist()
    group = _codes(table, "execution") * (table.num_rows + 1) + _codes(table, "target")
    own = np.asarray(_column(table, "own"))
    exact = np.asarray(pc.fill_null(_column(table, "exact"), False))
    is_send = np.asarray(pc.equal(_column(table, "row"), SEND))
    order = np.lexsort((own, ~is_send, group))
    bounds = np.flatnonzero(np.r_[True, group[order][1:] != group[order][:-1], True])
    sent: list[int] = []
    received: list[int] = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[begin:end]
        sends, receives = rows[is_send[rows]], rows[~is_send[rows]]
        if receives.size == 0:
            continue
        channel = bool(exact[receives[0]])
        if sends.size == 0 or (channel and receives.size > sends.size):
            extra = int(receives.size - sends.size)
            logged = f"logged {int(sends.size)} times" if sends.size else "not logged"
            times = f"received {int(receives.size)} times" if receives.size > 1 else "received"
            row = int(receives[-1])
            if report.some("unlogged-send", extra):
                report.describe("unlogged-send", row, f"{messages[row]} is {times} and its send is {logged}")
        elif sends.size == 1 or (channel and sends.size == receives.size):
            sent.extend(np.broadcast_to(sends, receives.shape).tolist())
            received.extend(receives.tolist())
    send, receive = np.array(sent, dtype=np.int64), np.array(received, dtype=np.int64)
    at, process, value, there = clocks.exceeding(send, clocks, receive)
    for i in report.some("clock-order", at.size):
        row, of = int(receive[at[i]]), known[process[i]]
        detail = (
            f"{_event_of(table, row)} received {messages[row]}, whose sender knew {int(value[i])} events of {of}; "
            f"it knows {int(there[i])}"
        )
        report.describe("clock-order", row, detail, f"{of}:{int(value[i])}")
    at, process, value, _ = news.exceeding(receive, clocks, send)
    for i in report.some("clock-order", at.size):
        row, event = int(receive[at[i]]), f"{known[process[i]]}:{int(value[i])}"
        detail = f"{_event_of(table, row)} came to know {event}, which {messages[row]} did not bring"
        report.describe("clock-order", row, detail, event)
    yield from report.batches()


def _event_of(table: pa.Table, row: int) -> str:
    return f"{table.column('process')[row].as_py()}:{table.column('own')[row].as_py()}"


def _column(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _codes(table: pa.Table, name: str) -> Ints:
    """Number the words of a column from 0; null is a word of its own."""
    encoded = _column(table, name).dictionary_encode(null_encoding="encode")
    codes: Ints = np.asarray(encoded.indices).astype(np.int64)
    return codes
