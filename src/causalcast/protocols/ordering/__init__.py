"""When a message may be delivered, and how it is tagged."""

from __future__ import annotations

from causalcast.protocols.ordering.base import Ordering
from causalcast.protocols.ordering.cbcast import CBCAST
from causalcast.protocols.ordering.tcb import TCB
from causalcast.protocols.ordering.tcb_delivery import TCBDelivery
from causalcast.protocols.ordering.unordered import Unordered
from causalcast.protocols.ordering.vv import VV, ClassicalVV
from causalcast.protocols.ordering.vv_stable import StableClassicalVV, StableVV

__all__ = [
    "CBCAST",
    "TCB",
    "VV",
    "ClassicalVV",
    "Ordering",
    "StableClassicalVV",
    "StableVV",
    "TCBDelivery",
    "Unordered",
]
