"""The stacks of document 002, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from causalcast.protocols.dissemination.aggregating_tree import (
    AggregatingSingleTree,
    AggregatingTree,
    BundlingTree,
    Packet,
)
from causalcast.protocols.dissemination.repaired_tree import (
    Complete,
    RepairedSingleTree,
    RepairedTree,
    TreeAck,
    TreeCopy,
)
from causalcast.protocols.dissemination.single_tree import SingleTree
from causalcast.protocols.dissemination.vcube_tree import VCubeTree
from causalcast.protocols.membership.diagnosis import DiagnosedVCube
from causalcast.protocols.membership.vcube import VCube
from causalcast.protocols.ordering.aggregation import CausalMessage, ChangedVector, DirectBarrier, Listed
from causalcast.protocols.ordering.tcb import TCB, Phantom, TaggedMessage
from causalcast.protocols.pubsub.process import TopicOrdering, TopicStack
from causalcast.protocols.pubsub.srpt import SRPT, BrokeredSRPT
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.protocols.stack import Stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.protocols.layers import Dissemination
    from causalcast.protocols.ordering import Ordering
    from causalcast.protocols.port import Port


class CausalCopy(TreeCopy, frozen=True, array_like=True, gc=False, tag=52):
    """A copy of a message with the vector entries that changed."""

    message: CausalMessage


class TaggedCopy(TreeCopy, frozen=True, array_like=True, gc=False, tag=53):
    """A copy of a message with its dot and context, or of a phantom."""

    message: TaggedMessage | Phantom


class CausalTree(RepairedTree):
    """Repaired trees that carry vectors."""

    wire_types = (CausalCopy, TreeAck, Complete)
    copy = CausalCopy
    __slots__ = ()


class CausalSingleTree(RepairedSingleTree):
    """One repaired tree that carries vectors."""

    wire_types = (CausalCopy, TreeAck, Complete)
    copy = CausalCopy
    __slots__ = ()


class TaggedTree(RepairedTree):
    """Repaired trees that carry dots."""

    wire_types = (TaggedCopy, TreeAck, Complete)
    copy = TaggedCopy
    __slots__ = ()


def _repaired(
    name: str,
    summary: str,
    dissemination: type[RepairedTree],
    ordering: Callable[[Port, Any, Any], Ordering],
    promises: str,
) -> Stack:
    return Stack(
        name=name,
        summary=summary,
        membership=DiagnosedVCube,
        dissemination=dissemination,
        ordering=ordering,
        wire_types=(*dissemination.wire_types, *DiagnosedVCube.wire_types),
        promises=frozenset(promises.split()),
        dynamic=False,
        fifo_links=False,
        message_cost="the ordering's, n-1 copies and n-1 acks; log2(n) tests a round while any is on its way",
        process_cost="O(n) counts, the messages not known to be everywhere",
        source="002, section 6.2.2.1",
    )


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


def _single_rooted(name: str, summary: str, dissemination: type[SRPT]) -> Stack:
    return TopicStack(
        name=name,
        summary=summary,
        membership=VCube,
        dissemination=dissemination,
        ordering=TopicOrdering,
        wire_types=SRPT.wire_types,
        promises=frozenset({"P1", "P2", "P3"}),
        dynamic=False,
        fifo_links=False,
        message_cost="1 number; 1 copy per subscriber and relay, log2(n) of them by the root",
        process_cost="the subscribers as a set, 2 counts per link used",
        source="002, sections 5.3 and 5.6.7",
        topics=True,
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
    _single_rooted("srpt-s", "topics over a single tree each, whose root orders all: baseline", SRPT),
    _single_rooted("srpt-b", "topics over a single tree of brokers each, who serve the others: baseline", BrokeredSRPT),
)

REPAIRED_STACKS: Final = (
    _repaired(
        "vcube-tree",
        "causal order by vectors over VCube trees that are repaired when members crash",
        CausalTree,
        ChangedVector,
        "P1 P2 P3",
    ),
    _repaired(
        "single-tree",
        "causal order by vectors over one tree that is repaired when members crash",
        CausalSingleTree,
        ChangedVector,
        "P1 P2 P3",
    ),
    _repaired(
        "vcube-tree-tcb",
        "tagged causal delivery over VCube trees that are repaired when members crash",
        TaggedTree,
        TCB,
        "P1 P2 P3 P4 P5 P6",
    ),
)
"""Stacks that go on when members crash."""
