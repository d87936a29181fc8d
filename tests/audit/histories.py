"""Random small histories: a correct execution, then a few faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

Row = dict[str, Any]
Dot = tuple[str, int]


class Execution:
    """Processes that deliver causally, with tags and stability; rows are logged as a correct system would."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = [f"p{i}" for i in range(rng.randint(2, 5))]
        self.logs: dict[str, list[Row]] = {name: [] for name in self.names}
        self.explicit = rng.random() < 0.3
        self.tags = rng.random() < 0.5
        self.stability = rng.random() < 0.5
        self.topics = ["a", "b"] if rng.random() < 0.2 else [None]
        self.past: dict[Dot, set[Dot]] = {}
        self.topic_of: dict[Dot, str | None] = {}
        self.size_of: dict[Dot, int] = {}
        self.sent = dict.fromkeys(self.names, 0)
        self.seen: dict[str, set[Dot]] = {name: set() for name in self.names}
        self.stable: dict[str, set[Dot]] = {name: set() for name in self.names}
        self.joiner = self.names[-1] if len(self.names) > 2 and rng.random() < 0.3 else None
        self.joined = self.joiner is None
        self.inherited: set[Dot] = set()
        self.born: dict[Dot, set[str]] = {}
        self.leaver = self.names[0] if len(self.names) > 2 and rng.random() < 0.2 else None
        self.gone: set[str] = set()
        self.subscribed = {n: set(self.topics) for n in self.names}
        if self.topics != [None] and rng.random() < 0.5:
            for name in self.names:
                self.subscribed[name] = {topic for topic in self.topics if rng.random() < 0.7}
                for topic in self.subscribed[name]:
                    self.logs[name].append({"event": "subscribe", "topic": topic})

    def members(self) -> list[str]:
        return [n for n in self.names if n not in self.gone and (self.joined or n != self.joiner)]

    def run(self, steps: int) -> list[Row]:
        for step in range(steps):
            if not self.joined and step == steps // 3:
                self._join()
            if self.leaver and step == steps // 2:
                self.logs[self.leaver].append({"event": "leave"})
                self.gone.add(self.leaver)
            name = self.rng.choice(self.members())
            if self.rng.random() < 0.35:
                self._broadcast(name)
            else:
                self._deliver(name)
                self._report_stable(name)
        while any(self._deliver(name) for name in self.members()):
            pass
        if self.stability:
            while any(self._report_stable(name) for name in self.members()):
                pass
        return self.rows()

    def rows(self) -> list[Row]:
        found = []
        for name, log in self.logs.items():
            for seq, row in enumerate(log, start=1):
                found.append({"process": name, "seq": seq} | row)
        return found

    def _join(self) -> None:
        assert self.joiner is not None
        self.joined = True
        self.inherited = set(self.past)
        self.logs[self.joiner].append({"event": "join"})

    def _message(self, event: str, dot: Dot, **more: Any) -> Row:
        row: Row = {"event": event, "origin": dot[0], "counter": dot[1], **more}
        if self.topic_of[dot] is not None:
            row["topic"] = self.topic_of[dot]
        return row

    def _broadcast(self, name: str) -> None:
        topics = sorted(self.subscribed[name], key=str)
        if not topics:
            return
        topic = self.rng.choice(topics)
        self.sent[name] += 1
        dot = (name, self.sent[name])
        known = self.seen[name] | (self.inherited if name == self.joiner else set())
        past = {d for d in known if self.topic_of[d] == topic}
        past |= {d for seen in list(past) for d in self.past[seen]}
        self.topic_of[dot] = topic
        self.past[dot] = past
        self.size_of[dot] = self.rng.randint(1, 3)
        self.born[dot] = {n for n in self.members() if topic in self.subscribed[n]}
        row = self._message("broadcast", dot, payload_bytes=self.size_of[dot])
        if self.tags:
            heads = [d for d in past if not any(d in self.past[other] for other in past)]
            row["context"] = [list(d) for d in (sorted(heads) if self.rng.random() < 0.7 else sorted(past))]
        self.logs[name].append(row)
        self.seen[name].add(dot)
        if self.explicit:
            self.logs[name].append(self._message("deliver", dot, payload_bytes=row["payload_bytes"]))

    def _deliver(self, name: str) -> bool:
        ready = [
            dot
            for dot, past in self.past.items()
            if dot not in self.seen[name]
            and name in self.born[dot]
            and all(c in self.seen[name] or name not in self.born[c] for c in past)
        ]
        if not ready:
            return False
        dot = self.rng.choice(ready)
        self.seen[name].add(dot)
        size = self.size_of[dot]
        more = {"payload_bytes": size} if self.rng.random() < 0.5 else {}
        self.logs[name].append(self._message("deliver", dot, **more))
        return True

    def _report_stable(self, name: str) -> bool:
        if not self.stability:
            return False
        members = self.members()
        for dot in sorted(self.seen[name] - self.stable[name]):
            everywhere = all(dot in self.seen[n] for n in members if n in self.born[dot])
            # What is in nobody's way any more: no member can still send something concurrent.
            quiet = all(
                dot in self.past[other] or other in self.past[dot] or other == dot or other in self.seen[name]
                for other in self.past
                if name in self.born[other] and self.topic_of[other] == self.topic_of[dot]
            )
            ready = all(c in self.stable[name] or c not in self.seen[name] for c in self.past[dot])
            if everywhere and quiet and ready and all(dot in self.seen[n] or n not in self.born[dot] for n in members):
                self.stable[name].add(dot)
                self.logs[name].append(self._message("stable", dot))
                return True
        return False


