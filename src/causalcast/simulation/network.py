"""Networks in virtual time: how long a message takes on each link, and whether a link keeps order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from random import Random

    from causalcast.model import ProcessId

NS_PER_MS = 1_000_000


class Delay(Protocol):
    """Draws the time that one message takes, in nanoseconds, at least 0."""

    def draw(self, random: Random) -> int: ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same delay."""

    delay_ns: int

    def draw(self, random: Random) -> int:
        return self.delay_ns


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any whole number of nanoseconds from `low_ns` to `high_ns`, both included, equally likely."""

    low_ns: int
    high_ns: int

    def draw(self, random: Random) -> int:
        return random.randint(self.low_ns, self.high_ns)


@dataclass(frozen=True, slots=True)
class Network:
    """One delay for all links, times a factor where a link has one; `fifo` links never reorder."""

    delay: Delay = field(default_factory=lambda: Uniform(5 * NS_PER_MS, 15 * NS_PER_MS))
    fifo: bool = True
    slow_links: dict[tuple[ProcessId, ProcessId], int] = field(default_factory=dict)
    """(sender, receiver) to the factor by which that direction is slower."""

    def draw(self, sender: ProcessId, receiver: ProcessId, random: Random) -> int:
        """The delay of one message from `sender` to `receiver`, in nanoseconds."""
        delay = self.delay.draw(random)
        if self.slow_links:
            delay *= self.slow_links.get((sender, receiver), 1)
        return delay
