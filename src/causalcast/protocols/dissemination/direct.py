"""Direct dissemination: the broadcaster sends to every member itself (document 004, section 4.2.1).

Keeps P1 and P2 among processes that do not crash, over links that lose nothing. One message per member and
broadcast, one hop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import ProtocolViolationError

if TYPE_CHECKING:
    from causalcast.model import ProcessId
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import BroadcastMessage, Port


class Direct:
    """Sends each message to all neighbours, and takes messages from their origin only."""

    def __init__(self, port: Port, membership: StaticMembership) -> None:
        self._port = port
        self._membership = membership

    def broadcast(self, message: BroadcastMessage) -> None:
        """Bring `message` to every other member."""
        self._port.send(self._membership.neighbours, message)

    def accept(self, sender: ProcessId, message: BroadcastMessage) -> BroadcastMessage:
        """The message for the layer above; raises `ProtocolViolationError` if `sender` speaks for somebody else."""
        if message.origin != sender:
            raise ProtocolViolationError(f"{sender!r} sent a message in the name of {message.origin!r}")
        return message
