"""What processes of HyParView say to each other."""

from __future__ import annotations

from causalcast.protocols.port import WireMessage


class Join(WireMessage, frozen=True, array_like=True, gc=False, tag=100):
    """Let me in."""


class ForwardJoin(WireMessage, frozen=True, array_like=True, gc=False, tag=101):
    """Somebody joined: walks at random."""

    joiner: str
    hops: int
    path: tuple[str, ...]
    """Where it has been, from the contact on."""


class Neighbour(WireMessage, frozen=True, array_like=True, gc=False, tag=102):
    """Let us be neighbours; `high`: not to be refused."""

    high: bool
    route: tuple[str, ...] = ()
    """A way from the receiver to the sender over others, if one is known."""
    instead: str = ""
    """With whom the sender will part for it: whoever the receiver parts with can take that one instead."""


class Answer(WireMessage, frozen=True, array_like=True, gc=False, tag=103):
    """To a JOIN or NEIGHBOR."""

    accepted: bool


class Disconnect(WireMessage, frozen=True, array_like=True, gc=False, tag=104):
    """Neighbours no longer; `gone`: the sender leaves the group."""

    gone: bool
    instead: str = ""
    """Who has room for the receiver now."""
    wait: bool = False
    """Whether somebody has been told so of the receiver."""


class Shuffle(WireMessage, frozen=True, array_like=True, gc=False, tag=105):
    """Names to exchange, on a random walk."""

    origin: str
    hops: int
    names: tuple[str, ...]


class ShuffleReply(WireMessage, frozen=True, array_like=True, gc=False, tag=106):
    """As many names in exchange."""

    names: tuple[str, ...]
