"""What an algorithm itself takes to deliver, and to find stable, once it could: the non-causal latency of document 004.

Section 8.3: the time between the receive of the last causal predecessor and the delivery of what waited for it, and
between the receive that made it possible and the news that a message is stable. In virtual time both are 0, since a
process answers a message at once. So they are measured inside of that answer: in operations, which an ordering counts
itself and which repeat from the seed, and in CPU time, which does not.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe, numbers
from causalcast.lab.metrics.metadata import ordering_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Message, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.protocols.ordering import Ordering
    from causalcast.simulation import Simulator


class _Work(Probe):
    """What both ways to measure share. `at`: the numbers of the processes that are looked at."""

    unit: ClassVar[str]

    def __init__(self, at: Sequence[int] | None = None) -> None:
        self.at = numbers(at)
        self._inside = False
        """Whether a message is being handled: what timers and broadcasts bring about is not counted."""
        self._place = 0
        """How many deliveries the message has brought about. The first is its own."""
        self._prompt: Counter[float] = Counter()
        self._released: Counter[float] = Counter()
        self._stable: Counter[float] = Counter()

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def received(self, process: ProcessId, sender: ProcessId, message: WireMessage) -> None:
        self._inside = True
        self._place = 0
        self._start(process)

    def handled(self, process: ProcessId) -> None:
        self._inside = False

    def delivered(self, process: ProcessId, message: Message) -> None:
        if self._inside:
            (self._released if self._place else self._prompt)[self._spent()] += 1
            self._place += 1

    def stable(self, process: ProcessId, tag: Tag) -> None:
        if self._inside:
            self._stable[self._spent()] += 1

    @abstractmethod
    def _start(self, process: ProcessId) -> None:
        """Begin to count."""

    @abstractmethod
    def _spent(self) -> int:
        """What has been spent since."""

    def result(self) -> Mapping[str, Measured]:
        return {
            f"delivery_{self.unit}": Histogram(self._prompt + self._released),
            f"released_{self.unit}": Histogram(self._released),
            f"stability_{self.unit}": Histogram(self._stable),
        }


class Operations(_Work):
    """Operations, as the ordering counts them, between a receive and what it brings about."""

    unit = "operations"
    metrics: ClassVar = (
        Metric("delivery_operations", "operations", "from a receive to each delivery it brings about"),
        Metric("released_operations", "operations", "the same, of what waited for it: non-causal delivery latency"),
        Metric("stability_operations", "operations", "from a receive to each dot it makes stable"),
    )
    _ordering: Ordering
    _before: int

    def _start(self, process: ProcessId) -> None:
        self._ordering = ordering_of(self._simulator, process)
        self._before = self._ordering.operations

    def _spent(self) -> int:
        return self._ordering.operations - self._before


class Cpu(_Work):
    """CPU time between a receive and what it brings about."""

    unit = "cpu_ns"
    metrics: ClassVar = (
        Metric("delivery_cpu_ns", "ns", "from a receive to each delivery it brings about", repeats=False),
        Metric("released_cpu_ns", "ns", "the same, of what waited for it: non-causal delivery latency", repeats=False),
        Metric("stability_cpu_ns", "ns", "from a receive to each dot it makes stable", repeats=False),
    )
    _began: int

    def _start(self, process: ProcessId) -> None:
        self._began = time.process_time_ns()

    def _spent(self) -> int:
        return time.process_time_ns() - self._began
