"""What goes wrong, and when: drawn from a seed before the run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind: TypeAlias = Literal["kill", "stop", "reset", "partition", "join", "leave", "evict", "loss", "absence"]

FIXED: Final[tuple[Kind, ...]] = ("kill", "stop", "reset", "partition")
"""What happens to members that are the same from start to end."""
MOVING: Final[tuple[Kind, ...]] = (*FIXED, "join", "leave", "evict", "loss", "absence")
"""What happens to members that come and go. A loss is a kill after which nobody comes back; in an absence a member is
killed, and evicted before it comes back.
"""
PAUSE_SECONDS: Final = (0.1, 1.5)
"""Between a fault and the next one; faults that last overlap."""
LASTING_SECONDS: Final = {
    "kill": (0.0, 3.0),
    "loss": (0.0, 3.0),
    "absence": (0.0, 3.0),
    "stop": (0.2, 4.0),
    "partition": (0.5, 6.0),
}
"""How long each lasts: until the member is started again, or is evicted; goes on; or the halves meet."""


class Fault(NamedTuple):
    """One fault. `members` are who is killed or stopped, the two ends of a link, or one side of a partition."""

    kind: Kind
    begins: float
    """Seconds after the start."""
    lasts: float
    members: tuple[str, ...]


def plan(names: Sequence[str], seconds: float, seed: int) -> Iterator[Fault]:
    """The faults of a run of fixed members, in the order in which they begin; all have ended when it ends."""
    draw = random.Random(seed)
    for kind, begins, lasts in _course(draw, FIXED, seconds):
        number = {"kill": 1, "stop": 1, "reset": 2, "partition": draw.randint(1, len(names) - 1)}[kind]
        yield Fault(kind, begins, lasts, tuple(draw.sample(names, number)))


def open_plan(seconds: float, seed: int) -> Iterator[Fault]:
    """The same where members come and go: who is concerned depends on who is there."""
    for kind, begins, lasts in _course(random.Random(seed), MOVING, seconds):
        yield Fault(kind, begins, lasts, ())


def _course(draw: random.Random, kinds: Sequence[Kind], seconds: float) -> Iterator[tuple[Kind, float, float]]:
    now = draw.uniform(*PAUSE_SECONDS)
    while now < seconds:
        kind = draw.choice(kinds)
        lasts = draw.uniform(*LASTING_SECONDS[kind]) if kind in LASTING_SECONDS else 0.0
        yield kind, now, min(lasts, seconds - now)
        now += draw.uniform(*PAUSE_SECONDS)
