"""What the application of a member is told, in order; of a joiner nothing before its own join is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from causalcast.model import Delivered, MembershipChanged, Message, Stable
from causalcast.protocols.membership.dot_snapshot import KeptMembership, KeptMessage
from causalcast.protocols.ordering.tcb_dynamic_messages import DottedMessage

if TYPE_CHECKING:
    from causalcast.model import Tag
    from causalcast.protocols.membership.dot_snapshot import KeptNews
    from causalcast.protocols.ordering.tcb_dynamic_graph import DotGraph
    from causalcast.protocols.port import Port

AnyNews: TypeAlias = Delivered | Stable | MembershipChanged


class News:
    """Passes events on to the host, or keeps them for later."""

    __slots__ = ("_kept", "_port")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._kept: list[AnyNews] | None = None
        """`None`: nothing is kept."""

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._kept = []

    def release(self) -> None:
        """Pass on what was kept, and what comes from now on."""
        kept, self._kept = self._kept, None
        for event in kept or ():
            match event:
                case Delivered(message):
                    self._port.deliver(message)
                case Stable(tag):
                    self._port.stable(tag)
                case _:
                    self._port.announce(event)

    def drop(self) -> None:
        """Forget what was kept, and keep nothing more."""
        self._kept = None

    def announce(self, event: MembershipChanged) -> None:
        """Who came and who went."""
        if self._kept is None:
            self._port.announce(event)
        else:
            self._kept.append(event)

    def deliver(self, message: Message) -> None:
        """A message of another member."""
        if self._kept is None:
            self._port.deliver(message)
        else:
            self._kept.append(Delivered(message))

    def stable(self, tag: Tag) -> None:
        """A message is stable."""
        if self._kept is None:
            self._port.stable(tag)
        else:
            self._kept.append(Stable(tag))

    def snapshot(self) -> KeptNews | None:
        """To be written down."""
        return None if self._kept is None else tuple(map(_kept, self._kept))

    def restore(self, state: KeptNews | None, graph: DotGraph) -> None:
        """Take up from there; messages that there is news of are in `graph`."""
        self._kept = None if state is None else [_event(kept, graph) for kept in state]


def _kept(event: AnyNews) -> KeptMessage | KeptMembership:
    match event:
        case Delivered(message):
            return KeptMessage((message.tag.origin, message.tag.counter), stable=False)
        case Stable(tag):
            return KeptMessage((tag.origin, tag.counter), stable=True)
        case MembershipChanged(joined, left, evicted):
            return KeptMembership(joined, left, evicted)


def _event(kept: KeptMessage | KeptMembership, graph: DotGraph) -> AnyNews:
    if isinstance(kept, KeptMembership):
        return MembershipChanged(kept.joined, kept.left, kept.evicted)
    node = graph.nodes[kept.dot]
    assert node.tag is not None
    assert isinstance(node.message, DottedMessage)
    return Stable(node.tag) if kept.stable else Delivered(Message(node.message.payload, node.tag))
