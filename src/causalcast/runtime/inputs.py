"""The inputs of a host: what it is told, in the order in which it is told. A journal keeps them. No asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec


class Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of what a host is told."""


class Received(Input, frozen=True, array_like=True, gc=False, tag=1):
    """Bodies of the next data frames of a peer, which the process has taken."""

    peer: str
    bodies: Sequence[bytes]


class Broadcast(Input, frozen=True, array_like=True, gc=False, tag=2):
    """The application broadcasts."""

    payload: bytes
    topic: str
    time_ns: int


class Taken(Input, frozen=True, array_like=True, gc=False, tag=3):
    """The application receives the next event of the queue."""

    time_ns: int


class Fired(Input, frozen=True, array_like=True, gc=False, tag=4):
    """A timer is due."""

    timer: str | tuple[str, ...]


class Subscribe(Input, frozen=True, array_like=True, gc=False, tag=5):
    """The application asks for a topic."""

    topic: str


class Unsubscribe(Input, frozen=True, array_like=True, gc=False, tag=6):
    """The application asks for no more of a topic."""

    topic: str


class Met(Input, frozen=True, array_like=True, gc=False, tag=7):
    """A peer has said which life it is."""

    peer: str
    incarnation: int


class Departed(Input, frozen=True, array_like=True, gc=False, tag=8):
    """A peer has left for good."""

    peer: str


class Recovered(Input, frozen=True, array_like=True, gc=False, tag=9):
    """A life begins that is not the first."""

    time_ns: int


AnyInput: TypeAlias = Received | Broadcast | Taken | Fired | Subscribe | Unsubscribe | Met | Departed | Recovered