def mutate(rng: random.Random, rows: list[Row]) -> tuple[list[Row], tuple[str, ...]]:
    """Apply one to three faults; returns the rows and the processes that are said to have crashed."""
    rows = [dict(row) for row in rows]
    crashed: list[str] = []
    for _ in range(rng.randint(1, 3)):
        rows = rng.choice(_FAULTS)(rng, rows, crashed)
    rng.shuffle(rows)
    return rows, tuple(crashed)


def _renumber(rows: list[Row]) -> list[Row]:
    counts: dict[str, int] = {}
    for row in sorted(rows, key=lambda r: (r["process"], r["seq"])):
        counts[row["process"]] = counts.get(row["process"], 0) + 1
        row["seq"] = counts[row["process"]]
    return rows


def _pick(rng: random.Random, rows: list[Row], *events: str) -> Row | None:
    chosen = [row for row in rows if row["event"] in events]
    return rng.choice(chosen) if chosen else None


def _duplicate(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver", "stable")
    if row is not None:
        last = max(r["seq"] for r in rows if r["process"] == row["process"])
        rows.append(row | {"seq": rng.choice([row["seq"] + 0.5, last + 1])})
    return _renumber(rows)


def _omit(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver", "stable")
    return _renumber([r for r in rows if r is not row])


def _lose_row(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = rng.choice(rows)
    left = [r for r in rows if r is not row]
    return left or rows


def _lose_send(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "broadcast")
    left = [r for r in rows if r is not row]
    return _renumber(left) if left else rows


def _lose_log(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    name = rng.choice(rows)["process"]
    left = [r for r in rows if r["process"] != name]
    return left or rows


def _swap(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver", "stable")
    if row is None:
        return rows
    mine = [r for r in rows if r["process"] == row["process"] and r["event"] == row["event"]]
    other = rng.choice(mine)
    row["seq"], other["seq"] = other["seq"], row["seq"]
    return rows


def _crash(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    name = rng.choice(rows)["process"]
    mine = [r["seq"] for r in rows if r["process"] == name]
    cut = rng.randint(1, int(max(mine)))
    left = [r for r in rows if r["process"] != name or r["seq"] <= cut]
    if rng.random() < 0.5:
        crashed.append(name)
    else:
        left.append({"process": name, "seq": cut + 1, "event": "crash"})
        if rng.random() < 0.3:
            others = [r for r in left if r["process"] != name]
            if others:
                observer = rng.choice(others)
                left.append(
                    {"process": observer["process"], "seq": observer["seq"] + 0.5, "event": "evict", "peer": name}
                )
                left = _renumber(left)
    return left


def _phantom(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver")
    if row is not None:
        ghost = row | {"seq": row["seq"] + 0.5, "counter": rng.randint(20, 30)}
        rows.append(ghost)
    return _renumber(rows)


def _alter(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver")
    if row is not None:
        row["payload_bytes"] = 9
    return rows


def _spoil_tag(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    tagged = [row for row in rows if row.get("context") is not None]
    if tagged:
        row = rng.choice(tagged)
        if row["context"] and rng.random() < 0.5:
            row["context"] = row["context"][1:]
        else:
            sent = [r for r in rows if r["event"] == "broadcast" and r.get("topic") == row.get("topic")]
            other = rng.choice(sent)
            row["context"] = [*row["context"], [other["origin"], other["counter"]]]
    return rows


def _early_stable(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "deliver")
    if row is not None:
        early = row | {"event": "stable", "seq": row["seq"] + rng.choice([-0.5, 0.5])}
        early.pop("payload_bytes", None)
        rows.append(early)
    return _renumber(rows)


def _reuse(rng: random.Random, rows: list[Row], crashed: list[str]) -> list[Row]:
    row = _pick(rng, rows, "broadcast")
    if row is not None:
        rows.append(row | {"seq": row["seq"] + 0.5})
    return _renumber(rows)


_FAULTS = (
    _duplicate,
    _omit,
    _lose_row,
    _lose_send,
    _lose_log,
    _swap,
    _swap,
    _crash,
    _phantom,
    _alter,
    _spoil_tag,
    _early_stable,
    _reuse,
)
