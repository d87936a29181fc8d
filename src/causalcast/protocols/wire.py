"""What both hosts must agree on about bytes."""

from typing import Final

import msgspec

FRAME_HEADER_BYTES: Final = 13
"""A frame's length (4), kind (1) and number (8), before the encoded message."""

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises of bytes that are no message: msgspec leaves text that is no UTF-8, and nesting without end, to
exceptions that are not its own.
"""
