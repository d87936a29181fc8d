"""What both hosts must agree on about bytes."""

from typing import Final

FRAME_HEADER_BYTES: Final = 13
"""A frame's length (4), kind (1) and number (8), before the encoded message."""
