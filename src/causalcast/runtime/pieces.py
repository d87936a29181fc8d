"""Messages that are longer than a frame, in pieces. No input or output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.runtime.limits import LONG_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

PIECE: Final = b"\xc1"
"""First byte of a frame that holds a piece of a message: no MessagePack begins with it. The next one says if it is the
last.
"""
MORE, LAST = b"\xc1\x01", b"\xc1\x00"


def split(body: bytes, frame_limit: int) -> tuple[Sequence[bytes], bytes]:
    """The bodies of the frames that carry `body`: those before the last one, and that."""
    step = frame_limit - len(MORE)
    if len(body) <= step:
        return (), body
    end = (len(body) - 1) // step * step
    return [MORE + body[start : start + step] for start in range(0, end, step)], LAST + body[end:]


def is_piece(body: bytes) -> bool:
    """Whether it is a piece of a message, not all of it."""
    return body[:1] == PIECE


def join(pieces: list[bytes], body: bytes) -> bytes | None:
    """The message of which `body` is all, or the last piece after `pieces`; `None`: there is more to come.

    Raises `ProtocolViolationError` for one that is too long.
    """
    if not is_piece(body):
        return body
    pieces.append(body[len(MORE) :])
    if body.startswith(LAST):
        whole = b"".join(pieces)
        pieces.clear()
        return whole
    if sum(map(len, pieces)) > LONG_MESSAGE_BYTES:
        raise ProtocolViolationError(f"a message of more than {LONG_MESSAGE_BYTES:,} bytes")
    return None
