"""What the application of a member is told, in order; of a joiner nothing before its own join is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from causalcast.model import Delivered, MembershipChanged, Message, Stable
from causalcast.protocols.membership.dot_snapshot import KeptMembership, KeptMessage
from causalcast.protocols.ordering.tcb_dynamic_messages import DottedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import Tag
    from causalcast.protocols.membership.dot_snapshot import KeptNews
    from causalcast.protocols.ordering.tcb_dynamic_graph import DotGraph
    from causalcast.protocols.port import Port

AnyNews: TypeAlias = Delivered | Stable | MembershipChanged


class News:
    """Passes events on to the host, or keeps them for later."""

    __slots__ = ("_kept", "_port", "deliver", "stable")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._kept: list[AnyNews] | None = None
        """`None`: nothing is kept."""
        self._pass_on()

    def _pass_on(self) -> None:
        self._kept = None
        self.deliver: Callable[[Message], None] = self._port.deliver
        """Called with a message of another member."""
        self.stable: Callable[[Tag], None] = self._port.stable
        """Called with the tag of a message that is stable."""

    def _keep(self, kept: list[AnyNews]) -> None:
        self._kept = kept
        self.deliver = self._keep_message
        self.stable = self._keep_stable

    def _keep_message(self, message: Message) -> None:
        assert self._kept is not None
        self._kept.append(Delivered(message))

    def _keep_stable(self, tag: Tag) -> None:
        assert self._kept is not None
        self._kept.append(Stable(tag))

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._keep([])

    def release(self) -> None:
        """Pass on what was kept, and what comes from now on."""
        kept = self._kept
        self._pass_on()
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
        self._pass_on()

    def announce(self, event: MembershipChanged) -> None:
        """Who came and who went."""
        if self._kept is None:
            self._port.announce(event)
        else:
            self._kept.append(event)

    def snapshot(self) -> KeptNews | None:
        """To be written down."""
        return None if self._kept is None else tuple(map(_kept, self._kept))

    def restore(self, state: KeptNews | None, graph: DotGraph) -> None:
        """Take up from there; messages that there is news of are in `graph`."""
        if state is not None:
            self._keep([_event(kept, graph) for kept in state])


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
