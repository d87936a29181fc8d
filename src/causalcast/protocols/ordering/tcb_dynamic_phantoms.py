"""Phantoms of `tcb-dynamic`: when an idle member speaks, and what was heard from others and cannot be used yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.protocols.ordering.idle import Idle
from causalcast.protocols.ordering.tcb_dynamic_messages import Spoken, columns_of
from causalcast.protocols.ordering.tcb_dynamic_snapshot import PhantomsState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.ordering.tcb_dynamic_messages import Transfer
    from causalcast.protocols.port import Port

PHANTOM_TIMER: Final = "tcb-dynamic.phantom"


class Phantoms:
    """Those of one process, and those that came to it."""

    __slots__ = ("_name", "_sent", "awaited", "idle", "spoken", "waiting")

    def __init__(self, port: Port, members: int) -> None:
        self._name = port.name
        self.idle = Idle(port, PHANTOM_TIMER, members)
        self._sent = 0
        self.waiting: dict[ProcessId, Spoken] = {}
        """By member, the latest one, while it waits for its context."""
        self.awaited: dict[str, int] = {}
        """By column, the first count that may let one of those that wait be used, or overtake it."""
        self.spoken: dict[ProcessId, int] = {}
        """By member, the number of the latest one that came."""

    def next(self, taken: Mapping[str, int], context: tuple[RawDot, ...]) -> Spoken:
        """What this process says now."""
        self._sent += 1
        dots = sum(taken[column] for column in columns_of(self._name))
        return Spoken(self._name, dots, self._sent, context)

    def receive(self, phantom: Spoken) -> None:
        """One has come; an older one than before says nothing new."""
        if phantom.number > self.spoken.get(phantom.origin, 0):
            self.spoken[phantom.origin] = phantom.number
            self.waiting[phantom.origin] = phantom

    def due(
        self, delivered: Mapping[str, int], counted: Mapping[ProcessId, object]
    ) -> Iterator[tuple[ProcessId, tuple[RawDot, ...]]]:
        """Those whose time has come, by origin, once each; those that a later dot has overtaken go."""
        self.awaited = {column: 0 for origin in self.waiting for column in columns_of(origin)}
        for origin, phantom in list(self.waiting.items()):
            if origin in counted and sum(delivered[column] for column in columns_of(origin)) <= phantom.dots:
                missing = [dot for dot in phantom.context if delivered.get(dot[0], 0) < dot[1]]
                if missing:
                    column, counter = missing[0]
                    self.awaited[column] = min(counter, self.awaited.get(column, counter))
                    continue
                yield origin, phantom.context
            del self.waiting[origin]

    def forget(self, name: ProcessId) -> None:
        """Nothing of it will come any more."""
        self.spoken.pop(name, None)
        self.waiting.pop(name, None)

    def snapshot(self) -> PhantomsState:
        """To be written down."""
        return PhantomsState(self.idle.news, self._sent, tuple(self.waiting.values()), self.spoken)

    def restore(self, state: PhantomsState, members: int) -> None:
        """Take up from there, in a group of so many."""
        self.idle.members(members)
        self.idle.restore(state.idle)
        self._sent = state.sent
        self._wait(state.waiting)
        self.spoken = state.spoken

    def install(self, state: Transfer) -> None:
        """Take up from there."""
        self.idle.members(len(state.names))
        self.spoken = {each.name: each.spoken for each in state.members if each.spoken}
        self._wait(state.phantoms)

    def _wait(self, phantoms: Iterable[Spoken]) -> None:
        """These have come, and it is not known what they wait for."""
        self.waiting = {phantom.origin: phantom for phantom in phantoms}
        dots = (dot for phantom in self.waiting.values() for dot in phantom.context)
        self.awaited = {column: 0 for column, _ in dots}
        self.awaited.update((column, 0) for origin in self.waiting for column in columns_of(origin))
