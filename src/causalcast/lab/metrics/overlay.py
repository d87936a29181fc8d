"""What overlays are measured by: copies of a message, and links and paths (documents 000 and 001)."""

from __future__ import annotations

import random
from collections import Counter
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar, Final

from causalcast.lab.errors import MeasurementError
from causalcast.lab.histogram import Histogram
from causalcast.lab.metrics.base import Measured, Metric, Probe
from causalcast.model import Delivered
from causalcast.protocols.dissemination.pc import Pong
from causalcast.protocols.dissemination.prc import Ack
from causalcast.protocols.dissemination.safelinks import Along, Ask, Broken
from causalcast.protocols.ordering.path import PathMessage
from causalcast.simulation import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from causalcast.model import Event, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator

SOURCES: Final = 20
"""From so many processes paths are measured (001, section 4: "a random set")."""


def relative_redundancy(copies: int, receivers: int) -> float:
    """RMR: m / (n - 1) - 1 for m copies sent of a message that n processes have, its origin among them (000, 4.1.1)."""
    return copies / (receivers - 1) - 1


class Redundancy(Probe):
    """How often each message is sent, and who gets it, by the stacks that deliver by path.

    `skip`: so many broadcasts at the beginning of the run are not counted, for trees that they make.
    """

    metrics: ClassVar = (
        Metric("rmr", "copies", "relative message redundancy of a broadcast: copies / (receivers - 1) - 1"),
        Metric("rmr_acknowledged", "copies", "the same, each acknowledgement counted as a copy"),
        Metric("reliability", "%", "share of the processes there at the end that have a broadcast"),
        Metric("last_delivery_ns", "ns", "from a broadcast to its last delivery"),
    )

    def __init__(self, skip: int = 0) -> None:
        if skip < 0:
            raise ValueError(f"skip: {skip} is negative")
        self._skip = skip
        self._copies: Counter[tuple[str, int]] = Counter()
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._sent_at: dict[tuple[str, int], int] = {}
        self._taken_at: dict[tuple[str, int], dict[ProcessId, int]] = {}
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        self._sent_at[tag.origin, tag.counter] = self._simulator.queue.now

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if isinstance(message, PathMessage):
            self._copies[message.origin, message.counter] += len(destinations)
        elif isinstance(message, Ack):
            self._acknowledged[message.origin, message.counter] += len(destinations)

    def taken(self, process: ProcessId, event: Event) -> None:
        if isinstance(event, Delivered):
            tag = event.message.tag
            self._taken_at.setdefault((tag.origin, tag.counter), {})[process] = self._simulator.queue.now

    def result(self) -> Mapping[str, Measured]:
        here = members(self._simulator)
        rmr: list[float] = []
        acknowledged: list[float] = []
        reliability: list[float] = []
        last: Counter[float] = Counter()
        for name, at in list(self._sent_at.items())[self._skip :]:
            taken = self._taken_at.get(name, {})
            if taken:
                copies = self._copies[name]
                rmr.append(relative_redundancy(copies, len(taken) + 1))
                acknowledged.append(relative_redundancy(copies + self._acknowledged[name], len(taken) + 1))
                last[max(taken.values()) - at] += 1
            reached = sum(process in taken or process == name[0] for process in here)
            reliability.append(100 * reached / len(here))
        return {
            "rmr": _mean(rmr),
            "rmr_acknowledged": _mean(acknowledged),
            "reliability": _mean(reliability),
            "last_delivery_ns": Histogram(last),
        }


