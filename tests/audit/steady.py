"""Traces that grow: executions whose deliveries keep up with what is broadcast, and the order in which rows came."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tests.audit.histories import Dot, Execution, mutate

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
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

    steps = (12, 50)
    anew = 0.5
    """How often each topic has numbers of its own."""

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
        return self._finish()

    def _finish(self) -> list[Row]:
        """Let everybody have everything."""
        while any(self._deliver(name) for name in self.members()):
            pass
        while any(self._report_stable(name) for name in self.members()):
            pass
        return self.rows()


class Turning(Steady):
    """The same, in which several members join, leave and crash. Who joins is given what another one has."""

    steps = (30, 70)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.joiner, self.joined, self.leaver = None, True, None
        if self.topics != [None] and rng.random() < 0.8:
            # Subscriptions and joins together are another matter.
            self.subscribed = {name: set(self.topics) for name in self.names}
            for log in self.logs.values():
                log.clear()
        more = rng.randint(0, 3)
        clock = next(iter(self.logs.values()))._clock
        self.waiting = [f"q{i}" for i in range(more)]
        for name in self.waiting:
            self._add(name, clock)
        self.given: dict[str, set[Dot]] = {}
        self.evicting: list[str] = []

    def _add(self, name: str, clock: Iterator[int]) -> None:
        self.names.append(name)
        self.logs[name] = _Log(clock)
        self.sent[name], self.seen[name], self.stable[name] = 0, set(), set()
        self.subscribed[name] = set(self.topics)

    def members(self) -> list[str]:
        return [name for name in super().members() if name not in self.waiting]

    def _pace(self) -> int:
        """How many deliveries each member may make between two broadcasts."""
        return self.rng.choice((0, 2, 2, 4))

    def run(self, steps: int) -> list[Row]:
        turns = self._turns(steps)
        for step in range(steps):
            if step in turns:
                turns[step]()
            if self.evicting and self.rng.random() < 0.5:
                self._evict(self.evicting.pop())
            self._broadcast(self.rng.choice(self.members()))
            for _ in range(self._pace() * len(self.members())):
                name = self.rng.choice(self.members())
                self._deliver(name)
                self._report_stable(name)
        return self._finish()

    def _turns(self, steps: int) -> dict[int, Callable[[], None]]:
        """Return who comes or goes before which step."""
        turns = {self.rng.randint(1, steps): self._come for _ in self.waiting}
        return turns | {self.rng.randint(1, steps): self._go for _ in range(self.rng.choice((0, 1, 1, 2)))}

    def _come(self) -> None:
        name = self.waiting.pop()
        giver = self.rng.choice(self.members())
        self.logs[name].append({"event": "join"})
        self.given[name] = set(self.seen[giver]) | self.given.get(giver, set())
        if self.rng.random() < 0.2:
            self.sent[name] = 4

    def _go(self) -> None:
        if len(self.members()) < 3:
            return
        name = self.rng.choice(self.members())
        self.gone.add(name)
        if self.rng.random() < 0.5:
            self.logs[name].append({"event": "leave"})
            return
        if self.rng.random() < 0.8:
            self.logs[name].append({"event": "crash"})
        if self.rng.random() < 0.7:
            self.evicting.append(name)

    def _evict(self, name: str) -> None:
        everybody = self.rng.random() < 0.7
        for other in self.members() if everybody else self.rng.sample(self.members(), 1):
            self.logs[other].append({"event": "evict", "peer": name})

    def _broadcast(self, name: str) -> None:
        self.joiner, self.inherited = name, self.given.get(name, set())
        super()._broadcast(name)
        self.joiner = None


class Subscribing(Turning):
    """The same with topics whose subscribers come and go, most of them once."""

    steps = (40, 90)
    anew = 0.9

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.topics = ["a", "b", "c"][: rng.randint(1, 3)]
        self.turning = rng.random() < 0.4
        self.outside = rng.choice((0, 0.03, 0.2))
        """How often somebody broadcasts to all, subscribed or not."""
        self.unknown = {name: rng.randint(1, 15) for name in self.names if rng.random() < 0.2}
        """Up to which message others do not know of the subscriptions that a log begins with."""
        if rng.random() < 0.4:
            self.tags = self.stability = False
        if not self.turning:
            for name in self.waiting:
                self.names.remove(name)
                del self.logs[name]
            self.waiting = []
        self.ended: dict[str, set[str | None]] = {name: set() for name in self.names}
        for name, log in self.logs.items():
            log.clear()
            self.subscribed[name] = {topic for topic in self.topics if name == "p0" or rng.random() < 0.6}
            if name not in self.waiting:
                self._subscribe(name)

    def _turns(self, steps: int) -> dict[int, Callable[[], None]]:
        turns = super()._turns(steps) if self.turning else {}
        power = self.rng.choice((1, 2))
        return turns | {int(steps * self.rng.random() ** power): self._turn for _ in range(self.rng.randint(0, 9))}

    def _come(self) -> None:
        name = self.waiting[-1]
        super()._come()
        self._subscribe(name)

    def _subscribe(self, name: str) -> None:
        for topic in sorted(self.subscribed[name], key=str):
            self.logs[name].append({"event": "subscribe", "topic": topic})

    def _turn(self) -> None:
        """Let somebody subscribe or unsubscribe; who does may go on with what was under way."""
        every = [(name, topic) for name in self.members() for topic in self.topics if self.seen[name]]
        fresh = [(n, t) for n, t in every if t not in self.subscribed[n] | self.ended[n]]
        if not every:
            return
        name, topic = self.rng.choice(fresh if fresh and self.rng.random() < 0.6 else every)
        if topic in self.subscribed[name]:
            self.logs[name].append({"event": "unsubscribe", "topic": topic})
            self.subscribed[name].discard(topic)
            self.ended[name].add(topic)
            for dot, born in self.born.items() if self.rng.random() < 0.9 else ():
                if self.topic_of[dot] == topic:
                    born.discard(name)
        elif (name, topic) in fresh or self.rng.random() < 0.1:
            self.logs[name].append({"event": "subscribe", "topic": topic})
            self.subscribed[name].add(topic)

    def _broadcast(self, name: str) -> None:
        subscribed = self.subscribed[name]
        if self.rng.random() < self.outside:
            self.subscribed[name] = set(self.topics)
        number = len(self.past)
        super()._broadcast(name)
        self.subscribed[name] = subscribed
        for dot in list(self.past)[number:]:
            self.born[dot] -= {other for other, last in self.unknown.items() if other != name and number < last}


class Returning(Subscribing):
    """The same with those who come and go again and again, also to and from the whole; some note their own eviction."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.untold = rng.choice((0, 0, 0.05))
        """How often somebody who has not subscribed is sent a message nevertheless."""
        self.back = rng.choice((0.3, 0.9))

    def _turns(self, steps: int) -> dict[int, Callable[[], None]]:
        turns = super()._turns(steps)
        power = self.rng.choice((1, 2))
        turns |= {int(steps * self.rng.random() ** power): self._turn for _ in range(self.rng.randint(3, 20))}
        for _ in range(self.rng.randint(0, 3)) if self.turning else ():
            left, back = sorted(self.rng.sample(range(1, steps), 2))
            turns |= {left: self._leave, back: self._return}
        return turns

    def _turn(self) -> None:
        gone = [(n, t) for n in self.members() for t in sorted(self.ended[n], key=str) if t not in self.subscribed[n]]
        if not gone or self.rng.random() > self.back:
            super()._turn()
            return
        name, topic = self.rng.choice(gone)
        self.logs[name].append({"event": "subscribe", "topic": topic})
        self.subscribed[name].add(topic)

    def _leave(self) -> None:
        if len(self.members()) < 3:
            return
        name = self.rng.choice(self.members())
        self.gone.add(name)
        self.logs[name].append({"event": "leave"} if self.rng.random() < 0.6 else {"event": "evict", "peer": name})

    def _return(self) -> None:
        left = [name for name in self.names if self.logs[name] and self.logs[name][-1]["event"] in ("leave", "evict")]
        left = [name for name in left if name in self.gone]
        if not left:
            return
        name, giver = self.rng.choice(left), self.rng.choice(self.members())
        self.gone.discard(name)
        self.logs[name].append({"event": "join"})
        self.given[name] = self.given.get(name, set()) | self.seen[giver] | self.given.get(giver, set())

    def _broadcast(self, name: str) -> None:
        number = len(self.past)
        super()._broadcast(name)
        for dot in list(self.past)[number:]:
            self.born[dot] |= {other for other in self.members() if self.rng.random() < self.untold}


