"""How a message reaches everyone."""

from causalcast.protocols.dissemination.direct import Direct

__all__ = ["Direct"]
