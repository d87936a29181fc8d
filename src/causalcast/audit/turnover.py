"""What is to be known of processes that came late, or are gone, once messages are left out (see `settled`).

Who is *gone* crashed, was evicted or left. Its log is at its end, so what it is entitled to is final, and nobody waits
for it. Who *came* late, by a `join`, is entitled to what others sent after they had it in view (see `members`). Where
the rows that tell of this are left out, numbers take their place. The same holds in one topic of who subscribed late,
and of who unsubscribed, whose log has no more rows about the topic.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.entitlement import entitle, owed_ranks
from causalcast.audit.events import EVICT, JOIN, LEAVE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.integrity import place_deliveries
from causalcast.audit.left_out import Dues
from causalcast.audit.members import FOREVER, Attendance
from causalcast.audit.topic_clock import NEVER
from causalcast.audit.view import View
from causalcast.audit.violations import Replay

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from causalcast.audit.cover import Reach
    from causalcast.audit.digests import Bodies, LogIndex
    from causalcast.audit.judgement import Judged
    from causalcast.audit.left_out import Numbers
    from causalcast.audit.members import Interval
    from causalcast.audit.topic_clock import TopicClock

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

    Limits = Mapping[str, int]
    """By origin, the number up to which messages are left out."""

_TURNS: Final = (JOIN, LEAVE, EVICT)


@dataclass(frozen=True, slots=True)
class Stay:
    """What one process, in its one stay, did in a topic."""

    view: View
    span: Interval

    def reached(self, cut: int, *, stable: bool, sends: bool) -> Ints:
        """Return, per origin, up to which rank it has all that it may ever have to have, in its rows before `cut`.

        With `stable`, it reported it stable, too. With `sends`, what it sends next follows all of that.
        """
        view, topic = self.view, self.view.topic
        absent = view.position == 0
        lacking = (absent & view.owed) | (view.position >= cut)
        if stable:
            lacking |= ~absent & ~self._stable(cut)
        first = np.flatnonzero(lacking)
        reached: Ints = np.diff(topic.starts)
        at = first - topic.starts[topic.owner[first]]
        np.minimum.at(reached, topic.owner[first], at)
        return np.minimum(reached, self._knows()) if sends else reached

    def _stable(self, cut: int) -> Bools:
        view, log = self.view, self.view.log
        stable = np.zeros(view.topic.messages, dtype=bool)
        if log is not None and log.stable_origin.size:
            rows = view.topic.locate(view.names, log.stable_origin, log.stable_counter)
            stable[rows[(rows >= 0) & (log.stable_seq < cut)]] = True
        return stable

    def _knows(self) -> Ints:
        """Return, per origin, up to which rank its next message will follow all messages."""
        view, topic = self.view, self.view.topic
        seen = view.position > 0
        if view.own >= 0:
            seen[topic.block(view.own)] |= topic.logged[topic.block(view.own)]
        rows = np.flatnonzero(seen)
        knows: Ints = topic.past[:, topic.maximal(rows)].max(axis=1, initial=0).astype(np.int64)
        np.maximum.at(knows, topic.owner[rows], rows - topic.starts[topic.owner[rows]] + 1)
        for _, origin, stay in view.clock.left_out.bonds.get(topic.topic, {}).get(view.process, ()):
            if origin in topic.place:
                a = topic.place[origin]
                knows[a] = max(int(knows[a]), int(np.searchsorted(topic.counters[topic.block(a)], stay, "right")))
        return knows

    def first_sent(self) -> int:
        """Return the rank of its first message since it came that is there, `NEVER` where there is none."""
        view, topic = self.view, self.view.topic
        if view.own < 0:
            return NEVER
        block = topic.block(view.own)
        inside = (topic.seq[block] > self.span.start) & (topic.seq[block] < self.span.end) & topic.logged[block]
        return int(inside.argmax()) + 1 if inside.any() else NEVER

    def owed(self) -> tuple[Ints, Ints]:
        """Return, per origin, the first and the last rank that it is entitled to."""
        return owed_ranks(self.view, self.span)


class Turnover:
    """Who came and who is gone in a judged trace; `bodies` says where each log's body is."""

    def __init__(self, judged: Judged, bodies: Mapping[str, tuple[Bodies, int]]) -> None:
        self.logs = judged.logs
        self.bodies = bodies
        self.clock = judged.known.clock
        members = self.clock.members
        sources = {id(log.source): log.source for log in self.logs.values()}
        turning = {key: np.isin(source.marks.event, _TURNS) for key, source in sources.items()}
        self.turns: dict[str, list[int]] = {}
        """Who has events of coming and going, and which."""
        self.own_evictions = False
        for process, log in self.logs.items():
            marks = log.source.marks
            if turning[id(log.source)][marks.starts[log.place] : marks.starts[log.place + 1]].any():
                turns = log.turns
                self.own_evictions |= any(mark.event == EVICT and mark.peer == process for mark in turns)
                self.turns[process] = [mark.event for mark in turns if mark.event in (JOIN, LEAVE)]
        self.gone = frozenset(process for process, member in members.items() if not member.correct or member.left)
        self.came = frozenset(process for process, turns in self.turns.items() if JOIN in turns) - self.gone
        self.subscribers: dict[str, set[str]] = {}
        """By topic, who ever subscribed."""
        self.late: dict[str, set[str]] = {}
        """By topic, who subscribed when its log had begun."""
        self.ended: dict[str, set[str]] = {}
        """By topic, who unsubscribed."""
        self.several: set[str] = set()
        """Topics to which somebody subscribed again, or from which somebody unsubscribed without that."""
        for process, log in self.logs.items():
            self._read_subscriptions(process, log)

    def _read_subscriptions(self, process: str, log: LogIndex) -> None:
        opening = int(log.source.marks.opening[log.place])
        told = [mark for mark in log.marks if mark.event in (SUBSCRIBE, UNSUBSCRIBE)]
        seen: set[str] = set()
        for number, mark in enumerate(told):
            topic = mark.topic or ""
            if mark.event == UNSUBSCRIBE and topic in seen and process not in self.ended.get(topic, ()):
                self.ended.setdefault(topic, set()).add(process)
            elif mark.event == UNSUBSCRIBE or topic in seen:
                self.several.add(topic)
            elif number >= opening:
                self.late.setdefault(topic, set()).add(process)
            seen.add(topic)
        for topic in seen:
            self.subscribers.setdefault(topic, set()).add(process)

    def plain(self) -> bool:
        """Whether each process comes and goes at most once."""
        once = all(turns in ([], [JOIN], [LEAVE], [JOIN, LEAVE]) for turns in self.turns.values())
        return once and not self.own_evictions

    def gone_from(self, topic: str) -> frozenset[str]:
        """Return who is gone, or from a topic."""
        return self.gone.union(self.ended.get(topic, ()))

    def among(self, topic: str) -> frozenset[str]:
        """Return who came or is gone, or to or from a topic."""
        return self.gone_from(topic).union(self.came, self.late.get(topic, ()))

    def stay(self, process: str, topic: TopicClock) -> Stay | None:
        """Return what a process did in its stay, `None` where it never was a member of the topic."""
        bodies, place = self.bodies[process]
        body = bodies.log(place)
        attendance = Attendance(process, bodies.marks.of(place), self.clock.subscriptions)
        log = body.topics.get(topic.topic)
        # Nothing is measured here.
        log = None if log is None else replace(log, time=None)
        view = View(body, attendance, self.clock, topic, log, Replay(process, body.names))
        if not view.spans:
            return None
        if log is not None:
            place_deliveries(view, log)
        entitle(view)
        return Stay(view, view.spans[0])


