"""The stacks that document 004 measures `tcb` against, and `tcb` without stability (chapter 8)."""

from __future__ import annotations

from functools import partial
from typing import Final

from causalcast.protocols.dissemination import Direct
from causalcast.protocols.membership import StaticMembership
from causalcast.protocols.ordering import VV, ClassicalVV, StableClassicalVV, StableVV, TCBDelivery
from causalcast.protocols.stack import Stack

_DELIVERY: Final = frozenset({"P1", "P2", "P3", "P4"})
_STABILITY: Final = _DELIVERY | {"P5", "P6"}

_static = partial(Stack, membership=StaticMembership, dissemination=Direct, dynamic=False, fifo_links=False)

TWIN_STACKS: Final = (
    _static(
        name="tcb-delivery",
        summary="tcb without stability: only delivery and tags",
        ordering=TCBDelivery,
        wire_types=TCBDelivery.wire_types,
        promises=_DELIVERY,
        message_cost="1 dot + 1 per immediate predecessor; n-1 sends",
        process_cost="1 node per message that waits, 1 vector per message that not all were heard to have",
        source="004, algorithms 4 and 5",
    ),
    _static(
        name="vv",
        summary="version vectors end to end and a delivery queue: the twin of tcb-delivery",
        ordering=VV,
        wire_types=VV.wire_types,
        promises=_DELIVERY,
        message_cost="n counts; n-1 sends",
        process_cost="O(n) vectors, the messages that wait",
        source="004, algorithms 2 and 3",
    ),
    _static(
        name="vv-stable",
        summary="version vectors end to end with a stability matrix: the twin of tcb",
        ordering=StableVV,
        wire_types=StableVV.wire_types,
        promises=_STABILITY,
        message_cost="n counts; n-1 sends",
        process_cost="O(n^2) matrix, 1 vector per unstable message",
        source="004, algorithms 6 and 7",
    ),
    _static(
        name="vv-classical",
        summary="the middleware's version vectors, and the application's besides",
        ordering=ClassicalVV,
        wire_types=ClassicalVV.wire_types,
        promises=_DELIVERY,
        message_cost="2n counts; n-1 sends",
        process_cost="O(n) vectors, the messages that wait",
        source="004, sections 3.5.1 and 8.4.1",
    ),
    _static(
        name="vv-classical-stable",
        summary="vv-classical with a stability matrix",
        ordering=StableClassicalVV,
        wire_types=StableClassicalVV.wire_types,
        promises=_STABILITY,
        message_cost="2n counts; n-1 sends",
        process_cost="O(n^2) matrix, 1 vector per unstable message",
        source="004, sections 3.5.1 and 8.4.1, algorithm 7",
    ),
)
