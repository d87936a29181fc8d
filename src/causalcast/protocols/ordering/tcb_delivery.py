"""TCB without stability: tagged causal delivery over the graph of dots, for comparison.

Source: document 004, algorithms 4 (client) and 5 (middleware). Keeps P1 to P4. Per message on the wire: one dot and the
dots of its immediate predecessors. Per process: a node per message that waits or is awaited.

Departures from the print: those of `tcb`; and tags compare exactly, for which the print has no means once a dot has
left its graph. To make them, the vector of a delivered message is kept until all members were heard to have it. Nobody
sends phantoms here, so a member that never broadcasts keeps these vectors from being dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.model import Delivered, UnsupportedByStackError
from causalcast.protocols.ordering.tcb import TCB
from causalcast.protocols.ordering.tcb_graph import DELIVERED, TaggedMessage

if TYPE_CHECKING:
    from causalcast.model import Event
    from causalcast.protocols.ordering.tcb_graph import Node
    from causalcast.protocols.port import BroadcastMessage


class TCBDelivery(TCB):
    """Tagged causal delivery for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (TaggedMessage,)

    def take(self, event: Event) -> None:
        """The application receives `event`: the context moves now."""
        if isinstance(event, Delivered):
            self._take(event.message.tag)

    def _report(self, nodes: list[Node]) -> None:
        """No later message names what all are heard to have: its vector is not needed any more."""
        for node in nodes:
            del self._graph[self._roster.names[node.slot], node.counter]

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest: the vectors kept for tags need not be."""
        return {"waiting": sum(node.stage < DELIVERED for node in self._graph.values())}

    @property
    def unstable(self) -> int:
        """No stability here."""
        return 0

    def words(self) -> int:
        """The graph of algorithm 5, which a dot leaves when it is delivered: 4 per node and 4 per edge between nodes.

        The vectors kept for tags are not in the document and are not counted.
        """
        here = {dot: node for dot, node in self._graph.items() if node.stage < DELIVERED}
        contexts = [node.message.context for node in here.values() if node.message is not None]
        return 4 * len(here) + 4 * sum(dot in here for context in contexts for dot in context)

    def snapshot(self) -> bytes:
        """Raises `UnsupportedByStackError`."""
        raise UnsupportedByStackError(f"{type(self).__name__} writes nothing down: it cannot recover")
