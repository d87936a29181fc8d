"""A process of `tcb-dynamic` as it is written down: the graph, the vectors, and the tags with the views of their time.

What follows from that is made again: how many dots of each member are there, and what all members have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import RawDot
from causalcast.protocols.membership.dot_snapshot import MembershipState
from causalcast.protocols.ordering.lanes import Lanes
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    DotNode,
    DottedMessage,
    EvictDot,
    ForgetDot,
    JoinDot,
    LeaveDot,
    Spoken,
)
from causalcast.protocols.ordering.tcb_dynamic_tag import DottedTag, View
from causalcast.protocols.ordering.tcb_graph import RECEIVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from causalcast.protocols.ordering.tcb_dynamic_graph import DotGraph
    from causalcast.protocols.ordering.tcb_dynamic_vectors import Vectors


class TagState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a tag has beyond its message."""

    counts: tuple[int, ...]
    version: int
    """Of its view."""


class DotNodeState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node."""

    column: str
    counter: int
    stage: int
    waits: int
    index: int
    past: tuple[int, ...]
    """Nothing before it is delivered."""
    tag: TagState | None
    message: DottedMessage | JoinDot | LeaveDot | EvictDot | ForgetDot | None
    succ: tuple[RawDot, ...] | None
    taken: bool


class VectorsState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The vectors, but for those of the nodes."""

    views: dict[int, tuple[str, ...]]
    """Names by version: the present view, and those of tags."""
    version: int
    width: int
    heard: dict[str, tuple[int, ...]]
    stable: tuple[int, ...]


class PhantomsState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What `Phantoms` must not forget."""

    idle: bool
    sent: int
    waiting: tuple[Spoken, ...]
    spoken: dict[str, int]


class DynamicState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a process must not forget."""

    context: tuple[RawDot, ...]
    seen: tuple[RawDot, ...] | None
    """`None`: as the context."""
    taken: dict[str, int]
    delivered: dict[str, int]
    deliveries: int
    hidden: tuple[RawDot, ...]
    phantoms: PhantomsState
    vectors: VectorsState
    nodes: list[DotNodeState]
    membership: MembershipState


def vectors_state(vectors: Vectors, nodes: Iterable[DotNode]) -> VectorsState:
    """The vectors, and the views of the tags of `nodes`."""
    unpack = vectors.lanes.unpack
    views = {_view(node.tag).version: node.tag.roster.names for node in nodes if node.tag is not None}
    views[vectors.view.version] = vectors.view.names
    return VectorsState(
        dict(sorted(views.items())),
        vectors.view.version,
        vectors.lanes.width,
        {name: unpack(past) for name, past in vectors.heard.items()},
        vectors.stable,
    )


def restore_vectors(vectors: Vectors, state: VectorsState) -> dict[int, View]:
    """Take up from `state`; returns the views by version."""
    topic = vectors.view.topic
    views = {version: View(names, topic, version) for version, names in state.views.items()}
    vectors.view = views[state.version]
    vectors.lanes = lanes = Lanes(2 * len(vectors.view), state.width)
    vectors.heard = {name: lanes.pack(counts) for name, counts in state.heard.items()}
    vectors.stable = state.stable
    vectors.recount()
    return views


def nodes_state(nodes: Iterable[DotNode], lanes: Lanes) -> list[DotNodeState]:
    """The nodes, in the order in which they are kept."""
    return [
        DotNodeState(
            node.column,
            node.counter,
            node.stage,
            node.waits,
            node.index,
            lanes.unpack(node.past) if node.past else (),
            None if node.tag is None else TagState(node.tag.counts, _view(node.tag).version),
            node.message,
            None if node.succ is None else tuple((after.column, after.counter) for after in node.succ),
            node.taken,
        )
        for node in nodes
    ]


def restore_nodes(graph: DotGraph, states: Iterable[DotNodeState], lanes: Lanes, views: Mapping[int, View]) -> None:
    """Put the nodes into `graph`, which is empty."""
    states = list(states)
    for state in states:
        node = DotNode(state.column, state.counter, state.stage, state.waits, state.index)
        node.past = lanes.pack(state.past) if state.past else 0
        node.kept, node.taken = state.message, state.taken
        if state.tag is not None:
            assert isinstance(state.message, DottedMessage)
            node.tagged(state.message, tag_of(state.message, state.tag.counts, views[state.tag.version]))
        graph.enter(node)
        if node.stage == RECEIVED:
            graph.received_one_more(state.column.removesuffix("/"))
    for state in states:
        if state.succ is not None:
            graph.nodes[state.column, state.counter].succ = [graph.nodes[dot] for dot in state.succ]


def tag_of(message: DottedMessage, counts: tuple[int, ...], view: View) -> DottedTag:
    """The tag of `message`, which has `counts` behind it."""
    seen = message.context if message.seen is None else message.seen
    return DottedTag(message.origin, message.counter, seen, counts, view)


def _view(tag: DottedTag) -> View:
    assert isinstance(tag.roster, View)
    return tag.roster


encode_state: Final = msgspec.msgpack.Encoder().encode
decode_state: Final = msgspec.msgpack.Decoder(DynamicState).decode
