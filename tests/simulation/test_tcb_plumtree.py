"""`tcb-plumtree` among a hundred: exact tags and stability where dissemination goes along a tree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from causalcast.model import Delivered, Message, Roster, Stable
from causalcast.protocols import stack
from causalcast.protocols.dissemination.retention import BY_NUMBER
from causalcast.simulation import NS_PER_MS, Network, SimulatedHost, Simulator, Uniform, process_names

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Tag

MS = NS_PER_MS
NODES, SENDERS = 100, 20
NETWORK = Network(Uniform(5 * MS, 15 * MS), tick_ns=100_000)


class Witness:
    """Of one application: what it was told, and what truly preceded each message."""

    def __init__(self, name: ProcessId, at_ns: int | None, truth: dict[tuple[str, int], Counter[str]]) -> None:
        self.name, self.at_ns, self.truth = name, at_ns, truth
        self.known: Counter[str] = Counter()
        self.stable: list[Tag] = []
        self.faults: list[str] = []

    def start(self, host: SimulatedHost) -> None:
        if self.at_ns is not None:
            host.call_after(self.at_ns, lambda: self.say(host))

    def say(self, host: SimulatedHost) -> None:
        tag = host.broadcast(b"x")
        self.truth[tag.origin, tag.counter] = Counter(self.known)
        self.known[self.name] += 1

    def receive(self, host: SimulatedHost, event: Event) -> None:
        match event:
            case Delivered(Message(tag=tag)):
                past = self.truth[tag.origin, tag.counter]
                if past - self.known:
                    self.faults.append(f"{self.name} delivers {tag} without {past - self.known}")
                if {name: count for name, count in zip(tag.roster, tag.counts, strict=True) if count} != {
                    **past,
                    tag.origin: tag.counter,
                }:
                    self.faults.append(f"{tag} is not exact: {past}")
                self.known[tag.origin] += 1
            case Stable(tag):
                self.stable.append(tag)


class Witnessed:
    def __init__(self) -> None:
        self.truth: dict[tuple[str, int], Counter[str]] = {}
        self.all: dict[ProcessId, Witness] = {}

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Witness:
        place = roster.names.index(name)
        self.all[name] = Witness(name, 1_000 * MS + place * 37 * MS if place < SENDERS else None, self.truth)
        return self.all[name]


def test_a_hundred_members_along_a_tree() -> None:
    workload = Witnessed()
    simulator = Simulator(stack("tcb-plumtree"), process_names(NODES), workload, network=NETWORK, seed=1)
    simulator.run()
    assert len(workload.truth) == SENDERS
    assert any(past for past in workload.truth.values())
    for witness in workload.all.values():
        assert witness.faults == []
        assert sum(witness.known.values()) == SENDERS
        assert len(set(witness.stable)) == len(witness.stable) == SENDERS
        tables = simulator.hosts[witness.name].process.tables()
        assert tables.pop("kept") <= BY_NUMBER.messages
        assert tables.pop("origins") <= 2 * NODES  # of messages, and of what idle members say
        assert set(tables.values()) == {0}, tables
