"""What is settled in a trace: left out of its logs, the rest is judged as it would be with it.

A message is *settled* when it was broadcast, every process that it concerns delivered it (and reported it stable, where
that is reported at all), and so did they with all that happened before it. Every message to come follows the rows that
its sender has, so nothing to come happens before a settled message, and nothing that is found later is about one. What
was found before is kept (`conclusions`), if it names settled messages alone and no row to come can change it; otherwise
what it names is not settled. A log without the rows of settled messages is thus a log of the same findings, and what is
measured adds up. Only this must hold of the rows to come (`Settled.takes`): they stand behind those that were read, are
about messages that are not settled, and do not change who the settled ones concern. A message may be sent and received
once it is settled: what each log received is kept (`received`).

A message does not concern who is gone (`turnover`), whose log must not grow until it joins again, nor who joined and is
not entitled to it. But what one who joined sends next must follow it, as what all others send does. What the rows of
these say of messages that are not left out is told by numbers (`left_out`). So it is in one topic with who subscribed
late, and unsubscribed. Who comes, leaves or is evicted by the rows to come does not become entitled by that to what is
settled and it lacks (`coming`, `subscribing`).

Without tags and stability it matters for one thing alone whether a message follows what is left out: who sent something
is entitled to what follows that. So there messages need not follow it, if it is told which do (`stays`): subscribers
may come and go, and come again, and others may send.

Where tags or stability are reported, a message is left out only if it happened before all that is not settled, and not
the last of its origin: so nothing concurrent with it can come, and a tag that does not reach what is left out does not
reach the last of some origin either. But what one sends who comes later may not follow it: with what state that came no
log shows, so neither its tag nor what others report stable is judged by that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.clocks import build_clock
from causalcast.audit.coming import may_excuse, may_turn, standing
from causalcast.audit.events import BROADCAST, DELIVER, STABLE, SUBSCRIBE
from causalcast.audit.judgement import Judged
from causalcast.audit.logs import digest_logs
from causalcast.audit.measures import measured
from causalcast.audit.ranges import keys_of
from causalcast.audit.replay import replay_logs
from causalcast.audit.spans import grown, whole_spans
from causalcast.audit.subscribing import lacks_the_first, turned
from causalcast.audit.violations import TAG_UNDER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.conclusions import Conclusions
    from causalcast.audit.cover import Reach
    from causalcast.audit.digests import Bodies, Indices, Marks
    from causalcast.audit.left_out import Begun, LeftOut
    from causalcast.audit.logs import LogColumns
    from causalcast.audit.measures import Measures
    from causalcast.audit.received import Received
    from causalcast.audit.timeline import Grid

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

    Limits = Mapping[str, Mapping[str, int]]
    """By topic and origin, the number up to which messages are left out."""

MOST_PAIRS: Final = 4_000_000
"""Pairs of topics, or sections, and origins up to which it is looked for what is settled."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What is settled, as sums; and the rows that are not, of logs by their place in `processes`."""

    covered: frozenset[str]
    """The keys of the pieces of files that it was made of; see `state.Piece`."""
    crashed: frozenset[str]
    subscriptions: bool
    grid: Grid
    processes: tuple[str, ...]
    last: Ints
    """The last row of each log."""
    left_out: Ints
    """How many rows of each log, and of them how many were plain repeats."""
    repeated: Ints
    totals: Ints
    traffic: Ints
    """Of each log; see `links.Traffic`."""
    received: Received
    times: Ints
    """Of each log, also of the rows that are not left out; see `spans.NO_TIMES`."""
    upto: dict[str, dict[str, int]]
    """By topic and origin, the number up to which messages are left out."""
    concerned: dict[str, frozenset[str]]
    """By topic, whom its messages concern."""
    tagged: frozenset[str]
    """Topics with tags, and those with stability reports."""
    stable: frozenset[str]
    silent: frozenset[str]
    """Of those, topics in which a crash stopped stability, and messages are settled without reports."""
    reach: dict[str, Reach]
    """Of each topic with tags."""
    stays: dict[str, dict[str, int]]
    """Of each topic with tags, the last settled number of each origin: that message is not left out."""
    lost: dict[str, dict[str, int]]
    """By topic and origin, from which number on nobody has its messages, since it crashed; of topics with tags or
    stability."""
    standing: LeftOut
    gone: Bools
    """Which processes are gone; their logs are at their ends, until they join again."""
    away: Bools
    """Which of them left by themselves, so that they may."""
    ended: dict[str, frozenset[str]]
    """By topic, who unsubscribed: with tags or stability, their rows are not about it until they subscribe again."""
    steady: dict[str, frozenset[str]]
    """By topic, whom of those concerned all settled messages concern."""
    explicit: frozenset[tuple[str, str]]
    """Topics and processes that log their own deliveries there."""
    restarts: frozenset[str]
    """Processes that number their messages in each topic anew."""
    across: dict[str, int]
    """Processes that number the messages of all topics together, and how far they came."""
    rows: LogColumns
    log: Ints
    short: frozenset[tuple[str, str, int]]
    """The messages of `rows` that `shortened` told of while their tags were whole."""
    measures: Measures
    concluded: Conclusions

    def takes(self, rows: LogColumns, log: Ints) -> bool:
        """Whether logs may grow by these rows without a change to what is settled."""
        event = rows.event
        if bool((rows.seq <= self.last[log]).any()) or not may_turn(self, rows, log):
            return False
        if self.concluded.tags and may_excuse(self, rows, log):
            return False
        words = [*rows.names, ""]
        code = {word: i for i, word in enumerate(rows.names)}
        own = np.array([code.get(process, -2) for process in self.processes], dtype=np.int64)[log]
        about = event <= STABLE
        if bool((about & (rows.counter <= limits_of(rows.names, rows.topic, rows.origin, self.upto))).any()):
            return False
        lost = limits_of(rows.names, rows.topic, rows.origin, self.lost)
        if bool((about & (lost > 0) & (rows.counter >= lost)).any()):
            return False
        mine = rows.origin == own
        if bool(((event == BROADCAST) & ~mine).any()) or self._numbers_again(rows, log):
            return False
        tagged = np.zeros(event.size, dtype=bool)
        tagged[rows.context_rows] = True
        kinds = (log, rows.topic, rows.origin, event.astype(np.int64), mine.astype(np.int64), tagged.astype(np.int64))
        first = np.unique(keys_of(*kinds), return_index=True)[1]
        fresh = turned(self, rows, log)
        if fresh is None:
            return False
        every = zip(*(kind[first].tolist() for kind in kinds), strict=True)
        return all(self._takes(words, fresh, *kind) for kind in every)

    def _numbers_again(self, rows: LogColumns, log: Ints) -> bool:
        """Whether a process that numbers messages of all topics together used a number in two, or an earlier one."""
        least = np.array([self.across.get(process, -1) for process in self.processes], dtype=np.int64)
        at = np.flatnonzero((rows.event == BROADCAST) & (least[log] >= 0))
        key = keys_of(log[at], rows.counter[at])
        return bool((rows.counter[at] <= least[log[at]]).any()) or np.unique(key).size < key.size

    def fall_short(self, judged: Judged) -> bool:
        """Whether a tag that named what is left out leaves something out, for all that is left of it.

        Who follows the first message of one who came late may follow what only the state tells that came with that.
        """
        for part in (part for replay in judged.closely for part in replay.violations if self.short):
            clock = judged.known.clock.topics[part.topic]
            for row in part.message.tolist() if part.reason == TAG_UNDER else ():
                if (part.topic, clock.origins[clock.owner[row]], int(clock.counters[row])) in self.short:
                    return True
        return False

    def _takes(
        self,
        words: Sequence[str],
        fresh: Collection[tuple[str, str]],
        log: int,
        topic: int,
        origin: int,
        event: int,
        mine: int,
        tagged: int,
    ) -> bool:
        """Whether a kind of row is one that changes nothing; `fresh` are those who subscribed since, and to what."""
        name, process = words[topic], self.processes[log]
        limits = self.upto.get(name)
        told = process in self.restarts or process in self.across
        if event == BROADCAST and not told and not self._at_home(process, name):
            return False
        if limits is None or event > STABLE:
            return True
        joined = not self.subscriptions and self.last[log] == 0
        if process not in self.concerned[name] and (process, name) not in fresh and not joined:
            return False
        if (tagged and name not in self.tagged) or (event == STABLE and name not in self.stable - self.silent):
            return False
        implied = limits.get(process, 0) > 0 and (name, process) not in self.explicit
        return not (event == DELIVER and mine and implied)

    def quiet(self, topic: str) -> bool:
        """Whether there are subscriptions, and in the topic neither tags nor stability."""
        return self.subscriptions and topic not in self.tagged | self.stable

    def _at_home(self, process: str, topic: str) -> bool:
        """Whether a process that broadcasts in a topic has nothing settled in another."""
        return all(process not in limits for name, limits in self.upto.items() if name != topic)

    def judge(self, rows: LogColumns, log: Ints) -> tuple[Judged, Bodies] | None:
        """Judge logs that consist of what is settled and of `rows`; their measures are without what is settled.

        Returns:
            `None` where the logs have to be looked at as a whole.
        """
        digested = self._digest(rows, log)
        if digested is None:
            return None
        indices, bodies = digested
        logs = {process: indices.log(place) for place, process in enumerate(self.processes)}
        known = build_clock(list(logs.values()), self.crashed, left_out=standing(self, bodies.marks))
        if known.findings or known.clock.subscriptions != self.subscriptions or lacks_the_first(self, known, bodies):
            return None
        places = np.arange(len(self.processes))
        replays = replay_logs(bodies, places, known.clock)
        judged = Judged(logs, known, *measured(known.clock, [(replays, places.tolist())]), self.concluded)
        return None if self._names_what_stays(judged) else (judged, bodies)

    def _names_what_stays(self, judged: Judged) -> bool:
        """Whether a finding names a message that is settled and not left out, and another: what is may be between."""
        for replay in judged.closely:
            for part in replay.violations:
                stays = self.stays.get(part.topic)
                if stays is None:
                    continue
                clock = judged.known.clock.topics[part.topic]
                numbers = np.array([stays.get(origin, 0) for origin in clock.origins], dtype=np.int64)
                two = np.stack(part.named())
                named = two[:, (two >= 0).sum(axis=0) > 1]
                named = named[named >= 0]
                if bool((clock.counters[named] <= numbers[clock.owner[named]]).any()):
                    return True
        return False

    def sums(self, grid: Grid) -> Measures | None:
        """Return the measures of what is settled on the grid of the whole trace, `None` where they have to be taken."""
        if (grid.start, grid.width) == (self.grid.start, self.grid.width):
            return self.measures
        places = grid.places(self.grid)
        return None if places is None else self.measures.moved(places)

    def _digest(self, rows: LogColumns, log: Ints) -> tuple[Indices, Bodies] | None:
        indices, bodies = digest_logs(self.processes, rows, log, self.last, self.received)
        later = rows.seq > self.last[log]
        times = grown(self.times, log[later], rows.time[later])
        spans = whole_spans(times)
        if indices.missing or indices.conflicts or spans is None:
            return None
        words = [*indices.names, ""]
        owners = np.repeat(np.arange(len(self.processes)), np.diff(indices.sections)).tolist()
        sections = [(words[t], self.processes[i]) for t, i in zip(indices.topic.tolist(), owners, strict=True)]
        marks = self._marks(indices.marks)
        indices = replace(
            indices,
            rows=indices.rows + self.left_out,
            repeated=indices.repeated + self.repeated,
            totals=indices.totals + self.totals,
            traffic=indices.traffic + self.traffic,
            times=times,
            spans=spans,
            marks=marks,
            restarts=np.array([process in self.restarts for process in self.processes], dtype=bool),
            before=np.array([self._before(*each) for each in sections], dtype=np.int64),
            stables=indices.stables + np.array([t in self.stable for t, _ in sections], dtype=np.int64),
        )
        explicit = np.array([each in self.explicit for each in sections], dtype=bool)
        return indices, replace(bodies, marks=marks, explicit=explicit)

    def _before(self, topic: str, process: str) -> int:
        """Return up to which number no message of a process is missing in a topic."""
        return self.across.get(process, self.upto.get(topic, {}).get(process, 0))

    def _marks(self, marks: Marks) -> Marks:
        """Let who subscribed to a settled topic at first be a member from the start: it has all that is settled."""
        words = [*marks.names, ""]
        at = np.flatnonzero(marks.event == SUBSCRIBE)
        log = np.searchsorted(marks.starts, at, side="right") - 1
        seq = marks.seq.copy()
        seen: set[tuple[int, int]] = set()
        for row, process, topic in zip(at.tolist(), log.tolist(), marks.topic[at].tolist(), strict=True):
            if self.processes[process] in self.steady.get(words[topic], ()) and (process, topic) not in seen:
                seq[row] = 0
            seen.add((process, topic))
        return replace(marks, seq=seq)


