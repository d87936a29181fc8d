"""The host of a member that comes and goes, and comes back: it writes down what it is told, and goes through it again.

Every input is written after the process has dealt with it, and before anything leaves; what the application asks for is
written before it happens. What the application is asked for is an input too: a state that it gave is in the journal
before the input that had it given, so that the same state goes to the same joiner again. Whether the application is
busy with an event decides when a joiner is let in: it is busy from each `Taken` to the next `Rested`, which is only
written together with an input that could tell the difference.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

from causalcast.model import MembershipChanged, StateTransferError
from causalcast.runtime.address import Address
from causalcast.runtime.dynamic_host import DynamicHost
from causalcast.runtime.inputs import (
    Asked,
    Departed,
    Ended,
    Expelled,
    Founded,
    Given,
    Left,
    LetGo,
    Met,
    Received,
    Recovered,
    Rested,
    Suspected,
    Taken,
)
from causalcast.runtime.joining import JoinError, let_in
from causalcast.runtime.journal import JournalError
from causalcast.runtime.life import Life
from causalcast.runtime.recovery import MovingState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from causalcast.model import Event, ProcessId
    from causalcast.runtime.dynamic_mesh import MemberLink
    from causalcast.runtime.inputs import AnyInput
    from causalcast.runtime.journal import Journal
    from causalcast.runtime.link import Link
    from causalcast.runtime.recovery import HostState, Past, Sent


class JournaledHost(DynamicHost):
    """A `DynamicHost` with a journal."""

    def __init__(self, *arguments: Any) -> None:
        """Takes what `DynamicHost` takes; the journal is given."""
        super().__init__(*arguments)
        self._life = Life(self.name)
        self._rested = False
        """The application has done with an event, and the journal does not know, unless it is busy with the next."""
        self._introduced: dict[ProcessId, tuple[int, Address]] = {}
        """What the journal says of peers since its snapshot, as far as this start of the process has met them."""

    @property
    def _takes_state(self) -> bool:
        return self._dynamics.take_state is not None

    async def _become_member(self) -> None:
        life = self._life
        try:
            if not life.begun:
                await super()._become_member()
                if not self._contacts:
                    assert self._journal is not None
                    self._write_ahead(self._journal, Founded())
                    life.found()
                return
            await self._dynamic.start()
            self._reach(self._membership.present())
            if not life.entered:
                await self._go_on_joining()
        except JoinError:
            # Others may know of it: its name is used up.
            self.leaves = self.leaves or life.begun
            raise

    def _reach(self, names: Iterable[ProcessId]) -> None:
        """Dial these: it may be elsewhere now, where they would not find it."""
        for name in names:
            self._dynamic.link_to(name)

    def _ask(self, contact: ProcessId) -> asyncio.Future[None]:
        joined = super()._ask(contact)
        self._life.begun = True
        self._note(Asked(contact, self._takes_state))
        return joined

    async def _go_on_joining(self) -> None:
        """It was killed before its join was complete, or before its application knew that it was."""
        self._joined = joined = asyncio.get_running_loop().create_future()
        if self._life.to_take is not None and self._takes_state:
            self._state_to_take(self._life.to_take)
        if self._membership.speaks and not joined.done():
            joined.set_result(None)
        await let_in(self.name, self._membership.joins.contact, joined, self._progress)

    # ------------------------------------------------------------------ what is written

    def _note(self, entry: AnyInput) -> None:
        if self._rested and not self.joins.busy:
            self._note_rest()
        super()._note(entry)

    def _note_rest(self) -> None:
        self._rested = False
        super()._note(Rested())

    def _note_take(self, journal: Journal) -> None:
        event = self.queue[0]
        # Nearly all are not, which `isinstance` takes long to say.
        if type(event) is MembershipChanged:
            self._life.took(event)
        # As of a `Host`, without a call more for each event.
        done = journal.take(time.time_ns())
        if done == self._journal_fails:
            self._written(done)

    def between_events(self) -> None:
        wanted = bool(self._membership.joins.requests)
        self._rested = not wanted
        super().between_events()
        if wanted:
            self._note_rest()

    def _suspect(self, name: ProcessId) -> None:
        super()._suspect(name)
        self._note(Suspected(name))

    def _leave(self) -> None:
        super()._leave()
        self._note(Left())

    def _done_with(self, peer: ProcessId, bodies: Sequence[bytes]) -> None:
        self._note(Received(peer, bodies))
        if self._dynamic.life > 1 and not self._life.entered:
            self._reach(self._membership.joins.awaited)

    def met(self, link: Link) -> None:
        where = cast("MemberLink", link).where
        assert where is not None
        if self._introduced.get(link.peer) != (link.incarnation, where):
            self._introduced[link.peer] = (link.incarnation, where)
            self._note(Met(link.peer, link.incarnation, *where))

    def departed(self, link: Link) -> None:
        super().departed(link)
        self._note(Departed(link.peer))

    def expelled(self, link: MemberLink) -> None:
        super().expelled(link)
        self._note(Expelled(link.peer))

    def _let_go(self, name: ProcessId, code: int) -> None:
        super()._let_go(name, code)
        self._note(LetGo(name, code))

    def _state_to_give(self) -> bytes:
        # Before the input that it belongs to, whatever else is to be written before that: not by `_note`.
        try:
            state = super()._state_to_give()
        except StateTransferError:
            super()._note(Given(None))
            raise
        super()._note(Given(state))
        return state

    def _state_to_take(self, state: bytes) -> None:
        self._life.take_again(state)
        super()._state_to_take(state)

    def announce(self, event: Event) -> None:
        super().announce(event)
        if self.over:
            self._life.end("was evicted from its group")
        elif self.left:
            self._life.end("has left its group")

    async def close(self) -> None:
        if self.leaves:
            self._note(Ended())
        await super().close()

    # ------------------------------------------------------------------ recovery

    def recover(self) -> Past | None:
        past = super().recover()
        assert self._journal is not None
        if self._life.over:
            raise JournalError(
                f"the journal {self._journal.path} is of no use any more: {self.name} {self._life.over}, and a name is "
                "one life; take a new name and a new journal; this one is left as it is"
            )
        self._dynamic.recalled()
        self._adopt()
        self.leaves = self._membership.leaving
        # Its application has done with nothing before it asks for something.
        self._membership.joins.busy = self._life.entered
        return past if self._life.entered else None

    def _begin_life(self, number: int) -> None:
        self._dynamic.life = number
        self._adopt_again()

    def _adopt_again(self) -> None:
        """As `_adopt`, but that the application did what it did."""
        self._adopt()
        joins, life = self._membership.joins, self._life
        joins.give_state = life.give_again
        joins.take_state = life.take_again if life.takes_state else None

    def _recovered(self, now_ns: int) -> Recovered:
        return Recovered(now_ns, self._takes_state)

    def _restore(self, snapshot: bytes) -> int:
        rows = super()._restore(snapshot)
        self._adopt_again()
        return rows

    def _restore_links(self, state: HostState) -> None:
        moving = state.moving
        assert moving is not None
        self._dynamic.restore(moving, state.links, state.frames)
        self._life.restore(moving.life)
        for name, code in moving.loose.items():
            self._let_go_soon(name, code)

    def _moving_state(self) -> MovingState:
        mesh = self._dynamic
        pieces = {peer: link.pieces for peer, link in mesh.links.items() if link.pieces}
        loose = {name: code for name, (code, _) in self._loose.items()}
        self._rested = False
        # Who comes again may have no link in it.
        self._introduced.clear()
        life = self._life.snapshot(busy=self._membership.joins.busy)
        return MovingState(mesh.book.all(), pieces, mesh.gone, loose, life)

    def _repeat(self, entry: AnyInput) -> tuple[int, Sent | Event | None] | None:
        joins, life = self._membership.joins, self._life
        match entry:
            case Taken():
                joins.busy = True
                told = super()._repeat(entry)
                assert told is not None
                if isinstance(told[1], MembershipChanged):
                    life.took(told[1])
                return told
            case Recovered(takes_state=takes_state):
                life.takes_state = takes_state
                self._adopt_again()
                joins.busy = life.entered
                # Before, there is no trace that could go on.
                return super()._repeat(entry) if life.entered else None
            case Rested():
                super().between_events()
            case Given(state):
                life.given.append(state)
            case Founded() | Asked() | Left() | Ended():
                self._live_again(entry)
            case Received() | Met() | Suspected() | Departed() | Expelled() | LetGo():
                self._hear_again(entry)
            case _:
                return super()._repeat(entry)
        return None

    def _live_again(self, entry: Founded | Asked | Left | Ended) -> None:
        life = self._life
        match entry:
            case Founded():
                life.found()
            case Asked(contact, takes_state):
                life.begun = True
                life.takes_state = takes_state
                self._adopt_again()
                self._process.join(contact)
            case Left():
                self._process.leave()
            case Ended():
                life.end("has left its group")

    def _hear_again(self, entry: Received | Met | Suspected | Departed | Expelled | LetGo) -> None:
        mesh = self._dynamic
        match entry:
            case Received(peer, bodies):
                link = mesh.links[peer]
                for body in () if self._retired else bodies:
                    self._receive(link, body)
                link.recall(frames=len(bodies))
            case Met(peer, incarnation, host, port):
                mesh.recall(peer, incarnation, Address(host, port))
            case Suspected(peer):
                self._process.suspect(peer)
            case Departed(peer):
                mesh.recall_departure(peer)
                if not self._retired:
                    self._process.suspect(peer)
            case Expelled(peer):
                if not self._retired:
                    self._membership.expelled(peer)
            case LetGo(peer, code):
                self._loose.pop(peer)[1].cancel()
                mesh.let_go(peer, code)
