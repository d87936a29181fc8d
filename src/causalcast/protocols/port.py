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
* Timers are data: a value set again replaces its earlier setting, and comes back through `timer` when it is due. A
  timer is a string, or a tuple that begins with one; that string says to which layer it belongs.

Links come in two kinds, and a stack says which it is made for. *Durable* links stand between all members: a message
sent to a member arrives once, however often the connection breaks meanwhile, and whichever of the two restarts with
its journal; nobody is told of a broken one. *Session* links are what overlays are made of: a process says `connect` to
those it wants to hear of, messages arrive in the order sent while the link lasts, and `link_down` is its end.
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

    def stable(self, tag: Tag, topic: str = "") -> None:
        """Queue the news that a message is causally stable here."""

    def announce(self, event: Event) -> None:
        """Queue any other news for the application: who came and went, which subscriptions are complete."""

    def connect(self, peer: ProcessId) -> None:
        """Keep a session link to `peer`; what is sent before it stands waits for it.

        `Process.link_down(peer)` is called once if it cannot be made or when it breaks; then it is forgotten. To send
        to a process without having said `connect` uses a link for that once: it arrives, or nobody is told.
        """

    def disconnect(self, peer: ProcessId) -> None:
        """Close the session link to `peer` behind what was sent on it. The other side is told, this one is not."""

    def retire(self) -> None:
        """This process has left: once what it sent and queued is through, its host stops it."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        """Call `Process.timer(timer)` after `delay_ns`; replaces an earlier setting of the same value."""

    def cancel_timer(self, timer: Timer) -> None:
        """Forget a timer; nothing happens if it is not set."""


class Process(Protocol):
    """What a host drives: one process of a stack. See the module for the rules of the two sides."""

    def start(self) -> None:
        """Called once, before anything else."""

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """The application broadcasts now; the tag is made now, from what it has taken so far.

        Raises `UnsupportedByStackError` for a topic where the stack has none, `NotAMemberError` before its join is
        complete and after it has left.
        """

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

    # What only some stacks can do; the others raise `UnsupportedByStackError`.

    def join(self, contact: ProcessId) -> None:
        """Become a member through `contact`; called after `start` at a process that knows nobody else.

        Complete when `MembershipChanged` names this process among the joined.
        """

    def leave(self) -> None:
        """Stop being a member. Complete when `MembershipChanged` names this process among the left."""

    def suspect(self, peer: ProcessId) -> None:
        """A failure detector, or the operator, takes `peer` for crashed. It may be wrong."""

    def trust(self, peer: ProcessId) -> None:
        """What was said with `suspect` was wrong: `peer` is there. Nothing happens if it is not suspected."""

    def link_down(self, peer: ProcessId) -> None:
        """The session link to `peer`, for which this process had said `connect`, is gone, with what was on it."""

    def subscribe(self, topic: str) -> None:
        """Ask for all that is published to `topic`; complete with the event `Subscribed`."""

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more of `topic`; complete with the event `Unsubscribed`."""

    def preset(self, topic: str, subscribers: Sequence[ProcessId]) -> None:
        """These subscribe to `topic` from the start, and everybody knows: told to every process, before any message.

        At a subscriber it is complete with `Subscribed`, as if it had asked.
        """

    def snapshot(self) -> bytes:
        """All that the process must not forget when it crashes: `Stack.recover` makes a process of it again."""

    def tables(self) -> dict[str, int]:
        """By name, how much each table holds. Empty: the stack says nothing of its tables."""

    @property
    def standing(self) -> frozenset[str]:
        """Those `tables` that hold something at rest as well: views, and what is known of each link.

        All others must be empty when nothing is left to do (property P7).
        """
