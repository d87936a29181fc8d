"""When a message may be delivered, and how it is tagged."""

from __future__ import annotations

from causalcast.protocols.ordering.base import Ordering
from causalcast.protocols.ordering.cbcast import CBCAST
from causalcast.protocols.ordering.tcb import TCB
from causalcast.protocols.ordering.unordered import Unordered

__all__ = ["CBCAST", "TCB", "Ordering", "Unordered"]
