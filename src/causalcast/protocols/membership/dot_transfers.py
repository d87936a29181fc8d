"""Whether what a joiner is given can be, looked at before any of it is taken over."""

from __future__ import annotations

from itertools import chain
from operator import le
from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.membership.dot_records import EVICTED, PRESENT
from causalcast.protocols.ordering.tcb_dynamic_messages import CONTROL, column_of, is_process_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.ordering.tcb_dynamic_messages import Transfer

MOST_DOTS: Final = 1 << 62
"""More than any member makes, and no more than a vector holds."""


def check_transfer(state: Transfer, contact: ProcessId, joiner: ProcessId) -> None:
    """Raises `ProtocolViolationError` on what no correct contact sends a joiner."""
    _check_names(state, contact, joiner)
    columns = (*state.names, *(name + CONTROL for name in state.names))
    if len(state.taken) != len(columns) or max(state.taken) >= MOST_DOTS:
        raise ProtocolViolationError(f"counts of {len(columns)} columns cannot be {state.taken}")
    vectors = (member.heard for member in state.members if member.heard)
    for counts in chain((state.taken, state.stable), vectors, (node.counts for node in state.nodes)):
        if not _within(counts, state.taken):
            raise ProtocolViolationError(f"counts cannot be {counts} where {state.taken} are taken")
    taken = dict(zip(columns, state.taken, strict=True))
    if taken[joiner] or taken[joiner + CONTROL]:
        raise ProtocolViolationError(f"{joiner!r} has sent nothing yet, and cannot have sent what {state.taken} say")
    if state.join != (contact + CONTROL, taken[contact + CONTROL]):
        raise ProtocolViolationError(f"the join cannot be {state.join}")
    _check_nodes(state, taken)
    for context in (state.context, state.seen or ()):
        _check_context(context, taken)
    for phantom in state.phantoms:
        if min((counter for _, counter in phantom.context), default=1) < 1:
            raise ProtocolViolationError(f"no context can be {phantom.context}")


def _check_names(state: Transfer, contact: ProcessId, joiner: ProcessId) -> None:
    """Those of members, and what is said of these."""
    others = {each.name for each in state.members}
    names = (contact, joiner, *(each.name for each in state.members))
    if state.names != tuple(sorted({*names})) or len(names) != len(state.names):
        raise ProtocolViolationError(f"{', '.join(state.names)} cannot be the members, if these are {', '.join(names)}")
    if wrong := [name for name in names if not is_process_name(name)]:
        raise ProtocolViolationError(f"{wrong[0]!r} cannot name a process")
    for member in state.members:
        if not PRESENT <= member.status <= EVICTED:
            raise ProtocolViolationError(f"{member.name!r} cannot have the status {member.status}")
    named = (*(each.member for each in state.evictions), *(phantom.origin for phantom in state.phantoms))
    if strangers := set(named) - others:
        raise ProtocolViolationError(f"{min(strangers)!r} is no other member")


def _check_nodes(state: Transfer, taken: Mapping[str, int]) -> None:
    """Each is taken, is there once, and has itself in its past."""
    places = {column: place for place, column in enumerate(taken)}
    seen = set()
    for node in state.nodes:
        column, counter = column_of(node.message), node.message.counter
        if not 1 <= counter <= taken.get(column, 0) or (column, counter) in seen:
            raise ProtocolViolationError(f"{column}:{counter} cannot be among the dots, or not twice")
        if node.counts[places[column]] != counter:
            raise ProtocolViolationError(f"{column}:{counter} cannot have {node.counts} behind it")
        seen.add((column, counter))


def _check_context(context: Sequence[RawDot], taken: Mapping[str, int]) -> None:
    """What is not counted is of members that are forgotten."""
    dots = dict(context)
    if len(dots) != len(context) or any(not 1 <= dots[column] <= taken.get(column, MOST_DOTS) for column in dots):
        raise ProtocolViolationError(f"no context can be {context}")


def _within(counts: Sequence[int], limits: Sequence[int]) -> bool:
    return len(counts) == len(limits) and min(counts) >= 0 and all(map(le, counts, limits))
