"""Causal broadcast for Python: reliable, tagged, and provable.

The first example::

    async with causalcast.open("paris", listen="0.0.0.0:7400", peers={"london": "london:7400"}) as group:
        sent = await group.broadcast(b"hello")
        async for event in group:
            match event:
                case causalcast.Delivered(message):
                    print(message.payload, message.tag.concurrent_with(sent))
                case causalcast.Stable(tag):
                    print(tag, "is behind everyone")
"""

from causalcast.model import (
    CausalcastError,
    Delivered,
    Dot,
    Event,
    GroupClosedError,
    IncomparableTagsError,
    InvalidNameError,
    MembershipChanged,
    Message,
    NotAMemberError,
    PayloadTooLargeError,
    Stable,
    Subscribed,
    Tag,
    TopicError,
    UnknownStackError,
    Unsubscribed,
    UnsupportedByStackError,
    VersionVector,
)
from causalcast.runtime import (
    Group,
    InvalidAddressError,
    JoinError,
    JournalError,
    LinkState,
    Status,
    Tls,
    TlsError,
    Topic,
    open,
)

__all__ = [
    "CausalcastError",
    "Delivered",
    "Dot",
    "Event",
    "Group",
    "GroupClosedError",
    "IncomparableTagsError",
    "InvalidAddressError",
    "InvalidNameError",
    "JoinError",
    "JournalError",
    "LinkState",
    "MembershipChanged",
    "Message",
    "NotAMemberError",
    "PayloadTooLargeError",
    "Stable",
    "Status",
    "Subscribed",
    "Tag",
    "Tls",
    "TlsError",
    "Topic",
    "TopicError",
    "UnknownStackError",
    "Unsubscribed",
    "UnsupportedByStackError",
    "VersionVector",
    "open",
]