class Links(Probe):
    """The overlay as it is at some moments: `at_ms`, of virtual time. Each metric is the mean over these.

    A link is counted once for each of its ends. Where views are made of arcs, links over which none leads any more are
    left out (they only stay for control messages), and counted among the neighbours. Paths begin at `sources` members,
    the same for both kinds of path.
    """

    metrics: ClassVar = (
        Metric("members", "processes", "processes that are there"),
        Metric("neighbours", "links", "neighbours of a process"),
        Metric("arcs", "arcs", "arcs in the view of a process, where views are made of arcs"),
        Metric("links", "links", "links of a process"),
        Metric("unsafe_links", "links", "those of them that it does not take for safe yet"),
        Metric("buffered", "messages", "messages that a process keeps for links that are not safe yet"),
        Metric("tree_links", "links", "links over which both ends send payloads, each counted once"),
        Metric("path_hops", "hops", "shortest paths over all links"),
        Metric("safe_path_hops", "hops", "shortest paths over safe links"),
        Metric("unreachable", "pairs", "a source and a member with no path between them"),
        Metric("safe_unreachable", "pairs", "a source and a member with no path of safe links between them"),
    )

    def __init__(self, at_ms: Sequence[int], sources: int = SOURCES) -> None:
        if not isinstance(at_ms, list | tuple) or not at_ms or not all(isinstance(at, int) for at in at_ms):
            raise ValueError(f"at_ms: {at_ms!r} is no list of milliseconds")
        if sources < 1:
            raise ValueError(f"sources: {sources} is less than 1")
        self._at_ms = at_ms
        self._sources = sources
        self._seen: dict[str, list[float]] = {}
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator
        for at in self._at_ms:
            simulator.queue.push(at * NS_PER_MS, self._look)

    def result(self) -> Mapping[str, Measured]:
        return {name: _mean(values) for name, values in self._seen.items()}

    def _look(self, _: None, __: None) -> None:
        here = members(self._simulator)
        layers = {name: _layers(self._simulator, name) for name in here}
        arcs = {name: list(membership.arcs) for name, (membership, _) in layers.items() if hasattr(membership, "arcs")}
        leads: dict[ProcessId, dict[ProcessId, None]] = {name: dict.fromkeys(arcs.get(name, ())) for name in here}
        for name, ends in arcs.items():
            for end in ends:
                if end in leads:
                    leads[end][name] = None
        links: dict[ProcessId, list[ProcessId]] = {}
        safe: dict[ProcessId, list[ProcessId]] = {}
        for name, (membership, dissemination) in layers.items():
            peers = [peer for peer in membership.neighbours if peer in layers and (not arcs or peer in leads[name])]
            links[name] = peers
            safe[name] = [peer for peer in peers if getattr(dissemination, "is_safe", _always)(peer)]
        size = len(here)
        self._add("members", size)
        self._add("neighbours", sum(len(membership.neighbours) for membership, _ in layers.values()) / size)
        if arcs:
            self._add("arcs", sum(map(len, arcs.values())) / size)
        self._add("links", sum(map(len, links.values())) / size)
        self._add("unsafe_links", sum(len(links[name]) - len(safe[name]) for name in here) / size)
        held = sum(dissemination.tables().get("buffered", 0) for _, dissemination in layers.values())
        self._add("buffered", held / size)
        self._add("tree_links", _tree_links({name: dissemination for name, (_, dissemination) in layers.items()}, safe))
        source = random.Random(f"{self._simulator.seed}=sources")
        sources = source.sample(here, min(self._sources, size))
        for kind, graph in (("", links), ("safe_", safe)):
            hops, unreachable = path_lengths(graph, sources)
            self._add(f"{kind}path_hops", hops)
            self._add(f"{kind}unreachable", unreachable)

    def _add(self, metric: str, value: float) -> None:
        self._seen.setdefault(metric, []).append(value)


class Tables(Probe):
    """How much the tables of each process hold at the end of the run, by name (see `Process.tables`)."""

    metrics: ClassVar = (Metric("table.*", "entries", "of the table named, at each process: `table.expected`"),)
    _simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def result(self) -> Mapping[str, Measured]:
        sizes: dict[str, Counter[float]] = {}
        for name in members(self._simulator):
            for table, size in self._simulator.hosts[name].process.tables().items():
                sizes.setdefault(table, Counter())[size] += 1
        return {f"table.{table}": Histogram(counts) for table, counts in sizes.items()}


class Pings(Probe):
    """How long new links wait for the pong that makes them safe (001, section 4)."""

    metrics: ClassVar = (Metric("ping_ns", "ns", "from a ping to its pong, which ends the buffering"),)

    def __init__(self) -> None:
        self._pinged: dict[tuple[ProcessId, int], int] = {}
        self._times: Counter[float] = Counter()
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if isinstance(message, Along) and message.opener == process and message.kind == "ping":
            self._pinged[process, message.number] = self._simulator.queue.now

    def received(self, process: ProcessId, sender: ProcessId, message: WireMessage) -> None:
        if isinstance(message, Pong):
            pinged = self._pinged.pop((process, message.number), None)
            if pinged is not None:
                self._times[self._simulator.queue.now - pinged] += 1

    def result(self) -> Mapping[str, Measured]:
        return {"ping_ns": Histogram(self._times)}


