"""Direct dissemination: the broadcaster sends to every member itself (document 004, section 4.2.1).

Keeps P1 and P2 among processes that do not crash, over links that lose nothing. One message per member and
broadcast, one hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from causalcast.model import ProtocolViolationError
from causalcast.protocols.layers import Dissemination

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.layers import Membership
    from causalcast.protocols.port import BroadcastMessage, Port, WireMessage


class Direct(Dissemination):
    """Sends each message to all neighbours, and takes messages from their origin only."""

    __slots__ = ("_membership", "_port")

    def __init__(self, port: Port, membership: Membership) -> None:
        self._port = port
        self._membership = membership

    def broadcast(self, message: BroadcastMessage) -> None:
        self._port.send(self._membership.neighbours, message)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Pass `message` up; raises `ProtocolViolationError` if `sender` speaks for somebody else."""
        broadcast = cast("BroadcastMessage", message)  # it has no other messages
        if broadcast.origin != sender:
            raise ProtocolViolationError(f"{sender!r} sent a message in the name of {broadcast.origin!r}")
        self.upward(broadcast)