def dues_of(stay: Stay, ranks: Ints, upto: Limits, outsiders: Collection[str], *, gone: bool) -> Dues:
    """Return what a process is entitled to, once `ranks` messages of each origin, those `upto`, are left out.

    What `outsiders` send need not follow what is left out.
    """
    topic, before = stay.view.topic, stay.view.dues
    sizes = np.diff(topic.starts)
    first, last = stay.owed()
    if gone:
        first, last = np.maximum(first, ranks + 1), np.minimum(last, sizes)
        some = np.flatnonzero(first <= last)
        origins = [topic.origins[a] for a in some.tolist()]
        lowest, highest = (topic.counters[topic.starts[some] + rank[some] - 1].tolist() for rank in (first, last))
        return Dues(dict(zip(origins, lowest, strict=True)), 0, dict(zip(origins, highest, strict=True)))
    own = ranks[stay.view.own] if stay.view.own >= 0 else 0
    follows = (before is not None and before.others == 0) or stay.first_sent() <= own
    found: dict[str, int] = {}
    if before is not None:
        found = {o: n for o, n in before.first.items() if n > upto.get(o, 0) + 1 or not follows}
    for a, origin in enumerate(topic.origins):
        found.pop(origin, None)
        if first[a] <= sizes[a] and (first[a] > ranks[a] + 1 or not follows):
            found[origin] = int(topic.counters[topic.starts[a] + first[a] - 1])
        elif first[a] > sizes[a] and follows:
            # All that is to come follows the message of it that everybody has.
            number = int(topic.counters[topic.starts[a + 1] - 1]) + 1
            found[origin] = FOREVER if origin in outsiders else number
    return Dues(found, 0 if follows else FOREVER)


