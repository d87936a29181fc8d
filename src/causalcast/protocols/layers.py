"""The layers of a stack, and what passes between them: `application | ordering | dissemination | membership`.

Downwards an ordering broadcasts through its dissemination, which sends to the neighbours its membership names. Upwards
a membership says which neighbours came and went, a dissemination which messages arrived (document 000, figure 2.3).
The bases here are layers that want nothing; a protocol overrides what concerns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from causalcast.model import ProtocolViolationError, UnsupportedByStackError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.port import BroadcastMessage, Timer, WireMessage


class Layer:
    """What membership and dissemination have in common."""

    __slots__ = ()

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = ()
    """Messages that are this layer's own: they arrive through `receive`."""
    timers: ClassVar[tuple[str, ...]] = ()
    """The first words of this layer's own timers."""

    def start(self) -> None:
        """Called once, from the lowest layer up."""

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """One of its messages arrived from `sender`; raises `ProtocolViolationError`."""
        raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__}, which is no message of this stack")

    def timer(self, timer: Timer) -> None:
        """One of its timers is due."""

    standing: ClassVar[frozenset[str]] = frozenset()
    """See `Process.standing`."""

    def tables(self) -> dict[str, int]:
        """See `Process.tables`."""
        return {}


class Membership(Layer):
    """Who is there, and which of them are neighbours."""

    __slots__ = ("above",)

    name: ProcessId
    above: Dissemination
    """Is told of neighbours that come and go; set before `start`."""

    @property
    def neighbours(self) -> Sequence[ProcessId]:
        """Those that messages are sent to."""
        return ()

    def join(self, contact: ProcessId) -> None:
        """See `Process.join`."""
        raise UnsupportedByStackError(f"the members of this stack are fixed: {self.name!r} cannot join {contact!r}")

    def leave(self) -> None:
        """See `Process.leave`."""
        raise UnsupportedByStackError(f"the members of this stack are fixed: {self.name!r} cannot leave")

    def suspect(self, peer: ProcessId) -> None:
        """See `Process.suspect`."""
        raise UnsupportedByStackError(f"the members of this stack are fixed: {peer!r} cannot be evicted")

    def trust(self, peer: ProcessId) -> None:
        """See `Process.trust`."""
        raise UnsupportedByStackError(f"this stack suspects nobody, so not {peer!r} either")

    def link_down(self, peer: ProcessId) -> None:
        """See `Process.link_down`."""


class Dissemination(Layer):
    """How a message comes to all members."""

    __slots__ = ("upward",)

    upward: Callable[[BroadcastMessage], None]
    """Takes each message that has come here; set before `start`."""

    def broadcast(self, message: BroadcastMessage) -> None:
        """Bring `message` to every other member."""

    def neighbour_up(self, peer: ProcessId) -> None:
        """The membership has a new neighbour (000, NEIGHBOUR_UP)."""

    def neighbour_down(self, peer: ProcessId) -> None:
        """A neighbour is gone (000, NEIGHBOUR_DOWN)."""


class BaseProcess:
    """A process that can do nothing of what only some stacks can: the latter half of `Process`."""

    __slots__ = ()

    def join(self, contact: ProcessId) -> None:
        raise UnsupportedByStackError(f"the members of this stack are fixed: nobody can join through {contact!r}")

    def leave(self) -> None:
        raise UnsupportedByStackError("the members of this stack are fixed: nobody can leave")

    def suspect(self, peer: ProcessId) -> None:
        raise UnsupportedByStackError(f"the members of this stack are fixed: {peer!r} cannot be evicted")

    def trust(self, peer: ProcessId) -> None:
        raise UnsupportedByStackError(f"this stack suspects nobody, so not {peer!r} either")

    def link_down(self, peer: ProcessId) -> None:
        """Durable links do not break."""

    def subscribe(self, topic: str) -> None:
        raise UnsupportedByStackError(f"this stack has no topics: subscribe to {topic!r} with one that has")

    def unsubscribe(self, topic: str) -> None:
        raise UnsupportedByStackError(f"this stack has no topics: there is no {topic!r} to unsubscribe from")

    def preset(self, topic: str, subscribers: Sequence[ProcessId]) -> None:
        raise UnsupportedByStackError(
            f"this stack cannot begin with {len(subscribers):,} subscribers to {topic!r}: have each subscribe"
        )

    def snapshot(self) -> bytes:
        raise UnsupportedByStackError("processes of this stack write nothing down: they cannot recover")

    @property
    def standing(self) -> frozenset[str]:
        return frozenset()

    def tables(self) -> dict[str, int]:
        return {}


class Recoverable(Protocol):
    """An ordering whose process survives a crash, with what it had written down."""

    def snapshot(self) -> bytes:
        """All that must not be forgotten."""

    def restore(self, snapshot: bytes) -> None:
        """Take up from there; called instead of `start`. Timers that are due to be set are set again."""
