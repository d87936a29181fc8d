"""A topic of a group, as an application uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.model import Tag
    from causalcast.runtime.group import Group


class Topic:
    """One topic of a group: its own causal order, tags and stability. Made by `Group.topic`.

    What is published comes among the group's events, with the topic's name on each message.
    """

    def __init__(self, group: Group, name: str) -> None:
        self.name = name
        self._group = group

    async def publish(self, payload: bytes) -> Tag:
        """Send `payload` to the subscribers; as `Group.broadcast`, and raises what that raises."""
        return await self._group.broadcast(payload, self.name)

    async def subscribe(self) -> None:
        """Ask for all that is published; the event `Subscribed` says from when on.

        Raises `UnsupportedByStackError` if the group's stack has no topics, `TopicError`, `GroupClosedError`.
        """
        self._group.subscribe(self.name)

    async def unsubscribe(self) -> None:
        """Ask for no more; the event `Unsubscribed` says when nothing comes any more. Raises as `subscribe`."""
        self._group.unsubscribe(self.name)