def begun_of(topic: TopicClock, ranks: Ints, before: Mapping[str, Numbers], upto: Limits) -> dict[str, Numbers]:
    """Return, of each who came late and whose first message since is left out now, what follows that message."""
    found: dict[str, Numbers] = {
        process: {o: n for o, n in numbers.items() if n > upto.get(o, 0) + 1} for process, numbers in before.items()
    }
    sizes = np.diff(topic.starts)
    for joiner in topic.joiners:
        if joiner.since is not None or joiner.first > ranks[joiner.origin]:
            continue
        since = 1 + topic.count_per_origin(topic.past[joiner.origin] < joiner.first)
        since[joiner.origin] = joiner.first
        numbers = {}
        for a in np.flatnonzero(since > ranks + 1).tolist():
            at = topic.starts[a] + since[a] - 1
            numbers[topic.origins[a]] = int(topic.counters[at] if since[a] <= sizes[a] else topic.counters[at - 1] + 1)
        found[topic.origins[joiner.origin]] = numbers
    return found


def bonds_of(
    topic: TopicClock,
    ranks: Ints,
    last: Ints,
    stays: Mapping[str, Stay | None],
    gone: Collection[str],
    upto: Limits,
) -> Reach:
    """Return what processes sent, or will send, after a message that stays, where their rows do not tell.

    Of the origins `last` a message stays, that behind `ranks`. `stays` are what the processes did.
    """
    found: Reach = {}
    staying = topic.starts[last] + ranks[last]
    for process, stay in stays.items():
        a = topic.place.get(process, -1)
        block = topic.block(a) if a >= 0 else slice(0, 0)
        counters = topic.counters[block]
        # Its messages in order, and behind them the next one that it sends.
        numbers = np.append(counters, (counters[-1] if counters.size else 0) + 1)
        rows = np.append(topic.seq[block], FOREVER)
        least = int(np.searchsorted(numbers, upto.get(process, 0) + 1))
        at = (topic.past[last, block] <= ranks[last][:, None]).sum(axis=1)
        wanted = (last != a) & ((at < counters.size) | (process not in gone))
        at = np.maximum(at, min(least, counters.size))
        if stay is not None:
            wanted &= (stay.view.position[staying] == 0) | (stay.view.position[staying] > rows[at])
        for i in np.flatnonzero(wanted).tolist():
            number = max(int(numbers[at[i]]), upto.get(process, 0) + 1)
            bond = (number, topic.origins[last[i]], int(topic.counters[staying[i]]))
            found.setdefault(process, []).append(bond)
    return found
