"""Causal order: `Fifo`, and a message also waits for what its broadcaster had taken."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import fifo

from causalcast.model import Delivered

if TYPE_CHECKING:
    from causalcast.model import Event, Tag
    from causalcast.protocols import BroadcastMessage, Port
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership


class CausalMessage(fifo.FifoMessage, frozen=True, array_like=True, gc=False, tag=101):
    """Travels with how many messages of each member its broadcaster had taken, in roster order."""

    needs: tuple[int, ...]


class Causal(fifo.Fifo):
    """One process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (CausalMessage,)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        super().__init__(port, membership, dissemination)
        self._taken = dict.fromkeys(self._roster, 0)

    def broadcast(self, payload: bytes) -> Tag:
        self._delivered[self._me] += 1
        needs = tuple(self._taken.values())
        message = CausalMessage(self._me, self._delivered[self._me], payload, needs)
        self._dissemination.broadcast(message)
        return self._tag(message)

    def take(self, event: Event) -> None:
        if isinstance(event, Delivered):
            tag = event.message.tag
            self._taken[tag.origin] = tag.counter

    def _ready(self, message: fifo.FifoMessage) -> bool:
        assert isinstance(message, CausalMessage)
        known = zip(message.needs, self._delivered.values(), strict=True)
        return super()._ready(message) and all(needed <= delivered for needed, delivered in known)


STACK = replace(
    fifo.STACK,
    name="causal",
    summary="causal order by counts of what the broadcaster had taken",
    ordering=Causal,
    wire_types=Causal.wire_types,
    promises=frozenset({"P1", "P2", "P3"}),
    message_cost="1 dot + n counts; n-1 sends",
)
