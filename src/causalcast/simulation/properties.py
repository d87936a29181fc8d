"""The properties P1 to P8, checked by brute force on small logs, straight from their definitions.

What happened before what is known without trusting any tag: the past of a message is what its broadcaster's
application had broadcast and taken by then, with the pasts of that. `Truth` writes this down as broadcasts happen,
and an `Account`, one per process, compares each thing its application sees with it. Both are values that are never
changed, so a search can keep one per state it visits. Safety (P1, P3, P4, P5) is judged entry by entry, what must
happen at last (P2, P6) and what must not stay behind (P7, P8) when nothing is left to do.

A process is judged for what it is *entitled* to: `entitled(process, dot)` says whether it was a member (a subscriber)
from before that broadcast until after it. Without it, all are members throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from causalcast.model import Dot, ProcessId, Tag
    from causalcast.protocols import Process
    from causalcast.simulation.world import LogEntry, World

    Entitled: TypeAlias = Callable[[ProcessId, Dot], bool]
    TableSizes: TypeAlias = Callable[[Process], Mapping[str, int]]
    """For P7: the sizes, by name, of a process's tables that must be empty at rest."""

ERROR: Final = "error"
"""Stands for a property where a process failed with an exception; no stack may, so it is always checked."""

SAFETY: Final = frozenset({"P1", "P3", "P4", "P5", ERROR})
"""What a prefix of a run can break."""


class Violation(NamedTuple):
    """One breach of a property, seen at `process`; `message` and `cause` are the messages it is about."""

    property: str
    process: ProcessId
    detail: str
    message: Dot | None = None
    cause: Dot | None = None

    def __str__(self) -> str:
        return f"{self.property} {self.process}: {self.detail}"


class Sent(NamedTuple):
    """A message as it was broadcast, and all that happened before it."""

    payload: bytes
    past: frozenset[Dot]


class Truth:
    """Every message broadcast so far."""

    __slots__ = ("key", "sent")

    def __init__(self, sent: Mapping[Dot, Sent]) -> None:
        self.sent = sent
        self.key = frozenset(sent.items())
        """Equal for equal truths."""

    def after(self, entry: LogEntry, seen: Iterable[Dot]) -> Truth:
        """The truth after a broadcast by an application that has seen, itself, `seen`."""
        past = set(seen)
        for dot in seen:
            if dot in self.sent:
                past |= self.sent[dot].past
        return Truth({**self.sent, entry.tag.dot: Sent(entry.payload, frozenset(past))})

    @classmethod
    def of(cls, logs: Mapping[ProcessId, Sequence[LogEntry]]) -> Truth:
        """The truth at the end of these logs."""
        past = pasts(logs)
        return cls(
            {
                entry.tag.dot: Sent(entry.payload, frozenset(past[entry.tag.dot]))
                for entries in logs.values()
                for entry in entries
                if entry.kind == "broadcast"
            }
        )


def pasts(logs: Mapping[ProcessId, Sequence[LogEntry]]) -> dict[Dot, set[Dot]]:
    """For each message, every message that happened before it: program order, and delivery before broadcast."""
    direct: dict[Dot, set[Dot]] = {}
    for entries in logs.values():
        seen: set[Dot] = set()
        for entry in entries:
            if entry.kind == "broadcast":
                direct[entry.tag.dot] = set(seen)
            if entry.kind in {"broadcast", "deliver"}:
                seen.add(entry.tag.dot)
    closed: dict[Dot, set[Dot]] = {}
    for dot, before_it in direct.items():
        past: set[Dot] = set()
        todo = list(before_it)
        while todo:
            before = todo.pop()
            if before not in past:
                past.add(before)
                todo.extend(direct.get(before, ()))
        closed[dot] = past
    return closed


