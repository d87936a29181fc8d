"""What trees that carry vectors or barriers send, how long it takes, and what waits (document 002, section 4.5.1).

A *packet* is what one process sends to another: several messages where they are aggregated, else one. Its bytes are
those that section 4.5.3 counts, not those of our frames. A message is *received* when its packet arrives, and
*delivered* when the application takes it; in between it is *pending*.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from causalcast.lab.errors import MeasurementError
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.model import Delivered, ProcessId
from causalcast.protocols.dissemination.aggregating_tree import HEADER_BYTES, Packet, message_bytes
from causalcast.protocols.ordering.aggregation import CausalMessage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from causalcast.model import Event, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator

Key: TypeAlias = tuple[ProcessId, int]
"""A message: its source, and its number there."""


def messages_of(packet: WireMessage) -> tuple[CausalMessage, ...]:
    """The messages in a packet."""
    if isinstance(packet, Packet):
        return packet.messages
    return (packet,) if isinstance(packet, CausalMessage) else ()


class _OfTrees(Probe):
    """What these probes share: they look at stacks that send causal messages over trees."""

    _simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        if CausalMessage not in simulator.stack.wire_types:
            raise MeasurementError(f"{simulator.stack.name!r} sends no packets to look at: use causal-aggregation")
        self._simulator = simulator

    def _layers(self, name: str) -> Iterator[Any]:
        """This layer's tally at each process."""
        for host in self._simulator.hosts.values():
            layer: Any = getattr(host.process, name)
            yield getattr(layer, "tally", None)


class Packets(_OfTrees):
    """Packets by how many messages are in them, by their bytes, and by who sends them (tables 4.1 to 4.3)."""

    metrics: ClassVar = (
        Metric("packets", "packets", "packets that processes send each other"),
        Metric("packet_messages", "messages", "messages in a packet"),
        Metric("aggregate_messages", "messages", "messages in a packet that holds more than one"),
        Metric("aggregates", "packets", "packets that hold more than one message"),
        Metric("packet_bytes", "B", "bytes of a packet, header included, as section 4.5.3 counts them"),
        Metric("full_packets", "packets", "packets sent because the next message did not fit"),
        Metric("most_in_packet", "messages", "the most messages in a packet that a process sent, of each process"),
        Metric("packets_of", "packets", "packets that a process sent, of each process"),
        Metric("crossings", "messages", "links that a message crosses, on average"),
    )

    def __init__(self) -> None:
        self._messages: Counter[float] = Counter()
        self._bytes: Counter[float] = Counter()
        self._by: Counter[ProcessId] = Counter()
        self._most: dict[ProcessId, int] = {}
        self._broadcasts = 0

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._broadcasts += 1

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        packed, copies = messages_of(message), len(destinations)
        number = len(packed)
        self._messages[number] += copies
        self._bytes[HEADER_BYTES + sum(map(message_bytes, packed))] += copies
        self._by[process] += copies
        if number > self._most.get(process, 0):
            self._most[process] = number

    def result(self) -> Mapping[str, Measured]:
        total = sum(number * packets for number, packets in self._messages.items())
        several = {number: packets for number, packets in self._messages.items() if number > 1}
        return {
            "packets": float(sum(self._messages.values())),
            "packet_messages": Histogram(self._messages),
            "aggregate_messages": Histogram(several),
            "aggregates": float(sum(several.values())),
            "packet_bytes": Histogram(self._bytes),
            "full_packets": float(sum(tally.full for tally in self._layers("dissemination") if tally is not None)),
            "most_in_packet": Histogram(Counter(self._most.get(name, 0) for name in self._simulator.roster)),
            "packets_of": Histogram(Counter(self._by[name] for name in self._simulator.roster)),
            "crossings": total / self._broadcasts if self._broadcasts else None,
        }


