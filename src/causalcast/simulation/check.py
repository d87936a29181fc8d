"""One run of the simulator, judged by the brute-force checker; what it breaks becomes a small schedule.

The run is written down as steps and repeated without time in a `World`, where every entry of a log is compared with
all before it. That takes time that grows with the square of the run: `CHECK_LIMIT` bounds it. The audit judges traces
of any size.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.model import CausalcastError
from causalcast.simulation.properties import ERROR, SAFETY, Violation
from causalcast.simulation.schedule import Replay, record
from causalcast.simulation.shrink import NotBrokenError, shrink
from causalcast.simulation.steps import Broadcast, Join
from causalcast.simulation.world import ImpossibleStepError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from causalcast.model import ProcessId
    from causalcast.simulation.schedule import Schedule
    from causalcast.simulation.simulator import Simulator
    from causalcast.simulation.steps import Step
    from causalcast.simulation.world import World

CHECK_LIMIT: Final = 2_000
"""The most steps that are checked: broadcasts, arrivals, timers, takings of an event, faults."""

SHRINK_EFFORT: Final = 100_000
"""The most steps taken, in all attempts together, to make a schedule small."""

_DIFFERENT: Final = "the run went otherwise when repeated step by step: the stack draws lots or reads the clock"


class UncheckableError(CausalcastError):
    """The run cannot be judged here: it is too long, or its steps do not say all that decides it."""


class Verdict(NamedTuple):
    """What a run breaks."""

    simulator: Simulator
    """The finished run."""
    checked: frozenset[str]
    left_open: frozenset[str]
    """What must happen at last, if something sent never arrived: lost, or stopped with a process that failed."""
    violation: Violation | None
    """The first one."""
    schedule: Schedule | None
    """A small one that breaks the same property."""


def check(
    prepare: Callable[[Callable[[Step], None]], Simulator],
    properties: Collection[str] | None = None,
    *,
    progress: Callable[[Simulator], None] | None = None,
) -> Verdict:
    """Run the simulator that `prepare` makes, with the `record` it is given, and judge it.

    `properties` are those that the stack promises if not given; that a process fails is always a violation, P7 is not
    checked. Raises `UncheckableError`.
    """
    steps: list[Step] = []

    def record(step: Step) -> None:
        if len(steps) == CHECK_LIMIT:
            raise UncheckableError(f"the run has more than {CHECK_LIMIT:,} steps: make it smaller, or audit its trace")
        steps.append(step)

    simulator = prepare(record)
    stack = simulator.stack
    if stack.session_links:
        raise UncheckableError(
            f"runs over session links, as those of {stack.name!r}, cannot be repeated step by step yet: "
            "audit the trace instead"
        )
    failure: Exception | None = None
    try:
        simulator.run(progress=progress)
    except UncheckableError:
        raise
    except Exception as error:
        # Of a protocol it is a finding, which the repetition shows; otherwise it is raised again below.
        failure = error
    joiners = {step.process for step in steps if isinstance(step, Join)}
    members = tuple(name for name in simulator.roster if name not in joiners)
    played = _repeat(Replay(stack, members, tuple(sorted(joiners))), steps)
    if failure is not None and all(each.property != ERROR for each in played.violations):
        raise failure
    if failure is None and sum(entry.tag is not None for _, entry in played.entries) != _entries(simulator):
        raise UncheckableError(_DIFFERENT)
    asked = (stack.promises if properties is None else frozenset(properties)) - {"P7"} | {ERROR}
    checked = asked if played.world.quiescent else asked & SAFETY
    violation = next(iter(played.judge(checked)), None)
    if violation is None:
        return Verdict(simulator, checked, asked - checked, None, None)
    return Verdict(simulator, checked, asked - checked, violation, _small(played.world, steps, violation.property))


def _repeat(replay: Replay, steps: Collection[Step]) -> Replay:
    try:
        for step in steps:
            replay.do(step)
    except ImpossibleStepError:
        raise UncheckableError(_DIFFERENT) from None
    return replay


def _small(world: World, steps: Sequence[Step], prop: str) -> Schedule:
    """With short payloads, unless it takes those of the run."""
    numbers: Counter[ProcessId] = Counter()
    readable: list[Step] = []
    for step in steps:
        if isinstance(step, Broadcast):
            numbers[step.process] += 1
            readable.append(step._replace(payload=f"{step.process}/{numbers[step.process]}".encode()))
        else:
            readable.append(step)
    stack = world.stack
    run = replace(record(world), steps=tuple(readable))
    try:
        return shrink(run, prop, stack=stack, effort=SHRINK_EFFORT)
    except NotBrokenError:
        return shrink(replace(run, steps=tuple(steps)), prop, stack=stack, effort=SHRINK_EFFORT)


def _entries(simulator: Simulator) -> int:
    counters = simulator.counters
    return counters.broadcasts + counters.deliveries + counters.stables
