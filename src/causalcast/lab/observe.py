"""Simulators that probes look into: the hooks are there only where a probe asks for them.

Nothing in the simulator or in a protocol knows of it. What was broadcast, sent and taken passes through methods that
`ObservedSimulator` overrides; what a process receives and does about it is seen by wrapping the process and its port,
of those processes alone that a probe looks at.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from causalcast.protocols import Stack, stack
from causalcast.simulation import Simulator, process_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.lab.metrics.base import Probe
    from causalcast.lab.spec import RunSpec
    from causalcast.model import Event, Message, ProcessId, Roster, Tag
    from causalcast.protocols import Port, Process, WireMessage
    from causalcast.simulation import SimulatedHost
    from causalcast.trace.writer import TraceSink


def prepare(spec: RunSpec, seed: int, probes: Sequence[Probe] = (), trace: TraceSink | None = None) -> Simulator:
    """The simulator of one run, not started. Raises what `Simulator` raises on what does not fit together."""
    chosen = stack(spec.stack)
    names = process_names(spec.nodes)
    if any(probe.wants(hook) for probe in probes for hook in _AT_PROCESSES):
        chosen = _observed(chosen, names, probes)
    simulator = ObservedSimulator(
        chosen,
        names,
        spec.workload,
        network=spec.network,
        seed=seed,
        thinking=spec.thinking,
        faults=spec.faults,
        trace=trace,
    )
    simulator.observe(probes)
    return simulator


_AT_PROCESSES = ("received", "handled", "delivered", "stable")


class ObservedSimulator(Simulator):
    """A simulator that tells probes what is broadcast, sent and taken."""

    def observe(self, probes: Sequence[Probe]) -> None:
        """Tell these probes from now on, beginning with the beginning."""
        self._sent = [probe.sent for probe in probes if probe.wants("sent")]
        self._broadcast = [probe.broadcast for probe in probes if probe.wants("broadcast")]
        self._published = [probe.published for probe in probes if probe.wants("published")]
        self._taken = [probe.taken for probe in probes if probe.wants("taken")]
        for probe in probes:
            probe.begin(self)

    def send(self, sender: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        for tell in self._sent:
            tell(sender, destinations, message)
        Simulator.send(self, sender, destinations, message)

    def log_broadcast(self, host: SimulatedHost, tag: Tag, payload: bytes, topic: str) -> None:
        super().log_broadcast(host, tag, payload, topic)
        for tell in self._broadcast:
            tell(host.name, tag)
        for hear in self._published:
            hear(host.name, tag, topic)

    def log_event(self, host: SimulatedHost, event: Event) -> None:
        Simulator.log_event(self, host, event)
        for tell in self._taken:
            tell(host.name, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ObservedStack(Stack):
    """A stack whose processes are wrapped where a probe looks."""

    chosen: Stack
    names: tuple[ProcessId, ...]
    probes: tuple[Probe, ...]

    def process(self, port: Port, roster: Roster) -> Any:
        number = self.names.index(port.name) if port.name in self.names else None
        here = [probe for probe in self.probes if probe.at is None or number in probe.at]
        if not here:
            return self.chosen.process(port, roster)
        return _ObservedProcess(self.chosen.process(_ObservedPort(port, here), roster), port.name, here)


def _observed(chosen: Stack, names: Sequence[ProcessId], probes: Sequence[Probe]) -> Stack:
    watching = tuple(probe for probe in probes if any(map(probe.wants, _AT_PROCESSES)))
    same: dict[str, Any] = {field.name: getattr(chosen, field.name) for field in fields(Stack)}
    return _ObservedStack(chosen=chosen, names=tuple(names), probes=watching, **same)


class _ObservedPort:
    """A port that tells what a protocol queues for its application."""

    def __init__(self, port: Port, probes: Sequence[Probe]) -> None:
        self._port = port
        self._name = port.name
        self._delivered = [probe.delivered for probe in probes if probe.wants("delivered")]
        self._stable = [probe.stable for probe in probes if probe.wants("stable")]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)

    def deliver(self, message: Message) -> None:
        for tell in self._delivered:
            tell(self._name, message)
        self._port.deliver(message)

    def stable(self, tag: Tag, *topic: str) -> None:
        for tell in self._stable:
            tell(self._name, tag)
        self._port.stable(tag, *topic)


class _ObservedProcess:
    """A process that tells when it begins and ends to handle a message."""

    def __init__(self, process: Process, name: ProcessId, probes: Sequence[Probe]) -> None:
        self._process = process
        self._name = name
        self._receive = process.receive
        self._received: list[Callable[[ProcessId, ProcessId, WireMessage], None]] = [
            probe.received for probe in probes if probe.wants("received")
        ]
        self._handled = [probe.handled for probe in probes if probe.wants("handled")]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        for begin in self._received:
            begin(self._name, sender, message)
        try:
            self._receive(sender, message)
        finally:
            for end in self._handled:
                end(self._name)