class Waits(_OfTrees):
    """Reception, delivery, and waiting in between and in send queues (figures 4.4 to 4.9).

    `pairs`: look at the packets of two messages besides (figure 4.5): what is held back for a child is set against
    what it would have been, had it been sent on at once and waited at the child instead.
    """

    metrics: ClassVar = (
        Metric("reception_ns", "ns", "from a broadcast to its reception at each other process"),
        Metric("delivery_ns", "ns", "from a broadcast to its delivery at each other process"),
        Metric("pending_ns", "ns", "from a reception to the delivery there, 0 where nothing is waited for"),
        Metric("queue_ns", "ns", "how long a packet is in its sender's queue before it is transmitted"),
        Metric("most_pending", "messages", "the most messages pending at once at a process, of each process"),
        Metric("delayed", "messages", "receptions that could not be delivered at once"),
        Metric("pair_reception_ns", "ns", "reception of what comes in a packet of two"),
        Metric("pair_reception_alone_ns", "ns", "the same, had it not been held back for its last hop"),
        Metric("pair_pending_ns", "ns", "how long what comes in a packet of two is pending"),
        Metric("pair_pending_alone_ns", "ns", "the same, had it not been held back for its last hop"),
    )

    def __init__(self, pairs: bool = False) -> None:
        if not isinstance(pairs, bool):
            raise ValueError(f"pairs: {pairs!r} is not true or false")
        self._pairs = pairs
        self._times: dict[Key, int] = {}
        self._arrived: dict[ProcessId, dict[Key, int]] = {}
        self._free: dict[ProcessId, int] = {}
        """When a process's send queue has sent what is in it, as `simulation.links` has it."""
        self._held: dict[ProcessId, dict[Key, int]] = {}
        """By receiver and message: how long what comes in a packet of two was held back before."""
        self._seen: dict[str, Counter[float]] = {
            name: Counter() for name in (each.name for each in self.metrics) if name.endswith("_ns")
        }

    def begin(self, simulator: Simulator) -> None:
        super().begin(simulator)
        if simulator.network.bits_per_second is not None:
            raise MeasurementError("waits: queues are followed where a packet takes its transmission alone")
        self._arrived = {name: {} for name in simulator.roster}
        self._held = {name: {} for name in simulator.roster}

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._times[tag.origin, tag.counter] = self._simulator.queue.now

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        network, now = self._simulator.network, self._simulator.queue.now
        ready = now + network.processing_ns
        start = max(ready, self._free.get(process, 0))
        waits = self._seen["queue_ns"]
        for _ in destinations:
            waits[start - ready] += 1
            start += network.transmission_ns
        self._free[process] = start
        if not self._pairs:
            return
        packed = messages_of(message)
        if len(packed) == 2:
            arrived, held = self._arrived[process], self._held[destinations[0]]
            for each in packed:
                held[each.origin, each.counter] = now - arrived.get((each.origin, each.counter), now)

    def received(self, process: ProcessId, sender: ProcessId, message: WireMessage) -> None:
        now, arrived, times = self._simulator.queue.now, self._arrived[process], self._times
        seen = self._seen["reception_ns"]
        for each in messages_of(message):
            key = (each.origin, each.counter)
            if each.origin != process and key not in arrived:
                arrived[key] = now
                seen[now - times[key]] += 1

    def taken(self, process: ProcessId, event: Event) -> None:
        if not isinstance(event, Delivered):
            return
        key, now = event.message.tag.dot, self._simulator.queue.now
        arrived = self._arrived[process][key] if self._pairs else self._arrived[process].pop(key)
        sent, pending = self._times[key], now - arrived
        self._seen["delivery_ns"][now - sent] += 1
        self._seen["pending_ns"][pending] += 1
        held = self._held[process].pop(key, None)
        if held is not None:
            self._seen["pair_reception_ns"][arrived - sent] += 1
            self._seen["pair_reception_alone_ns"][arrived - held - sent] += 1
            self._seen["pair_pending_ns"][pending] += 1
            self._seen["pair_pending_alone_ns"][pending + held] += 1

    def result(self) -> Mapping[str, Measured]:
        tallies = list(self._layers("ordering"))
        return {
            **{name: Histogram(seen) for name, seen in self._seen.items()},
            "most_pending": Histogram(Counter(tally.most_waiting for tally in tallies)),
            "delayed": float(sum(tally.held_up for tally in tallies)),
        }


class Dependencies(_OfTrees):
    """What a broadcast message names: entries of its vector that changed, or its barrier (figures 3.1 and 4.3).

    `indirect`: count those that another one of them follows, too.
    """

    metrics: ClassVar = (
        Metric("dependencies", "entries", "messages of others that a broadcast message names"),
        Metric("carried_entries", "entries", "the same, and the message's own entry"),
        Metric("indirect_dependencies", "entries", "those of a message that another one of them follows"),
    )

    def __init__(self, indirect: bool = False) -> None:
        if not isinstance(indirect, bool):
            raise ValueError(f"indirect: {indirect!r} is not true or false")
        self._indirect = indirect
        self._named: Counter[float] = Counter()
        self._beyond: Counter[float] = Counter()
        self._direct: dict[ProcessId, set[Key]] = {}
        """What a process has taken since its last broadcast, and nothing else that it has taken follows."""

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._named[len(tag.context)] += 1
        if self._indirect:
            direct = self._direct.pop(process, set())
            self._beyond[len(tag.context) - len(direct.intersection(tag.context))] += 1

    def result(self) -> Mapping[str, Measured]:
        found: dict[str, Measured] = {
            "dependencies": Histogram(self._named),
            "carried_entries": Histogram({number + 1: times for number, times in self._named.items()}),
        }
        return found | {"indirect_dependencies": Histogram(self._beyond)} if self._indirect else found

    def taken(self, process: ProcessId, event: Event) -> None:
        if self._indirect and isinstance(event, Delivered):
            tag = event.message.tag
            direct = self._direct.setdefault(process, set())
            direct.difference_update(tag.context)
            direct.discard((tag.origin, tag.counter - 1))
            direct.add(tag.dot)
