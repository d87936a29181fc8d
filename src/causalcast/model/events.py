"""What an application receives, in the order in which it happened to it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from causalcast.model.dot import ProcessId
from causalcast.model.tag import Tag


class Message(msgspec.Struct, frozen=True, gc=False):
    """A payload and its tag. The same payload sent twice is two messages: the tag tells them apart."""

    payload: bytes
    tag: Tag
    topic: str = ""
    """Where it was published; empty: to the group, its one topic where nobody names any."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message of another member, after everything that happened before it."""

    message: Message


class Stable(msgspec.Struct, frozen=True, gc=False):
    """The message of this tag is causally stable: whatever is delivered here from now on happened after it."""

    tag: Tag
    topic: str = ""


class MembershipChanged(msgspec.Struct, frozen=True, gc=False):
    """Who came and who went, in order of name. A member's own join or leave is complete when it is told of itself."""

    joined: tuple[ProcessId, ...] = ()
    left: tuple[ProcessId, ...] = ()
    evicted: tuple[ProcessId, ...] = ()
    """Who was taken for crashed and put out by the others."""


class Subscribed(msgspec.Struct, frozen=True, gc=False):
    """The subscription is complete: whatever is published to the topic from now on is delivered here."""

    topic: str


class Unsubscribed(msgspec.Struct, frozen=True, gc=False):
    """Nothing of the topic is delivered here any more."""

    topic: str


Event: TypeAlias = Delivered | Stable | MembershipChanged | Subscribed | Unsubscribed
