"""`causalcast simulate --replay`: one schedule, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.cli.console import stdout_console
from causalcast.cli.errors import CommandError
from causalcast.cli.spacetime import draw

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast.simulation.schedule import Replay, Schedule
    from causalcast.trace import JsonLinesWriter

EXIT_VIOLATED: Final = 1
EXIT_UNUSABLE: Final = 2


def replay_file(path: Path, sink: JsonLinesWriter | None) -> int:
    """Replay the schedule in `path`, show it, and write its trace to `sink`; returns the exit status."""
    from causalcast.simulation.properties import ERROR, own_tables  # noqa: PLC0415 - only a replay needs them
    from causalcast.simulation.schedule import replay, step_text  # noqa: PLC0415
    from causalcast.simulation.world import ImpossibleStepError, tells_its_tables  # noqa: PLC0415

    schedule = _load(path)
    try:
        played = replay(schedule)
    except ImpossibleStepError as error:
        raise CommandError(f"{path}: {error}", EXIT_UNUSABLE) from None
    stack = played.world.stack
    checked = stack.promises | {ERROR} | ({schedule.breaks} if schedule.breaks else set())
    if not tells_its_tables(stack):
        checked -= {"P7"}
    found = played.judge(checked, own_tables)
    first = next((each for each in found if each.property == schedule.breaks), found[0] if found else None)
    if sink is not None:
        _trace(played, sink)
    console = stdout_console()

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"{schedule.stack}, {len(schedule.members) + len(schedule.joiners)} processes, {len(schedule.steps)} steps")
    for number, step in enumerate(schedule.steps, 1):
        say(f"{number:>4}  {step_text(step)}")
    say()
    say(draw(played, first, console))
    say()
    for violation in found:
        say(f"{violation}" + ("" if violation.property in checked - {schedule.breaks} else " (not promised)"))
    if not found:
        say(f"Nothing of {' '.join(sorted(checked))} is broken.")
    if schedule.breaks and first is not None and first.property != schedule.breaks:
        say(f"The schedule says that it breaks {schedule.breaks}; it does not.")
    return EXIT_VIOLATED if found else 0


def _load(path: Path) -> Schedule:
    from causalcast.simulation.schedule import ScheduleError, load  # noqa: PLC0415 - only a replay needs them

    try:
        return load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}", EXIT_UNUSABLE) from error
    except (ScheduleError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is no schedule: {error}", EXIT_UNUSABLE) from error


def _trace(played: Replay, sink: JsonLinesWriter) -> None:
    from causalcast.trace import EVENTS, TraceEvent  # noqa: PLC0415 - only a trace needs it

    tags_promised = "P4" in played.world.stack.promises
    seqs = dict.fromkeys(played.world.roster, 0)
    for process, entry in played.entries:
        if entry.kind not in EVENTS:
            continue
        tag = entry.tag
        seqs[process] += 1
        sink.write(
            TraceEvent(
                process=process,
                seq=seqs[process],
                event=entry.kind,
                origin=tag.origin if tag is not None else None,
                counter=tag.counter if tag is not None else None,
                topic=entry.topic or None,
                peer=entry.peer or None,
                payload_bytes=len(entry.payload) if entry.kind in {"broadcast", "deliver"} else None,
                context=tag.context if tag is not None and tags_promised and entry.kind == "broadcast" else None,
            )
        )
    for process in sorted(played.world.crashed):
        sink.write(TraceEvent(process=process, seq=seqs[process] + 1, event="crash"))
