"""Schedules as files: the steps of one run of a `World`, small, readable, and replayed the same everywhere.

    causalcast schedule 1
    # P3 p2: p1:1 before its cause p0:1
    stack unordered
    members p0 p1 p2
    breaks P3
    broadcast p0 p0/1
    receive p0 p1
    take p1
    broadcast p1 p1/1
    receive p1 p2
    take p2

The first line names the format and its version; `#` starts a comment; `breaks` is there if the schedule is known to
break a property. Then one step a line, in the order in which they are taken:

| step | meaning |
|---|---|
| `broadcast PROCESS [PAYLOAD]` | its application broadcasts; what is not printable in the payload is written `%0A` |
| `receive SENDER RECEIVER [PLACE]` | the message in that place of the link arrives; 0, the oldest, unless given |
| `take PROCESS` | its application receives its next event |
| `fire PROCESS TIMER` | a timer comes due |
| `duplicate SENDER RECEIVER [PLACE]` | the link repeats a message in flight, behind all that are in flight |
| `crash PROCESS` | it stops for ever |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_from_bytes, unquote, unquote_to_bytes

from causalcast.model import CausalcastError, InvalidNameError, ProcessId, Roster
from causalcast.protocols import PROPERTIES
from causalcast.protocols import stack as stack_named
from causalcast.simulation.properties import ERROR, SAFETY, Account, Truth, Violation, judge_world
from causalcast.simulation.world import (
    Broadcast,
    Crash,
    Duplicate,
    Fire,
    ImpossibleStepError,
    LogEntry,
    Receive,
    Step,
    Take,
    World,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from causalcast.protocols import Stack
    from causalcast.simulation.properties import TableSizes

FORMAT: Final = "causalcast schedule 1"

_READABLE: Final = "/:;,.!?+-_~@$&'()*="
"""What stands for itself in a payload, besides letters and digits."""


class ScheduleError(CausalcastError, ValueError):
    """A text that is no schedule: says which line, and why."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A run of a stack as its steps."""

    stack: str
    members: tuple[ProcessId, ...]
    steps: tuple[Step, ...]
    breaks: str | None = None
    """The property that it is known to break."""
    note: str = ""
    """A line for the reader."""

    def dump(self) -> str:
        """The text of the file."""
        lines = [FORMAT]
        lines.extend(f"# {line}" for line in self.note.splitlines())
        lines += [f"stack {self.stack}", f"members {' '.join(self.members)}"]
        if self.breaks is not None:
            lines.append(f"breaks {self.breaks}")
        lines.extend(map(step_text, self.steps))
        return "\n".join(lines) + "\n"


def step_text(step: Step) -> str:
    """A step as a line of the file."""
    match step:
        case Broadcast(process, payload):
            return f"broadcast {process} {quote_from_bytes(payload, _READABLE)}".rstrip()
        case Receive(sender, receiver, place):
            return f"receive {sender} {receiver}" + (f" {place}" if place else "")
        case Duplicate(sender, receiver, place):
            return f"duplicate {sender} {receiver}" + (f" {place}" if place else "")
        case Take(process):
            return f"take {process}"
        case Fire(process, timer):
            return f"fire {process} {_timer_text(timer)}"
        case Crash(process):
            return f"crash {process}"


def _timer_text(timer: object) -> str:
    return quote(timer if isinstance(timer, str) else repr(timer), _READABLE)


def load(text: str) -> Schedule:
    """The schedule in `text`; raises `ScheduleError`."""
    lines = text.splitlines()
    if not lines or lines[0].strip() != FORMAT:
        raise ScheduleError(f"line 1: a schedule starts with {FORMAT!r}")
    head: dict[str, str] = {}
    steps: list[Step] = []
    notes = []
    for number, line in enumerate(lines[1:], 2):
        if line.startswith("#"):
            notes.append(line[1:].strip())
            continue
        word, _, rest = line.strip().partition(" ")
        if not word:
            continue
        try:
            if word in {"stack", "members", "breaks"}:
                if steps or word in head:
                    raise ValueError(f"{word!r} comes once, before the steps")
                head[word] = rest.strip()
            else:
                steps.append(_step(word, rest.split()))
        except ValueError as error:
            raise ScheduleError(f"line {number}: {error}") from None
    for word in ("stack", "members"):
        if not head.get(word):
            raise ScheduleError(f"there is no line that says {word!r}")
    try:
        members = Roster(head["members"].split()).names
    except InvalidNameError as error:
        raise ScheduleError(str(error)) from None
    breaks = head.get("breaks")
    if breaks is not None and breaks not in {*PROPERTIES, ERROR}:
        raise ScheduleError(f"{breaks!r} is no property")
    return Schedule(head["stack"], members, tuple(steps), breaks, "\n".join(notes))


