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
| `restart PROCESS` | it crashes, and is at once made again from what it had written down |
| `break PROCESS PEER` | the session link that it keeps to the other breaks, and it notices |
| `join PROCESS CONTACT` | one of the `joiners` starts, and asks to be let in |
| `leave PROCESS` | its application asks to leave |
| `suspect PROCESS PEER` | it is told that the other has crashed |
| `trust PROCESS PEER` | it is told that this was a mistake |
| `subscribe PROCESS TOPIC` | its application asks for a topic |
| `unsubscribe PROCESS TOPIC` | its application asks for no more of it |

`members` are there from the start. A line `joiners p3 p4` names processes that are absent until their `join`. To a
topic one broadcasts with `broadcast PROCESS PAYLOAD TOPIC`. An empty payload is written `%`, and so is the group in
place of a topic. The end of a session link is a message in flight like any other, and `receive` is its arrival.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_from_bytes, unquote, unquote_to_bytes

from causalcast.model import CausalcastError, InvalidNameError, ProcessId, Roster
from causalcast.protocols import PROPERTIES
from causalcast.protocols import stack as stack_named
from causalcast.simulation.properties import ERROR, SAFETY, Judge, Violation
from causalcast.simulation.steps import (
    Break,
    Broadcast,
    Crash,
    Duplicate,
    Fire,
    Join,
    Leave,
    Receive,
    Restart,
    Step,
    Subscribe,
    Suspect,
    Take,
    Trust,
    Unsubscribe,
    actor,
)
from causalcast.simulation.world import ImpossibleStepError, World

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from causalcast.protocols import Stack
    from causalcast.simulation.properties import TableSizes
    from causalcast.simulation.steps import LogEntry
    from causalcast.simulation.truth import Truth

FORMAT: Final = "causalcast schedule 1"

_READABLE: Final = "/:;,.!?+-_~@$&'()*="
"""What stands for itself in a payload, besides letters and digits."""


_EMPTY: Final = "%"
"""A payload of no bytes, where a word must stand."""

_WORDS: Final[dict[type, str]] = {
    Receive: "receive",
    Duplicate: "duplicate",
    Take: "take",
    Crash: "crash",
    Restart: "restart",
    Leave: "leave",
    Break: "break",
    Join: "join",
    Suspect: "suspect",
    Trust: "trust",
    Subscribe: "subscribe",
    Unsubscribe: "unsubscribe",
}


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
    joiners: tuple[ProcessId, ...] = ()
    """Who is absent until its join."""

    def dump(self) -> str:
        """The text of the file."""
        lines = [FORMAT]
        lines.extend(f"# {line}" for line in self.note.splitlines())
        lines += [f"stack {self.stack}", f"members {' '.join(self.members)}"]
        if self.joiners:
            lines.append(f"joiners {' '.join(self.joiners)}")
        if self.breaks is not None:
            lines.append(f"breaks {self.breaks}")
        lines.extend(map(step_text, self.steps))
        return "\n".join(lines) + "\n"


def step_text(step: Step) -> str:
    """A step as a line of the file."""
    match step:
        case Broadcast(process, payload, topic) if topic:
            return f"broadcast {process} {quote_from_bytes(payload, _READABLE) or _EMPTY} {_text(topic)}"
        case Broadcast(process, payload):
            return f"broadcast {process} {quote_from_bytes(payload, _READABLE)}".rstrip()
        case Receive(sender, receiver, place) | Duplicate(sender, receiver, place):
            return f"{_WORDS[type(step)]} {sender} {receiver}" + (f" {place}" if place else "")
        case Fire(process, timer):
            return f"fire {process} {_timer_text(timer)}"
        case Subscribe(process, topic) | Unsubscribe(process, topic):
            return f"{_WORDS[type(step)]} {process} {_text(topic) or _EMPTY}"
    return " ".join((_WORDS[type(step)], *step))


def _text(text: str) -> str:
    return quote(text, _READABLE)


def _timer_text(timer: object) -> str:
    return _text(timer if isinstance(timer, str) else repr(timer))


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
            if word in {"stack", "members", "joiners", "breaks"}:
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
        joiners = Roster(head.get("joiners", "").split()).names
        Roster((*members, *joiners))
    except InvalidNameError as error:
        raise ScheduleError(str(error)) from None
    breaks = head.get("breaks")
    if breaks is not None and breaks not in {*PROPERTIES, ERROR}:
        raise ScheduleError(f"{breaks!r} is no property")
    return Schedule(head["stack"], members, tuple(steps), breaks, "\n".join(notes), joiners)


