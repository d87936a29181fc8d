"""Random executions with every kind of partial membership at once: what a correct system logs while members change.

Members join, leave and come back; subscribe and unsubscribe; crash, with or without an eviction. All that the
membership decides is decided by the real order of events, which the audit never sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

Row = dict[str, Any]
Dot = tuple[str, int]


class Churn:
    """A group whose members come and go. One that comes is given all that the others know of its topics."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.names = [f"p{i}" for i in range(rng.randint(2, 6))]
        self.topics: list[str | None] = [None] if rng.random() < 0.3 else ["a", "b", "c"][: rng.randint(1, 3)]
        self.pubsub = self.topics != [None] and rng.random() < 0.7
        self.explicit = rng.random() < 0.3
        self.tags = rng.random() < 0.5
        self.stability = rng.random() < 0.5
        self.logs: dict[str, list[Row]] = {name: [] for name in self.names}
        self.members: set[str] = set()
        self.crashed: set[str] = set()
        self.evicted: set[str] = set()
        self.subscribed: dict[str, set[str | None]] = {name: set() for name in self.names}
        self.stay: dict[tuple[str, str | None], int] = {}
        """How often a process has come to a topic."""
        self.past: dict[Dot, set[Dot]] = {}
        self.topic_of: dict[Dot, str | None] = {}
        self.entitled: dict[Dot, dict[str, int]] = {}
        """For each message, the members at its broadcast, and in which of their stays."""
        self.sent = dict.fromkeys(self.names, 0)
        self.knows: dict[str, set[Dot]] = {name: set() for name in self.names}
        self.seen: dict[str, set[Dot]] = {name: set() for name in self.names}
        self.stable: dict[str, set[Dot]] = {name: set() for name in self.names}
        for name in self.names:
            if rng.random() < 0.7 or not self.members:
                self.members.add(name)
                self._come(name, [topic for topic in self.topics if not self.pubsub or rng.random() < 0.7])

    def run(self, steps: int) -> list[Row]:
        for _ in range(steps):
            draw = self.rng.random()
            name = self.rng.choice(self.names)
            if draw < 0.12:
                self._change_membership(name)
            elif draw < 0.4:
                self._broadcast(name)
            else:
                self._deliver(name)
                self._report_stable(name)
        while any(self._deliver(name) for name in self.names):
            pass
        while any(self._report_stable(name) for name in self.names):
            pass
        return [
            {"process": name, "seq": seq} | row for name, log in self.logs.items() for seq, row in enumerate(log, 1)
        ]

    def _change_membership(self, name: str) -> None:
        if name in self.crashed:
            return
        if name not in self.members:
            self.members.add(name)
            self.logs[name].append({"event": "join"})
            self._come(name, self.topics if not self.pubsub else sorted(self.subscribed[name], key=str))
            return
        draw = self.rng.random()
        if draw < 0.4 and self.pubsub:
            topic = self.rng.choice(self.topics)
            if topic in self.subscribed[name]:
                self.logs[name].append({"event": "unsubscribe", "topic": topic})
                self.subscribed[name].discard(topic)
            elif any(row["event"] != "subscribe" for row in self.logs[name]):
                # Subscriptions that a log begins with count as made before all messages, so these are.
                self._come(name, [topic])
        elif draw < 0.8:
            self.logs[name].append({"event": "leave"})
            self.members.discard(name)
        elif len(self.members) > 1:
            self._crash(name)

    def _come(self, name: str, topics: list[str | None]) -> None:
        for topic in topics:
            if self.pubsub and topic not in self.subscribed[name]:
                self.logs[name].append({"event": "subscribe", "topic": topic})
            self.subscribed[name].add(topic)
            self.stay[name, topic] = self.stay.get((name, topic), 0) + 1
            self.knows[name] |= {dot for dot in self.past if self.topic_of[dot] == topic}

    def _crash(self, name: str) -> None:
        self.crashed.add(name)
        self.members.discard(name)
        self.logs[name].append({"event": "crash"})
        if self.rng.random() < 0.6:
            self.evicted.add(name)
            self.logs[self.rng.choice(sorted(self.members))].append({"event": "evict", "peer": name})
        if self.rng.random() < 0.5:
            # What nobody else has, or has been given with a state, may be lost with it.
            others = [n for n in self.names if n != name]
            for dot in self.past:
                if dot[0] == name and not any(dot in self.seen[n] | self.knows[n] for n in others):
                    self.entitled[dot] = {}

    def _here(self, name: str, topic: str | None) -> bool:
        return name in self.members and topic in self.subscribed[name]

    def _awaits(self, name: str, dot: Dot) -> bool:
        """Whether the process has been in the topic without a break since the message was broadcast."""
        topic = self.topic_of[dot]
        return self._here(name, topic) and self.entitled[dot].get(name) == self.stay[name, topic]

    def _message(self, event: str, dot: Dot, **more: Any) -> Row:
        row: Row = {"event": event, "origin": dot[0], "counter": dot[1], **more}
        if self.topic_of[dot] is not None:
            row["topic"] = self.topic_of[dot]
        return row

    def _broadcast(self, name: str) -> None:
        topics = [topic for topic in self.topics if self._here(name, topic)]
        if not topics:
            return
        topic = self.rng.choice(topics)
        self.sent[name] += 1
        dot = (name, self.sent[name])
        past = {d for d in self.seen[name] | self.knows[name] if self.topic_of[d] == topic}
        past |= {d for seen in list(past) for d in self.past[seen]}
        self.topic_of[dot], self.past[dot] = topic, past
        self.entitled[dot] = {n: self.stay[n, topic] for n in self.names if self._here(n, topic)}
        row = self._message("broadcast", dot, payload_bytes=3)
        if self.tags:
            heads = [d for d in past if not any(d in self.past[other] for other in past)]
            row["context"] = [list(d) for d in (sorted(heads) if self.rng.random() < 0.7 else sorted(past))]
        self.logs[name].append(row)
        self.seen[name].add(dot)
        if self.explicit:
            self.logs[name].append(self._message("deliver", dot, payload_bytes=3))

    def _deliver(self, name: str) -> bool:
        ready = [
            dot
            for dot, past in self.past.items()
            if dot not in self.seen[name]
            and self._awaits(name, dot)
            and all(c in self.seen[name] or not self._awaits(name, c) for c in past)
        ]
        if not ready:
            return False
        dot = self.rng.choice(ready)
        self.seen[name].add(dot)
        self.logs[name].append(self._message("deliver", dot))
        return True

    def _report_stable(self, name: str) -> bool:
        if not self.stability:
            return False
        for dot in sorted(self.seen[name] - self.stable[name]):
            topic = self.topic_of[dot]
            if not self._awaits(name, dot) or self.crashed - self.evicted:
                continue
            everywhere = all(dot in self.seen[n] for n in self.entitled[dot] if self._awaits(n, dot))
            reached = all(dot in self.seen[n] | self.knows[n] for n in self.names if self._here(n, topic))
            quiet = all(
                dot in self.past[other] or other in self.past[dot] or other == dot
                for other in self.past
                if self.topic_of[other] == topic and other not in self.seen[name] and self._awaits(name, other)
            )
            ordered = all(
                c in self.stable[name] or c not in self.seen[name] or not self._awaits(name, c) for c in self.past[dot]
            )
            if everywhere and reached and quiet and ordered:
                self.stable[name].add(dot)
                self.logs[name].append(self._message("stable", dot))
                return True
        return False