def limits_of(names: Sequence[str], topic: Ints, origin: Ints, upto: Limits) -> Ints:
    """Return, for each pair of indices into `names`, up to which number the origin's messages are left out there."""
    if not upto or topic.size == 0:
        return np.zeros(topic.size, dtype=np.int64)
    words = [*names, ""]
    topics, topic_at = _used(topic, len(words))
    origins, origin_at = _used(origin, len(words))
    table = np.zeros((topics.size, origins.size), dtype=np.int64)
    for i, code in enumerate(topics.tolist()):
        if limits := upto.get(words[code]):
            table[i] = [limits.get(words[of], 0) for of in origins.tolist()]
    found: Ints = table[topic_at[topic], origin_at[origin]]
    return found


def shortened(
    rows: LogColumns, upto: Limits, begun: Mapping[str, Mapping[str, Begun]]
) -> frozenset[tuple[str, str, int]]:
    """Return the messages whose tags name what is left out, where somebody came late: topics, origins and numbers."""
    late = {topic: limits for topic, limits in upto.items() if begun.get(topic)}
    of = np.repeat(rows.context_rows, np.diff(rows.context_ends, prepend=0))
    at = np.unique(of[rows.context_counter <= limits_of(rows.names, rows.topic[of], rows.context_origin, late)])
    words = [*rows.names, ""]
    columns = (rows.topic[at].tolist(), rows.origin[at].tolist(), rows.counter[at].tolist())
    return frozenset((words[topic], words[origin], number) for topic, origin, number in zip(*columns, strict=True))


def _used(codes: Ints, number: int) -> tuple[Ints, Ints]:
    """Return the codes that occur, -1 as the last of `number`, and the place of each code among them."""
    used = np.zeros(number, dtype=bool)
    used[codes] = True
    return np.flatnonzero(used), np.cumsum(used) - 1
