"""Causal aggregation that lets what could go at once wait for what is held for the same child.

Source: document 002, section 6.2.2.2. It needs a timer against the letter of that: two processes may keep back for each
other's sake what the other waits for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.protocols.dissemination.aggregating_repair import RepairedAggregatingTree

if TYPE_CHECKING:
    from causalcast.protocols.membership.vcube import VCube
    from causalcast.protocols.ordering.aggregation import CausalMessage
    from causalcast.protocols.port import Port, Timer

BUNDLING_NS: Final = 200_000_000
"""How long at most what could go at once is kept back for company."""


class BundlingTree(RepairedAggregatingTree):
    """Causal aggregation that lets what could go at once wait for what is held for the same child."""

    timers = ("bundle",)

    __slots__ = ("_kept",)

    def __init__(self, port: Port, membership: VCube) -> None:
        super().__init__(port, membership)
        self._kept: dict[int, list[CausalMessage]] = {}
        """By cluster: what could go to its child."""

    def _send(self, s: int, messages: list[CausalMessage]) -> None:
        kept = self._kept.get(s)
        if len(messages) > 1 or not any(cluster == s for cluster, _, _ in self._held):
            if kept is not None:
                del self._kept[s]
                self._port.cancel_timer(("bundle", s))
                messages = kept + messages
            super()._send(s, messages)
        elif kept is None:
            self._kept[s] = list(messages)
            self._port.set_timer(BUNDLING_NS, ("bundle", s))
        else:
            kept.extend(messages)

    def timer(self, timer: Timer) -> None:
        """Enough waited: what is kept for a child goes."""
        s = timer[1] if isinstance(timer, tuple) else timer
        messages = self._kept.pop(int(str(s)), None)
        if messages:
            super()._send(int(str(s)), messages)

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {**super().tables(), "kept": len(self._kept)}
