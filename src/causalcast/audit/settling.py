"""Which messages are settled (see `settled`) once a trace was judged; see `settlement` for what is made of that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.cover import reach_of
from causalcast.audit.events import SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.left_out import LeftOut
from causalcast.audit.naming import Naming
from causalcast.audit.ranges import keys_of, places
from causalcast.audit.settled import MOST_PAIRS, limits_of
from causalcast.audit.stays import Standing
from causalcast.audit.tags import located
from causalcast.audit.turnover import Turnover, begun_of, bonds_of
from causalcast.audit.violations import CODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.cover import Reach
    from causalcast.audit.digests import Bodies, LogIndex
    from causalcast.audit.judgement import Judged
    from causalcast.audit.left_out import Begun, Dues, Numbers
    from causalcast.audit.settled import Limits, Settled
    from causalcast.audit.stays import Stays
    from causalcast.audit.topic_clock import TopicClock
    from causalcast.audit.violations import Violations

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MOST_CONCERNED: Final = 10_000
"""Pairs of topics and processes that they concern up to which it is looked for what is settled."""
MOST_PLACES: Final = 20_000_000
"""Messages times processes that came or are gone, in a topic, up to which it is looked for what is settled there."""
MOST_FOUND: Final = 100_000
"""Findings up to which it is looked for what is settled."""
_SILENT: Final = 10
"""Where nothing need become stable, more than one in so many settled messages must be so without reports."""
_ROUNDS: Final = 10
"""How often it is looked which messages findings keep from being settled, before all that they name are kept."""
_FOREVER: Final = 2**62
_DUPLICATE: Final = CODE["duplicate"]
_STABLE_ORDER: Final = CODE["stable-order"]


@dataclass(frozen=True, slots=True)
class _Section:
    """What one process did in one topic: by origin, up to which number it delivered, or reported stable, all messages.

    `sent` is the same of its own broadcasts.
    """

    names: Mapping[str, int]
    delivered: Ints
    stable: Ints
    explicit: bool
    sent: int
    tags: bool

    def reached(self, origins: Sequence[str], own: str, before: Ints, *, stable: bool) -> Ints:
        """Return the numbers for some origins; `before` is known of those that it says nothing of."""
        at = np.array([self.names.get(origin, -1) for origin in origins], dtype=np.int64)
        found = np.where(at >= 0, self.delivered[at], before)
        if own in origins and not self.explicit:
            found[origins.index(own)] = self.sent
        return np.minimum(found, np.where(at >= 0, self.stable[at], before)) if stable else found


class Settling:
    """Looks for what is settled in a judged trace; `bodies` says where each log's body is."""

    def __init__(self, judged: Judged, bodies: Mapping[str, tuple[Bodies, int]], earlier: Settled | None) -> None:
        self.judged = judged
        self.bodies = bodies
        self.earlier = earlier
        self.upto: Limits = earlier.upto if earlier is not None else {}
        self.clock = judged.known.clock
        self.turnover = Turnover(judged, bodies)
        self.cut: dict[tuple[str, str], int] = {}
        """The row from which on a process delivered in a topic what is not known yet."""
        self.unknown: dict[tuple[str, str], list[tuple[int, str, int]]] = {}
        """What a process delivered in a topic that is not known yet: the row, the origin and the number."""
        self.doubled: set[tuple[str, str]] = set()
        """Where a process delivered, or reported stable, something more than once."""
        self.found: dict[str, list[Violations]] = {}
        """By topic, what was found."""
        self.sections: dict[tuple[str, str], _Section] = {}
        self.reach: dict[str, Reach] = dict(earlier.reach) if earlier is not None else {}
        self.stays: dict[str, dict[str, int]] = dict(earlier.stays) if earlier is not None else {}
        self.silent = set(earlier.silent) if earlier is not None else set()
        self.lost = dict(earlier.lost) if earlier is not None else {}
        self.turning: dict[str, frozenset[str]] = {}
        """By topic, those concerned who came or are gone."""
        before = earlier.standing if earlier is not None else LeftOut()
        self.dues: dict[str, Mapping[str, Sequence[Dues]]] = dict(before.dues)
        self.after: dict[str, Numbers] = dict(before.after)
        self.begun: dict[str, Mapping[str, Begun]] = dict(before.begun)
        self.bonds: dict[str, Reach] = dict(before.bonds)

    def run(self) -> dict[str, dict[str, int]] | None:
        """Return up to which numbers messages can be left out; `None` where a later run is to look at the whole."""
        if not self._may():
            return None
        self._read_findings()
        if not self._read_sections():
            return None
        upto = {topic: limits for topic in self._topics() if (limits := self._limits(topic))}
        return upto if upto and self.upto.keys() <= upto.keys() else None

    def _may(self) -> bool:
        """Whether the logs are whole, and all of it is not too much."""
        logs = self.judged.logs.values()
        return (
            not self.judged.known.findings
            and sum(map(len, self.concerned.values())) <= MOST_CONCERNED
            and sum(len(found) for replay in self.judged.closely for found in replay.violations) <= MOST_FOUND
            and not any(log.missing or log.conflicts for log in logs)
            and all(bool((log.source.spans[log.place] == log.source.times[log.place, :2]).all()) for log in logs)
        )

    def _read_findings(self) -> None:
        for replay in self.judged.closely:
            for found in replay.violations:
                place = (replay.process, found.topic)
                unknown = found.message < 0
                if unknown.any():
                    self.cut[place] = min(int(found.at[unknown].min()), self.cut.get(place, _FOREVER))
                if found.origin is not None and found.counter is not None:
                    origins = [replay.names[code] for code in found.origin[unknown].tolist()]
                    told = zip(found.at[unknown].tolist(), origins, found.counter[unknown].tolist(), strict=True)
                    self.unknown.setdefault(place, []).extend(told)
                if found.kind in (_DUPLICATE, _STABLE_ORDER) and not unknown.all():
                    self.doubled.add(place)
                self.found.setdefault(found.topic, []).append(found)

    def _read_sections(self) -> bool:
        """Read what all did; return whether that was not too much."""
        groups: dict[int, tuple[Bodies, list[str]]] = {}
        for process in self.judged.logs:
            bodies = self.bodies[process][0]
            groups.setdefault(id(bodies), (bodies, []))[1].append(process)
        for bodies, processes in groups.values():
            numbers = [(process, topic, k) for process in processes for topic, k in self._numbers(process)]
            if len(numbers) * (len(bodies.names) + 1) > MOST_PAIRS:
                return False
            self._read(bodies, numbers)
        return True

    def _numbers(self, process: str) -> Iterable[tuple[str, int]]:
        return self.judged.logs[process].topics.sections.items()

    def _read(self, bodies: Bodies, numbers: list[tuple[str, str, int]]) -> None:
        sections = np.array([k for _, _, k in numbers], dtype=np.int64)
        wide = len(bodies.names)
        every = np.tile(np.arange(wide), sections.size)
        before = limits_of(bodies.names, np.repeat(bodies.topic[sections], wide), every, self._floors)
        cut = np.array([self.cut.get((process, topic), _FOREVER) for process, topic, _ in numbers], dtype=np.int64)
        topics = [topic for _, topic, _ in numbers]
        columns = (bodies.origin, bodies.counter, bodies.seq)
        doubled = np.array([(process, topic) in self.doubled for process, topic, _ in numbers], dtype=bool)
        delivered = self._reach(bodies, topics, bodies.starts, sections, columns, cut, before, doubled)
        columns = (bodies.stable_origin, bodies.stable_counter, bodies.stable_seq)
        stable = self._reach(bodies, topics, bodies.stable_starts, sections, columns, cut, before, doubled)
        tags = np.diff(bodies.tag_starts)[sections] > 0
        code = {name: i for i, name in enumerate(bodies.names)}
        for i, (process, topic, k) in enumerate(numbers):
            index = self.judged.logs[process].topics[topic]
            own = code.get(process, -1)
            part = slice(bodies.starts[k], bodies.starts[k + 1])
            mine = bodies.counter[part][bodies.origin[part] == own]
            # What it sent after something that nobody is known to have sent may follow that.
            sent = index.counter[index.seq < cut[i]]
            floor = self._floors.get(topic, {}).get(process, 0)
            whole = sent[-1:] == floor + sent.size if process not in self.across else (sent[1:] > sent[:-1]).all()
            contiguous = sent.size and bool(whole)
            self.sections[process, topic] = _Section(
                names=code,
                delivered=delivered[i],
                stable=stable[i],
                explicit=bool(bodies.explicit[k]) or bool(np.isin(mine, index.counter).any()),
                sent=int(sent[-1]) if contiguous else floor,
                tags=bool(tags[i]) or (self.earlier is not None and topic in self.earlier.tagged),
            )

    def _reach(
        self,
        bodies: Bodies,
        topics: Sequence[str],
        starts: Ints,
        sections: Ints,
        columns: tuple[Ints, Ints, Ints],
        cut: Ints,
        before: Ints,
        doubled: Bools,
    ) -> Ints:
        """Return up to which number each section has all messages of each name, among its rows before `cut`.

        Of those that are `doubled` the first row about each message counts.
        """
        wide = before.size // max(sections.size, 1)
        first, sizes = starts[sections], starts[sections + 1] - starts[sections]
        rows = places(first, sizes)
        of = np.repeat(np.arange(sections.size), sizes)
        origin, counter, seq = (column[rows] for column in columns)
        early = seq < cut[of]
        twice = np.flatnonzero(early & doubled[of])
        early[twice] = False
        early[twice[np.unique(keys_of(of[twice], origin[twice], counter[twice]), return_index=True)[1]]] = True
        key = (of * wide + origin)[early]
        number = np.bincount(key, minlength=before.size)
        highest = before.copy()
        np.maximum.at(highest, key, counter[early].astype(np.int64))
        whole = np.zeros(before.size, dtype=bool)
        some = np.flatnonzero(number)
        mine = bodies.topic[sections[some // max(wide, 1)]]
        for part in (some[mine == code] for code in np.unique(mine).tolist()):
            clock = self.clock.topics.get(topics[int(part[0]) // wide])
            if clock is not None:
                at = clock.locate(bodies.names, part % wide, highest[part])
                whole[part] = (at >= 0) & (at - clock.starts[clock.owner[at]] + 1 == number[part])
        found: Ints = np.where(whole, highest, before)
        return found.reshape(sections.size, wide)

    @cached_property
    def _floors(self) -> Limits:
        """By topic and origin, the number before its first: who joins may go on from an earlier membership."""
        found = {topic: dict(limits) for topic, limits in self.upto.items()}
        for process in self.turnover.turns:
            for topic, index in self.judged.logs[process].topics.items():
                if index.counter.size:
                    found.setdefault(topic, {})[process] = int(index.counter[0]) - 1
        return found

    def _topics(self) -> Iterable[str]:
        """Return the topics in which something may be settled, also those of which all is."""
        return sorted({*self.clock.topics, *self.upto} - self._excluded())

    def _excluded(self) -> set[str]:
        """Return the topics in which it is not known how a log numbers its messages."""
        found: set[str] = set()
        for log in self.judged.logs.values():
            if log.process not in self.across and not self.restarts(log):
                mine = self._broadcasting(log)
                found |= mine if len(mine) > 1 else set()
        return found

    @cached_property
    def across(self) -> dict[str, int]:
        """Who numbers the messages of all topics together, and how far each came."""
        found: dict[str, int] = {}
        for process, log in self.judged.logs.items():
            parts = [index.counter for index in log.topics.values() if index.counter.size]
            together = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
            known = self.earlier.across.get(process) if self.earlier is not None else None
            several = len(parts) > 1 and not any(process in limits for limits in self.upto.values())
            several &= not self.restarts(log) and np.unique(together).size == together.size
            if several or known is not None:
                found[process] = int(together.max(initial=known or 0))
        return found

    def _broadcasting(self, log: LogIndex) -> set[str]:
        mine = {topic for topic, limits in self.upto.items() if log.process in limits}
        return mine | {topic for topic, index in log.topics.items() if index.counter.size}

    def restarts(self, log: LogIndex) -> bool:
        """Whether a log has a message of number 1 in two topics."""
        if self.earlier is not None and log.process in self.earlier.across:
            return False
        begun = {topic for topic, limits in self.upto.items() if log.process in limits}
        begun |= {topic for topic, index in log.topics.items() if index.counter[:1].tolist() == [1]}
        return len(begun) > 1

    @cached_property
    def concerned(self) -> dict[str, frozenset[str]]:
        """By topic, whom its messages concern."""
        logs, topics = self.judged.logs, {*self.clock.topics, *self.upto}
        if not self.clock.subscriptions:
            return dict.fromkeys(topics, frozenset(logs))
        found: dict[str, set[str]] = {topic: set() for topic in topics}
        if self.earlier is not None:
            found |= {topic: set(processes) for topic, processes in self.earlier.concerned.items()}
        for process, log in logs.items():
            told = {mark.topic or "" for mark in log.marks if mark.event in (SUBSCRIBE, UNSUBSCRIBE)}
            for topic in {*told, *log.topics} & topics:
                found[topic].add(process)
        return {topic: frozenset(processes) for topic, processes in found.items()}

    def _limits(self, topic: str) -> dict[str, int]:
        """Return up to which number each origin's messages can be left out."""
        before = self.upto.get(topic, {})
        clock = self.clock.topics.get(topic)
        if clock is None or clock.messages == 0:
            steady = self.earlier.steady[topic] if self.earlier is not None else frozenset()
            self.turning[topic] = self.concerned[topic] - steady | self.turnover.among(topic)
            return dict(before)
        quiet = self._quiet(topic, clock)
        turning = self._turning(topic, clock, quiet=quiet)
        self.turning[topic], those = turning, sorted(turning)
        if len(those) * len(clock.origins) > MOST_PAIRS or len(those) * clock.messages > MOST_PLACES:
            return {}
        stays = {process: self.turnover.stays(process, clock) for process in those}
        tagged = self._tagged(topic)
        ranks = self._settled(topic, clock, stays, tagged=tagged)
        self.lost[topic] = self._unknown(topic, stays)
        if tagged or clock.stability:
            for origin, number in _lost(clock, ranks).items():
                self.lost[topic][origin] = min(number, self.lost[topic].get(origin, number))
        left = _left(ranks, tagged=tagged)
        found = dict(before)
        for a in np.flatnonzero(left).tolist():
            found[clock.origins[a]] = int(clock.counters[clock.starts[a] + left[a] - 1])
        if tagged:
            self.reach[topic] = reach_of(clock, left, self.reach.get(topic, {}))
            # What stayed before is the first that is there: it does not concern those who came since.
            stayed = self.stays.get(topic, {})
            last = np.flatnonzero([ranks[a] > 0 or origin in stayed for a, origin in enumerate(clock.origins)])
            numbers = clock.counters[clock.starts[last] + left[last]].tolist()
            self.stays[topic] = {clock.origins[a]: n for a, n in zip(last.tolist(), numbers, strict=True)}
            self.bonds[topic] = bonds_of(clock, left, last, stays, found)
        if tagged or clock.stability:
            self.begun[topic] = begun_of(clock, left, self.clock.left_out, stays, found)
        known = self.after.get(topic, {}) if topic in self.upto else None
        standing = Standing(clock, left, stays, self.concerned[topic] - turning, found, known)
        self.after[topic], self.dues[topic] = standing.after, standing.dues()
        number = sum(due.size for dues in self.dues[topic].values() for due in dues)
        number += sum(begun.size for begun in self.begun.get(topic, {}).values())
        return found if number <= MOST_PAIRS else {}

    def _settled(self, topic: str, clock: TopicClock, stays: Mapping[str, Stays], *, tagged: bool) -> Ints:
        """Return how many of each origin's messages are settled."""
        reached = self._reached(topic, clock, stays, stable=clock.stability)
        silent = clock.stability and not clock.stability_owed
        at_most = self._reached(topic, clock, stays, stable=False) if silent else reached
        before = sum(self.upto.get(topic, {}).values())
        naming = Naming(clock, self.found.get(topic, ()))
        bad = ~clock.logged
        bad[naming.held] = True
        bad[self._naming_unknown(topic, clock)] = True
        stayed = np.array([tagged and origin in self.stays.get(topic, ()) for origin in clock.origins], dtype=bool)
        for rounds in count():
            ranks = _ranks(clock, reached.copy(), bad)
            if silent:
                most = _ranks(clock, at_most.copy(), bad)
                if topic in self.silent or int((most - ranks).sum()) * _SILENT > before + int(most.sum()):
                    self.silent.add(topic)
                    ranks = most
            if tagged or clock.stability:
                ranks = np.minimum(ranks, _before_the_rest(clock, ranks))
            torn = naming.torn(_left(ranks, tagged=tagged), stayed | (ranks > 0) if tagged else stayed)
            if torn.size == 0:
                break
            bad[torn if rounds < _ROUNDS else naming.every] = True
        return ranks

    def _turning(self, topic: str, clock: TopicClock, *, quiet: bool) -> frozenset[str]:
        """Return who came or is gone, and where that is enough, who need not have everything for another reason."""
        found = self.turnover.among(topic)
        if quiet:
            found |= self.concerned[topic].difference(self.turnover.subscribers.get(topic, ()))
            found |= self._begun_late(topic, clock)
        return found & self.concerned[topic]

    def _unknown(self, topic: str, stays: Mapping[str, Stays]) -> dict[str, int]:
        """Return the least numbers of what is not known yet and was delivered in a stay that is over, or in none.

        What it follows, once it is known, that stay had to have, and before it.
        """
        found = dict(self.lost.get(topic, {}))
        for process, stay in stays.items():
            for at, origin, number in self.unknown.get((process, topic), ()):
                if at < stay.over or not stay.open:
                    found[origin] = max(min(number, found.get(origin, number)), 1)
        return found

    def _reached(self, topic: str, clock: TopicClock, stays: Mapping[str, Stays], *, stable: bool) -> Ints:
        """Return up to which rank of each origin all have all that concerns them, and their own messages."""
        known = np.array([self.upto.get(topic, {}).get(origin, 0) for origin in clock.origins], dtype=np.int64)
        numbers = np.full(len(clock.origins), _FOREVER, dtype=np.int64)
        for process in self.concerned[topic] - stays.keys():
            section = self.sections.get((process, topic))
            reached = known
            if section is not None:
                reached = section.reached(clock.origins, process, known, stable=stable)
            np.minimum(numbers, reached, out=numbers)
        for a, origin in enumerate(clock.origins):
            own = self.sections.get((origin, topic))
            numbers[a] = min(int(numbers[a]), own.sent if own is not None else int(known[a]))
        ranks = np.array(
            [np.searchsorted(clock.counters[clock.block(a)], number, "right") for a, number in enumerate(numbers)],
            dtype=np.int64,
        )
        quiet = self._quiet(topic, clock)
        ended = self.turnover.ended.get(topic, ())
        for process, stay in stays.items():
            if stay.silent or process in ended or (quiet and not stay.open):
                continue
            if not stay.open:
                return np.zeros_like(ranks)
            # Without tags and stability it is told of each message whether it follows what is left out. What comes
            # later to one who has nothing that follows it would have the whole trace looked at.
            sends = not quiet or stay.begun
            np.minimum(
                ranks, stay.reached(self.cut.get((process, topic), _FOREVER), stable=stable, sends=sends), out=ranks
            )
        return ranks

    def _begun_late(self, topic: str, clock: TopicClock) -> frozenset[str]:
        """Return who subscribed first of all and lacks the first of an origin: that may be from before it was known."""
        if self.earlier is not None and topic in self.upto:
            return self.concerned[topic] - self.earlier.steady[topic]
        nothing = np.zeros(len(clock.origins), dtype=np.int64)
        first = clock.counters[clock.starts[:-1]]
        sections = ((process, self.sections.get((process, topic))) for process in self.concerned[topic])
        return frozenset(
            process
            for process, section in sections
            if section is None or (section.reached(clock.origins, process, nothing, stable=False) < first).any()
        )

    def _quiet(self, topic: str, clock: TopicClock) -> bool:
        """Whether there are subscriptions, and in the topic neither tags nor stability."""
        return self.clock.subscriptions and not clock.stability and not self._tagged(topic)

    def _tagged(self, topic: str) -> bool:
        sections = (self.sections.get((process, topic)) for process in self.concerned[topic])
        return any(section is not None and section.tags for section in sections)

    def _naming_unknown(self, topic: str, clock: TopicClock) -> Ints:
        """Return the messages whose tags name what is not known: whether that is wrong is seen once it is."""
        found = [np.zeros(0, dtype=np.int64)]
        for process in clock.origins if self._tagged(topic) else ():
            if process not in self.bodies:
                continue
            bodies, place = self.bodies[process]
            log = bodies.log(place).topics.get(topic)
            if log is not None and log.context_counter_of.size:
                _, of, dots = located(clock, bodies.names, process, log)
                found.append(of[(dots < 0) & (of >= 0)])
        return np.concatenate(found)


def _ranks(clock: TopicClock, ranks: Ints, bad: Bools) -> Ints:
    """Return how many of each origin's messages are settled, given how many all of those concerned have.

    Those that are `bad` are not, nor what follows them.
    """
    for a in np.unique(clock.owner[bad]).tolist():
        ranks[a] = min(int(ranks[a]), int(bad[clock.block(a)].argmax()))
    while True:
        last = np.flatnonzero(ranks)
        reached = clock.past[:, clock.starts[last] + ranks[last] - 1]
        beyond = last[(reached > ranks[:, None]).any(axis=0)]
        if beyond.size == 0:
            return ranks
        for a in beyond.tolist():
            mine = clock.past[:, clock.starts[a] : clock.starts[a] + ranks[a]]
            ranks[a] = int((mine > ranks[:, None]).any(axis=0).argmax())


def _left(ranks: Ints, *, tagged: bool) -> Ints:
    """Return how many of each origin's messages are left out, if so many are settled: with tags, the last one stays."""
    return np.maximum(ranks - 1, 0) if tagged else ranks


def _before_the_rest(clock: TopicClock, ranks: Ints) -> Ints:
    """Return how many of each origin's messages happen before all that is not settled."""
    rest = _beyond(clock, ranks) & clock.owed
    least: Ints = clock.past[:, rest].min(axis=1, initial=2**31 - 1).astype(np.int64)
    return least


def _lost(clock: TopicClock, ranks: Ints) -> dict[str, int]:
    """Return, of each origin, the first number that is not settled and that only its sender has, who is gone."""
    rows = np.flatnonzero(_beyond(clock, ranks) & ~clock.owed)
    owners, first = np.unique(clock.owner[rows], return_index=True)
    numbers = clock.counters[rows[first]].tolist()
    return {clock.origins[a]: number for a, number in zip(owners.tolist(), numbers, strict=True)}


def _beyond(clock: TopicClock, ranks: Ints) -> Bools:
    """Mark what is not among the first `ranks` messages of its origin."""
    beyond: Bools = np.arange(clock.messages) - clock.starts[clock.owner] >= ranks[clock.owner]
    return beyond
