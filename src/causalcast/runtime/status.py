"""What a running member tells of itself, to its operator and to its monitoring."""

from __future__ import annotations

import msgspec

from causalcast.model import ProcessId
from causalcast.runtime.endpoint import LinkState


class Status(msgspec.Struct, frozen=True):
    """How a member is doing, at one moment. Counts are of this life of the process."""

    name: ProcessId
    group: str
    stack: str
    address: str
    """Where it listens."""
    members: tuple[ProcessId, ...]
    """Of the group, itself included; where members come and go, those it has links to."""
    broadcasts: int
    deliveries: int
    """Messages of others that its application has taken."""
    stable: int
    """Messages that its application knows to be stable."""
    untaken: int
    """Events that wait for its application."""
    pending: int
    """Messages received that wait for a cause."""
    unstable: int
    """Own messages that are not known to be stable."""
    obstacle: str
    """What a broadcast would wait for now; empty if it would not wait."""
    tables: dict[str, int]
    """What the tables of its stack hold, where the stack tells."""
    links: tuple[LinkState, ...]

    @property
    def connected(self) -> int:
        """How many of its links have a connection."""
        return sum(link.connected for link in self.links)

    @property
    def resend_bytes(self) -> int:
        """Bytes kept for peers until they acknowledge them, or can be written."""
        return sum(link.resend_bytes for link in self.links)
