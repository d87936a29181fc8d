"""Runs in which something goes wrong, or every step is written down: hosts that stop, links that hold, lose, repeat.

Runs without any of that do not pass through here.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from causalcast.simulation import world
from causalcast.simulation.faults import Crash, Cut, Flap, Partition, Pause, check_faults
from causalcast.simulation.host import SimulatedHost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import ProcessId, Tag
    from causalcast.protocols import Timer, WireMessage
    from causalcast.simulation.faults import Fault
    from causalcast.simulation.queue import Call
    from causalcast.simulation.simulator import Simulator

Block: TypeAlias = "Callable[[ProcessId, ProcessId], bool]"
"""Whether a fault stops what goes from one process to another."""


class Copy(NamedTuple):
    """One message on its way to one process; numbers rise in the order in which copies were sent."""

    sender: ProcessId
    receiver: ProcessId
    message: WireMessage
    number: int


class DisturbedHost(SimulatedHost):
    """A host that can crash and pause, and writes its steps down."""

    __slots__ = ("_pauses", "_waiting", "crashed", "journal")

    journal: Journal

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.crashed = False
        self._pauses = 0
        self._waiting: list[tuple[Call, Any, Any]] = []
        """What came due while it was paused."""

    def crash(self) -> None:
        """Stop for ever."""
        self.crashed = True
        self._waiting.clear()
        self.queue.clear()
        self.journal.write(world.Crash(self.name))

    def pause(self, _: None, __: None) -> None:
        """Stand still until as many `resume`s as there were pauses."""
        self._pauses += 1

    def resume(self, _: None, __: None) -> None:
        """Go on, with what came due meanwhile first."""
        self._pauses -= 1
        if not self._pauses:
            waiting, self._waiting = self._waiting, []
            for call, first, second in waiting:
                call(first, second)
                self._simulator.drain()

    def _can(self, call: Call, first: Any = None, second: Any = None) -> bool:
        """Whether this host runs; if it is paused, `call` is kept for later."""
        if self._pauses and not self.crashed:
            self._waiting.append((call, first, second))
        return not (self._pauses or self.crashed)

    def arrive(self, copy: Copy, _: None) -> None:
        """A message arrives."""
        if self._can(self.arrive, copy):
            self.journal.write_arrival(copy)
            self.process.receive(copy.sender, copy.message)

    def run(self, call: Callable[[], None], _: None) -> None:
        if self._can(self.run, call):
            super().run(call, None)

    def fire(self, timer: Timer, due: int) -> None:
        if self._can(self.fire, timer, due):
            if self._timers.get(timer) == due:
                self.journal.write(world.Fire(self.name, timer))
            super().fire(timer, due)

    def take_late(self, _: None, __: None) -> None:
        if self._can(self.take_late):
            super().take_late(None, None)

    def take(self) -> None:
        self.journal.write(world.Take(self.name))
        super().take()

    def broadcast(self, payload: bytes) -> Tag:
        self.journal.write(world.Broadcast(self.name, payload))
        return super().broadcast(payload)


class Journal:
    """Writes down a run as steps that `world.World` takes as well, given the same stack, names and seed.

    A world has no loss: a copy that is lost here stays in flight there.
    """

    def __init__(self, record: Callable[[world.Step], None] | None) -> None:
        self._record = record
        self._in_flight: dict[tuple[ProcessId, ProcessId], list[int]] = {}
        self._repeated: list[tuple[Copy, Copy]] = []
        """Copies and their duplicates, made during the present step: in a world, a step of their own after it."""

    def sent(self, copy: Copy, duplicate: Copy | None) -> None:
        """The present step sends `copy`, and its link repeats it as `duplicate`."""
        if self._record is not None:
            self._in_flight.setdefault((copy.sender, copy.receiver), []).append(copy.number)
            if duplicate is not None:
                self._repeated.append((copy, duplicate))

    def write(self, step: world.Step) -> None:
        """The next step."""
        if self._record is not None:
            self._finish_step()
            self._record(step)

    def write_arrival(self, copy: Copy) -> None:
        """The next step: `copy` arrives."""
        if self._record is not None:
            self._finish_step()
            numbers = self._in_flight[copy.sender, copy.receiver]
            place = numbers.index(copy.number)
            del numbers[place]
            self._record(world.Receive(copy.sender, copy.receiver, place))

    def _finish_step(self) -> None:
        assert self._record is not None
        for copy, duplicate in self._repeated:
            numbers = self._in_flight[copy.sender, copy.receiver]
            self._record(world.Duplicate(copy.sender, copy.receiver, numbers.index(copy.number)))
            numbers.append(duplicate.number)
        self._repeated.clear()


class Disturbances:
    """What goes wrong between the hosts of a simulator, and to them."""

    def __init__(
        self, simulator: Simulator, faults: Sequence[Fault], record: Callable[[world.Step], None] | None
    ) -> None:
        check_faults(faults, simulator.roster, simulator.stack)
        self._simulator = simulator
        self._faults = faults
        self._random = random.Random(f"{simulator.seed}=loss")
        self._journal = Journal(record)
        self._numbers = 0
        self._hosts: dict[ProcessId, DisturbedHost] = {}
        self._blocks: list[Block] = []
        """Of the faults that are on."""
        self._held: dict[tuple[ProcessId, ProcessId], list[Copy]] = {}
        self._awaited: dict[tuple[ProcessId, ProcessId], deque[int]] = {}
        """Of FIFO links, the numbers of copies that have not come through, in order."""
        self._early: dict[int, Copy] = {}
        """Copies that wait for one before them on their FIFO link."""

    def add(self, host: DisturbedHost) -> None:
        """One more host of the run."""
        host.journal = self._journal
        self._hosts[host.name] = host

    def schedule(self) -> None:
        """Put the faults into the time queue."""
        for fault in self._faults:
            match fault:
                case Crash(process, at_ns):
                    self._at(at_ns, self._crash, process)
                case Pause(process, at_ns, for_ns):
                    self._at(at_ns, self._hosts[process].pause)
                    self._at(at_ns + for_ns, self._hosts[process].resume)
                case Partition(groups, at_ns, for_ns):
                    self._block(_between(groups), at_ns, for_ns)
                case Cut(sender, receiver, at_ns, for_ns):
                    self._block(_among({(sender, receiver)}), at_ns, for_ns)
                case Flap(one, other, at_ns, down_ns, up_ns, times):
                    for time in range(times):
                        both = _among({(one, other), (other, one)})
                        self._block(both, at_ns + time * (down_ns + up_ns), down_ns)

    def _at(self, time_ns: int, call: Call, argument: Any = None) -> None:
        self._simulator.queue.push(self._simulator.time_after(time_ns), call, argument)

    def _block(self, block: Block, at_ns: int, for_ns: int) -> None:
        self._at(at_ns, self._break, block)
        self._at(at_ns + for_ns, self._heal, block)

    def send(
        self, sender: ProcessId, destinations: Sequence[ProcessId], times: Sequence[int], message: WireMessage
    ) -> None:
        """Put a copy for each destination on its way, to arrive at the time in its place of `times`."""
        network = self._simulator.network
        for receiver, time in zip(destinations, times, strict=True):
            copy = self._copy(sender, receiver, message)
            lost = network.loss > 0 and self._random.random() < network.loss
            repeated = network.duplication > 0 and self._random.random() < network.duplication
            duplicate = self._copy(sender, receiver, message) if repeated else None
            if not self._hosts[receiver].crashed:
                self._journal.sent(copy, duplicate)
            if lost:
                self._simulator.counters.lost += 1
            else:
                self._launch(copy, time)
            if duplicate is not None:
                self._simulator.counters.duplicated += 1
                self._launch(duplicate, self._simulator.links.again(sender, receiver))

    def _copy(self, sender: ProcessId, receiver: ProcessId, message: WireMessage) -> Copy:
        self._numbers += 1
        return Copy(sender, receiver, message, self._numbers)

    def _launch(self, copy: Copy, time_ns: int) -> None:
        if self._simulator.network.fifo:
            self._awaited.setdefault((copy.sender, copy.receiver), deque()).append(copy.number)
        if self._stops(copy.sender, copy.receiver):
            self._hold(copy)
        else:
            self._simulator.queue.push(time_ns, self._arrive, copy)

    def _arrive(self, copy: Copy, _: None) -> None:
        if self._blocks and self._stops(copy.sender, copy.receiver):
            self._hold(copy)
        elif self._simulator.network.fifo:
            self._arrive_in_order(copy)
        else:
            self._hosts[copy.receiver].arrive(copy, None)

    def _arrive_in_order(self, copy: Copy) -> None:
        """What left before a cut and arrives after it waits for what the cut has held."""
        awaited, early = self._awaited[copy.sender, copy.receiver], self._early
        early[copy.number] = copy
        while awaited and awaited[0] in early:
            self._hosts[copy.receiver].arrive(early.pop(awaited.popleft()), None)
            self._simulator.drain()

    def _stops(self, sender: ProcessId, receiver: ProcessId) -> bool:
        return any(block(sender, receiver) for block in self._blocks)

    def _hold(self, copy: Copy) -> None:
        if self._hosts[copy.sender].crashed:
            self._simulator.counters.lost += 1
            return
        self._simulator.counters.held += 1
        self._held.setdefault((copy.sender, copy.receiver), []).append(copy)

    def _break(self, block: Block, _: None) -> None:
        self._blocks.append(block)

    def _heal(self, block: Block, _: None) -> None:
        self._blocks.remove(block)
        held, self._held = self._held, {}
        for link, copies in held.items():
            if self._stops(*link):
                self._held[link] = copies
                continue
            for copy in copies:
                self._simulator.queue.push(self._simulator.links.again(*link), self._arrive, copy)

    def _crash(self, name: ProcessId, _: None) -> None:
        host = self._hosts[name]
        if host.crashed:
            return
        host.crash()
        self._simulator.log_crash(host)
        for link in [link for link in self._held if link[0] == name]:
            self._simulator.counters.lost += len(self._held.pop(link))


def _between(groups: Sequence[Sequence[ProcessId]]) -> Block:
    side = {name: number for number, group in enumerate(groups) for name in group}
    return lambda sender, receiver: side.get(sender) != side.get(receiver)


def _among(links: set[tuple[ProcessId, ProcessId]]) -> Block:
    return lambda sender, receiver: (sender, receiver) in links
