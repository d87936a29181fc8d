"""The stacks of document 002, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from causalcast.protocols.dissemination.aggregating_tree import (
    AggregatingSingleTree,
    AggregatingTree,
    BundlingTree,
    Packet,
)
from causalcast.protocols.dissemination.single_tree import SingleTree
from causalcast.protocols.dissemination.vcube_tree import VCubeTree
from causalcast.protocols.membership.vcube import VCube
from causalcast.protocols.ordering.aggregation import CausalMessage, ChangedVector, DirectBarrier, Listed
from causalcast.protocols.pubsub.process import TopicOrdering, TopicStack
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.protocols.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.protocols.layers import Dissemination
    from causalcast.protocols.port import Port


def _causal(
    name: str,
    summary: str,
    dissemination: Callable[[Port, Any], Dissemination],
    ordering: type[Listed] = ChangedVector,
    message_cost: str = "2 numbers per entry changed; at most n-1 packets",
) -> Stack:
    return Stack(
        name=name,
        summary=summary,
        membership=VCube,
        dissemination=dissemination,
        ordering=ordering,
        wire_types=(CausalMessage, Packet),
        promises=frozenset({"P1", "P2", "P3"}),
        dynamic=False,
        fifo_links=False,
        message_cost=message_cost,
        process_cost="O(n) counts, the messages that wait or are held",
        source="002, algorithm 2",
    )


HYPERCUBE_STACKS: Final = (
    _causal(
        "causal-aggregation",
        "causal order by vectors over VCube trees, messages sent with those they wait for",
        AggregatingTree,
    ),
    _causal(
        "causal-aggregation-off",
        "the same without aggregation: every message goes on at once",
        VCubeTree,
        message_cost="2 numbers per entry changed; n-1 sends",
    ),
    _causal(
        "causal-aggregation-single-tree",
        "the same over one tree for all sources",
        AggregatingSingleTree,
        message_cost="2 numbers per entry changed; at most n packets",
    ),
    _causal(
        "causal-aggregation-single-tree-off",
        "one tree for all sources, without aggregation",
        SingleTree,
        message_cost="2 numbers per entry changed; n sends",
    ),
    _causal(
        "causal-aggregation-barriers",
        "causal aggregation by causal barriers instead of vectors",
        AggregatingTree,
        DirectBarrier,
        message_cost="2 numbers per direct dependency; at most n-1 packets",
    ),
    _causal(
        "causal-aggregation-bundling",
        "causal aggregation, unrelated messages bundled while others wait",
        BundlingTree,
    ),
    TopicStack(
        name="vcube-ps",
        summary="topics in causal order, over one tree of subscribers per publisher",
        membership=VCube,
        dissemination=VCubePS,
        ordering=TopicOrdering,
        wire_types=VCubePS.wire_types,
        promises=frozenset({"P1", "P2", "P3"}),
        dynamic=False,
        fifo_links=False,
        message_cost="2 numbers per direct dependency; 1 copy and 1 ack per subscriber",
        process_cost="O(n) words per topic, the publications that wait",
        source="002, algorithms 3 and 4",
        topics=True,
    ),
)