class Account:
    """What the application of one process has seen, without the order in which it did."""

    __slots__ = ("delivered", "name", "stable", "tags")

    def __init__(
        self,
        name: ProcessId,
        delivered: frozenset[Dot] = frozenset(),
        stable: frozenset[Dot] = frozenset(),
        tags: Mapping[tuple[object, ...], Tag] | None = None,
    ) -> None:
        self.name = name
        self.delivered = delivered
        """Own broadcasts included."""
        self.stable = stable
        self.tags = tags or {}
        """Each tag it was given, once, by what is written in it."""

    def after(self, entry: LogEntry) -> Account:
        """The account with one entry more."""
        tag = entry.tag
        tags = {**self.tags, (tag.origin, tag.counter, tag.context, tag.counts): tag}
        if entry.kind == "stable":
            return Account(self.name, self.delivered, self.stable | {tag.dot}, tags)
        return Account(self.name, self.delivered | {tag.dot}, self.stable, tags)

    @property
    def key(self) -> object:
        """Equal for accounts that no entry will ever tell apart."""
        return self.delivered, self.stable, frozenset(self.tags)

    def judge(self, entry: LogEntry, truth: Truth, entitled: Entitled | None = None) -> list[Violation]:
        """What `entry`, the next thing seen, breaks of P1, P3, P4 and P5; `truth` holds it if it is a broadcast."""
        sent = truth.sent.get(entry.tag.dot)
        past = sent.past if sent is not None else frozenset()
        found = self._stable(entry, past) if entry.kind == "stable" else self._delivery(entry, sent, truth, entitled)
        return [*found, *self._tags(entry.tag, truth)]

    def _delivery(self, entry: LogEntry, sent: Sent | None, truth: Truth, entitled: Entitled | None) -> list[Violation]:
        name, dot = self.name, entry.tag.dot
        found = []
        if dot in self.delivered:
            found.append(Violation("P1", name, f"{dot} twice", dot))
        elif entitled is not None and not entitled(name, dot):
            # Nobody had to wait for it; but delivered after all, it has to come before its effects.
            found.extend(
                Violation("P3", name, f"{seen} before its cause {dot}", seen, dot)
                for seen in sorted(self.delivered)
                if seen in truth.sent and dot in truth.sent[seen].past
            )
        if sent is None or sent.payload != entry.payload:
            found.append(Violation("P1", name, f"{dot} is not what was broadcast", dot))
        past = sent.past if sent is not None else frozenset()
        found.extend(
            Violation("P3", name, f"{dot} before its cause {cause}", dot, cause)
            for cause in sorted(past - self.delivered)
            if entitled is None or entitled(name, cause)
        )
        found.extend(
            Violation("P5", name, f"{dot} concurrent with {stable}, which is stable", dot, stable)
            for stable in sorted(self.stable - past)
        )
        return found

    def _stable(self, entry: LogEntry, past: frozenset[Dot]) -> list[Violation]:
        name, dot = self.name, entry.tag.dot
        found = []
        if dot in self.stable:
            found.append(Violation("P5", name, f"{dot} stable twice", dot))
        if dot not in self.delivered:
            found.append(Violation("P5", name, f"{dot} stable before it was delivered", dot))
        found.extend(
            Violation("P5", name, f"{dot} stable before its cause {cause}", dot, cause)
            for cause in sorted(past - self.stable)
        )
        return found

    def _tags(self, tag: Tag, truth: Truth) -> list[Violation]:
        found = []
        for other in (*self.tags.values(), tag):
            for a, b in ((tag, other), (other, tag)):
                wrong = _compared_wrongly(a, b, truth)
                if wrong:
                    found.append(Violation("P4", self.name, wrong, a.dot, b.dot))
        return found

    def missing(
        self, truth: Truth, owed: Collection[Dot], entitled: Entitled | None = None, *, stability: bool = True
    ) -> list[Violation]:
        """What this process has not seen when nothing is left to do: P2 over what is `owed` to all, P6 over all."""
        name = self.name
        found = [
            Violation("P2", name, f"{dot} never delivered", dot)
            for dot in sorted(owed)
            if dot not in self.delivered and (entitled is None or entitled(name, dot))
        ]
        if stability:
            found.extend(
                Violation("P6", name, f"{dot} never stable", dot)
                for dot in sorted(truth.sent)
                if dot not in self.stable and (entitled is None or entitled(name, dot))
            )
        return found


def _compared_wrongly(a: Tag, b: Tag, truth: Truth) -> str | None:
    sent_a, sent_b = truth.sent.get(a.dot), truth.sent.get(b.dot)
    same = a.dot == b.dot
    before = sent_b is not None and a.dot in sent_b.past
    after = sent_a is not None and b.dot in sent_a.past
    if (a == b, a < b, a > b) != (same, before, after) or (a <= b) != (same or before):
        return f"{a} and {b}, in truth {_relation(same, before, after)}"
    if a.concurrent_with(b) != (not same and not before and not after):
        return f"{a} concurrent with {b}, in truth {_relation(same, before, after)}"
    if same and hash(a) != hash(b):
        return f"{a} hashes two ways"
    return None


def _relation(same: bool, before: bool, after: bool) -> str:
    return "the same" if same else "before" if before else "after" if after else "concurrent"


def owed(truth: Truth, accounts: Iterable[Account], crashed: Collection[ProcessId] = ()) -> set[Dot]:
    """The messages that every correct entitled process must deliver: those of correct processes, and those that any
    other process delivered. What a process broadcast before it crashed and nobody else saw is owed to nobody.
    """
    due = {dot for dot in truth.sent if dot.origin not in crashed}
    for account in accounts:
        due.update(dot for dot in account.delivered if dot in truth.sent and dot.origin != account.name)
    return due


def violations(
    logs: Mapping[ProcessId, Sequence[LogEntry]],
    promises: Collection[str],
    *,
    crashed: Collection[ProcessId] = (),
    entitled: Entitled | None = None,
    finished: bool = True,
) -> list[Violation]:
    """What of `promises` (P1 to P6) these logs break; P2 and P6 are judged if the run is `finished`."""
    truth = Truth.of(logs)
    accounts = []
    found = []
    for name, entries in logs.items():
        account = Account(name)
        for entry in entries:
            found.extend(account.judge(entry, truth, entitled))
            account = account.after(entry)
        accounts.append(account)
    if finished:
        due = owed(truth, accounts, crashed)
        for account in accounts:
            if account.name not in crashed:
                found.extend(account.missing(truth, due, entitled, stability=not crashed))
    return [violation for violation in found if violation.property in promises]


def left_over(name: ProcessId, process: Process, members: Iterable[ProcessId]) -> list[Violation]:
    """P8, when nothing is left to do: what is received and never delivered."""
    return [
        Violation("P8", name, f"{count} of {origin} received and never delivered")
        for origin in members
        if (count := process.pending(origin))
    ]


def grown(name: ProcessId, process: Process, sizes: TableSizes | None) -> list[Violation]:
    """P7, when nothing is left to do: tables that are not empty."""
    if sizes is None:
        return []
    return [Violation("P7", name, f"{table} holds {size}") for table, size in sizes(process).items() if size]


def judge_world(world: World, properties: Collection[str], sizes: TableSizes | None = None) -> list[Violation]:
    """What a world breaks as it stands; what must happen at last is judged if nothing is left to do."""
    finished = world.quiescent
    found = violations(world.logs, properties, crashed=world.crashed, finished=finished)
    if finished:
        for name, process in world.processes.items():
            if name not in world.crashed:
                rest = [*left_over(name, process, world.roster.others(name)), *grown(name, process, sizes)]
                found.extend(violation for violation in rest if violation.property in properties)
    return found
