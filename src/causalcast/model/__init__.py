"""Values without behaviour of their own: identifiers, tags, vectors, events, errors."""

from causalcast.model.dot import Dot, ProcessId, RawDot
from causalcast.model.errors import (
    CausalcastError,
    GroupClosedError,
    IncomparableTagsError,
    InvalidNameError,
    NotAMemberError,
    PayloadTooLargeError,
    ProtocolViolationError,
    SnapshotError,
    StateTransferError,
    TopicError,
    UnknownStackError,
    UnsupportedByStackError,
)
from causalcast.model.events import Delivered, Event, MembershipChanged, Message, Stable, Subscribed, Unsubscribed
from causalcast.model.roster import Roster
from causalcast.model.tag import Tag
from causalcast.model.vector import VersionVector

__all__ = [
    "CausalcastError",
    "Delivered",
    "Dot",
    "Event",
    "GroupClosedError",
    "IncomparableTagsError",
    "InvalidNameError",
    "MembershipChanged",
    "Message",
    "NotAMemberError",
    "PayloadTooLargeError",
    "ProcessId",
    "ProtocolViolationError",
    "RawDot",
    "Roster",
    "SnapshotError",
    "Stable",
    "StateTransferError",
    "Subscribed",
    "Tag",
    "TopicError",
    "UnknownStackError",
    "Unsubscribed",
    "UnsupportedByStackError",
    "VersionVector",
]