class Comings(Probe):
    """Who comes and who goes."""

    metrics: ClassVar = (
        Metric("joins", "processes", "processes that joined; over sessions also those of the start but the first"),
        Metric("leaves", "processes", "processes that left"),
        Metric("members_at_end", "processes", "processes that are members at the end"),
    )
    _simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def result(self) -> Mapping[str, Measured]:
        counters = self._simulator.counters
        return {"joins": counters.joins, "leaves": counters.leaves, "members_at_end": len(members(self._simulator))}


class Openings(Probe):
    """What it takes to make new links safe, summed over all processes (001, algorithm 3: retries and failures).

    An attempt goes over a way of safe links, or asks the other side what it has. `most_buffered` is looked at whenever
    a message is sent. `from_ms`: what was before is left out.
    """

    metrics: ClassVar = (
        Metric("ways_tried", "attempts", "control messages sent over a way of safe links"),
        Metric("ways_broken", "attempts", "those of them whose way another process found interrupted"),
        Metric("asked", "attempts", "times that the other side was asked what it has"),
        Metric("most_buffered", "messages", "most messages kept at once by one process for links that are not safe"),
    )

    def __init__(self, from_ms: int = 0) -> None:
        if from_ms < 0:
            raise ValueError(f"from_ms: {from_ms} is negative")
        self._from_ns = from_ms * NS_PER_MS
        self._ways: set[tuple[ProcessId, int]] = set()
        self._broken: set[tuple[ProcessId, int]] = set()
        self._asked = 0
        self._most = 0
        self._simulator: Simulator

    def begin(self, simulator: Simulator) -> None:
        self._simulator = simulator

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        if self._simulator.queue.now < self._from_ns:
            return
        match message:
            case Along(opener=opener, number=number) if opener == process:
                self._ways.add((process, number))
            case Broken(number=number):
                self._broken.update((opener, number) for opener in destinations)
            case Ask():
                self._asked += len(destinations)
            case PathMessage():
                _, dissemination = _layers(self._simulator, process)
                self._most = max(self._most, dissemination.tables().get("buffered", 0))

    def result(self) -> Mapping[str, Measured]:
        return {
            "ways_tried": len(self._ways),
            "ways_broken": len(self._broken),
            "asked": self._asked,
            "most_buffered": self._most,
        }


def members(simulator: Simulator) -> list[ProcessId]:
    """Who is a member now, neither crashed nor gone, in the order of the roster. Raises `MeasurementError`."""
    here = []
    for name, host in simulator.hosts.items():
        process = getattr(host, "process", None)
        if process is not None and not getattr(host, "absent", False):
            membership = getattr(process, "membership", None)
            if membership is None:
                raise MeasurementError(f"the processes of {simulator.stack.name!r} have no membership to look at")
            if getattr(membership, "member", True):
                here.append(name)
    return here


def path_lengths(graph: Mapping[ProcessId, Collection[ProcessId]], sources: Sequence[ProcessId]) -> tuple[float, int]:
    """The mean length in hops of the shortest paths from `sources` to whom they lead to, and how many lead nowhere."""
    numbers = {name: number for number, name in enumerate(graph)}
    peers = [[numbers[peer] for peer in ends] for ends in graph.values()]
    total = reached = 0
    for source in sources:
        seen = bytearray(len(peers))
        seen[numbers[source]] = 1
        edge = [numbers[source]]
        hops = 0
        while edge:
            hops += 1
            nexts = []
            for number in edge:
                for peer in peers[number]:
                    if not seen[peer]:
                        seen[peer] = 1
                        nexts.append(peer)
            total += hops * len(nexts)
            reached += len(nexts)
            edge = nexts
    return (total / reached if reached else 0.0), len(sources) * (len(peers) - 1) - reached


def _layers(simulator: Simulator, name: ProcessId) -> tuple[Any, Any]:
    process: Any = simulator.hosts[name].process
    return process.membership, process.dissemination


def _tree_links(disseminations: Mapping[ProcessId, Any], links: Mapping[ProcessId, Sequence[ProcessId]]) -> int:
    eager: dict[ProcessId, Callable[[ProcessId], bool]] = {
        name: getattr(dissemination, "is_eager", _always) for name, dissemination in disseminations.items()
    }
    return sum(
        name < peer and eager[name](peer) and eager[peer](name) for name, peers in links.items() for peer in peers
    )


def _always(_: ProcessId) -> bool:
    return True


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
