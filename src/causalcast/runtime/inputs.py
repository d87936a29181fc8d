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
    """A peer has said which life it is and, where members come and go, where it is reached."""

    peer: str
    incarnation: int
    host: str = ""
    port: int = 0


class Departed(Input, frozen=True, array_like=True, gc=False, tag=8):
    """A peer has left for good."""

    peer: str


class Recovered(Input, frozen=True, array_like=True, gc=False, tag=9):
    """A life begins that is not the first."""

    time_ns: int
    takes_state: bool = False
    """See `Asked`."""


# The rest is of members that come and go.


class Founded(Input, frozen=True, array_like=True, gc=False, tag=10):
    """It is the first of its group."""


class Asked(Input, frozen=True, array_like=True, gc=False, tag=11):
    """It asks a contact to be let in."""

    contact: str
    takes_state: bool
    """Whether its application takes over a state."""


class Rested(Input, frozen=True, array_like=True, gc=False, tag=12):
    """The application has done with the event that it took last."""


class Given(Input, frozen=True, array_like=True, gc=False, tag=13):
    """During the next input but those that are `Given` too, the application was asked for its state."""

    state: bytes | None
    """`None`: it could not give it."""


class Suspected(Input, frozen=True, array_like=True, gc=False, tag=14):
    """A member is taken for crashed."""

    peer: str


class Expelled(Input, frozen=True, array_like=True, gc=False, tag=15):
    """A peer says that this member is evicted."""

    peer: str


class LetGo(Input, frozen=True, array_like=True, gc=False, tag=16):
    """The link to one who is no member any more ends."""

    peer: str
    code: int
    """Of the close frame."""


class Left(Input, frozen=True, array_like=True, gc=False, tag=17):
    """The application has this member leave."""


class Ended(Input, frozen=True, array_like=True, gc=False, tag=18):
    """This member was closed for good."""


AnyInput: TypeAlias = (
    Received
    | Broadcast
    | Taken
    | Fired
    | Subscribe
    | Unsubscribe
    | Met
    | Departed
    | Recovered
    | Founded
    | Asked
    | Rested
    | Given
    | Suspected
    | Expelled
    | LetGo
    | Left
    | Ended
)
