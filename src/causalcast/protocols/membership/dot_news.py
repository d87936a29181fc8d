"""What the application of a member is told, in order; of a joiner nothing before its own join is complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.model import Delivered, Stable

if TYPE_CHECKING:
    from causalcast.model import Event, MembershipChanged, Message, Tag
    from causalcast.protocols.port import Port


class News:
    """Passes events on to the host, or keeps them for later."""

    __slots__ = ("_kept", "_port")

    def __init__(self, port: Port) -> None:
        self._port = port
        self._kept: list[Event] | None = None
        """`None`: nothing is kept."""

    def hold(self) -> None:
        """Keep what comes from now on."""
        self._kept = []

    def release(self) -> None:
        """Pass on what was kept, and what comes from now on."""
        kept, self._kept = self._kept, None
        for event in kept or ():
            match event:
                case Delivered(message):
                    self._port.deliver(message)
                case Stable(tag):
                    self._port.stable(tag)
                case _:
                    self._port.announce(event)

    def drop(self) -> None:
        """Forget what was kept, and keep nothing more."""
        self._kept = None

    def announce(self, event: MembershipChanged) -> None:
        """Who came and who went."""
        if self._kept is None:
            self._port.announce(event)
        else:
            self._kept.append(event)

    def deliver(self, message: Message) -> None:
        """A message of another member."""
        if self._kept is None:
            self._port.deliver(message)
        else:
            self._kept.append(Delivered(message))

    def stable(self, tag: Tag) -> None:
        """A message is stable."""
        if self._kept is None:
            self._port.stable(tag)
        else:
            self._kept.append(Stable(tag))