class Coming(Returning):
    """The same, in which most is soon everywhere, and who comes may send before it has anything."""

    steps = (50, 100)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.members_only = rng.random() < 0.4
        self.topics = [None] if self.members_only else self.topics[: rng.choice((1, 1, 2))]
        clock = next(iter(self.logs.values()))._clock
        for name in [f"w{i}" for i in range(rng.randint(0, 3))] if self.members_only else ():
            self._add(name, clock)
            self.waiting.append(name)
            self.ended[name] = set()
        for name, log in self.logs.items():
            self.subscribed[name] = {None} if self.members_only else self.subscribed[name] & set(self.topics)
            log[:] = [row for row in log if row.get("topic") in self.subscribed[name] and not self.members_only]
        self.turning = self.turning or self.members_only
        self.tags = rng.random() < 0.7
        self.stability = not self.tags or rng.random() < 0.4
        self.outside = rng.choice((0, 0, 0.03))
        self.at_once = rng.choice((0, 0.3, 0.8))
        self.swift = rng.random() < 0.8

    def _pace(self) -> int:
        return 6 if self.swift else super()._pace()

    def _turns(self, steps: int) -> dict[int, Callable[[], None]]:
        turns = super()._turns(steps)
        return dict(sorted(turns.items())[: self.rng.randint(2, 8)]) if self.rng.random() < 0.5 else turns

    def _come(self) -> None:
        name = self.waiting[-1]
        super()._come()
        if self.rng.random() < self.at_once:
            self._broadcast(name)

    def _turn(self) -> None:
        if self.members_only:
            return
        before = {name: set(topics) for name, topics in self.subscribed.items()}
        super()._turn()
        for name, topics in self.subscribed.items():
            if topics - before[name] and self.rng.random() < self.at_once:
                self._broadcast(name)

    def _subscribe(self, name: str) -> None:
        if not getattr(self, "members_only", False):
            super()._subscribe(name)


