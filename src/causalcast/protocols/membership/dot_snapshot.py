"""The membership of `tcb-dynamic` as it is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from causalcast.model import RawDot
from causalcast.protocols.membership.dot_records import Other
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    Carried,
    DottedMessage,
    EvictDot,
    Farewell,
    ForgetDot,
    JoinDot,
    JoinRequest,
    LeaveDot,
    Refusal,
    Spoken,
    Transfer,
    TransferredEviction,
    Welcome,
)

if TYPE_CHECKING:
    from causalcast.protocols.membership.dots import DotMembership

AnyMessage: TypeAlias = (
    DottedMessage
    | JoinDot
    | LeaveDot
    | EvictDot
    | ForgetDot
    | Spoken
    | JoinRequest
    | Welcome
    | Farewell
    | Carried
    | Refusal
    | Transfer
)


class KeptMessage(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """News of a message, which is in the graph."""

    dot: RawDot
    stable: bool
    """Whether it is that it is stable, or that it is delivered."""


class KeptMembership(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """A `MembershipChanged`."""

    joined: tuple[str, ...]
    left: tuple[str, ...]
    evicted: tuple[str, ...]


KeptNews: TypeAlias = tuple[KeptMessage | KeptMembership, ...]


class JoinsState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What `Joins` must not forget."""

    contact: str
    dot: RawDot | None
    early: tuple[tuple[str, AnyMessage], ...]
    awaited: tuple[str, ...]
    requests: dict[str, str]


class EvictionsState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What `Evictions` must not forget."""

    evictions: tuple[TransferredEviction, ...]
    carried: tuple[RawDot, ...]
    met: bool


class MembershipState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What `DotMembership` must not forget."""

    state: str
    others: dict[str, Other]
    gone: tuple[str, ...]
    forgettable: tuple[str, ...]
    farewells: dict[str, Farewell]
    joins: JoinsState
    evictions: EvictionsState
    news: KeptNews | None


def membership_state(membership: DotMembership) -> MembershipState:
    """The membership as it is now."""
    return MembershipState(
        membership.state,
        membership.others,
        tuple(sorted(membership.gone)),
        tuple(sorted(membership.forgettable)),
        membership.farewells,
        membership.joins.snapshot(),
        membership.evictions.snapshot(),
        membership.news.snapshot(),
    )


def restore_membership(membership: DotMembership, state: MembershipState) -> None:
    """Take up from `state`; the graph of the ordering is there already."""
    membership.state = state.state
    membership.is_calm = False
    membership.others = state.others
    membership.gone = set(state.gone)
    membership.forgettable = set(state.forgettable)
    membership.farewells = state.farewells
    membership.joins.restore(state.joins)
    membership.evictions.restore(state.evictions)
    membership.news.restore(state.news, membership.ordering.graph)
    membership.route()
