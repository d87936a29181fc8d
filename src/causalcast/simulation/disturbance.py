"""Runs in which something goes wrong, or every step is written down: hosts that stop, links that hold, lose, repeat.

Runs without any of that do not pass through here.
"""

from __future__ import annotations

import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from causalcast.model import Roster
from causalcast.simulation import world
from causalcast.simulation.faults import Crash, Cut, Flap, Join, Leave, Partition, Pause, Suspicion, check_faults
from causalcast.simulation.host import SimulatedHost
from causalcast.simulation.models import InvalidModelError

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
    """A host that comes late, crashes, recovers, pauses or leaves, and writes its steps down."""

    __slots__ = ("_pauses", "_retiring", "_snapshot", "_waiting", "absent", "journal", "left")

    journal: Journal
    left: Callable[[ProcessId], None]
    """Called once this process has left and its application has taken all."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.absent = False
        """Not there yet, or no more."""
        self._retiring = False
        self._snapshot: bytes | None = None
        """What it has written down, while it is down and will recover."""
        self._pauses = 0
        self._waiting: list[tuple[Call, Any, Any]] = []
        """What came due while it was paused."""

    def crash(self) -> None:
        """Stop for ever."""
        self.stop()
        self.journal.write(world.Crash(self.name))

    def stop(self) -> None:
        """No more of it."""
        self.absent = True
        self._waiting.clear()
        self.queue.clear()

    def go_down(self) -> None:
        """Crash, to recover: all is forgotten but what is written down, and the untaken events that go with it."""
        self._snapshot = self.process.snapshot()
        self._timers.clear()
        self._pauses += 1

    @property
    def down(self) -> bool:
        """Whether it has crashed and will recover."""
        return self._snapshot is not None

    def recover(self) -> None:
        """Take up from what was written down."""
        assert self._snapshot is not None
        simulator = self._simulator
        snapshot, self._snapshot = self._snapshot, None
        self.journal.write(world.Restart(self.name))
        members = simulator.members if self.name in simulator.members else Roster([self.name])
        self.process = simulator.stack.recover(self, members, snapshot)
        self.resume(None, None)

    def retire(self) -> None:
        self._retiring = True
        if not self.queue:
            self.left(self.name)

    def drain(self) -> None:
        super().drain()
        if self._retiring and not self.queue and not self.absent:
            self.left(self.name)

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
        if self._pauses and not self.absent:
            self._waiting.append((call, first, second))
        return not (self._pauses or self.absent)

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
            if self._retiring and not self.queue and not self.absent:
                self.left(self.name)

    def join(self, contact: ProcessId | None, _: None = None) -> None:
        if contact is not None:
            self.journal.write(world.Join(self.name, contact))
        super().join(contact)

    def leave(self) -> None:
        """Ask the process to leave."""
        self.journal.write(world.Leave(self.name))
        self.leaving = True
        self.process.leave()

    def suspect(self, peer: ProcessId) -> None:
        """Tell the process that `peer` seems to have crashed."""
        self.journal.write(world.Suspect(self.name, peer))
        self.process.suspect(peer)

    def trust(self, peer: ProcessId) -> None:
        """Tell the process that this was a mistake."""
        self.journal.write(world.Trust(self.name, peer))
        self.process.trust(peer)

    def hear_end(self, peer: ProcessId, _: None) -> None:
        if self._can(self.hear_end, peer):
            super().hear_end(peer, None)

    def subscribe(self, topic: str) -> None:
        self.journal.write(world.Subscribe(self.name, topic))
        super().subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        self.journal.write(world.Unsubscribe(self.name, topic))
        super().unsubscribe(topic)

    def preset(self, topic: str, subscribers: Sequence[ProcessId]) -> None:
        if self.journal.records:
            raise InvalidModelError("a run that is written down has no subscribers from the start: leave them to ask")
        super().preset(topic, subscribers)

    def take(self) -> None:
        self.journal.write(world.Take(self.name))
        super().take()

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        self.journal.write(world.Broadcast(self.name, payload, topic))
        return super().broadcast(payload, topic)


class Journal:
    """Writes down a run as steps that `world.World` takes as well, given the same stack, names and seed.

    A world has no loss: a copy that is lost here stays in flight there.
    """

    def __init__(self, record: Callable[[world.Step], None] | None) -> None:
        self._record = record
        self._in_flight: dict[tuple[ProcessId, ProcessId], list[int]] = {}
        self._repeated: list[tuple[Copy, Copy]] = []
        """Copies and their duplicates, made during the present step: in a world, a step of their own after it."""

    @property
    def records(self) -> bool:
        """Whether anybody wants the steps."""
        return self._record is not None

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
        check_faults(faults, simulator.members, simulator.roster)
        self._simulator = simulator
        self._faults = faults
        self._random = random.Random(f"{simulator.seed}=loss")
        self._contacts = random.Random(f"{simulator.seed}=contacts of joins")
        self._journal = Journal(record)
        self._numbers = 0
        self._hosts: dict[ProcessId, DisturbedHost] = {}
        self._blocks: list[Block] = []
        """Of the faults that are on."""
        self._expired: list[Block] = []
        """Those of them that have lasted so long that session links have ended."""
        self._held: dict[tuple[ProcessId, ProcessId], list[Copy]] = {}
        self._awaited: dict[tuple[ProcessId, ProcessId], deque[int]] = {}
        """Of FIFO links, the numbers of copies that have not come through, in order."""
        self._early: dict[int, Copy] = {}
        """Copies that wait for one before them on their FIFO link."""

    def add(self, host: DisturbedHost) -> None:
        """One more host of the run."""
        host.journal = self._journal
        host.left = self._leave_at_last
        host.absent = host.name not in self._simulator.members
        if host.absent and self._simulator.sessions is not None:
            self._simulator.sessions.absent([host.name])
        self._hosts[host.name] = host

    def schedule(self) -> None:
        """Put the faults into the time queue."""
        for fault in self._faults:
            match fault:
                case Crash(process, at_ns, None):
                    self._at(at_ns, self._crash, process)
                case Crash(process, at_ns, int(after_ns)):
                    self._at(at_ns, self._go_down, process)
                    self._at(at_ns + after_ns, self._recover, process)
                case Join():
                    self._at(fault.at_ns, self._join, fault)
                case Leave(process, at_ns):
                    self._at(at_ns, self._leave, process)
                case Suspicion():
                    self._at(fault.at_ns, self._suspect, fault)
                    if fault.for_ns is not None:
                        self._at(fault.at_ns + fault.for_ns, self._trust, fault)
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
        timeout_ns = self._simulator.network.session_timeout_ns
        if self._simulator.sessions is not None and for_ns > timeout_ns:
            self._at(at_ns + timeout_ns, self._expire, block)

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
            if not self._hosts[receiver].absent:
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
        expired = self._expired and any(block(copy.sender, copy.receiver) for block in self._expired)
        if self._hosts[copy.sender].absent or expired:
            self._lose(copy)
            return
        self._simulator.counters.held += 1
        self._held.setdefault((copy.sender, copy.receiver), []).append(copy)

    def _lose(self, copy: Copy) -> None:
        self._simulator.counters.lost += 1
        awaited = self._awaited.get((copy.sender, copy.receiver))
        if awaited is not None and not self._hosts[copy.sender].absent:
            awaited.remove(copy.number)

    def _break(self, block: Block, _: None) -> None:
        self._blocks.append(block)

    def _expire(self, block: Block, _: None) -> None:
        """Session links that this block keeps down have timed out: they end, with what they held."""
        sessions = self._simulator.sessions
        assert sessions is not None
        self._expired.append(block)
        for link in [link for link in self._held if block(*link)]:
            for copy in self._held.pop(link):
                self._lose(copy)
        sessions.block(self._expired)
        sessions.broken(block)

    def _heal(self, block: Block, _: None) -> None:
        self._blocks.remove(block)
        if block in self._expired:
            self._expired.remove(block)
        held, self._held = self._held, {}
        for link, copies in held.items():
            if self._stops(*link):
                self._held[link] = copies
                continue
            for copy in copies:
                self._simulator.queue.push(self._simulator.links.again(*link), self._arrive, copy)

    def _crash(self, name: ProcessId, _: None) -> None:
        host = self._hosts[name]
        if host.absent:
            return
        host.crash()
        self._simulator.log(host, "crash")
        self._end(name)
        for link in [link for link in self._held if link[0] == name]:
            self._simulator.counters.lost += len(self._held.pop(link))

    def _go_down(self, name: ProcessId, _: None) -> None:
        host = self._hosts[name]
        if not host.absent and not host.down:
            host.go_down()
            self._simulator.log(host, "crash")

    def _recover(self, name: ProcessId, _: None) -> None:
        host = self._hosts[name]
        if not host.absent and host.down:
            self._simulator.log(host, "recover")
            host.recover()

    def _join(self, join: Join, _: None) -> None:
        simulator = self._simulator
        host = self._hosts[join.process]
        contact = join.contact
        if contact is None:
            present = [name for name, other in self._hosts.items() if not other.absent]
            if not present:
                return
            contact = present[int(self._contacts.random() * len(present))]
        host.absent = False
        roster = simulator.members if simulator.sessions is not None else Roster([host.name])
        host.process = simulator.stack.process(host, roster)
        if simulator.sessions is not None:
            simulator.sessions.arrived(host.name)
        host.join(contact)

    def _leave(self, name: ProcessId, _: None) -> None:
        if not self._hosts[name].absent:
            self._hosts[name].run(self._hosts[name].leave, None)

    def _leave_at_last(self, name: ProcessId) -> None:
        self._hosts[name].stop()
        self._end(name)

    def _suspect(self, suspicion: Suspicion, _: None) -> None:
        host = self._hosts[suspicion.by]
        if self._simulator.sessions is not None:
            host.hear_end(suspicion.of, None)
        elif not host.absent:
            host.run(partial(host.suspect, suspicion.of), None)

    def _trust(self, suspicion: Suspicion, _: None) -> None:
        host = self._hosts[suspicion.by]
        if not host.absent:
            host.run(partial(host.trust, suspicion.of), None)

    def _end(self, name: ProcessId) -> None:
        if self._simulator.sessions is not None:
            self._simulator.sessions.ended(name)


def _between(groups: Sequence[Sequence[ProcessId]]) -> Block:
    side = {name: number for number, group in enumerate(groups) for name in group}
    return lambda sender, receiver: side.get(sender) != side.get(receiver)


def _among(links: set[tuple[ProcessId, ProcessId]]) -> Block:
    return lambda sender, receiver: (sender, receiver) in links
