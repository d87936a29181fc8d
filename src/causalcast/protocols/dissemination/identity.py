"""The identity of a message, whichever ordering it belongs to: a stream and a number there."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from causalcast.model import ProtocolViolationError

if TYPE_CHECKING:
    from causalcast.protocols.port import WireMessage

MessageId: TypeAlias = tuple[str, int]
"""Stream and number. The stream is the origin, or for messages without a dot of their own `origin/type`."""


def identity(message: WireMessage) -> MessageId:
    """The identity of `message`: its dot; of one that is only numbered among its kind, as a phantom is, that number.

    Raises `ProtocolViolationError` if it is no message of an ordering.
    """
    origin = getattr(message, "origin", None)
    number = getattr(message, "number", None)
    if number is None:
        number = getattr(message, "counter", None)
    else:
        origin = f"{origin}/{type(message).__name__}"
    if origin is None or not isinstance(number, int) or number < 1:
        raise ProtocolViolationError(f"{message} is no message that can be disseminated")
    return origin, number