def _step(word: str, words: list[str]) -> Step:
    match word, words:
        case "broadcast", [process]:
            return Broadcast(process)
        case "broadcast", [process, payload]:
            return Broadcast(process, unquote_to_bytes(payload))
        case "broadcast", [process, payload, topic]:
            return Broadcast(process, b"" if payload == _EMPTY else unquote_to_bytes(payload), unquote(topic))
        case "receive", [sender, receiver, *place] if len(place) < 2:
            return Receive(sender, receiver, _place(*place))
        case "duplicate", [sender, receiver, *place] if len(place) < 2:
            return Duplicate(sender, receiver, _place(*place))
        case "fire", [process, timer]:
            return Fire(process, unquote(timer))
        case (("take" | "crash" | "restart" | "leave"), [process]):
            return _ALONE[word](process)
        case (("join" | "suspect" | "trust" | "break"), [process, other]):
            return _WITH_ANOTHER[word](process, other)
        case "subscribe", [process, topic]:
            return Subscribe(process, "" if topic == _EMPTY else unquote(topic))
        case "unsubscribe", [process, topic]:
            return Unsubscribe(process, "" if topic == _EMPTY else unquote(topic))
    raise ValueError(f"{' '.join([word, *words])!r} is no step")


_ALONE: Final[dict[str, Callable[[ProcessId], Step]]] = {
    "take": Take,
    "crash": Crash,
    "restart": Restart,
    "leave": Leave,
}
_WITH_ANOTHER: Final[dict[str, Callable[[ProcessId, ProcessId], Step]]] = {
    "join": Join,
    "suspect": Suspect,
    "trust": Trust,
    "break": Break,
}


def _place(text: str = "0") -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no place on a link")
    return int(text)


def record(world: World, *, breaks: str | None = None, note: str = "") -> Schedule:
    """All steps that `world` has taken so far."""
    members = world.members.names
    joiners = tuple(name for name in world.roster if name not in world.members)
    return Schedule(world.stack.name, members, tuple(world.schedule), breaks, note, joiners)


class Replay:
    """A world that is watched: every entry of a log is judged as it comes.

    `violations` holds what is broken so far of P1, P3, P4 and P5, and failures of processes.
    """

    def __init__(
        self, stack: Stack, members: Sequence[ProcessId], joiners: Sequence[ProcessId] = (), *, seed: int = 0
    ) -> None:
        self.world = World(stack, members, joiners, seed=seed)
        self._judge = Judge(self.world)

    @property
    def entries(self) -> Sequence[tuple[ProcessId, LogEntry]]:
        """All that applications saw, in the order in which it happened."""
        return self.world.entries

    @property
    def truth(self) -> Truth:
        """What was broadcast so far."""
        return self._judge.truth

    @property
    def violations(self) -> Sequence[Violation]:
        """What is broken so far."""
        return self._judge.violations

    def do(self, step: Step) -> None:
        """Take `step`. Raises `ImpossibleStepError`; what a protocol raises becomes a violation and a crash."""
        world = self.world
        if isinstance(step, Fire):
            step = self._resolved(step)
        reason = world.possible(step)
        if reason is not None:
            raise ImpossibleStepError(reason)
        try:
            world.do(step)
        except ImpossibleStepError:
            raise
        except Exception as error:
            # Between correct processes any error of a protocol is a finding, as in the explorer.
            process = actor(step)
            self._judge.violations.append(Violation(ERROR, process, f"{type(error).__name__}: {error}"))
            world.crash(process)
        self._judge.look()

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
        found = [*self.violations]
        if frozenset(properties) - SAFETY and self.world.quiescent:
            found += self._judge.at_rest(sizes)
        return [violation for violation in found if violation.property in properties]


def replay(schedule: Schedule, stack: Stack | None = None) -> Replay:
    """Take every step of `schedule`, with `stack` instead of the one it names if given.

    Raises `ImpossibleStepError`, which says which step cannot be taken and why.
    """
    played = Replay(stack or stack_named(schedule.stack), schedule.members, schedule.joiners)
    for number, step in enumerate(schedule.steps, 1):
        try:
            played.do(step)
        except ImpossibleStepError as error:
            raise ImpossibleStepError(f"step {number}, {step_text(step)!r}, is not possible: {error}") from None
    return played
