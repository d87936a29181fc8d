"""Stacks for groups too large to know all members: partial views, session links, constant metadata per message."""

from __future__ import annotations

from functools import partial
from typing import Final

from causalcast.protocols.dissemination.cptcast import CPTCast
from causalcast.protocols.dissemination.flood import Flood
from causalcast.protocols.dissemination.pc import PC
from causalcast.protocols.dissemination.plumtree import Plumtree
from causalcast.protocols.dissemination.prc import PRC
from causalcast.protocols.dissemination.retention import BY_NUMBER
from causalcast.protocols.membership.circulant import CirculantMembership
from causalcast.protocols.membership.cyclon import Cyclon
from causalcast.protocols.membership.hyparview import HyParView
from causalcast.protocols.membership.spray import Spray
from causalcast.protocols.ordering import TCB
from causalcast.protocols.ordering.path import Path
from causalcast.protocols.stack import Stack

OVERLAY_STACKS: Final = (
    Stack(
        name="flood",
        summary="everyone passes everything on: causal while no link is added, complete while none breaks; the control",
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
    Stack(
        name="plumtree",
        summary="payloads along a tree, announcements besides: reliable, in no order",
        membership=HyParView,
        dissemination=Plumtree,
        ordering=Path,
        wire_types=(*Path.wire_types, *Plumtree.wire_types, *HyParView.wire_types),
        promises=frozenset({"P1", "P2", "P7", "P8"}),
        dynamic=True,
        fifo_links=False,
        session_links=True,
        message_cost="1 dot; payload once a process, 1 dot on every other link",
        process_cost="2 views, a window of numbers per origin heard of lately, messages of the last minutes",
        source="000, sections 2.3 and 3.4.2",
    ),
    Stack(
        name="tcb-plumtree",
        summary="the tags and stability of tcb, each payload along a tree",
        membership=CirculantMembership,
        dissemination=partial(Plumtree, retention=BY_NUMBER),
        ordering=TCB,
        wire_types=(*TCB.wire_types, *Plumtree.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P4", "P5", "P6"}),
        dynamic=False,
        fifo_links=False,
        message_cost="1 dot + 1 per immediate predecessor; n-1 sends in all, 1 dot on every other link",
        process_cost="1 node per unstable message, O(n) vector, the latest 4,096 messages",
        source="004, algorithms 8 to 11; 000, section 3.4.2",
    ),
    Stack(
        name="pc",
        summary="causal order by path: a new link carries messages once a ping has proved it safe",
        membership=Spray,
        dissemination=PC,
        ordering=Path,
        wire_types=(*Path.wire_types, *PC.wire_types, *Spray.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P7", "P8"}),
        dynamic=True,
        fifo_links=True,
        session_links=True,
        message_cost="1 dot; on every safe link",
        process_cost="about ln(n) arcs, a count per origin heard of lately, messages of the last minutes, buffers",
        source="001, algorithms 2 and 3, section 4",
    ),
    Stack(
        name="prc",
        summary="causal order by path, and links that remember what is still to come over them",
        membership=HyParView,
        dissemination=PRC,
        ordering=Path,
        wire_types=(*Path.wire_types, *PRC.wire_types, *HyParView.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P7", "P8"}),
        dynamic=True,
        fifo_links=True,
        session_links=True,
        message_cost="1 dot; on every safe link, both ways",
        process_cost="2 views, messages still expected (none at rest), messages of the last minutes",
        source="000, algorithms 1 to 10",
    ),
    Stack(
        name="cptcast",
        summary="causal order by path, payloads along a tree",
        membership=HyParView,
        dissemination=CPTCast,
        ordering=Path,
        wire_types=(*Path.wire_types, *CPTCast.wire_types, *HyParView.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P7", "P8"}),
        dynamic=True,
        fifo_links=True,
        session_links=True,
        message_cost="1 dot; payload once a process, 1 dot on every other safe link",
        process_cost="2 views, messages still expected or held up (none at rest), messages of the last minutes",
        source="000, algorithms 2 to 15",
    ),
    Stack(
        name="cptcast-cyclon",
        summary="cptcast over views that are exchanged all the time",
        membership=Cyclon,
        dissemination=CPTCast,
        ordering=Path,
        wire_types=(*Path.wire_types, *CPTCast.wire_types, *Cyclon.wire_types),
        promises=frozenset({"P1", "P2", "P3", "P7", "P8"}),
        dynamic=True,
        fifo_links=True,
        session_links=True,
        message_cost="1 dot; payload once a process, 1 dot on every other safe link",
        process_cost="a view, messages still expected or held up (none at rest), messages of the last minutes",
        source="000, algorithms 2 to 15, section 5.2",
    ),
)
