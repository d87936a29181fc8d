"""What `causalcast explore --script` says: what each process is told to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.cli.errors import CommandError
from causalcast.simulation.steps import Broadcast, Crash, Join, Leave, Subscribe, Suspect, Trust, Unsubscribe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols import Stack
    from causalcast.simulation.local import Told

STEPS: Final = (
    "broadcast [TOPIC], join CONTACT, leave, crash, suspect PEER, trust PEER, subscribe [TOPIC], unsubscribe [TOPIC]"
)


def scripts_of(text: str, names: Sequence[ProcessId], stack: Stack) -> dict[ProcessId, tuple[Told, ...]]:
    """The scripts in `PROCESS: STEP, STEP; PROCESS: ...`; raises `CommandError`."""
    scripts: dict[ProcessId, tuple[Told, ...]] = {}
    for part in filter(str.strip, text.split(";")):
        name, colon, steps = part.partition(":")
        name = name.strip()
        if not colon or name in scripts:
            raise CommandError(f"--script: {part.strip()!r} is not PROCESS: STEP, ..., once for each process", 2)
        _known(name, names)
        scripts[name] = tuple(_step(name, step.split(), names, stack) for step in filter(str.strip, steps.split(",")))
        if any(isinstance(step, Join) for step in scripts[name][1:]):
            raise CommandError(f"--script: {name} can join once only, before anything else", 2)
        if any(isinstance(step, Crash) for step in scripts[name][:-1]):
            raise CommandError(f"--script: {name} does nothing after it has crashed", 2)
    if all(_joins(scripts.get(name, ())) for name in names):
        raise CommandError("--script: all processes join, so there is no group: leave one of them a member", 2)
    return scripts


def _joins(steps: Sequence[Told]) -> bool:
    return bool(steps) and isinstance(steps[0], Join)


def _step(name: ProcessId, words: Sequence[str], names: Sequence[ProcessId], stack: Stack) -> Told:
    step: Told
    match words:
        case ["broadcast"]:
            return Broadcast(name)
        case ["broadcast", topic]:
            step = Broadcast(name, topic=topic)
        case ["subscribe", *topic] if len(topic) < 2:
            step = Subscribe(name, "".join(topic))
        case ["unsubscribe", *topic] if len(topic) < 2:
            step = Unsubscribe(name, "".join(topic))
        case ["crash"]:
            return Crash(name)
        case ["leave"]:
            step = Leave(name)
        case [("join" | "suspect" | "trust") as word, peer]:
            step = _WITH_ANOTHER[word](name, _other(name, peer, names))
        case _:
            raise CommandError(f"--script: {' '.join(words)!r} is no step; choose from {STEPS}", 2)
    if isinstance(step, Broadcast | Subscribe | Unsubscribe):
        if not stack.topics:
            raise CommandError(f"--script: the stack {stack.name} has no topics, so no {' '.join(words)!r}", 2)
    elif isinstance(step, Trust) and not stack.suspects:
        raise CommandError(f"--script: processes of the stack {stack.name} take no suspicion back", 2)
    elif not (stack.dynamic or (stack.suspects and isinstance(step, Suspect | Trust))):
        raise CommandError(f"--script: the members of the stack {stack.name} are fixed, so no {' '.join(words)!r}", 2)
    return step


_WITH_ANOTHER: Final[dict[str, type[Join | Suspect | Trust]]] = {"join": Join, "suspect": Suspect, "trust": Trust}


def _other(name: ProcessId, other: str, names: Sequence[ProcessId]) -> ProcessId:
    _known(other, names)
    if name == other:
        raise CommandError(f"--script: {name} cannot do that to itself", 2)
    return other


def _known(name: str, names: Sequence[ProcessId]) -> None:
    if name not in names:
        raise CommandError(f"--script: there is no {name!r}; --nodes {len(names)} are {', '.join(names)}", 2)
