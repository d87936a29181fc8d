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


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message of another member, after everything that happened before it."""

    message: Message


class Stable(msgspec.Struct, frozen=True, gc=False):
    """The message of this tag is causally stable: whatever is delivered here from now on happened after it."""

    tag: Tag


class MembershipChanged(msgspec.Struct, frozen=True, gc=False):
    """Who came and who went, in order of name."""

    joined: tuple[ProcessId, ...] = ()
    left: tuple[ProcessId, ...] = ()


Event: TypeAlias = Delivered | Stable | MembershipChanged
