"""The properties P1 to P8, checked by brute force on small logs, straight from their definitions.

What happened before what is known without trusting any tag: the past of a message is what its broadcaster's
application had broadcast and taken by then, with the pasts of that, topic by topic. `Truth` writes this down as
broadcasts happen, and an `Account`, one per process, compares each thing its application sees with it. Both are values
that are never changed, so a search can keep one per state it visits. Safety (P1, P3, P4, P5) is judged entry by entry,
what must happen at last (P2, P6) and what must not stay behind (P7, P8) when nothing is left to do.

**Entitlement**, from what applications saw. A process is entitled to a message if its application had taken the news
that its own join (or its subscription to the message's topic) is complete before the broadcast, in the order in which
the steps really happened, and has not asked to leave (to unsubscribe) since. Who has left is owed nothing any more,
not even what was under way: nobody can wait for messages of which no one has told him. Who was put out is owed nothing
once anybody's application knows, and is not entitled to what was broadcast by somebody who knew. Members from the start
are entitled from the start.

Where somebody was put out, the messages of the evicted are owed if a survivor delivered them, and P6 is asked of the
survivors as after a leave.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from causalcast.model import IncomparableTagsError, NotAMemberError
from causalcast.simulation.steps import topic_of
from causalcast.simulation.truth import GROUP, Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from causalcast.model import ProcessId, Tag
    from causalcast.protocols import Process
    from causalcast.simulation.steps import LogEntry, MessageId
    from causalcast.simulation.truth import Sent
    from causalcast.simulation.world import World

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
    message: MessageId | None = None
    cause: MessageId | None = None

    def __str__(self) -> str:
        return f"{self.property} {self.process}: {self.detail}"


class Standing(NamedTuple):
    """How one process stands to the group or to a topic."""

    asked: int = 0
    """How many times it has asked to be let in."""
    complete: int = 0
    """How many times it was told that it is."""
    inside: bool = False
    """Whether that is so, as far as it was told."""
    wanted: bool = False
    """Whether it has not asked to be let out since."""


_MEMBER: Final = {GROUP: Standing(1, 1, inside=True, wanted=True)}
_NOBODY: Final[Mapping[str, Standing]] = {}
_NOWHERE: Final = Standing()


class Account:
    """What the application of one process has seen, without the order in which it did."""

    __slots__ = ("delivered", "evicted", "name", "stable", "standing", "tags")

    def __init__(
        self,
        name: ProcessId,
        delivered: frozenset[MessageId] = frozenset(),
        stable: frozenset[MessageId] = frozenset(),
        tags: Mapping[tuple[MessageId, object, object], Tag] | None = None,
        standing: Mapping[str, Standing] = _MEMBER,
        evicted: frozenset[ProcessId] = frozenset(),
    ) -> None:
        self.name = name
        self.delivered = delivered
        """Own broadcasts included."""
        self.stable = stable
        self.tags = tags or {}
        """Each tag it was given, once, by what is written in it."""
        self.standing = standing
        self.evicted = evicted
        """Whom it was told to be put out."""

    @classmethod
    def absent(cls, name: ProcessId) -> Account:
        """Of a process that will join."""
        return cls(name, standing=_NOBODY)

    def after(self, entry: LogEntry) -> Account:
        """The account with one entry more."""
        tag = entry.tag
        if tag is None:
            return self._after_news(entry)
        message = entry.message
        tags = {**self.tags, (message, tag.context, tag.counts): tag}
        if entry.kind == "stable":
            return Account(self.name, self.delivered, self.stable | {message}, tags, self.standing, self.evicted)
        return Account(self.name, self.delivered | {message}, self.stable, tags, self.standing, self.evicted)

    def _after_news(self, entry: LogEntry) -> Account:
        standing, evicted = self.standing, self.evicted
        before = standing.get(entry.topic, _NOWHERE)
        now = None
        match entry.kind:
            case "joining" | "subscribing":
                now = before._replace(asked=before.asked + (not before.wanted), wanted=True)
            case "join" | "subscribe":
                now = before._replace(complete=min(before.complete + 1, before.asked), inside=before.wanted)
            case "leave" | "unsubscribe":
                now = before._replace(inside=False, wanted=False)
            case "unsubscribed":
                now = before._replace(inside=False)
            case "evict":
                evicted |= {entry.peer}
        if now is not None:
            standing = {**standing, entry.topic: now}
        return Account(self.name, self.delivered, self.stable, self.tags, standing, evicted)

    def times(self, topic: str) -> int:
        """For which time it is a member (and subscribed to `topic`) now; 0 if it is not."""
        if not all(self.standing.get(where, _NOWHERE).inside for where in (GROUP, topic)):
            return 0
        return self.standing[topic].complete

    @property
    def waiting(self) -> list[str]:
        """The topics (the group) of which it waits to hear that it is let in."""
        return [topic for topic, standing in self.standing.items() if standing.wanted and not standing.inside]

    @property
    def out(self) -> bool:
        """Whether it has left, or was told that it was put out, or never joined."""
        return not self.standing.get(GROUP, _NOWHERE).wanted or self.name in self.evicted

    def entitled(self, sent: Sent) -> bool:
        """Whether this process has to deliver the message."""
        if sent.audience is None:
            return True
        present = (self.name, self.times(sent.scope)) in sent.audience
        return present and not self.out and self.name not in sent.excluded

    @property
    def key(self) -> object:
        """Equal for accounts that no entry will ever tell apart."""
        if self.standing is _MEMBER:
            return self.delivered, self.stable, frozenset(self.tags), self.evicted
        return self.delivered, self.stable, frozenset(self.tags), self.evicted, frozenset(self.standing.items())

    def judge(self, entry: LogEntry, truth: Truth, *, tags: bool = True) -> list[Violation]:
        """What `entry`, the next thing seen, breaks of P1, P3, P5 and, with `tags`, P4.

        `truth` holds it if it is a broadcast.
        """
        if entry.tag is None:
            return []
        sent = truth.sent.get(entry.message)
        found = self._stable(entry, sent, truth) if entry.kind == "stable" else self._delivery(entry, sent, truth)
        return [*found, *self._tags(entry.message, entry.tag, truth)] if tags else found

    def _due(self, dots: Iterable[MessageId], truth: Truth) -> list[MessageId]:
        """Those of `dots` that this process is entitled to, in order; what nobody broadcast is held against it too."""
        sent = truth.sent
        return sorted(dot for dot in dots if dot not in sent or self.entitled(sent[dot]))

    def _delivery(self, entry: LogEntry, sent: Sent | None, truth: Truth) -> list[Violation]:
        name, dot = self.name, entry.message
        found = []
        if dot in self.delivered:
            found.append(Violation("P1", name, f"{dot} twice", dot))
        elif sent is not None and not self.entitled(sent):
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
            for cause in self._due(past - self.delivered, truth)
        )
        found.extend(
            Violation("P5", name, f"{dot} concurrent with {stable}, which is stable", dot, stable)
            for stable in sorted(self.stable - past)
            if topic_of(stable) == entry.topic and not truth.may_follow(dot, stable)
        )
        return found

    def _stable(self, entry: LogEntry, sent: Sent | None, truth: Truth) -> list[Violation]:
        name, dot = self.name, entry.message
        found = []
        if dot in self.stable:
            found.append(Violation("P5", name, f"{dot} stable twice", dot))
        if dot not in self.delivered and self._due((dot,), truth):
            found.append(Violation("P5", name, f"{dot} stable before it was delivered", dot))
        past = sent.past if sent is not None else frozenset()
        found.extend(
            Violation("P5", name, f"{dot} stable before its cause {cause}", dot, cause)
            for cause in self._due(past - self.stable, truth)
        )
        return found

    def _tags(self, message: MessageId, tag: Tag, truth: Truth) -> list[Violation]:
        found = []
        given = ((other, tag) for (other, _, _), tag in self.tags.items() if topic_of(other) == topic_of(message))
        for other, its_tag in (*given, (message, tag)):
            for (a, tag_a), (b, tag_b) in permutations(((message, tag), (other, its_tag))):
                wrong = _compared_wrongly(a, tag_a, b, tag_b, truth)
                if wrong:
                    found.append(Violation("P4", self.name, wrong, a, b))
        return found

    def missing(self, truth: Truth, due: Collection[MessageId], *, stability: bool = True) -> list[Violation]:
        """What this process has not seen of what is `due`, when nothing is left to do: P2 and, with `stability`, P6."""
        name = self.name
        entitled = self._due((dot for dot in due if dot in truth.sent), truth)
        found = [Violation("P2", name, f"{dot} never delivered", dot) for dot in entitled if dot not in self.delivered]
        if stability:
            found.extend(
                Violation("P6", name, f"{dot} never stable", dot) for dot in entitled if dot not in self.stable
            )
        return found


def _compared_wrongly(one: MessageId, a: Tag, other: MessageId, b: Tag, truth: Truth) -> str | None:
    sent_a, sent_b = truth.sent.get(one), truth.sent.get(other)
    same = one == other
    before = sent_b is not None and one in sent_b.past
    after = sent_a is not None and other in sent_a.past
    try:
        if (a == b, a < b, a > b) != (same, before, after) or (a <= b) != (same or before):
            concurrent = not (same or before or after)
            if concurrent and (truth.may_follow(other, one) if a < b else a > b and truth.may_follow(one, other)):
                return None
            return f"{a} and {b}, in truth {_relation(same, before, after)}"
        if a.concurrent_with(b) != (not same and not before and not after):
            return f"{a} concurrent with {b}, in truth {_relation(same, before, after)}"
    except (IncomparableTagsError, LookupError) as error:
        return f"{a} and {b} do not compare: {type(error).__name__}: {error}"
    if same and hash(a) != hash(b):
        return f"{a} hashes two ways"
    return None


def _relation(same: bool, before: bool, after: bool) -> str:
    return "the same" if same else "before" if before else "after" if after else "concurrent"


class End(NamedTuple):
    """How a process stands when nothing is left to do."""

    account: Account
    crashed: bool = False
    rest: Sequence[Violation] = ()
    """P7 and P8 of it, should it still be obliged to anything."""


def judge_end(truth: Truth, ends: Sequence[End]) -> list[Violation]:
    """What must not be so when nothing is left to do: P2, P6, P7 and P8 of those that are still there."""
    crashed = {end.account.name for end in ends if end.crashed}
    survivors = [end for end in ends if not end.crashed]
    evicted = {name for end in survivors for name in end.account.evicted if name != end.account.name}
    evicted |= {end.account.name for end in survivors if end.account.name in end.account.evicted}
    due = owed(truth, [end.account for end in ends], crashed, evicted)
    quiet = not crashed and not evicted
    found: list[Violation] = []
    for end in survivors:
        account = end.account
        if account.out or account.name in evicted:
            continue
        found += account.missing(truth, due, stability=crashed <= evicted)
        found += end.rest
        if quiet:
            found.extend(
                Violation(
                    "P8", account.name, f"{f'its subscription to {topic}' if topic else 'its join'} never complete"
                )
                for topic in account.waiting
            )
    return found


def owed(
    truth: Truth,
    accounts: Iterable[Account],
    crashed: Collection[ProcessId] = (),
    evicted: Collection[ProcessId] = (),
) -> set[MessageId]:
    """The messages that every correct entitled process must deliver: those of correct processes, and those that any
    other process delivered; of the evicted, what a survivor delivered. What a process broadcast before it crashed and
    nobody else saw is owed to nobody.
    """
    due = {dot for dot in truth.sent if dot.origin not in crashed and dot.origin not in evicted}
    for account in accounts:
        survivor = account.name not in crashed and account.name not in evicted
        due.update(
            dot
            for dot in account.delivered
            if dot in truth.sent and dot.origin != account.name and (survivor or dot.origin not in evicted)
        )
    return due


def violations(
    logs: Mapping[ProcessId, Sequence[LogEntry]],
    promises: Collection[str],
    *,
    crashed: Collection[ProcessId] = (),
    finished: bool = True,
) -> list[Violation]:
    """What of `promises` (P1 to P6) these logs of members that are there throughout break; P2 and P6 are judged if the
    run is `finished`.
    """
    truth = Truth.of(logs)
    ends = []
    found = []
    for name, entries in logs.items():
        account = Account(name)
        for entry in entries:
            found.extend(account.judge(entry, truth, tags="P4" in promises))
            account = account.after(entry)
        ends.append(End(account, name in crashed))
    if finished:
        found.extend(judge_end(truth, ends))
    return [violation for violation in found if violation.property in promises]


def left_over(name: ProcessId, process: Process, members: Iterable[ProcessId]) -> list[Violation]:
    """P8, when nothing is left to do: what is received and never delivered."""
    found = []
    for origin in members:
        try:
            count = process.pending(origin)
        except NotAMemberError:
            continue
        if count:
            found.append(Violation("P8", name, f"{count} of {origin} received and never delivered"))
    return found


def own_tables(process: Process) -> Mapping[str, int]:
    """For P7: what the process itself says of its tables, but of those that stand."""
    return {table: size for table, size in process.tables().items() if table not in process.standing}


def grown(name: ProcessId, process: Process, sizes: TableSizes | None) -> list[Violation]:
    """P7, when nothing is left to do: tables that are not empty."""
    if sizes is None:
        return []
    return [Violation("P7", name, f"{table} holds {size}") for table, size in sizes(process).items() if size]


class Judge:
    """Follows a world's entries as they come: the truth, everybody's account, and what is broken of safety so far.

    P4 is judged where the tags say what is before them (`Tag.counts`).
    """

    def __init__(self, world: World) -> None:
        self.truth = Truth.start(world.stack, world.members)
        self.violations: list[Violation] = []
        self._world = world
        self._seen = 0
        self._accounts = {
            name: Account(name) if name in world.members else Account.absent(name) for name in world.roster
        }

    def look(self) -> None:
        """Judge what was added to the logs since."""
        entries = self._world.entries
        for name, entry in entries[self._seen :]:
            account = self._accounts[name]
            self.truth = self.truth.after(entry, account)
            tags = entry.tag is not None and bool(entry.tag.counts)
            self.violations.extend(account.judge(entry, self.truth, tags=tags))
            self._accounts[name] = account.after(entry)
        self._seen = len(entries)

    def at_rest(self, sizes: TableSizes | None = None) -> list[Violation]:
        """P2, P6, P7 and P8, if nothing is left to do."""
        world = self._world
        ends = []
        for name, account in self._accounts.items():
            crashed = name in world.crashed
            rest: list[Violation] = []
            if not crashed and not account.out:
                process = world.processes[name]
                rest = [*left_over(name, process, world.roster.others(name)), *grown(name, process, sizes)]
            ends.append(End(account, crashed, rest))
        return judge_end(self.truth, ends)


def judge_world(world: World, properties: Collection[str], sizes: TableSizes | None = None) -> list[Violation]:
    """What a world breaks as it stands; what must happen at last is judged if nothing is left to do."""
    judge = Judge(world)
    judge.look()
    found = [*judge.violations, *(judge.at_rest(sizes) if world.quiescent else ())]
    return [violation for violation in found if violation.property in properties]