def with_traffic(rng: random.Random, rows: list[Row]) -> list[Row]:
    """Return rows with sends and receptions among them, of every message as often, by whom and as late as may be."""
    logs: dict[str, list[Row]] = {}
    for row in rows:
        logs.setdefault(row["process"], []).append(row)
    end = max(log[-1]["at"] for log in logs.values())
    # Who is gone writes no more.
    ends = {name: log[-1]["at"] if log[-1]["event"] in ("leave", "crash") else end for name, log in logs.items()}
    told = rng.choice((("send",), ("receive",), ("send", "receive"), ("send", "receive")))
    lost, again, late = (rng.choice((0.0, 0.1, 0.5)) for _ in range(3))
    delivered = {(r["process"], r["origin"], r["counter"]): r["at"] for r in rows if r["event"] == "deliver"}

    def add(name: str, event: str, message: Row, at: float) -> None:
        if event in told and at < ends[name]:
            about = {key: message[key] for key in ("origin", "counter", "topic") if key in message}
            peer = rng.choice(sorted(logs))
            logs[name].append({"process": name, "event": event, **about, "peer": peer, "at": at})

    for message in [row for row in rows if row["event"] == "broadcast"]:
        sent = message["at"]
        for name in sorted(logs):
            got = delivered.get((name, message["origin"], message["counter"]), sent + 20)
            if name != message["origin"] and rng.random() >= lost:
                add(name, "receive", message, rng.uniform(sent, got))
            for _ in range(rng.choice((0, 1, 3))):
                if rng.random() < again:
                    add(name, "receive", message, rng.uniform(sent, end if rng.random() < late else sent + 60))
            for _ in range(rng.choice((0, 0, 1, 2))):
                add(name, "send", message, rng.uniform(sent, end if rng.random() < late else sent + 20))
    for log in logs.values():
        log.sort(key=lambda row: float(row["at"]))
        for seq, row in enumerate(log, start=1):
            row["seq"] = seq
    return [row for log in logs.values() for row in log]


