"""What a message carries and a process keeps for the sake of causality (document 004, sections 8.3.1 and 8.4)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from causalcast.lab.errors import MeasurementError
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe, numbers
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.protocols.ordering import Ordering
    from causalcast.simulation import Simulator


class Entries(Probe):
    """The metadata entries of each message that an application broadcasts, as its ordering counts them."""

    metrics: ClassVar = (
        Metric("entries", "entries", "metadata entries of a broadcast message: predecessors, or places of vectors"),
    )

    def __init__(self) -> None:
        self._entries: Counter[float] = Counter()
        self._simulator: Simulator
        self._sent: BroadcastMessage | None = None

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if isinstance(message, BroadcastMessage):
            self._sent = message

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        """What was sent last is the message that has just been broadcast; what went out alone went nowhere."""
        if self._sent is not None:
            self._entries[ordering_of(self._simulator, process).entries(self._sent)] += 1

    def result(self) -> Mapping[str, Measured]:
        return {"entries": Histogram(self._entries)}


class Memory(Probe):
    """The words that a process's ordering keeps, looked at when the process broadcasts.

    `every`: at each so many broadcasts of a process, beginning with the last of the first so many.
    """

    metrics: ClassVar = (Metric("words", "words", "words of causality metadata in memory at a process"),)

    def __init__(self, every: int = 10, at: Sequence[int] | None = None) -> None:
        if every < 1:
            raise ValueError(f"every: {every} is less than 1")
        self.at = numbers(at)
        self._every = every
        self._words: Counter[float] = Counter()
        self._simulator: Simulator
        self._watched: frozenset[ProcessId]

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator
        names = simulator.roster.names
        self._watched = frozenset(names if self.at is None else (names[place] for place in self.at))

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        if tag.counter % self._every == 0 and process in self._watched:
            self._words[ordering_of(self._simulator, process).words()] += 1

    def result(self) -> Mapping[str, Measured]:
        return {"words": Histogram(self._words)}


def ordering_of(simulator: Simulator, process: ProcessId) -> Ordering:
    """The ordering at `process`, which counts its own metadata. Raises `MeasurementError`."""
    ordering: Ordering | None = getattr(simulator.hosts[process].process, "ordering", None)
    if ordering is None:
        raise MeasurementError(f"the processes of {simulator.stack.name!r} have no ordering that could be asked")
    return ordering
