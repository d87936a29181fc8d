"""Runs of the simulator at sizes that no brute force reaches, judged for P1, P2 and P3 as they happen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from causalcast.model import Delivered, Event, MembershipChanged, NotAMemberError
from causalcast.simulation import NS_PER_MS, Network, SimulatedHost, process_names
from causalcast.simulation.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols import Stack
    from causalcast.simulation import Fault


@dataclass
class Seen:
    """What the application of one process has seen, as bits by order of broadcast."""

    delivered: int = 0
    since: int | None = None
    """How many broadcasts there had been when it was let in; `None`: it is not in."""


@dataclass
class Judge:
    """The truth about all broadcasts, in the order in which they happened."""

    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    pasts: list[int] = field(default_factory=list)
    seen: dict[ProcessId, Seen] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    first: str = ""
    lapses: int = 0
    """How often a process left, to stay away or not."""

    def broadcast(self, name: ProcessId, counter: int) -> None:
        number = self.numbers[name, counter] = len(self.pasts)
        seen = self.seen[name]
        self.pasts.append(seen.delivered)
        seen.delivered |= 1 << number

    def deliver(self, name: ProcessId, origin: ProcessId, counter: int) -> None:
        seen = self.seen[name]
        number = self.numbers[origin, counter]
        if seen.delivered >> number & 1:
            self._fault("P1", f"{origin}:{counter} twice at {name}")
        owed = self.pasts[number] >> (seen.since or 0) << (seen.since or 0) if seen.since is not None else 0
        missing = owed & ~seen.delivered
        if missing:
            self._fault("P3", f"{origin}:{counter} at {name} before {self._dot(missing)}")
        late = number < (seen.since or 0) and any(
            self.pasts[other] >> number & 1 for other in range(len(self.pasts)) if seen.delivered >> other & 1
        )
        if late:
            self._fault("P3", f"{origin}:{counter}, old at {name}, after its effects")
        seen.delivered |= 1 << number

    def ended(self, alive: Sequence[ProcessId], crashed: Sequence[ProcessId]) -> None:
        somewhere = 0
        for name in alive:
            somewhere |= self.seen[name].delivered if name in self.seen else 0
        for name in alive:
            seen = self.seen.get(name)
            if seen is None or seen.since is None:
                continue
            missing = somewhere >> seen.since << seen.since & ~seen.delivered
            if missing:
                self._fault("P2", f"{self._dot(missing)} and {missing.bit_count() - 1} more never at {name}")

    def _dot(self, bits: int) -> str:
        lowest = (bits & -bits).bit_length() - 1
        return next(f"{origin}:{counter}" for (origin, counter), number in self.numbers.items() if number == lowest)

    def _fault(self, kind: str, what: str) -> None:
        self.faults[kind] += 1
        if not self.first:
            self.first = f"{kind} {what}"


class Talker:
    """Broadcasts every `every_ns` between two times, and answers one message in `answers`."""

    def __init__(self, name: ProcessId, judge: Judge, times: Sequence[int], answers: int) -> None:
        self.name, self.judge, self.times, self.answers = name, judge, times, answers

    def start(self, host: SimulatedHost) -> None:
        if self.name in self.judge.seen:
            return
        self.judge.seen[self.name] = Seen(since=len(self.judge.pasts))
        for time in self.times:
            if time >= host.now_ns():
                host.call_after(time - host.now_ns(), lambda: self.say(host))

    def say(self, host: SimulatedHost) -> None:
        try:
            tag = host.broadcast(b"x")
        except NotAMemberError:
            return
        self.judge.broadcast(self.name, tag.counter)

    def receive(self, host: SimulatedHost, event: Event) -> None:
        if isinstance(event, Delivered):
            tag = event.message.tag
            self.judge.deliver(self.name, tag.origin, tag.counter)
            if (
                self.answers
                and (self.judge.numbers[tag.origin, tag.counter] * 31 + hash_of(self.name)) % self.answers == 0
            ):
                self.say(host)
        elif isinstance(event, MembershipChanged) and self.name in event.left:
            self.judge.seen.setdefault(self.name, Seen()).since = None
            self.judge.lapses += 1
        elif isinstance(event, MembershipChanged) and self.name in event.joined and self.name in self.judge.seen:
            self.judge.seen[self.name].since = len(self.judge.pasts)


def hash_of(name: str) -> int:
    return sum(ord(letter) * 7**place for place, letter in enumerate(name))


class Talk:
    """The workload: who speaks when."""

    def __init__(self, judge: Judge, times: Sequence[int], answers: int, speakers: set[ProcessId] | None) -> None:
        self.judge, self.times, self.answers, self.speakers = judge, times, answers, speakers

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Talker:
        speaks = self.speakers is None or name in self.speakers
        shift = hash_of(f"{name}{seed}") % 97
        return Talker(
            name, self.judge, [time + shift * NS_PER_MS for time in self.times] if speaks else (), self.answers
        )


def judged(
    stack: Stack,
    nodes: int,
    *,
    times: Sequence[int],
    answers: int = 0,
    speakers: set[ProcessId] | None = None,
    seed: int = 0,
    faults: Sequence[Fault] = (),
    network: Network | None = None,
    until_ns: int | None = None,
) -> tuple[Simulator, Judge]:
    judge = Judge()
    simulator = Simulator(
        stack,
        process_names(nodes),
        Talk(judge, times, answers, speakers),
        seed=seed,
        network=network,
        faults=faults,
    )
    simulator.run(until_ns=until_ns)
    gone = simulator.sessions._gone if simulator.sessions is not None else set()
    judge.ended([name for name in simulator.hosts if name not in gone], sorted(gone))
    return simulator, judge
