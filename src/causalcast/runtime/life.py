"""How far a member that comes and goes is in its life, as its journal has to know it. No asyncio."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from causalcast.model import StateTransferError

if TYPE_CHECKING:
    from causalcast.model import MembershipChanged, ProcessId


class LifeState(msgspec.Struct, frozen=True, array_like=True):
    """What must not be forgotten of a `Life`."""

    begun: bool
    entered: bool
    over: str
    busy: bool
    takes_state: bool
    to_take: bytes | None


class Life:
    """A name is one life, however often its process starts."""

    def __init__(self, name: ProcessId) -> None:
        self._name = name
        self.begun = False
        """It was the first of its group, or has asked to be let in."""
        self.entered = False
        """Its application knows that it is a member."""
        self.over = ""
        """How it has ended; empty: it has not."""
        self.takes_state = False
        """Whether its application took over a state when it last asked for one."""
        self.to_take: bytes | None = None
        """The state that it took over, until it has entered: before that, whoever took it may have been killed."""
        self.given: deque[bytes | None] = deque()
        """What the application gave when it was asked for its state, to be given again."""

    def took(self, event: MembershipChanged) -> None:
        """The application receives `event`."""
        if self._name in event.joined:
            self.entered = True
            self.to_take = None

    def found(self) -> None:
        """It is the first of its group."""
        self.begun = self.entered = True

    def end(self, how: str) -> None:
        """It is over."""
        self.over = self.over or (how if self.entered else "has given up joining its group")

    def give_again(self) -> bytes | None:
        """What the application gave; `None` if it was not asked because it gives no state."""
        if not self.given:
            return None
        state = self.given.popleft()
        if state is None:
            raise StateTransferError(f"{self._name} could not give its state")
        return state

    def take_again(self, state: bytes) -> None:
        """The application took that; it takes it once more if it has not entered since."""
        self.to_take = state

    def snapshot(self, *, busy: bool) -> LifeState:
        """To be written down; `busy`: the application has not done with its last event."""
        return LifeState(self.begun, self.entered, self.over, busy, self.takes_state, self.to_take)

    def restore(self, state: LifeState) -> None:
        """Take up from there."""
        self.begun, self.entered, self.over = state.begun, state.entered, state.over
        self.takes_state, self.to_take = state.takes_state, state.to_take