def with_faults(rng: random.Random, rows: list[Row]) -> list[Row]:
    """Return rows with faults in the first half of the time, of kinds that nothing to come can mend."""
    half = max(row["at"] for row in rows) / 2
    logs: dict[str, list[Row]] = {}
    for row in rows:
        logs.setdefault(row["process"], []).append(row)
    sent = [row for row in rows if row["event"] == "broadcast" and row["at"] <= half]
    told = ("origin", "counter", "topic", "payload_bytes", "context")

    def swap(log: list[Row], i: int) -> None:
        if log[i]["event"] in ("deliver", "stable", "broadcast"):
            near = range(i + 1, min(i + 8, len(log)))
            others = [j for j in near if log[j]["event"] == log[i]["event"] != "broadcast"]
            own = [j for j in near if log[j]["event"] == "deliver" and log[j]["origin"] == log[j]["process"]]
            for j in (others + own)[:1]:
                for key in ("event", *told):
                    one, other = log[i].pop(key, None), log[j].pop(key, None)
                    log[i] |= {} if other is None else {key: other}
                    log[j] |= {} if one is None else {key: one}

    def again(log: list[Row], i: int) -> None:
        if log[i]["event"] in ("deliver", "stable"):
            j = rng.randrange(i, min(i + 12, len(log)))
            log.insert(j + 1, log[i] | {"at": log[j]["at"] + 0.5})

    def alter(log: list[Row], i: int) -> None:
        if log[i]["event"] == "deliver":
            log[i]["payload_bytes"] = 99

    def misname(log: list[Row], i: int) -> None:
        tag = log[i].get("context")
        if tag is not None:
            other = rng.choice([row for row in sent if row.get("topic") == log[i].get("topic")] or [log[i]])
            dot = [other["origin"], other["counter"]]
            log[i]["context"] = rng.choice((tag[1:], [*tag, dot], [dot]))

    def hurry(log: list[Row], i: int) -> None:
        if log[i]["event"] == "stable":
            log.insert(max(i - rng.randint(1, 6), 0), log.pop(i))
            for row, at in zip(log, sorted(row["at"] for row in log), strict=True):
                row["at"] = at

    for _ in range(rng.randint(1, 9)):
        log = logs[rng.choice(sorted(logs))]
        early = [i for i, row in enumerate(log) if row["at"] <= half]
        if early and sent:
            rng.choice((swap, swap, again, alter, misname, hurry))(log, rng.choice(early))
    for log in logs.values():
        for seq, row in enumerate(log, start=1):
            row["seq"] = seq
    return [row for log in logs.values() for row in log]


def steady_trace(
    rng: random.Random,
    kind: type[Steady] = Steady,
    *,
    traffic: random.Random | None = None,
    faults: random.Random | None = None,
) -> tuple[list[Row], tuple[str, ...]]:
    """Return rows by the time when they came, and who is said to have crashed.

    With `traffic`, it says of which messages; with `faults`, there are such as nothing to come can mend.
    """
    rows = kind(rng).run(rng.randint(*kind.steps))
    if faults is not None:
        rows = with_faults(faults, rows)
    if traffic is not None:
        rows = with_traffic(traffic, rows)
    if rng.random() < kind.anew:
        _restart_numbers(rows)
    times = rng.choice(("none", "rising", "any", "any"))
    for row in rows:
        if times == "rising" and rng.random() < 0.95:
            row["time_ns"] = 10**12 + int(row["at"] * 1_000_000) + rng.randint(0, 999_999)
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
    for row in sorted(rows, key=lambda row: float(row["at"])):
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
