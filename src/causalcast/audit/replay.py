"""Logs judged against the clock: the *replay* stage, pure NumPy.

What is plainly right is found for many processes and topics at once. The rest is judged topic by topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.absences import Absences
from causalcast.audit.entitlement import entitle
from causalcast.audit.events import SUBSCRIBE, UNSUBSCRIBE
from causalcast.audit.integrity import check_payloads, place_deliveries
from causalcast.audit.members import Attendance
from causalcast.audit.order import check_order, check_undelivered
from causalcast.audit.ranges import keys_of, places
from causalcast.audit.screening import Chosen, screen
from causalcast.audit.stability import check_stability
from causalcast.audit.tags import check_tags
from causalcast.audit.tally import Tally, Tallying
from causalcast.audit.view import View
from causalcast.audit.violations import Replay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import Bodies, LogBody, Mark
    from causalcast.audit.violations import Violations

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of some logs. `found` has those with violations or that needed a closer look, by their place.

    `excused` is of each log, as in `Replay`, for all that needed no closer look.
    """

    found: dict[int, Replay]
    excused: Ints
    tally: Tally


def replay(body: LogBody, marks: Sequence[Mark], clock: Clock, inspect: Callable[[View], None] | None = None) -> Replay:
    """Judge one process in every topic of the clock; `inspect` is shown each topic when it is judged."""
    replays = _Replaying(body.source, np.array([body.place]), clock, {body.place: marks}, inspect).run()
    result = replays.found.get(body.place, Replay(body.process, body.names))
    result.excused += int(replays.excused[body.place])
    replays.tally.add_to(result.latency, result.timeline)
    return result


def replay_logs(bodies: Bodies, chosen: Ints, clock: Clock) -> Replays:
    """Judge some logs of `bodies` in every topic of the clock."""
    return _Replaying(bodies, chosen, clock, {}, None).run()


class _Replaying:
    def __init__(
        self,
        bodies: Bodies,
        chosen: Ints,
        clock: Clock,
        marks: dict[int, Sequence[Mark]],
        inspect: Callable[[View], None] | None,
    ) -> None:
        self.bodies = bodies
        self.chosen = chosen
        self.clock = clock
        self.marks = marks
        self.inspect = inspect
        self.tally = Tallying(len(bodies.processes), clock.grid)
        self.excused = np.zeros(len(bodies.processes), dtype=np.int64)
        self.absences: dict[int, list[Violations]] = {}

    def run(self) -> Replays:
        bodies = self.bodies
        if bodies.links is not None:
            self.tally.add_links(bodies.links.among(self.chosen, len(bodies.processes)))
        first = bodies.sections[self.chosen]
        sizes = bodies.sections[self.chosen + 1] - first
        sections = places(first, sizes)
        log = np.repeat(self.chosen, sizes)
        clean = np.zeros(sections.size, dtype=bool) if self.inspect else self._screen(sections, log)
        closer: dict[int, set[str]] = {}
        for place, code in zip(log[~clean].tolist(), bodies.topic[sections[~clean]].tolist(), strict=True):
            closer.setdefault(place, set()).add(self._names[code])
        for place, topic in self._silent(log, bodies.topic[sections]):
            closer.setdefault(place, set()).add(topic)
        found = {place: self._closely(bodies.log(place), sorted(topics)) for place, topics in closer.items()}
        for place, violations in self.absences.items():
            result = found.setdefault(place, Replay(bodies.processes[place], bodies.names))
            result.violations = sorted([*result.violations, *violations], key=lambda part: part.topic)
        return Replays(dict(sorted(found.items())), self.excused, self.tally.done())

    @cached_property
    def _names(self) -> list[str]:
        """The names of topics by their codes, the last that of none."""
        return [*self.bodies.names, ""]

    def _screen(self, sections: Ints, log: Ints) -> Bools:
        """Return which sections need no closer look."""
        bodies = self.bodies
        clean = np.zeros(sections.size, dtype=bool)
        quiet = (np.diff(bodies.tag_starts) == 0) & (np.diff(bodies.stable_starts) == 0)
        for flat in self.clock.flat:
            numbers = np.array([flat.number.get(name, -1) for name in self._names], dtype=np.int64)
            topic = numbers[bodies.topic[sections]]
            fit = (topic >= 0) & quiet[sections]
            fit[fit] = ~flat.stability[topic[fit]]
            if not fit.any():
                continue
            chosen = Chosen(sections[fit], log[fit], topic[fit])
            absences = Absences(bodies, self.clock, flat, self.excused)
            right, judged = screen(bodies, flat, chosen, self.tally, absences)
            for place, violations in absences.found.items():
                self.absences.setdefault(place, []).extend(violations)
            clean[np.flatnonzero(fit)[right | judged]] = True
            np.subtract.at(self.excused, chosen.log[right], np.diff(flat.messages.first)[chosen.topic[right]])
        return clean

    def _silent(self, log: Ints, topic: Ints) -> Iterator[tuple[int, str]]:
        """Yield the logs and topics of which they were members, or may have been, and of which they say nothing."""
        marks, clock = self.bodies.marks, self.clock
        if not clock.subscriptions:
            number = np.bincount(log, minlength=len(self.bodies.processes))
            for place in self.chosen[number[self.chosen] < len(clock.topics)].tolist():
                mine = {self._names[code] for code in topic[log == place].tolist()}
                yield from ((place, name) for name in clock.topics if name not in mine)
            return
        sizes = marks.starts[self.chosen + 1] - marks.starts[self.chosen]
        at, who = places(marks.starts[self.chosen], sizes), np.repeat(self.chosen, sizes)
        told = (marks.event[at] == SUBSCRIBE) | (marks.event[at] == UNSUBSCRIBE)
        who, about = who[told], marks.topic[at[told]]
        both = keys_of(np.concatenate((who, log)), np.concatenate((about, topic)))
        for i in np.flatnonzero(~np.isin(both[: who.size], both[who.size :])).tolist():
            if (name := self._names[about[i]]) in clock.topics:
                yield int(who[i]), name

    def _closely(self, body: LogBody, topics: Sequence[str]) -> Replay:
        """Judge one process in some topics, one after the other."""
        clock, result = self.clock, Replay(body.process, body.names)
        marks = self.marks[body.place] if body.place in self.marks else self.bodies.marks.of(body.place)
        attendance = Attendance(body.process, marks, clock.subscriptions)
        for name in topics:
            topic = clock.topics[name]
            result.excused -= topic.messages
            view = View(body, attendance, clock, topic, body.topics.get(name), result)
            _replay_topic(view)
            if self.inspect is not None:
                self.inspect(view)
        return result


def _replay_topic(view: View) -> None:
    """Run the checks; each adds to the result."""
    if view.log is not None:
        place_deliveries(view, view.log)
    if view.position.size and int(view.position.max()) < 2**31:
        view.position = view.position.astype(np.int32)
    entitle(view)
    check_order(view, view.position, stable=False)
    check_undelivered(view)
    if view.log is not None:
        check_payloads(view, view.log)
        check_tags(view, view.log)
    if view.topic.stability:
        check_stability(view)
