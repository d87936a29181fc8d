"""What `tcb` sends, the nodes of its graph, and the graph as it is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import RawDot, Tag
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from causalcast.model import Roster
    from causalcast.protocols.ordering.lanes import Lanes

SLOT, RECEIVED, DELIVERED, STABLE = range(4)
STAGE_NAMES: Final = ("slt", "rcv", "dlv", "stb")


class TaggedMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=1):
    """A message with its dot and context."""

    counter: int
    context: tuple[RawDot, ...]
    payload: bytes


class Phantom(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=2):
    """What an idle member has taken: the dot it would use next and its context. Never enters the graph."""

    counter: int
    number: int
    context: tuple[RawDot, ...]


class Node(msgspec.Struct, eq=False, gc=False):
    """A dot in the graph. It refers only to nodes that wait for it, so reference counting frees every graph."""

    slot: int
    counter: int
    stage: int
    bits: int = 0
    """While it waits: the origins of its undelivered predecessors."""
    index: int = 0
    """Place in the order of delivery at this process."""
    past: int = 0
    """Once delivered: itself and all that happened before it, packed."""
    tag: Tag | None = None
    message: TaggedMessage | None = None
    """While it waits: what came."""
    pasts: list[int] | None = None
    """While it waits: of its predecessors that were delivered when it came."""
    missing: list[RawDot] | None = None
    """While it waits: its predecessors that were not."""
    succ: list[Node] | None = None
    """Until it is delivered: who waits for it."""


def words_of(graph: Mapping[RawDot, Node]) -> int:
    """Words of a graph, counted as in 004 section 8.3.1.1: 4 per node (dot 2, stage 1, bits 1) and 4 per edge.

    An edge of the document is 2 words where its later dot names its predecessor and 2 where its earlier one names
    its successor, until the earlier one is deleted. Edges are not kept here once their later dot is delivered: they
    are counted from the contexts of the nodes, for each dot of a context that is a node itself. The document has no
    vectors; those of the nodes here are not counted.
    """
    carriers = [node.tag or node.message for node in graph.values()]
    edges = sum(dot in graph for carrier in carriers if carrier is not None for dot in carrier.context)
    return 4 * len(graph) + 4 * edges


def lines_of(graph: Mapping[RawDot, Node], roster: Roster, heard: Sequence[Sequence[int]], my_slot: int) -> list[str]:
    """A graph as lines `dot stage bits`, in order of dot; `heard` is of the others, in order of slot."""
    lines = []
    for node in sorted(graph.values(), key=lambda node: (node.slot, node.counter)):
        bits = [node.bits >> slot & 1 for slot in range(len(roster))]
        if node.stage == DELIVERED:
            bits = [counts[node.slot] < node.counter for counts in heard]
            bits.insert(my_slot, 0)
        text = "".join("1" if bit else "0" for bit in bits)
        lines.append(f"{roster.names[node.slot]}:{node.counter} {STAGE_NAMES[node.stage]} {text}")
    return lines


class NodeState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node as it is written down. What it waits for follows from who waits for whom."""

    slot: int
    counter: int
    stage: int
    index: int
    context: tuple[RawDot, ...]
    """Of its tag."""
    counts: tuple[int, ...]
    """Of its tag; none before it is delivered."""
    message: TaggedMessage | None
    succ: tuple[RawDot, ...] | None


class TCBState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a process must not forget."""

    context: tuple[RawDot, ...]
    taken: list[int]
    idle: bool
    phantoms_sent: int
    nodes: list[NodeState]
    delivered: list[int]
    deliveries: int
    stable: tuple[int, ...]
    heard: list[tuple[int, ...]]
    width: int
    phantoms: list[Phantom]


def graph_state(nodes: Iterable[Node], roster: Roster) -> list[NodeState]:
    """The nodes as they are written down."""
    names = roster.names
    states = []
    for node in nodes:
        succ = None if node.succ is None else tuple((names[after.slot], after.counter) for after in node.succ)
        context, counts = ((), ()) if node.tag is None else (node.tag.context, node.tag.counts)
        states.append(NodeState(node.slot, node.counter, node.stage, node.index, context, counts, node.message, succ))
    return states


def graph_of(states: Sequence[NodeState], roster: Roster, lanes: Lanes) -> dict[RawDot, Node]:
    """The graph that was written down, as it was then."""
    graph: dict[RawDot, Node] = {}
    for state in states:
        name = roster.names[state.slot]
        node = Node(state.slot, state.counter, state.stage, index=state.index, message=state.message)
        if state.counts:
            node.tag = Tag(name, state.counter, state.context, state.counts, roster)
            node.past = lanes.pack(state.counts)
        graph[name, state.counter] = node
    for node, state in zip(graph.values(), states, strict=True):
        if state.succ is not None:
            node.succ = [graph[dot] for dot in state.succ]
            for after in node.succ:
                after.bits |= 1 << node.slot
        if node.message is not None:
            befores = [(dot, graph[dot].past) for dot in node.message.context if dot in graph]
            node.pasts = [past for _, past in befores if past]
            node.missing = [dot for dot, past in befores if not past]
    return graph


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(TCBState).decode
