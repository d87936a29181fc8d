"""When messages arrive: the network of a run, with the draws and the queues of its links."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from causalcast.simulation.models import Constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols import WireMessage
    from causalcast.simulation.models import Delay
    from causalcast.simulation.network import Network, Rise
    from causalcast.simulation.queue import Call, TimeQueue


class Links:
    """All links of a run. State is made per sender and link as they are used."""

    def __init__(self, network: Network, roster: Roster, queue: TimeQueue, seed: int) -> None:
        network.check(roster)
        self._network = network
        self._roster = roster
        self._queue = queue
        self._random = random.Random(f"{seed}=network")
        self._uniform = network.matrix is None and not network.links and network.sites is None
        """Whether all links share one model."""
        self._site = {name: slot % network.sites.count for slot, name in enumerate(roster)} if network.sites else {}
        self._queued = bool(network.processing_ns or network.transmission_ns or network.bits_per_second)
        self._unqueued = frozenset(network.unqueued)
        self._steady: int | None = None
        """Where all copies take the same time, how long they travel."""
        if (
            self._uniform
            and isinstance(network.delay, Constant)
            and network.rise is None
            and network.bits_per_second is None
            and not network.transmission_ns % network.tick_ns
        ):
            self._steady = network.delay.draw(self._random, network.tick_ns)
        self._all_alike = self._steady is not None and self._queued and not (self._unqueued or network.fifo)
        self._exceptions: dict[ProcessId, dict[ProcessId, Delay]] = {}
        self._free: dict[ProcessId, int] = {}
        """When a sender's queue has sent what is in it."""
        self._latest: dict[ProcessId, dict[ProcessId, int]] = {}
        """Of FIFO links, sender to receiver to the latest arrival so far."""

    def carry(
        self, sender: ProcessId, destinations: Sequence[ProcessId], calls: dict[ProcessId, Call], message: WireMessage
    ) -> bool:
        """Have each destination's call made with the sender and the message when its copy arrives, as `arrivals` says.
        `False`, and nothing is done, unless all messages pass the sender's queue, and all links take the same time.
        """
        steady = self._steady
        if steady is None or not self._all_alike:
            return False
        network, queue, free = self._network, self._queue, self._free
        service, tick = network.transmission_ns, network.tick_ns
        departure, busy = queue.now + network.processing_ns, free.get(sender, 0)
        departure = max(departure, busy)
        copies = len(destinations)
        free[sender] = departure + copies * service
        time = -(-(departure + service + steady) // tick) * tick
        if copies == 1:
            queue.push(time, calls[destinations[0]], sender, message)
        else:
            queue.push_evenly(time, service, map(calls.__getitem__, destinations), sender, message)
        return True

    def arrivals(
        self,
        sender: ProcessId,
        destinations: Sequence[ProcessId],
        wire_bytes: int,
        message: WireMessage | None = None,
    ) -> list[int]:
        """For each destination, when the copy of a message sent now arrives there."""
        network = self._network
        now = self._queue.now
        tick = network.tick_ns
        steady = self._steady
        if steady is not None:
            copies = len(destinations)
            if not self._queued or (self._unqueued and type(message).__name__ in self._unqueued):
                times = [now + steady] * copies
            else:
                service, free = network.transmission_ns, self._free
                departure = now + network.processing_ns
                if sender in free and free[sender] > departure:
                    departure = free[sender]
                free[sender] = departure + copies * service
                first = -(-(departure + service + steady) // tick) * tick
                if copies == 1:
                    times = [first]
                else:
                    times = list(range(first, first + copies * service, service)) if service else [first] * copies
            return self._in_order(sender, destinations, times) if network.fifo else times
        if self._uniform:
            delays = network.delay.draw_many(self._random, tick, len(destinations))
        else:
            delays = [self._model(sender, receiver).draw(self._random, tick) for receiver in destinations]
        if network.rise is not None:
            added = self._added(network.rise)
            delays = [delay + added for delay in delays]
        if self._queued and not (self._unqueued and type(message).__name__ in self._unqueued):
            service = network.service_ns(wire_bytes)
            departure = max(now + network.processing_ns, self._free.get(sender, 0))
            times = []
            for delay in delays:
                departure += service
                times.append(-(-(departure + delay) // tick) * tick)
            self._free[sender] = departure
        else:
            times = [now + delay for delay in delays]
        return self._in_order(sender, destinations, times) if network.fifo else times

    def again(self, sender: ProcessId, receiver: ProcessId) -> int:
        """When a copy arrives that the link itself repeats now: propagation only."""
        network = self._network
        time = self._queue.now + self._model(sender, receiver).draw(self._random, network.tick_ns)
        if network.rise is not None:
            time += self._added(network.rise)
        return self._in_order(sender, (receiver,), [time])[0] if network.fifo else time

    def _model(self, sender: ProcessId, receiver: ProcessId) -> Delay:
        exceptions = self._exceptions.get(sender)
        if exceptions is None:
            exceptions = self._exceptions[sender] = self._network.exceptions(sender, self._roster)
        model = exceptions.get(receiver)
        if model is None:
            network = self._network
            if network.sites is not None and self._site[sender] != self._site[receiver]:
                return network.sites.across
            return network.delay
        return model

    def _added(self, rise: Rise) -> int:
        """What the rise adds now, a multiple of the tick."""
        return rise.added_ns(self._queue.now) // self._network.tick_ns * self._network.tick_ns

    def _in_order(self, sender: ProcessId, destinations: Sequence[ProcessId], times: list[int]) -> list[int]:
        latest = self._latest.setdefault(sender, {})
        for place, receiver in enumerate(destinations):
            times[place] = latest[receiver] = max(times[place], latest.get(receiver, 0))
        return times
