"""Dissemination over one tree for all sources: the baseline.

Source: document 002, sections 2.4.1 and 4.5.6. A source hands its message to the root, the first member, which sends
it down its VCube tree, to the source too, since that has children there. Keeps P1 and P2 while nobody crashes. Per
broadcast n messages (n-1 of the root's own); the root sends log2(n) of each, whoever the source is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.dissemination.vcube_tree import VCubeTree
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.port import WireMessage

ROOT: Final = 0
"""The slot of the root (section 4.5.6: node 0)."""


class SingleTree(VCubeTree):
    """Hands its own to the root, and sends on what comes from there."""

    __slots__ = ()

    def broadcast(self, message: BroadcastMessage) -> None:
        membership = self._membership
        if membership.slot == ROOT:
            self._send(membership.dimension, message)
        else:
            self._port.send((membership.roster.names[ROOT],), message)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Send on and pass up what is not its own; raises `ProtocolViolationError`."""
        membership = self._membership
        below = membership.cluster(membership.slot_of(sender)) - 1
        if not isinstance(message, BroadcastMessage):
            raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__}, which nobody broadcast")
        if membership.slot == ROOT:
            if message.origin != sender:
                raise ProtocolViolationError(f"{sender!r} sent a message of {message.origin!r} to the root")
            below = membership.dimension
        if message.origin != membership.name:
            self.upward(message)
        self._send(below, message)
