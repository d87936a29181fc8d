"""Make a schedule that breaks a property small: drop members and steps while it still breaks the same one.

Delta debugging (Zeller and Hildebrandt 2002): processes are dropped one at a time, with the steps that name them, then
ever smaller runs of steps, until no single step can go. Dropping a step makes others impossible; those are dropped
with it. A reception is known by the step that sent its message, not by its place on the link, so it survives when
others before it go. Only where all links keep their order in the schedule, they keep it in what is made of it.

`effort` bounds the steps taken in all attempts together; what is smallest by then is returned.

For a property of what must happen at last, what is left to do after the steps is done in a fixed order, and becomes
part of the schedule.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from causalcast.protocols import stack as stack_named
from causalcast.simulation.properties import SAFETY, Violation
from causalcast.simulation.schedule import Replay, Schedule
from causalcast.simulation.steps import Closed, Duplicate, Receive, Step, Suspect, parties
from causalcast.simulation.world import ImpossibleStepError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols import Stack
    from causalcast.simulation.properties import TableSizes

SETTLE_LIMIT: Final = 10_000

Label: TypeAlias = tuple[int, int]
"""A message: the number of the step that sent it, and which of those it sent over that link."""


class _Named(NamedTuple):
    """A step, and the message it is about."""

    number: int
    step: Step
    message: Label | None


class _Processes(NamedTuple):
    members: tuple[ProcessId, ...]
    joiners: tuple[ProcessId, ...]

    def without(self, name: ProcessId) -> _Processes:
        return _Processes(*(tuple(other for other in names if other != name) for names in self))


class NotBrokenError(ValueError):
    """The schedule does not break the property."""


class _Attempt:
    """One run of some of the steps; `broken` is the violation, `steps` what was really done up to it."""

    def __init__(self, stack: Stack, processes: _Processes, prop: str, sizes: TableSizes | None, fifo: bool) -> None:
        self.replay = Replay(stack, processes.members, processes.joiners)
        self.steps: list[_Named] = []
        self.broken: Violation | None = None
        self._property = prop
        self._sizes = sizes
        self._fifo = fifo
        links = self.replay.world.in_flight
        self._labels: dict[tuple[ProcessId, ProcessId], list[Label]] = {link: [] for link in links}

    def run(self, steps: Iterable[_Named]) -> _Attempt:
        """Take those of `steps` that are possible, until the property is broken."""
        for named in steps:
            self._take(named)
            if self.broken is not None:
                return self
        if self._property not in SAFETY:
            self._settle(max((named.number for named in self.steps), default=0) + 1)
            self.broken = next(iter(self.replay.judge({self._property}, self._sizes)), None)
        return self

    def _settle(self, number: int) -> None:
        world = self.replay.world
        if world.stack.suspects:
            # Who is never told of a crash waits for ever, and breaks what must happen at last by that alone.
            told = {step for step in world.schedule if isinstance(step, Suspect)}
            for peer in sorted(world.crashed):
                for name in world.roster.others(peer):
                    if name not in world.crashed and Suspect(name, peer) not in told:
                        self._take(_Named(number, Suspect(name, peer), None))
                        number += 1
        for number_now in range(number, number + SETTLE_LIMIT):
            left = self.replay.world.enabled(fifo=True)
            if not left:
                return
            self._take(_Named(number_now, left[0], None))

    def _take(self, named: _Named) -> None:
        step, message = named.step, named.message
        labels: list[Label] = []
        if isinstance(step, Receive | Duplicate):
            labels = self._labels.get((step.sender, step.receiver), [])
            if message is not None:
                if message not in labels:
                    return
                step = step._replace(place=labels.index(message))
                if self._fifo and step.place and isinstance(step, Receive):
                    return
            elif step.place < len(labels):
                message = labels[step.place]
        first, stays = self._taken_from_link(step)
        try:
            self.replay.do(step)
        except ImpossibleStepError:
            return
        if isinstance(step, Receive):
            del labels[first : step.place + 1 - stays]
        elif isinstance(step, Duplicate) and message is not None:
            labels.append(message)
        for link, messages in self.replay.world.in_flight.items():
            known = self._labels[link]
            del known[len(messages) :]
            known.extend((named.number, new) for new in range(len(messages) - len(known)))
        self.steps.append(_Named(named.number, step, message))
        if self._property in SAFETY:
            self.broken = next((each for each in self.replay.violations if each.property == self._property), None)

    def _taken_from_link(self, step: Step) -> tuple[int, bool]:
        """Where a reception begins to take from its link, and whether what arrives stays there: see `World`."""
        world = self.replay.world
        if not isinstance(step, Receive):
            return 0, False
        if not world.stack.session_links:
            return step.place, False
        items = world.in_flight.get((step.sender, step.receiver), [])
        item = items[step.place] if step.place < len(items) else None
        return 0, isinstance(item, Closed) and item.last


def shrink(
    schedule: Schedule,
    prop: str,
    *,
    stack: Stack | None = None,
    sizes: TableSizes | None = None,
    effort: float = math.inf,
) -> Schedule:
    """A schedule that still breaks `prop`; none of its members and steps can be left out, unless the effort ran out.

    Raises `NotBrokenError` if `schedule` does not break it.
    """
    stack = stack or stack_named(schedule.stack)
    processes = _Processes(schedule.members, schedule.joiners)
    named: Sequence[_Named] = [_Named(number, step, None) for number, step in enumerate(schedule.steps, 1)]
    # What overtakes on a session link does so by right.
    ordered = not any(isinstance(step, Receive) and step.place for step in schedule.steps)
    fifo = ordered and not stack.session_links
    best = _Attempt(stack, processes, prop, sizes, fifo).run(named)
    if best.broken is None:
        raise NotBrokenError(f"the schedule does not break {prop}")
    spent = 0
    smaller = True
    while smaller:
        smaller = False
        for name in (*processes.members, *processes.joiners):
            fewer = processes.without(name)
            if fewer.members and spent < effort:
                attempt = _Attempt(stack, fewer, prop, sizes, fifo).run(_without(best.steps, name))
                spent += len(attempt.steps)
                if attempt.broken is not None:
                    best, processes, smaller = attempt, fewer, True
        size = max(len(best.steps) // 2, 1)
        while size:
            start = 0
            while start < len(best.steps) and spent < effort:
                steps = [*best.steps[:start], *best.steps[start + size :]]
                attempt = _Attempt(stack, processes, prop, sizes, fifo).run(steps)
                spent += len(attempt.steps)
                if attempt.broken is not None and len(attempt.steps) < len(best.steps):
                    best, smaller = attempt, True
                else:
                    start += size
            size //= 2
    kept = tuple(each.step for each in best.steps)
    return replace(
        schedule,
        members=processes.members,
        joiners=processes.joiners,
        steps=kept,
        breaks=prop,
        note=str(best.broken),
    )


def _without(steps: Iterable[_Named], name: ProcessId) -> list[_Named]:
    return [named for named in steps if name not in parties(named.step)]
