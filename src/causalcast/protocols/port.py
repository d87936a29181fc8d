"""The port: all that a protocol and its host may say to each other.

Theory of operation. A *process* is a state machine without clock, socket, thread or randomness of its own. Its host
feeds it (`Process`: start, broadcast, receive, timer, take) and it acts only by calling its host back (`Port`: send,
deliver, stable, set_timer, cancel_timer, now_ns, random). Both hosts, sockets in real time and the simulator in
virtual time, drive the same objects, so what is explored and simulated is what runs.

Three rules make that work:

* The host calls a process from one place at a time, never from inside one of the port's methods.
* `deliver` and `stable` put an event in the application's queue. When the application *receives* an event the host
  calls `take` first, and only then hands the event over: the tag of the next broadcast reflects what the
  application has taken, not what lies in its queue (document 004, section 3.7.1).
* Timers are data: a value set again replaces its earlier setting, and comes back through `timer` when it is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable, MutableSequence, Sequence

    from causalcast.model import Event, Message, ProcessId, Tag

Timer: TypeAlias = "Hashable"
T = TypeVar("T")


class WireMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of every message between processes: typed, immutable, shared by all who receive it."""


class BroadcastMessage(WireMessage, frozen=True, array_like=True, gc=False):
    """A message that a dissemination layer brings to every member."""

    origin: str
    """Who broadcast it; for what is disseminated directly, also who sent it."""


class Random(Protocol):
    """The part of `random.Random` that protocols may use; the host seeds it."""

    def random(self) -> float: ...

    def randrange(self, start: int, stop: int) -> int: ...

    def sample(self, population: Sequence[T], k: int) -> list[T]: ...

    def shuffle(self, x: MutableSequence[T]) -> None: ...


class Port(Protocol):
    """What a host offers to the process it runs."""

    @property
    def name(self) -> ProcessId:
        """The identity of the process."""

    @property
    def random(self) -> Random:
        """Randomness; the same seed gives the same run."""

    def now_ns(self) -> int:
        """The host's time in nanoseconds; never goes back. For delays, never for order."""

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        """Send one message to several processes; each link delivers it at most once, or it fails with the link."""

    def deliver(self, message: Message) -> None:
        """Queue a message of another member for the application."""

    def stable(self, tag: Tag) -> None:
        """Queue the news that a message is causally stable here."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        """Call `Process.timer(timer)` after `delay_ns`; replaces an earlier setting of the same value."""

    def cancel_timer(self, timer: Timer) -> None:
        """Forget a timer; nothing happens if it is not set."""


class Process(Protocol):
    """What a host drives: one process of a stack. See the module for the rules of the two sides."""

    def start(self) -> None:
        """Called once, before anything else."""

    def broadcast(self, payload: bytes) -> Tag:
        """The application broadcasts now; the tag is made now, from what it has taken so far."""

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """A message arrived over the link from `sender`.

        Raises `ProtocolViolationError` if no correct process sends it; the state is then as it was before.
        """

    def timer(self, timer: Timer) -> None:
        """A timer is due."""

    def take(self, event: Event) -> None:
        """The application is about to receive this event; called in the order in which events were queued."""

    def pending(self, origin: ProcessId) -> int:
        """How many messages of `origin` are here and not delivered yet. A host stops reading a link at a bound:
        the first missing cause of anything pending is never behind a message of the same origin, so reading of its
        own link goes on and the bound cannot block for ever (direct dissemination over FIFO links).
        """

    @property
    def unstable(self) -> int:
        """How many of its own messages are not stable here yet; 0 where the stack has no stability."""
