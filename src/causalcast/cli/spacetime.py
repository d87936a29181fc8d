"""A replayed schedule as a space-time picture."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from causalcast.audit.result import Role, SpaceTime
    from causalcast.simulation.properties import Violation
    from causalcast.simulation.schedule import Replay
    from causalcast.simulation.steps import MessageId


def draw(replay: Replay, violation: Violation | None, console: Console) -> str:
    """The picture as text for this console."""
    from causalcast.audit.picture import draw_text  # noqa: PLC0415 - most commands draw nothing

    return draw_text(picture(replay, violation), min(console.width, 120))


def picture(replay: Replay, violation: Violation | None) -> SpaceTime:
    """What the applications saw, with the messages of `violation` marked."""
    from causalcast.audit.result import PictureEvent, SpaceTime  # noqa: PLC0415

    seqs: dict[str, int] = defaultdict(int)
    events = []
    arrows = []
    sent: dict[MessageId, int] = {}
    for column, (process, entry) in enumerate(replay.entries):
        seqs[process] += 1
        if entry.tag is None:
            label = f"{entry.kind} {entry.peer or entry.topic}".rstrip()
            events.append(PictureEvent(process, seqs[process], column, label, "", "context"))
            continue
        dot = entry.message
        events.append(PictureEvent(process, seqs[process], column, entry.kind, str(dot), _role(dot, replay, violation)))
        if entry.kind == "broadcast":
            sent[dot] = column
        elif entry.kind == "deliver" and dot in sent:
            arrows.append((sent[dot], column))
    return SpaceTime(replay.world.roster.names, tuple(events), tuple(arrows))


def _role(dot: MessageId, replay: Replay, violation: Violation | None) -> Role:
    if violation is None or violation.message is None:
        return "context"
    if dot == violation.message:
        return "message"
    if dot == violation.cause:
        return "cause"
    sent = replay.truth.sent
    between = dot in sent and violation.message in sent and dot in sent[violation.message].past
    return "path" if between and violation.cause in sent[dot].past else "context"
