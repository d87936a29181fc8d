"""The registry: every stack by name, with what it promises and costs."""

from __future__ import annotations

from typing import Final

from causalcast.model import UnknownStackError
from causalcast.protocols.dissemination import Direct
from causalcast.protocols.dynamic_stacks import DYNAMIC_STACKS
from causalcast.protocols.hypercube_stacks import HYPERCUBE_STACKS, REPAIRED_STACKS
from causalcast.protocols.membership import StaticMembership
from causalcast.protocols.ordering import CBCAST, TCB, Unordered
from causalcast.protocols.overlay_stacks import OVERLAY_STACKS
from causalcast.protocols.stack import Stack
from causalcast.protocols.topics import topical
from causalcast.protocols.twin_stacks import TWIN_STACKS

DEFAULT_STACK: Final = "tcb"

TCB_TOPIC: Final = topical(TCB.wire_types)
CBCAST_TOPIC: Final = topical(CBCAST.wire_types)
UNORDERED_TOPIC: Final = topical(Unordered.wire_types)

_STACKS: Final = (
    Stack(
        name="tcb",
        summary="tagged causal delivery over the dot graph, with causal stability",
        membership=StaticMembership,
        dissemination=Direct,
        ordering=TCB,
        wire_types=(*TCB.wire_types, TCB_TOPIC),
        topics=True,
        topic_message=TCB_TOPIC,
        recovers=True,
        promises=frozenset({"P1", "P2", "P3", "P4", "P5", "P6"}),
        dynamic=False,
        fifo_links=False,
        message_cost="1 dot + 1 per immediate predecessor; n-1 sends",
        process_cost="1 node per unstable message, O(n) vector",
        source="004, algorithms 8 to 11",
    ),
    Stack(
        name="cbcast",
        summary="causal delivery by version vectors",
        membership=StaticMembership,
        dissemination=Direct,
        ordering=CBCAST,
        wire_types=(*CBCAST.wire_types, CBCAST_TOPIC),
        topics=True,
        topic_message=CBCAST_TOPIC,
        recovers=True,
        promises=frozenset({"P1", "P2", "P3", "P4"}),
        dynamic=False,
        fifo_links=False,
        message_cost="n counts; n-1 sends",
        process_cost="O(n) vector, the messages that wait",
        source="004, algorithm 1",
    ),
    Stack(
        name="unordered",
        summary="delivery on arrival: the control that the audit must catch",
        membership=StaticMembership,
        dissemination=Direct,
        ordering=Unordered,
        wire_types=(*Unordered.wire_types, UNORDERED_TOPIC),
        topics=True,
        topic_message=UNORDERED_TOPIC,
        recovers=True,
        promises=frozenset({"P1", "P2"}),
        dynamic=False,
        fifo_links=False,
        message_cost="1 dot; n-1 sends",
        process_cost="O(n) counts",
        source="-",
    ),
    *DYNAMIC_STACKS,
    *TWIN_STACKS,
    *HYPERCUBE_STACKS,
    *REPAIRED_STACKS,
    *OVERLAY_STACKS,
)

STACKS: Final[dict[str, Stack]] = {stack.name: stack for stack in _STACKS}


def stack(name: str) -> Stack:
    """The stack called `name`; raises `UnknownStackError`, which names those there are."""
    try:
        return STACKS[name]
    except KeyError:
        raise UnknownStackError(name, tuple(STACKS)) from None
