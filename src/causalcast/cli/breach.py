"""A broken property: which can be checked, its schedule as a file, and on the terminal with a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.cli.errors import CommandError
from causalcast.cli.spacetime import draw
from causalcast.protocols import PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from rich.console import Console

    from causalcast.protocols import Stack
    from causalcast.simulation.properties import TableSizes
    from causalcast.simulation.schedule import Schedule


def properties_of(text: str, *, tables: bool = False) -> frozenset[str] | None:
    """The properties that `P,...` names; `None` if it names none.

    P7 is among those that can be checked only with `tables`: where the stack's processes say what they hold.
    """
    choices = tuple(PROPERTIES)
    checked = frozenset(word for word in text.replace(" ", "").split(",") if word) or None
    for word in sorted(checked or ()):
        if word == "P7" and not tables:
            raise CommandError("'P7' cannot be checked here: processes of the stack say nothing of their tables", 2)
        if word not in choices:
            raise CommandError(f"{word!r} cannot be checked here; choose from {', '.join(choices)}", 2)
    return checked


def save_schedule(path: Path, schedule: Schedule) -> None:
    """Write the schedule there, in folders that are made for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(schedule.dump(), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", 2) from error


def show_schedule(
    console: Console,
    schedule: Schedule,
    stack: Stack,
    properties: Collection[str],
    sizes: TableSizes | None = None,
) -> None:
    """What the schedule breaks, its steps, and its picture with the messages that the breach is about."""
    from causalcast.simulation.schedule import replay, step_text  # noqa: PLC0415 - only a breach needs them

    played = replay(schedule, stack)
    found = played.judge(properties, sizes)
    steps = "\n".join(f"{number:>4}  {step_text(step)}" for number, step in enumerate(schedule.steps, 1))
    picture = draw(played, next((each for each in found if each.property == schedule.breaks), None), console)
    console.print(f"\n{schedule.note}\n\n{steps}\n\n{picture}", markup=False, highlight=False, soft_wrap=True)
