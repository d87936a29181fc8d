"""Traces that grow: executions whose deliveries keep up with what is broadcast, and the order in which rows came."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.audit.histories import Execution, mutate

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

Row = dict[str, Any]


class _Log(list[Row]):
    """Notes when a row was appended."""

    def __init__(self, clock: Iterator[int]) -> None:
        super().__init__()
        self._clock = clock

    def append(self, row: Row) -> None:
        super().append({**row, "at": next(self._clock)})


class Steady(Execution):
    """An execution in which most processes stay, and most messages are soon delivered."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        clock = itertools.count()
        logs, self.logs = self.logs, {name: _Log(clock) for name in self.names}
        for name, log in logs.items():
            for row in log:
                self.logs[name].append(row)
        if rng.random() < 0.7:
            self.joiner, self.joined, self.leaver = None, True, None

    def run(self, steps: int) -> list[Row]:
        for step in range(steps):
            if not self.joined and step == steps * 2 // 3:
                self._join()
            if self.leaver and step == steps * 3 // 4:
                self.logs[self.leaver].append({"event": "leave"})
                self.gone.add(self.leaver)
            self._broadcast(self.rng.choice(self.members()))
            for _ in range(self.rng.choice((0, 2, 2, 4)) * len(self.names)):
                name = self.rng.choice(self.members())
                self._deliver(name)
                self._report_stable(name)
        while any(self._deliver(name) for name in self.members()):
            pass
        while any(self._report_stable(name) for name in self.members()):
            pass
        return self.rows()


def steady_trace(rng: random.Random) -> tuple[list[Row], tuple[str, ...]]:
    """Return rows by the time when they came, and who is said to have crashed."""
    rows = Steady(rng).run(rng.randint(12, 50))
    if rng.random() < 0.5:
        _restart_numbers(rows)
    times = rng.choice(("none", "rising", "any", "any"))
    for row in rows:
        if times == "rising" and rng.random() < 0.95:
            row["time_ns"] = 10**12 + row["at"] * 1_000_000 + rng.randint(0, 999_999)
        elif times == "any":
            # The first rows reach as far as all others.
            row["time_ns"] = rng.choice((0, 10**9)) if row["at"] < 4 else rng.randint(0, 10**9)
    crashed: tuple[str, ...] = ()
    if rng.random() < 0.5:
        rows, crashed = mutate(rng, rows)
    rows.sort(key=lambda row: row.get("at", rng.randint(0, len(rows))))
    return rows, crashed


def _restart_numbers(rows: list[Row]) -> None:
    """Let each topic have numbers of its own."""
    numbers: dict[tuple[str, str | None], dict[int, int]] = {}
    for row in sorted(rows, key=lambda row: int(row["at"])):
        if row["event"] == "broadcast":
            mine = numbers.setdefault((row["origin"], row.get("topic")), {})
            mine[row["counter"]] = len(mine) + 1
    for row in rows:
        if "counter" in row:
            row["counter"] = numbers[row["origin"], row.get("topic")][row["counter"]]
        if "context" in row:
            row["context"] = [[o, numbers[o, row.get("topic")][n]] for o, n in row["context"]]


def grown(rng: random.Random, rows: list[Row], trace: Path, write: Any) -> Iterator[None]:
    """Write a trace step by step, in files of one or of many processes; who writes may lag behind."""
    names = sorted({row["process"] for row in rows})
    files = {name: (i if rng.random() < 0.7 else 0) for i, name in enumerate(names)}
    lag = {name: rng.choice((0, 0, 0, 3, 10)) for name in names}
    late = dict.fromkeys(names, 0)
    if rng.random() < 0.2:
        late[rng.choice(names)] = len(rows) // 2
    written = [0] * len(rows)
    cuts = sorted(rng.randint(len(rows) // 3, len(rows)) for _ in range(rng.randint(2, 6)))
    for cut in [*cuts, None]:
        for number, row in enumerate(rows):
            name = row["process"]
            there = cut is None or (number < cut - lag[name] and cut > late[name])
            if there and not written[number]:
                written[number] = 1
                write(trace / f"{files[name]}.jsonl", {key: value for key, value in row.items() if key != "at"})
        if any(written):
            yield
