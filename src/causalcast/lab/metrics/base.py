"""What a probe is: an observer of one run that ends with numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from causalcast.lab.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, Message, ProcessId, Tag
    from causalcast.protocols import WireMessage
    from causalcast.simulation import Simulator

Measured: TypeAlias = float | str | Histogram | None
"""`None`: it did not occur in this run."""


class Metric(msgspec.Struct, frozen=True):
    """What a probe or a calculation yields under one name. A name that ends in `.*` stands for all that begin so."""

    name: str
    unit: str
    what: str
    repeats: bool = True
    """Whether the same seed gives the same value, on any machine."""


class Hooks:
    """What there is to see of a run; here nothing is looked at."""

    def begin(self, simulator: Simulator) -> None:
        """Called once, before anything happens."""

    def broadcast(self, process: ProcessId, tag: Tag) -> None:
        """The application at `process` has broadcast."""

    def published(self, process: ProcessId, tag: Tag, topic: str) -> None:
        """The application at `process` has broadcast to a topic; empty: to the group."""

    def sent(self, process: ProcessId, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        """`process` sends one message to several others."""

    def received(self, process: ProcessId, sender: ProcessId, message: WireMessage) -> None:
        """A message has arrived; the process handles it next."""

    def handled(self, process: ProcessId) -> None:
        """The process is done with the message that arrived last."""

    def delivered(self, process: ProcessId, message: Message) -> None:
        """The protocol has queued a message for the application."""

    def stable(self, process: ProcessId, tag: Tag) -> None:
        """The protocol has queued the news that a message is stable."""

    def taken(self, process: ProcessId, event: Event) -> None:
        """The application has received an event."""


class Probe(Hooks, ABC):
    """Observes one run. A subclass overrides what it wants to see: nothing else is called, or costs anything.

    Options are keyword arguments of its `__init__`; it raises `ValueError` on one that cannot be.
    """

    metrics: ClassVar[tuple[Metric, ...]]
    at: frozenset[int] | None = None
    """The numbers of the processes whose `received`, `handled`, `delivered` and `stable` it wants; `None`: all."""

    @abstractmethod
    def result(self) -> Mapping[str, Measured]:
        """Metric to what was measured; called once, after the run."""

    def wants(self, hook: str) -> bool:
        """Whether it overrides this method."""
        own: Any = getattr(type(self), hook)
        return own is not getattr(Hooks, hook)


def numbers(value: Sequence[int] | None) -> frozenset[int] | None:
    """The option `at` of a probe. Raises `ValueError`."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, int) for each in value):
        raise ValueError(f"at: {value!r} is no list of process numbers")
    return frozenset(value)
