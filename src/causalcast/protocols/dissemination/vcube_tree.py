"""Dissemination over VCube's trees, one per source.

Source: document 002, section 2.4.1. The source sends to the first member of each of its clusters; who receives from a
parent sends on to the first members of those of its clusters that lie within the parent's cluster it is in. Keeps P1
and P2 while nobody crashes; `repaired_tree` is for those who do. Per broadcast n-1 messages, at most log2(n) by one
process, over at most log2(n) hops. Keeps nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import ProtocolViolationError
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.port import Port, WireMessage


class VCubeTree(Dissemination):
    """Sends its own to all clusters, and those of others on to the clusters below."""

    __slots__ = ("_membership", "_port")

    def __init__(self, port: Port, membership: VCube) -> None:
        self._port = port
        self._membership = membership

    def broadcast(self, message: BroadcastMessage) -> None:
        self._send(self._membership.dimension, message)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Send on and pass up; raises `ProtocolViolationError` for what came back to its source."""
        membership = self._membership
        below = membership.cluster(membership.slot_of(sender)) - 1
        if not isinstance(message, BroadcastMessage) or message.origin == membership.name:
            raise ProtocolViolationError(f"{sender!r} sent a message back to its source: {message}")
        # Up first: what is no message of this stack is refused there, and goes no further.
        self.upward(message)
        self._send(below, message)

    def _send(self, span: int, message: BroadcastMessage) -> None:
        destinations = self._membership.destinations(span)
        if destinations:
            self._port.send(destinations, message)
