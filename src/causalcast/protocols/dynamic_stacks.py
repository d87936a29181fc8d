"""The stack of document 004, chapter 6: `tcb` whose members come and go."""

from __future__ import annotations

from typing import Final

from causalcast.protocols.dissemination import Direct
from causalcast.protocols.membership.dots import DotMembership
from causalcast.protocols.ordering.tcb_dynamic import DynamicTCB
from causalcast.protocols.stack import Stack

DYNAMIC_STACKS: Final = (
    Stack(
        name="tcb-dynamic",
        summary="tcb whose members join, leave and are evicted while it runs",
        membership=DotMembership,
        dissemination=Direct,
        ordering=DynamicTCB,
        wire_types=(*DynamicTCB.wire_types, *DotMembership.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8"}),
        dynamic=True,
        fifo_links=False,
        message_cost="1 dot + 1 per immediate predecessor; n-1 sends",
        process_cost="1 node with its payload per unstable message, O(n) vector",
        recovers=True,
        source="004, algorithms 12 and 13; evictions are ours",
    ),
)
