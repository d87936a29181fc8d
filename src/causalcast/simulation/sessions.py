"""Session links of a run: who wants to hear of whose end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from causalcast.model import ProcessId
    from causalcast.simulation.simulator import Simulator


class Sessions:
    """For each process, the peers it has said `connect` to.

    The end of a link is known to a peer after the delay of one message; that nobody is there to connect to, after two.
    """

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._wanted: dict[ProcessId, dict[ProcessId, None]] = {name: {} for name in simulator.roster}
        self._wanted_by: dict[ProcessId, dict[ProcessId, None]] = {name: {} for name in simulator.roster}
        self._gone: set[ProcessId] = set()
        """Who cannot be connected to: not there yet, crashed, or left."""
        self._blocks: Sequence[Callable[[ProcessId, ProcessId], bool]] = ()

    def block(self, blocks: Sequence[Callable[[ProcessId, ProcessId], bool]]) -> None:
        """While any of `blocks` stops what goes from one process to another, no link can be made between them."""
        self._blocks = blocks

    def connect(self, name: ProcessId, peer: ProcessId) -> None:
        """`name` wants to hear of the end of its link to `peer`."""
        if peer in self._wanted[name]:
            return
        self._wanted[name][peer] = None
        self._wanted_by[peer][name] = None
        if peer in self._gone or any(block(name, peer) or block(peer, name) for block in self._blocks):
            self._tell(name, peer, trips=2)

    def disconnect(self, name: ProcessId, peer: ProcessId) -> None:
        """`name` closes its link to `peer`, which hears of it if it wants to, behind what was sent before."""
        self._forget(name, peer)
        if name in self._wanted[peer]:
            self._tell(peer, name)

    def absent(self, names: Collection[ProcessId]) -> None:
        """These are not there yet."""
        self._gone.update(names)

    def arrived(self, name: ProcessId) -> None:
        """`name` is there from now on."""
        self._gone.discard(name)

    def ended(self, name: ProcessId) -> None:
        """`name` has crashed or left: who is connected to it hears of that."""
        self._gone.add(name)
        for peer in list(self._wanted[name]):
            self._forget(name, peer)
        for peer in list(self._wanted_by[name]):
            self._tell(peer, name)

    def broken(self, stops: Callable[[ProcessId, ProcessId], bool]) -> None:
        """Links that a fault has kept down for too long end, for both sides."""
        for name, peers in self._wanted.items():
            for peer in list(peers):
                if stops(name, peer) or stops(peer, name):
                    self._simulator.hosts[name].hear_end(peer, None)

    def _tell(self, name: ProcessId, peer: ProcessId, *, trips: int = 1) -> None:
        simulator = self._simulator
        now = simulator.queue.now
        (arrival,) = simulator.links.arrivals(peer, (name,), 0)
        simulator.queue.push(now + trips * (arrival - now), simulator.hosts[name].hear_end, peer)

    def heard(self, name: ProcessId, peer: ProcessId) -> bool:
        """Whether `name` still wanted to hear that its link to `peer` is down; it is forgotten with that."""
        wanted = peer in self._wanted[name]
        self._forget(name, peer)
        return wanted

    def _forget(self, name: ProcessId, peer: ProcessId) -> None:
        self._wanted[name].pop(peer, None)
        self._wanted_by[peer].pop(name, None)
