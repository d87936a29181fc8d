"""What really happened: which message was broadcast after which, and who was there, without trusting any tag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.simulation.steps import topic_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols import Stack
    from causalcast.simulation.properties import Account
    from causalcast.simulation.steps import LogEntry, MessageId

GROUP: Final = ""
"""Stands for the group where a topic is asked for."""


class Sent(NamedTuple):
    """A message as it was broadcast, and all that happened before it in its topic."""

    payload: bytes
    past: frozenset[MessageId]
    scope: str = GROUP
    """To what a process must belong to be entitled to it: the topic, or the group if all get all topics."""
    audience: frozenset[tuple[ProcessId, int]] | None = None
    """Who belonged to it, and for which time (see `Standing`); `None`: everybody does throughout."""
    excluded: frozenset[ProcessId] = frozenset()
    """Who was put out as far as the broadcaster's application knew."""


class Truth:
    """Every message broadcast so far, and, where that changes, who has joined and subscribed so far."""

    __slots__ = ("by_topic", "key", "present", "sent")

    def __init__(
        self,
        sent: Mapping[MessageId, Sent],
        present: frozenset[tuple[ProcessId, str, int]] | None = None,
        by_topic: bool = False,
    ) -> None:
        self.sent = sent
        self.present = present
        """Process, topic and which time: all joins and subscriptions that were ever complete."""
        self.by_topic = by_topic
        """Whether members subscribe to topics; otherwise all get all topics."""
        self.key = (frozenset(sent.items()), present)
        """Equal for equal truths."""

    def after(self, entry: LogEntry, account: Account) -> Truth:
        """The truth after what the application with this `account` has just done or seen."""
        if entry.kind == "broadcast":
            return Truth({**self.sent, entry.message: self._sent(entry, account)}, self.present, self.by_topic)
        if self.present is not None and entry.kind in {"join", "subscribe"}:
            times = account.after(entry).times(entry.topic)
            if times:
                return Truth(self.sent, self.present | {(account.name, entry.topic, times)}, self.by_topic)
        return self

    def _sent(self, entry: LogEntry, account: Account) -> Sent:
        seen = [message for message in account.delivered if topic_of(message) == entry.topic]
        past = set(seen)
        excluded = account.evicted
        for message in seen:
            before = self.sent.get(message)
            if before is not None:
                past |= before.past
                excluded |= before.excluded
        scope = entry.topic if self.by_topic else GROUP
        audience = None
        if self.present is not None:
            audience = frozenset((name, times) for name, where, times in self.present if where == scope)
        return Sent(entry.payload, frozenset(past), scope, audience, excluded)

    def may_follow(self, message: MessageId, earlier: MessageId) -> bool:
        """Whether `earlier` may come before `message` though no log shows it: with the state given to a joiner."""
        before = self.sent.get(earlier)
        if before is None or before.audience is None or message not in self.sent:
            return False
        there = {name for name, _ in before.audience}
        return any(each.origin not in there for each in (message, *self.sent[message].past))

    @classmethod
    def start(cls, stack: Stack, members: Iterable[ProcessId]) -> Truth:
        """Before anything has happened; only where members or subscriptions change it is followed who is there."""
        by_topic = stack.topics and stack.topic_message is None
        if not stack.dynamic and not by_topic:
            return cls({})
        return cls({}, frozenset((name, GROUP, 1) for name in members), by_topic)

    @classmethod
    def of(cls, logs: Mapping[ProcessId, Sequence[LogEntry]]) -> Truth:
        """The truth at the end of these logs of members that are there throughout."""
        past = pasts(logs)
        return cls(
            {
                entry.message: Sent(entry.payload, frozenset(past[entry.message]))
                for entries in logs.values()
                for entry in entries
                if entry.kind == "broadcast"
            }
        )


def pasts(logs: Mapping[ProcessId, Sequence[LogEntry]]) -> dict[MessageId, set[MessageId]]:
    """For each message, every message that happened before it: program order, and delivery before broadcast."""
    direct: dict[MessageId, set[MessageId]] = {}
    for entries in logs.values():
        seen: dict[str, set[MessageId]] = {}
        for entry in entries:
            if entry.kind in {"broadcast", "deliver"}:
                before = seen.setdefault(entry.topic, set())
                if entry.kind == "broadcast":
                    direct[entry.message] = set(before)
                before.add(entry.message)
    closed: dict[MessageId, set[MessageId]] = {}
    for dot, before_it in direct.items():
        past: set[MessageId] = set()
        todo = list(before_it)
        while todo:
            earlier = todo.pop()
            if earlier not in past:
                past.add(earlier)
                todo.extend(direct.get(earlier, ()))
        closed[dot] = past
    return closed
