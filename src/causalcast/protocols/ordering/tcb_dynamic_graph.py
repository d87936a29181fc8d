"""The graph of dots of `tcb-dynamic`: what has come, what is awaited, and what of each member is there."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from causalcast.protocols.ordering.tcb_dynamic_messages import (
    DotNode,
    TransferredNode,
    column_of,
    columns_of,
    member_of,
)
from causalcast.protocols.ordering.tcb_graph import DELIVERED, RECEIVED, SLOT, STABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.ordering.lanes import Lanes
    from causalcast.protocols.ordering.tcb_dynamic_messages import Dotted


class DotGraph:
    """Dots that are not stable here, or whose stability the application was not told of."""

    __slots__ = ("_witnesses", "nodes", "pending")

    def __init__(self) -> None:
        self.nodes: dict[RawDot, DotNode] = {}
        self._witnesses: dict[ProcessId, RawDot] = {}
        """By member that `has_of` was asked about, a dot of it that was here then."""
        self.pending: dict[ProcessId, int] = {}
        """By member, how many dots have come and are not delivered."""

    def __getstate__(self) -> tuple[dict[RawDot, DotNode], dict[ProcessId, int]]:
        # The explorer compares states by it: witnesses follow from what was asked, and say nothing of the process.
        return self.nodes, self.pending

    def enter(self, node: DotNode) -> DotNode:
        """One node more."""
        self.nodes[node.column, node.counter] = node
        return node

    def leave(self, node: DotNode) -> None:
        """One less."""
        del self.nodes[node.column, node.counter]

    def receive(self, message: Dotted) -> DotNode | None:
        """The node of a dot that has come; `None` if it came before."""
        dot = column_of(message), message.counter
        node = self.nodes.get(dot)
        if node is None:
            node = self.enter(DotNode(*dot, RECEIVED))
        elif node.stage == SLOT:
            node.stage = RECEIVED
        else:
            return None
        node.kept = message
        self.received_one_more(message.origin)
        return node

    def received_one_more(self, origin: ProcessId) -> None:
        """A dot has come, and is not delivered."""
        self.pending[origin] = self.pending.get(origin, 0) + 1

    def received_no_more(self, origin: ProcessId) -> None:
        """A dot that has come is delivered, or dropped."""
        left = self.pending[origin] - 1
        if left:
            self.pending[origin] = left
        else:
            del self.pending[origin]

    def wait(self, node: DotNode, dot: RawDot) -> None:
        """`node` waits for a dot that is not delivered here, and may not have come at all."""
        before = self.nodes.get(dot)
        if before is None:
            before = self.enter(DotNode(*dot, SLOT))
        node.waits += 1
        if before.succ is None:
            before.succ = [node]
        else:
            before.succ.append(node)

    def of(self, dots: Iterable[RawDot]) -> list[DotNode]:
        """The nodes of those of `dots` that are here."""
        return list(filter(None, map(self.nodes.get, dots)))

    def in_order(self) -> list[DotNode]:
        """All nodes, in order of delivery."""
        return sorted(self.nodes.values(), key=index_of)

    def has_of(self, name: ProcessId) -> bool:
        """Whether a dot of `name` is here.

        Asked again and again until none is: the last one that came is there longest, and all others are looked at once
        it is gone.
        """
        if self._witnesses.get(name) in self.nodes:
            return True
        columns = columns_of(name)
        witness = next((dot for dot in reversed(self.nodes) if dot[0] in columns), None)
        if witness is None:
            self._witnesses.pop(name, None)
            return False
        self._witnesses[name] = witness
        return True

    def held(self, names: Collection[ProcessId], without: Collection[RawDot]) -> tuple[Dotted, ...]:
        """All that has come of `names` and is here, apart from some dots."""
        return tuple(
            node.message
            for dot, node in sorted(self.nodes.items())
            if node.message is not None and dot not in without and member_of(node.column) in names
        )

    def hopeless(self, names: Collection[ProcessId]) -> list[DotNode]:
        """What waits, through others or not, for dots of `names` that have not come, and the places of these."""
        found = [node for node in self.nodes.values() if node.stage == SLOT and member_of(node.column) in names]
        seen = set(map(id, found))
        for node in found:
            for after in node.succ or ():
                if id(after) not in seen:
                    seen.add(id(after))
                    found.append(after)
        return found

    def waiting(self, names: Collection[ProcessId]) -> list[DotNode]:
        """What has come of `names` and is not delivered."""
        return [node for node in self.nodes.values() if node.stage == RECEIVED and member_of(node.column) in names]

    def transferred(self, lanes: Lanes) -> tuple[TransferredNode, ...]:
        """What is delivered, in order, for a joiner."""
        return tuple(
            TransferredNode(node.message, lanes.unpack(node.past), node.stage == STABLE)
            for node in self.in_order()
            if node.stage >= DELIVERED and node.message is not None
        )

    def received(self) -> tuple[Dotted, ...]:
        """What has come and is not delivered."""
        return tuple(
            node.message for node in self.nodes.values() if node.stage == RECEIVED and node.message is not None
        )

    def drop(self, nodes: Collection[DotNode]) -> None:
        """These will never be delivered."""
        gone = set(map(id, nodes))
        for node in nodes:
            self.leave(node)
            if node.message is not None:
                self.received_no_more(node.message.origin)
        for node in list(self.nodes.values()):
            if node.succ is not None:
                node.succ = [after for after in node.succ if id(after) not in gone]
                if not node.succ and node.stage == SLOT:
                    self.leave(node)


index_of: Final = attrgetter("index")
