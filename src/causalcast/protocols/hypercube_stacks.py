"""The stacks of document 002, for the registry."""

from __future__ import annotations

from functools import partial
from typing import Final

from causalcast.protocols.dissemination.aggregating_repair import RepairedAggregatingTree
from causalcast.protocols.dissemination.aggregating_tree import AggregatingSingleTree, Packet
from causalcast.protocols.dissemination.bundling_tree import BundlingTree
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
from causalcast.protocols.ordering.aggregation import CausalMessage, ChangedVector, DirectBarrier
from causalcast.protocols.ordering.tcb import TCB
from causalcast.protocols.ordering.tcb_graph import Phantom, TaggedMessage  # noqa: TC001 - msgspec reads the annotation
from causalcast.protocols.pubsub.process import TopicOrdering, TopicStack
from causalcast.protocols.pubsub.srpt import SRPT, BrokeredSRPT, FewBrokersSRPT, ManyBrokersSRPT
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.protocols.stack import Stack


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


_ORDER: Final = frozenset({"P1", "P2", "P3"})

_causal = partial(
    Stack,
    membership=VCube,
    ordering=ChangedVector,
    wire_types=(CausalMessage, Packet),
    promises=_ORDER,
    dynamic=False,
    fifo_links=False,
    message_cost="2 numbers per entry changed; at most n-1 packets",
    process_cost="O(n) counts, the messages that wait or are held",
    source="002, algorithm 2",
)

_aggregating = partial(
    _causal,
    dissemination=RepairedAggregatingTree,
    wire_types=(CausalMessage, *RepairedAggregatingTree.wire_types),
    suspects=True,
    process_cost="O(n) counts, the messages that wait or are held, the last 1,024 of each member",
    source="002, algorithm 2 and section 6.2.2.1",
)

_topics = partial(
    TopicStack,
    membership=VCube,
    ordering=TopicOrdering,
    promises=_ORDER,
    dynamic=False,
    fifo_links=False,
    topics=True,
)

_single_rooted = partial(
    _topics,
    wire_types=SRPT.wire_types,
    message_cost="1 number; 1 copy per subscriber and relay, log2(n) of them by the root",
    process_cost="the subscribers as a set, 2 counts per link used",
    source="002, sections 5.3 and 5.6.7",
    suspects=True,
)

_repaired = partial(
    Stack,
    membership=DiagnosedVCube,
    dynamic=False,
    suspects=True,
    fifo_links=False,
    message_cost="the ordering's; n-1 copies, n-1 acks; log2(n) tests a round while any are on their way",
    process_cost="the ordering's; O(n) counts, the messages not known to be everywhere",
    source="002, section 6.2.2.1",
)

HYPERCUBE_STACKS: Final = (
    _aggregating(
        name="causal-aggregation",
        summary="causal order by vectors over VCube trees, messages sent with those they wait for",
    ),
    _causal(
        name="causal-aggregation-off",
        summary="the same without aggregation: every message goes on at once",
        dissemination=VCubeTree,
        message_cost="2 numbers per entry changed; n-1 sends",
    ),
    _causal(
        name="causal-aggregation-single-tree",
        summary="the same over one tree for all sources",
        dissemination=AggregatingSingleTree,
        message_cost="2 numbers per entry changed; at most n packets",
    ),
    _causal(
        name="causal-aggregation-single-tree-off",
        summary="one tree for all sources, without aggregation",
        dissemination=SingleTree,
        message_cost="2 numbers per entry changed; n sends",
    ),
    _aggregating(
        name="causal-aggregation-barriers",
        summary="causal aggregation by causal barriers instead of vectors",
        ordering=DirectBarrier,
        message_cost="2 numbers per direct dependency; at most n-1 packets",
    ),
    _aggregating(
        name="causal-aggregation-bundling",
        summary="causal aggregation, unrelated messages bundled while others wait",
        dissemination=BundlingTree,
    ),
    _topics(
        name="vcube-ps",
        summary="topics in causal order, over one tree of subscribers per publisher",
        dissemination=VCubePS,
        wire_types=VCubePS.wire_types,
        message_cost="2 numbers per direct dependency; 1 copy and 1 ack per subscriber",
        process_cost="O(n) words per topic, the publications that wait, the last 1,024",
        suspects=True,
        source="002, algorithms 3 and 4",
    ),
    _single_rooted(
        name="srpt-s",
        summary="topics over a single tree each, whose root orders all: baseline",
        dissemination=SRPT,
    ),
    _single_rooted(
        name="srpt-b",
        summary="topics over a single tree of brokers each, who serve the others: baseline",
        dissemination=BrokeredSRPT,
    ),
    _single_rooted(
        name="srpt-b-few",
        summary="the same with a broker for 127 others",
        dissemination=FewBrokersSRPT,
    ),
    _single_rooted(
        name="srpt-b-many",
        summary="the same with a broker for each other process",
        dissemination=ManyBrokersSRPT,
    ),
)

REPAIRED_STACKS: Final = (
    _repaired(
        name="vcube-tree",
        summary="causal order by vectors over VCube trees that are repaired when members crash",
        dissemination=CausalTree,
        ordering=ChangedVector,
        wire_types=(*CausalTree.wire_types, *DiagnosedVCube.wire_types),
        promises=_ORDER,
    ),
    _repaired(
        name="single-tree",
        summary="causal order by vectors over one tree that is repaired when members crash",
        dissemination=CausalSingleTree,
        ordering=ChangedVector,
        wire_types=(*CausalSingleTree.wire_types, *DiagnosedVCube.wire_types),
        promises=_ORDER,
    ),
    _repaired(
        name="vcube-tree-tcb",
        summary="tagged causal delivery over VCube trees that are repaired when members crash",
        dissemination=TaggedTree,
        ordering=TCB,
        wire_types=(*TaggedTree.wire_types, *DiagnosedVCube.wire_types),
        promises=_ORDER | {"P4", "P5", "P6"},
    ),
)
"""Stacks that go on when members crash."""
