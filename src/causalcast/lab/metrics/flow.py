"""What a run moves, and how long that takes in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import msgspec

from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.model import Delivered, Stable
from causalcast.protocols.wire import FRAME_HEADER_BYTES
from causalcast.simulation import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator


class Traffic(Probe):
    """Messages between processes by type, one for each destination, and their bytes, as the sockets would send them.

    `from_ms`: what is sent and broadcast before this time is left out, such as what an overlay needs to form.
    """

    metrics: ClassVar = (
        Metric("sends", "messages", "messages between processes"),
        Metric("sends.*", "messages", "of the type named: `sends.TaggedMessage`"),
        Metric("sent_bytes", "B", "bytes on the wire of each message between processes, its frame included"),
        Metric("broadcasts", "messages", "messages that applications broadcast"),
        Metric("delivery_bytes", "B", "bytes on the wire for each message taken by an application other than its own"),
        Metric("busiest_bytes", "B", "bytes that the process which sends most sends for each message broadcast"),
    )

    def __init__(self, from_ms: int = 0) -> None:
        if from_ms < 0:
            raise ValueError(f"from_ms: {from_ms} is negative")
        self._from_ns = from_ms * NS_PER_MS
        self._sends: Counter[str] = Counter()
        self._bytes: Counter[float] = Counter()
        self._by_sender: Counter[ProcessId] = Counter()
        self._broadcasts = 0
        self._taken = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if self._simulator.queue.now < self._from_ns:
            return
        size = len(self._encode(message)) + FRAME_HEADER_BYTES
        self._sends[type(message).__name__] += len(destinations)
        self._bytes[size] += len(destinations)
        self._by_sender[process] += size * len(destinations)

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._broadcasts += self._simulator.queue.now >= self._from_ns

    def taken(self, process: ProcessId, event: Event) -> None:
        self._taken += isinstance(event, Delivered) and self._simulator.queue.now >= self._from_ns

    def result(self) -> Mapping[str, Measured]:
        total = sum(self._by_sender.values())
        most = max(self._by_sender.values(), default=0)
        return {
            "delivery_bytes": total / self._taken if self._taken else None,
            "busiest_bytes": most / self._broadcasts if self._broadcasts else None,
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
