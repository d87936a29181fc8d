"""Events as small integers: what the Spark stages carry instead of the trace's words."""

from __future__ import annotations

from typing import Final

EVENT_CODES: Final[dict[str, int]] = {
    "broadcast": 0,
    "deliver": 1,
    "stable": 2,
    "send": 3,
    "receive": 4,
    "join": 5,
    "leave": 6,
    "evict": 7,
    "crash": 8,
    "recover": 9,
    "subscribe": 10,
    "unsubscribe": 11,
}
BROADCAST: Final = EVENT_CODES["broadcast"]
DELIVER: Final = EVENT_CODES["deliver"]
STABLE: Final = EVENT_CODES["stable"]
SEND: Final = EVENT_CODES["send"]
RECEIVE: Final = EVENT_CODES["receive"]
JOIN: Final = EVENT_CODES["join"]
LEAVE: Final = EVENT_CODES["leave"]
EVICT: Final = EVENT_CODES["evict"]
CRASH: Final = EVENT_CODES["crash"]
RECOVER: Final = EVENT_CODES["recover"]
SUBSCRIBE: Final = EVENT_CODES["subscribe"]
UNSUBSCRIBE: Final = EVENT_CODES["unsubscribe"]
LAST_MESSAGE_EVENT: Final = EVENT_CODES["receive"]
FIRST_MEMBERSHIP: Final = JOIN

NO_VALUE: Final = -(2**63)
"""Stands for an absent time or size in int64 columns."""