def _step(word: str, words: list[str]) -> Step:
    match word, words:
        case "broadcast", [process]:
            return Broadcast(process)
        case "broadcast", [process, payload]:
            return Broadcast(process, unquote_to_bytes(payload))
        case "receive", [sender, receiver]:
            return Receive(sender, receiver)
        case "receive", [sender, receiver, place]:
            return Receive(sender, receiver, _place(place))
        case "duplicate", [sender, receiver]:
            return Duplicate(sender, receiver)
        case "duplicate", [sender, receiver, place]:
            return Duplicate(sender, receiver, _place(place))
        case "take", [process]:
            return Take(process)
        case "fire", [process, timer]:
            return Fire(process, unquote(timer))
        case "crash", [process]:
            return Crash(process)
    raise ValueError(f"{' '.join([word, *words])!r} is no step")


def _place(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no place on a link")
    return int(text)


def record(world: World, *, breaks: str | None = None, note: str = "") -> Schedule:
    """All steps that `world` has taken so far."""
    return Schedule(world.stack.name, world.roster.names, tuple(world.schedule), breaks, note)


class Replay:
    """A world that is watched: every entry of a log is judged as it comes.

    `violations` holds what is broken so far of P1, P3, P4 and P5, and failures of processes.
    """

    def __init__(self, stack: Stack, members: Sequence[ProcessId], *, seed: int = 0) -> None:
        self.world = World(stack, members, seed=seed)
        self.entries: list[tuple[ProcessId, LogEntry]] = []
        """All that applications saw, in the order in which it happened."""
        self.truth = Truth({})
        self.violations: list[Violation] = []
        self._accounts = {name: Account(name) for name in self.world.roster}

    def do(self, step: Step) -> None:
        """Take `step`. Raises `ImpossibleStepError`; what a protocol raises becomes a violation and a crash."""
        world = self.world
        if isinstance(step, Fire):
            step = self._resolved(step)
        reason = world.possible(step)
        if reason is not None:
            raise ImpossibleStepError(reason)
        process = step.receiver if isinstance(step, Receive | Duplicate) else step.process
        seen = len(world.logs[process])
        try:
            world.do(step)
        except Exception as error:
            # Between correct processes any error of a protocol is a finding, as in the explorer.
            self.violations.append(Violation(ERROR, process, f"{type(error).__name__}: {error}"))
            world.crash(process)
        for entry in world.logs[process][seen:]:
            account = self._accounts[process]
            if entry.kind == "broadcast":
                self.truth = self.truth.after(entry, account.delivered)
            self.violations.extend(account.judge(entry, self.truth))
            self._accounts[process] = account.after(entry)
            self.entries.append((process, entry))

    def _resolved(self, step: Fire) -> Fire:
        """The timer that the file's text means."""
        port = self.world.ports.get(step.process)
        if port is not None and step.timer not in port.timers:
            for timer in port.timers:
                if _timer_text(timer) == _timer_text(step.timer):
                    return Fire(step.process, timer)
        return step

    def judge(self, properties: Collection[str], sizes: TableSizes | None = None) -> list[Violation]:
        """What is broken of `properties`; what must happen at last only if nothing is left to do."""
        found = [violation for violation in self.violations if violation.property in properties]
        last = frozenset(properties) - SAFETY
        return [*found, *judge_world(self.world, last, sizes)] if last else found


def replay(schedule: Schedule, stack: Stack | None = None) -> Replay:
    """Take every step of `schedule`, with `stack` instead of the one it names if given.

    Raises `ImpossibleStepError`, which says which step cannot be taken and why.
    """
    played = Replay(stack or stack_named(schedule.stack), schedule.members)
    for number, step in enumerate(schedule.steps, 1):
        try:
            played.do(step)
        except ImpossibleStepError as error:
            raise ImpossibleStepError(f"step {number}, {step_text(step)!r}, is not possible: {error}") from None
    return played
