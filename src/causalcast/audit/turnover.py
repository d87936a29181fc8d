"""What is to be known of processes that came late, or are gone, once messages are left out (see `settled`).

Who is *gone* crashed, was evicted or left. Its log is at its end, so what it is entitled to is final, and nobody waits
for it. Who *came* late, by a `join`, is entitled to what others sent after they had it in view (see `members`). Where
the rows that tell of this are left out, numbers take their place. The same holds in one topic of who subscribed late,
and of who unsubscribed. Whoever comes again has several *stays*: all but the last are as those of who is gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.entitlement import entitle
from causalcast.audit.events import EVICT, JOIN, LEAVE, SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.integrity import place_deliveries
from causalcast.audit.left_out import Begun
from causalcast.audit.members import FOREVER, Attendance
from causalcast.audit.stays import Stays, next_number, reaches
from causalcast.audit.view import View
from causalcast.audit.violations import Replay

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from causalcast.audit.cover import Reach
    from causalcast.audit.digests import Bodies, LogIndex
    from causalcast.audit.judgement import Judged
    from causalcast.audit.left_out import LeftOut, Numbers
    from causalcast.audit.topic_clock import Joiner, TopicClock

    Ints = NDArray[np.int64]

    Limits = Mapping[str, int]
    """By origin, the number up to which messages are left out."""

_TURNS: Final = (JOIN, LEAVE, EVICT)


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
        """Who has events of coming and going of its own, and which."""
        for process, log in self.logs.items():
            marks = log.source.marks
            if turning[id(log.source)][marks.starts[log.place] : marks.starts[log.place + 1]].any():
                own = (mark for mark in log.turns if mark.event in (JOIN, LEAVE) or mark.peer == process)
                self.turns[process] = [mark.event for mark in own if mark.event in _TURNS]
        left = {process for process, turns in self.turns.items() if turns and turns[-1] != JOIN}
        fallen = frozenset(process for process, member in members.items() if not member.correct)
        self.gone = fallen | left
        self.away = frozenset(left - fallen)
        self.came = frozenset(process for process, turns in self.turns.items() if JOIN in turns) - self.gone
        self.subscribers: dict[str, set[str]] = {}
        """By topic, who ever subscribed."""
        self.late: dict[str, set[str]] = {}
        """By topic, who subscribed when its log had begun."""
        self.ended: dict[str, set[str]] = {}
        """By topic, who unsubscribed, and did not come again."""
        for process, log in self.logs.items():
            self._read_subscriptions(process, log)

    def _read_subscriptions(self, process: str, log: LogIndex) -> None:
        opening = int(log.source.marks.opening[log.place])
        told = [mark for mark in log.marks if mark.event in (SUBSCRIBE, UNSUBSCRIBE)]
        for number, mark in enumerate(told):
            topic = mark.topic or ""
            if mark.event == UNSUBSCRIBE:
                self.ended.setdefault(topic, set()).add(process)
                continue
            self.subscribers.setdefault(topic, set()).add(process)
            self.ended.get(topic, set()).discard(process)
            if number >= opening:
                self.late.setdefault(topic, set()).add(process)

    def among(self, topic: str) -> frozenset[str]:
        """Return who came or is gone, or to or from a topic."""
        return self.gone.union(self.came, self.late.get(topic, ()), self.ended.get(topic, ()))

    def stays(self, process: str, topic: TopicClock) -> Stays:
        """Return what a process did in its stays."""
        bodies, place = self.bodies[process]
        body = bodies.log(place)
        attendance = Attendance(process, bodies.marks.of(place), self.clock.subscriptions)
        log = body.topics.get(topic.topic)
        # Nothing is measured here.
        log = None if log is None else replace(log, time=None)
        view = View(body, attendance, self.clock, topic, log, Replay(process, body.names))
        if log is not None:
            place_deliveries(view, log)
        entitle(view)
        return Stays(view, process in self.gone, process in self.away)


def begun_of(
    topic: TopicClock, ranks: Ints, left_out: LeftOut, stays: Mapping[str, Stays], upto: Limits
) -> dict[str, Begun]:
    """Return, of each who came late and whose first message since is left out now, what follows that message.

    Args:
        topic: the clock.
        ranks: how many of each origin's messages are left out now.
        left_out: what was known of those that were left out before.
        stays: what those did who came or are gone.
        upto: the numbers of `ranks`, and those of origins that are not there any more.
    """
    before = left_out.begun.get(topic.topic, {})
    after = left_out.after.get(topic.topic, {})
    away = {process: stay.seen() for process, stay in stays.items() if stay.speaks and not stay.open}

    def since(joiner: Joiner, rank: int, known: Ints | None, old: Numbers | None) -> Numbers | None:
        if known is None and (joiner.origin < 0 or rank > ranks[joiner.origin]):
            return None
        first = known
        if first is None:
            first = 1 + topic.count_per_origin(topic.past[joiner.origin] < rank)
            first[joiner.origin] = rank
        some = np.flatnonzero(first <= np.diff(topic.starts))
        numbers = topic.counters[topic.starts[some] + first[some] - 1].tolist()
        follow = dict(zip([topic.origins[a] for a in some.tolist()], numbers, strict=True))
        for process, seen in away.items():
            if process not in follow and ((known is not None and process in after) or reaches(topic, seen, first)):
                follow[process] = next_number(topic, process, upto)
        # Who followed it does so for ever: of each the least number counts.
        return follow | dict(old or {})

    found: dict[str, Begun] = dict(before)
    for joiner in topic.joiners:
        old = before.get(joiner.process, Begun())
        first = since(joiner, joiner.first, joiner.since, old.first)
        last = since(joiner, joiner.last, joiner.since_last, old.last if joiner.came == old.came else None)
        if first is not None or last is not None:
            found[joiner.process] = Begun(first, last, joiner.came)
    return found


def bonds_of(
    topic: TopicClock,
    ranks: Ints,
    last: Ints,
    stays: Mapping[str, Stays],
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
        follows = np.full(last.size, stay.speaks)
        if stay.speaks and not stay.open:
            # All others follow whatever is settled.
            follows = stay.knows()[last] > ranks[last]
        wanted = (last != a) & ((at < counters.size) | follows)
        at = np.maximum(at, min(least, counters.size))
        if stay.view.spans:
            wanted &= (stay.view.position[staying] == 0) | (stay.view.position[staying] > rows[at])
        for i in np.flatnonzero(wanted).tolist():
            number = max(int(numbers[at[i]]), upto.get(process, 0) + 1)
            bond = (number, topic.origins[last[i]], int(topic.counters[staying[i]]))
            found.setdefault(process, []).append(bond)
    return found
