"""Stacks for groups too large to know all members: partial views, session links, constant metadata per message."""

from __future__ import annotations

from typing import Final

from causalcast.protocols.dissemination.flood import Flood
from causalcast.protocols.membership.hyparview import HyParView
from causalcast.protocols.ordering.path import Path
from causalcast.protocols.stack import Stack

OVERLAY_STACKS: Final = (
    Stack(
        name="flood",
        summary="everyone passes everything on: causal while no link is added, the control on a growing overlay",
        membership=HyParView,
        dissemination=Flood,
        ordering=Path,
        wire_types=(*Path.wire_types, *HyParView.wire_types),
        promises=frozenset({"P1", "P2", "P7", "P8"}),
        dynamic=True,
        fifo_links=True,
        session_links=True,
        message_cost="1 dot; on every link",
        process_cost="2 views, a window of numbers per origin heard of lately",
        source="001, algorithm 1; 000, section 4.2.1",
    ),
)
