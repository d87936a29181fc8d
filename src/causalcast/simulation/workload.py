"""Workloads: what the simulated applications do."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.simulation.network import Delay
    from causalcast.simulation.simulator import SimulatedHost


@dataclass(frozen=True, slots=True)
class Broadcasts:
    """Every process broadcasts `messages` payloads of `payload_bytes`, one after each draw of `interval`."""

    messages: int
    interval: Delay
    payload_bytes: int = 64
    seed: int = 0

    def __call__(self, name: ProcessId) -> BroadcastingApplication:
        return BroadcastingApplication(self, name)


class BroadcastingApplication:
    """One process of `Broadcasts`; it takes what it is given and answers nothing."""

    def __init__(self, workload: Broadcasts, name: ProcessId) -> None:
        self._workload = workload
        self._left = workload.messages
        self._random = random.Random(f"{workload.seed}/workload/{name}")

    def start(self, host: SimulatedHost) -> None:
        self._schedule(host)

    def receive(self, host: SimulatedHost, event: Event) -> None:
        """Nothing is answered."""

    def _schedule(self, host: SimulatedHost) -> None:
        if self._left:
            host.call_after(self._workload.interval.draw(self._random), lambda: self._broadcast(host))

    def _broadcast(self, host: SimulatedHost) -> None:
        self._left -= 1
        host.broadcast(bytes(self._workload.payload_bytes))
        self._schedule(host)
