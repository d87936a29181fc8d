"""What the members of `tcb-dynamic` send each other, and its nodes. `docs/membership.md` says when."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from causalcast.model import InvalidNameError, ProcessId, RawDot, Roster
from causalcast.protocols.ordering.tcb_dynamic_tag import DottedTag
from causalcast.protocols.port import BroadcastMessage, WireMessage

CONTROL: Final = "/"
"""Ends the name of a member's second column, that of its dots which are no messages. No name of a process has it."""


class DottedMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=150):
    """A message of the application."""

    counter: int
    context: tuple[RawDot, ...]
    """Dots of the immediate predecessors, of either column."""
    payload: bytes
    seen: tuple[RawDot, ...] | None = None
    """The immediate predecessors among messages; `None`: those of the context."""


class JoinDot(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=151):
    """`member` has joined through the origin."""

    counter: int
    context: tuple[RawDot, ...]
    member: str
    address: str = ""
    """Where `member` is reached, as its contact's host writes it; see `Directory` in `dot_records`."""


class LeaveDot(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=152):
    """The origin's last dot."""

    counter: int
    context: tuple[RawDot, ...]


class EvictDot(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=153):
    """The origin accepts nothing from `member` any more; `carried` is what it has of it that others may lack."""

    counter: int
    context: tuple[RawDot, ...]
    member: str
    carried: tuple[DottedMessage | JoinDot | LeaveDot | EvictDot | ForgetDot, ...]


class ForgetDot(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=154):
    """Everything that `members`, who are gone, have sent is before this dot."""

    counter: int
    context: tuple[RawDot, ...]
    members: tuple[str, ...]


Dotted: TypeAlias = DottedMessage | JoinDot | LeaveDot | EvictDot | ForgetDot


class Spoken(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=155):
    """A phantom: what an idle member has taken. It is no dot."""

    dots: int
    """How many dots its origin had made."""
    number: int
    context: tuple[RawDot, ...]


class JoinRequest(WireMessage, frozen=True, array_like=True, gc=False, tag=156):
    """`member` wants to join."""

    member: str
    address: str = ""
    """As in `JoinDot`, where another member passes the request on."""


class Welcome(WireMessage, frozen=True, array_like=True, gc=False, tag=157):
    """The sender counts the receiver among the members; `dots` are its own that the receiver may lack."""

    dots: tuple[Dotted, ...] = ()


class Farewell(WireMessage, frozen=True, array_like=True, gc=False, tag=158):
    """The sender has taken the receiver's leave; so many messages and other dots of it came before."""

    messages: int
    others: int


class Carried(WireMessage, frozen=True, array_like=True, gc=False, tag=159):
    """Of a member that leaves: dots of an evicted one, on which its leave may depend."""

    dots: tuple[Dotted, ...]


class Refusal(WireMessage, frozen=True, array_like=True, gc=False, tag=160):
    """The receiver's request to join is not granted."""


class TransferredNode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivered dot that is not stable everywhere, or whose stability the application was not told of."""

    message: Dotted
    counts: tuple[int, ...]
    stable: bool


class TransferredMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the contact knows of a member."""

    name: str
    status: int
    by: str
    left_taken: bool
    forgetting: bool
    forgettable: bool
    heard: tuple[int, ...]
    """Nothing: not counted any more."""
    spoken: int
    address: str = ""
    """As in `JoinDot`."""


class TransferredEviction(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An eviction that is not decided."""

    member: str
    reporters: tuple[str, ...]
    excused: tuple[str, ...]


class Transfer(WireMessage, frozen=True, array_like=True, gc=False, tag=161):
    """All that a joiner takes over. Counts are in the order of `names`, messages first, then the other dots."""

    join: RawDot
    names: tuple[str, ...]
    members: tuple[TransferredMember, ...]
    """All but contact and joiner."""
    taken: tuple[int, ...]
    stable: tuple[int, ...]
    nodes: tuple[TransferredNode, ...]
    """In order of delivery."""
    context: tuple[RawDot, ...]
    seen: tuple[RawDot, ...] | None
    """`None`: as the context."""
    evictions: tuple[TransferredEviction, ...]
    carried: tuple[RawDot, ...]
    waiting: tuple[Dotted, ...]
    """Received and not delivered."""
    phantoms: tuple[Spoken, ...]
    state: bytes | None
    """The application's."""


class DotNode(msgspec.Struct, eq=False, gc=False):
    """A dot in the graph. It refers only to nodes that wait for it, so reference counting frees every graph."""

    column: str
    counter: int
    stage: int
    waits: int = 0
    """How many of its predecessors are not delivered."""
    index: int = 0
    """Place in the order of delivery at this process."""
    past: int = 0
    """Once delivered: itself and all that happened before it, packed."""
    tag: DottedTag | None = None
    """Once delivered, if it is a message."""
    kept: Dotted | bytes | None = None
    """What came, until the node goes, for those who lack it; of a delivered message whose tag says all the rest, its
    payload; `None`: nothing came yet.
    """
    succ: list[DotNode] | None = None
    """Until it is delivered: who waits for it."""
    taken: bool = False
    """Of a dot that is no message: whether it is in the past of the next broadcast."""

    @property
    def message(self) -> Dotted | None:
        """What came; `None`: nothing yet."""
        kept = self.kept
        if not isinstance(kept, bytes):
            return kept
        assert self.tag is not None
        return DottedMessage(self.column, self.counter, self.tag.context, kept)

    def tagged(self, message: DottedMessage, tag: DottedTag) -> None:
        """It is delivered, and its tag is made."""
        self.tag = tag
        self.kept = message.payload if message.seen is None else message


def column_of(message: Dotted) -> str:
    """The column that the dot of `message` is counted in."""
    return message.origin if isinstance(message, DottedMessage) else message.origin + CONTROL


def columns_of(name: ProcessId) -> tuple[str, str]:
    """Both columns of a member."""
    return name, name + CONTROL


def is_process_name(name: str) -> bool:
    """Whether a process can be called that."""
    try:
        Roster([name])
    except InvalidNameError:
        return False
    return True


def member_of(column: str) -> ProcessId:
    """Whose column it is."""
    return column.removesuffix(CONTROL)
