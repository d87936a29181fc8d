"""What a run moves, and how long that takes in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import msgspec

from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.model import Delivered, Stable
from causalcast.protocols.wire import FRAME_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator


class Traffic(Probe):
    """Messages between processes by type, one for each destination, and their bytes, as the sockets would send them."""

    metrics: ClassVar = (
        Metric("sends", "messages", "messages between processes"),
        Metric("sends.*", "messages", "of the type named: `sends.TaggedMessage`"),
        Metric("sent_bytes", "B", "bytes on the wire of each message between processes, its frame included"),
        Metric("broadcasts", "messages", "messages that applications broadcast"),
    )

    def __init__(self) -> None:
        self._sends: Counter[str] = Counter()
        self._bytes: Counter[float] = Counter()
        self._broadcasts = 0
        self._encode = msgspec.msgpack.Encoder().encode

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        self._sends[type(message).__name__] += len(destinations)
        self._bytes[len(self._encode(message)) + FRAME_HEADER_BYTES] += len(destinations)

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._broadcasts += 1

    def result(self) -> Mapping[str, Measured]:
        return {
            "sends": float(sum(self._sends.values())),
            **{f"sends.{name}": float(number) for name, number in self._sends.items()},
            "sent_bytes": Histogram(self._bytes),
            "broadcasts": float(self._broadcasts),
        }


class Latency(Probe):
    """From a broadcast to what comes of it at the applications of the others, and of all, in virtual time."""

    metrics: ClassVar = (
        Metric("latency_ns", "ns", "from a broadcast to its being taken by each other application"),
        Metric("stability_delay_ns", "ns", "from a broadcast to the news that it is stable, at each application"),
        Metric("deliveries", "messages", "messages taken by applications other than their own"),
    )

    def __init__(self) -> None:
        self._times: dict[tuple[ProcessId, int], int] = {}
        self._latency: Counter[float] = Counter()
        self._stability: Counter[float] = Counter()
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._times[tag.origin, tag.counter] = self._simulator.queue.now

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered):
            tag, seen = event.message.tag, self._latency
        elif isinstance(event, Stable):
            tag, seen = event.tag, self._stability
        else:
            return
        seen[self._simulator.queue.now - self._times[tag.origin, tag.counter]] += 1

    def result(self) -> Mapping[str, Measured]:
        return {
            "latency_ns": Histogram(self._latency),
            "stability_delay_ns": Histogram(self._stability),
            "deliveries": float(sum(self._latency.values())),
        }
