"""Who was a member when, and which messages a process is therefore entitled to.

A log decides membership only up to happens-before, so entitlement is judged by what every observer of the logs
must agree on. Per topic, a process has *intervals* of membership in its own log: from its start, or from a
`join` (and `subscribe`, once any process in the trace subscribes) to a `leave`, `unsubscribe` or `evict`, or
to its end. In an interval it is entitled to message `m` of origin `o` when both hold:

*joined before.* The interval reaches back to the start of the log; or the process's first broadcast in the
interval is in the past of `m`, so the join happened before the broadcast; or it delivered, in the interval, an
earlier message of `o`: who reaches a member once has it in view from then on.

*not gone by then.* The interval is still open when the log ends and the process neither crashed nor was
evicted; or `m` is in the past of something that the process delivered or broadcast in the interval, and, for an
evicted process, `m` does not come after the eviction.

Both hold in every execution with these logs in which the process was a member from before the broadcast until
after it, as far as messages can tell; where they cannot, the process is excused, so a correct system never fails
for who happened to join late. A process that never appears to join or leave was a member from start to end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from causalcast.audit.events import CRASH, EVICT, JOIN, LEAVE, RECOVER, SUBSCRIBE, UNSUBSCRIBE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from causalcast.audit.digests import LogIndex, Mark

FOREVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Interval:
    """Membership between two rows of the process's own log; 0 is its start, `FOREVER` its end."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Member:
    """What the whole trace says of one process.

    `evictions` are the rows, in others' logs, that evict it. `holes` is true when rows of its log are missing
    or in doubt, so that what is absent from it proves nothing.
    """

    process: str
    logged: bool
    crashed: bool
    evictions: tuple[tuple[str, int], ...]
    holes: bool
    joined_late: bool
    left: bool

    @property
    def correct(self) -> bool:
        """Whether it lives, as a member, to the end of the trace."""
        return self.logged and not self.crashed and not self.evictions

    @property
    def fate(self) -> str:
        """The word that the report uses."""
        if not self.logged:
            return "absent"
        if self.crashed:
            return "crashed"
        if self.evictions:
            return "evicted"
        if self.left:
            return "left"
        return "joined late" if self.joined_late else "member"


def find_members(logs: Sequence[LogIndex], crashed: Collection[str], doubtful: Collection[str]) -> dict[str, Member]:
    """Judge every process that has a log. `crashed` is the user's word, `doubtful` have rows set aside."""
    fallen = set(crashed)
    evictions: dict[str, list[tuple[str, int]]] = {}
    for log in logs:
        fallen |= _crashed(log)
        for mark in log.turns:
            if mark.event == EVICT and mark.peer is not None and mark.peer != log.process:
                evictions.setdefault(mark.peer, []).append((log.process, mark.seq))
            if mark.event == CRASH and mark.peer is not None and mark.peer != log.process:
                fallen.add(mark.peer)
    return {
        log.process: Member(
            process=log.process,
            logged=True,
            crashed=log.process in fallen,
            evictions=tuple(evictions.get(log.process, ())),
            holes=bool(log.missing or log.conflicts) or log.process in doubtful,
            joined_late=_first(log.turns, JOIN, LEAVE) == JOIN,
            left=_last(log.turns, JOIN, LEAVE) == LEAVE,
        )
        for log in logs
    }


def _crashed(log: LogIndex) -> set[str]:
    own = [m for m in log.turns if m.event in (CRASH, RECOVER) and (m.peer is None or m.peer == log.process)]
    crashes = [m.seq for m in own if m.event == CRASH]
    recoveries = [m.seq for m in own if m.event == RECOVER]
    return {log.process} if crashes and max(crashes) >= max(recoveries, default=0) else set()


def _first(marks: Sequence[Mark], *events: int) -> int | None:
    return next((m.event for m in marks if m.event in events), None)


def _last(marks: Sequence[Mark], *events: int) -> int | None:
    return next((m.event for m in reversed(marks) if m.event in events), None)


class Attendance:
    """When one process was in which topic, from the marks of its log; `subscriptions` says that the trace has any.

    Where the trace has `subscribe` events, whoever has none is no subscriber.
    """

    def __init__(self, process: str, marks: Sequence[Mark], subscriptions: bool) -> None:
        self._process = process
        self._subscriptions = subscriptions
        self._general = [mark for mark in marks if mark.event not in (SUBSCRIBE, UNSUBSCRIBE)]
        self._topics: dict[str, list[Mark]] = {}
        for mark in marks:
            if mark.event in (SUBSCRIBE, UNSUBSCRIBE):
                self._topics.setdefault(mark.topic or "", []).append(mark)
        self._opening = 0
        while (
            self._opening < len(marks)
            and marks[self._opening].event == SUBSCRIBE
            and marks[self._opening].seq in (0, self._opening + 1)
        ):
            self._opening += 1

    def topics(self, known: Iterable[str]) -> Iterable[str]:
        """Return the topics, of those `known`, in which the process can ever have been a member."""
        return self._topics.keys() if self._subscriptions else known

    def arrivals(self, topic: str) -> tuple[int, ...]:
        """Return the rows at which the process may have been given a state that its log does not show.

        That is every `join`, and every `subscribe` to the topic but those that its log begins with.
        """
        joins = [mark.seq for mark in self._general if mark.event == JOIN]
        joins.extend(
            mark.seq for mark in self._topics.get(topic, ()) if mark.event == SUBSCRIBE and mark.seq > self._opening
        )
        return tuple(sorted(joins))

    def intervals(self, topic: str) -> list[Interval]:
        """Return the intervals in which the process was a member of the topic, in order."""
        marks = self._general
        if topic in self._topics:
            marks = sorted([*marks, *self._topics[topic]], key=lambda mark: mark.seq)
        joined = _first(marks, JOIN, LEAVE) != JOIN
        subscribed = not self._subscriptions
        start: int | None = 0 if joined and subscribed else None
        found: list[Interval] = []
        for mark in marks:
            if mark.event == JOIN:
                joined = True
            elif mark.event == LEAVE or (mark.event == EVICT and mark.peer == self._process):
                joined = False
            elif mark.event in (SUBSCRIBE, UNSUBSCRIBE):
                subscribed = mark.event == SUBSCRIBE
            member = joined and subscribed
            if member and start is None:
                start = mark.seq
            elif not member and start is not None:
                found.append(Interval(start, mark.seq))
                start = None
        if start is not None:
            found.append(Interval(start, FOREVER))
        return found
