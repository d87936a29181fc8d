"""What goes wrong, and when: drawn from a seed before the run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind: TypeAlias = Literal["kill", "stop", "reset", "partition"]

KINDS: Final[tuple[Kind, ...]] = ("kill", "stop", "reset", "partition")
PAUSE_SECONDS: Final = (0.1, 1.5)
"""Between a fault and the next one; faults that last overlap."""
LASTING_SECONDS: Final = {"kill": (0.0, 3.0), "stop": (0.2, 4.0), "reset": (0.0, 0.0), "partition": (0.5, 6.0)}
"""How long each lasts: until the member is started again, goes on, or the halves meet."""


class Fault(NamedTuple):
    """One fault. `members` are who is killed or stopped, the two ends of a link, or one side of a partition."""

    kind: Kind
    begins: float
    """Seconds after the start."""
    lasts: float
    members: tuple[str, ...]


def plan(names: Sequence[str], seconds: float, seed: int) -> Iterator[Fault]:
    """The faults of a run, in the order in which they begin; all have ended when it ends."""
    draw = random.Random(seed)
    now = draw.uniform(*PAUSE_SECONDS)
    while now < seconds:
        kind = draw.choice(KINDS)
        lasts = min(draw.uniform(*LASTING_SECONDS[kind]), seconds - now)
        number = {"kill": 1, "stop": 1, "reset": 2, "partition": draw.randint(1, len(names) - 1)}[kind]
        yield Fault(kind, now, lasts, tuple(draw.sample(names, number)))
        now += draw.uniform(*PAUSE_SECONDS)
