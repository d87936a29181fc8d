"""The host: runs one process of a stack between its links and its application. See `protocols.port` for the rules.

Backpressure has three bounds. A full resend buffer, or too many own messages that are not stable, makes `broadcast`
wait. Events that the application does not take stop all reading, unless a broadcast waits: what it waits for comes by
the same links, and whoever broadcasts from the loop that takes events cannot do both. Messages of one peer that wait
for causes stop reading from that peer alone.

With a journal every input is in it before anything that follows from it leaves this host: what the application asks
for and takes is written at once, what comes over links before anything is written to a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from causalcast.model import CausalcastError, ProtocolViolationError, UnsupportedByStackError
from causalcast.protocols.wire import UNDECODABLE
from causalcast.runtime.base_host import BaseHost
from causalcast.runtime.frames import AWAY, LEAVING, LinkError, data_frame
from causalcast.runtime.inputs import (
    Broadcast,
    Departed,
    Fired,
    Met,
    Received,
    Recovered,
    Subscribe,
    Taken,
    Unsubscribe,
)
from causalcast.runtime.journal import JournalError
from causalcast.runtime.limits import PENDING_MESSAGES, UNSTABLE_MESSAGES
from causalcast.runtime.mesh import BaseMesh, Mesh
from causalcast.runtime.recovery import Past, decode_state, encode_state, events
from causalcast.runtime.suspicion import Detector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from causalcast.model import Event, MembershipChanged, ProcessId, Roster, Tag
    from causalcast.protocols import Process, Stack, Timer, WireMessage
    from causalcast.runtime.address import Address
    from causalcast.runtime.inputs import AnyInput
    from causalcast.runtime.journal import Journal
    from causalcast.runtime.link import Identity, Link
    from causalcast.runtime.recovery import HostState, MovingState, Sent
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")


class Host(BaseHost):
    """`Port` to a process, `MeshHost` to its links, and the queue towards its application."""

    def __init__(
        self,
        me: Identity,
        roster: Roster,
        stack: Stack,
        listen: Address,
        peers: Mapping[ProcessId, Address],
        tls: Tls | None = None,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(me.name)
        self._mesh: BaseMesh[Any] = self._make_mesh(me, listen, peers, tls)
        self._links: Mapping[ProcessId, Link] = self._mesh.links
        self._full: set[Link] = set()
        self._allowed = 0
        """So many broadcasts have room, whether anything becomes stable meanwhile or not."""
        self._detector = Detector(me.name, cast("Mesh", self._mesh).heard) if stack.suspects else None
        self._held: set[Link] = set()
        """Links not read because messages of their peer wait for causes."""
        self._journal = journal
        self.leaves = journal is None
        """Closing is for good."""
        self._journal_fails = False
        self._met: dict[Link, int] = {}
        """The incarnations of peers that are in the journal, as far as this life has met them."""
        self._checkpointing = True
        """None is to begin: one is due already, or the trace is behind."""
        self._members = roster
        self._stack = stack
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = stack.decoder().decode
        self._process: Process = stack.process(self, roster)
        self._take: Callable[[Event], None] = self._process.take

    def _make_mesh(
        self, me: Identity, listen: Address, peers: Mapping[ProcessId, Address], tls: Tls | None
    ) -> BaseMesh[Any]:
        return Mesh(self, me, listen, peers, tls)

    @property
    def mesh(self) -> BaseMesh[Any]:
        """The links."""
        return self._mesh

    async def start(self) -> None:
        """Listen, dial and let the process begin; raises `OSError` if the address cannot be had."""
        await self._mesh.start()
        if self._journal is None:
            self._process.start()
        if self._detector is not None:
            self._detector.start(self._suspicion_changed)
        self._settle(None)

    def recover(self) -> Past | None:
        """Take up from the journal, if there is one, before `start`.

        Returns what the trace may lack, `None` in a first life.

        Raises `JournalError`.
        """
        journal = self._journal
        if journal is None:
            return None
        self._begin_life(journal.life)
        try:
            rows = self._restore(journal.state)
            steps = [step for entry in journal.log if (step := self._repeat(entry)) is not None]
        except (*UNDECODABLE, CausalcastError, msgspec.MsgspecError, LookupError, AssertionError) as error:
            raise JournalError(
                f"the journal {journal.path} cannot be taken up: {error}; it is left as it is"
            ) from error
        journal.log.clear()
        self._full = {link for link in self._links.values() if link.full}
        if journal.life == 1:
            return None
        now = time.time_ns()
        self._note(self._recovered(now))
        return Past(rows, [*steps, (now, None)])

    def begin(self) -> None:
        self._checkpointing = False

    def _begin_life(self, number: int) -> None:
        for link in self._links.values():
            if self.name < link.peer:
                link.begin_life(number)

    def _recovered(self, now_ns: int) -> Recovered:
        return Recovered(now_ns)

    def _restore(self, snapshot: bytes) -> int:
        if not snapshot:
            self._process.start()
            return 0
        state = decode_state(snapshot)
        self._restore_links(state)
        self.queue.extend(events(state, self._members))
        self._process = self._stack.recover(self, self._members, state.process)
        self._take = self._process.take
        return state.rows

    def _restore_links(self, state: HostState) -> None:
        for peer, link in self._links.items():
            link.restore(state.links[peer], state.frames)

    def _repeat(self, entry: AnyInput) -> tuple[int, Sent | Event | None] | None:
        """Go through an input of the last life again; returns what the trace tells of it, with the time."""
        process = self._process
        try:
            match entry:
                case Received(peer, bodies):
                    for body in bodies:
                        process.receive(peer, self._decode(body))
                    self._links[peer].recall(frames=len(bodies))
                case Broadcast(payload, topic, time_ns):
                    tag = process.broadcast(payload, topic)
                    return time_ns, self.sent(tag, topic, payload)
                case Taken(time_ns):
                    event = self.queue.popleft()
                    process.take(event)
                    return time_ns, event
                case Fired(timer):
                    self.cancel_timer(timer)
                    process.timer(timer)
                case Subscribe(topic):
                    process.subscribe(topic)
                case Unsubscribe(topic):
                    process.unsubscribe(topic)
                case Met(peer, incarnation):
                    self._links[peer].recall(incarnation=incarnation)
                case Departed(peer):
                    self._links[peer].depart()
                case Recovered(time_ns):
                    return time_ns, None
        except CausalcastError:
            # What the process refused then, it refuses now.
            if not isinstance(entry, Broadcast | Subscribe | Unsubscribe):
                raise
        return None

    # ------------------------------------------------------------------ towards the application

    @property
    def has_room(self) -> bool:
        """Whether a broadcast may be sent now."""
        return not self._full and (self._allowed > 0 or self._allows())

    def _allows(self) -> bool:
        self._allowed = UNSTABLE_MESSAGES - self._process.unstable
        return self._allowed > 0

    @property
    def obstacle(self) -> str:
        """What a broadcast waits for."""
        if self._full:
            return f"{', '.join(sorted(link.peer for link in self._full))} to acknowledge"
        return f"own messages to become stable ({self._process.unstable} are not)"

    @property
    def settled(self) -> bool:
        """Everything sent is acknowledged, and the process has nothing left to say by itself."""
        return not self._timers and not any(
            link.unacknowledged for link in self._links.values() if not self._silent(link)
        )

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """Broadcast now; raises `JournalError`, and does nothing, if it cannot be written down."""
        if self._journal is not None:
            self._write_ahead(self._journal, Broadcast(payload, topic, time.time_ns()))
        tag = self._process.broadcast(payload, topic)
        self._allowed -= 1
        if self.queue:
            self._wake_application()
        if self._full and self._detector is not None:
            self._settle(None)
        return tag

    def subscribe(self, topic: str) -> None:
        """Ask for a topic."""
        if self._journal is not None:
            self._write_ahead(self._journal, Subscribe(topic))
        self._process.subscribe(topic)
        self._settle(None)

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more of a topic."""
        if self._journal is not None:
            self._write_ahead(self._journal, Unsubscribe(topic))
        self._process.unsubscribe(topic)
        self._settle(None)

    def take(self) -> Event:
        if self._journal is not None:
            self._note_take(self._journal)
        event = self.queue.popleft()
        self._take(event)
        return event

    def _note_take(self, journal: Journal) -> None:
        done = journal.take(time.time_ns())
        if done == self._journal_fails:
            self._written(done)

    async def finish(self) -> None:
        """Wait until there is nothing left to do. Whoever comes back with a journal goes on then instead."""
        while self.leaves and not self.settled:
            await self.change()

    def first_event(self) -> MembershipChanged | None:
        """Members are fixed: nothing has happened before the group is there."""
        return None

    def last_event(self) -> MembershipChanged | None:
        """Members are fixed: nothing comes after the last event that was taken."""
        return None

    async def close(self) -> None:
        """Close every link; the process is not called again."""
        self._cancel_timers()
        if self._detector is not None:
            self._detector.stop()
        try:
            await self._mesh.close(LEAVING if self.leaves else AWAY)
        finally:
            if self._journal is not None:
                self._written(self._journal.commit())
                self._journal.close()

    # ------------------------------------------------------------------ `Port`

    def send(self, destinations: Sequence[ProcessId], message: WireMessage) -> None:
        body = self._encode(message)
        self.encoded_bytes = len(body)
        links = self._links
        number = 0
        frame = b""
        for destination in destinations:
            link = links[destination]
            # Links that have carried the same number of frames share one; with direct dissemination, all do.
            if link.next_number != number:
                number = link.next_number
                frame = data_frame(number, body)
            if link.push(frame):
                self._full.add(link)
        self._mesh.flush_soon()

    def connect(self, peer: ProcessId) -> None:
        """Links are durable here, and stand already."""

    def disconnect(self, peer: ProcessId) -> None:
        """Links are durable here, and stay."""

    def retire(self) -> None:
        """Members are fixed here."""

    # ------------------------------------------------------------------ `MeshHost`

    def received(self, link: Link, bodies: Sequence[bytes]) -> None:
        decode = self._decode
        receive = self._process.receive
        peer = link.peer
        done = 0
        try:
            for body in bodies:
                receive(peer, decode(body))
                done += 1
        except (*UNDECODABLE, ProtocolViolationError) as error:
            raise LinkError(f"{peer} sent what no correct member sends: {error}") from None
        finally:
            if done and self._journal is not None:
                self._note(Received(peer, bodies[:done]))
            if done < len(bodies):
                link.unprocessed(len(bodies) - done)
            self._settle(link)

    def met(self, link: Link) -> None:
        if self._journal is not None and self._met.get(link) != link.incarnation:
            self._met[link] = link.incarnation
            self._note(Met(link.peer, link.incarnation))

    def departed(self, link: Link) -> None:
        if self._journal is not None:
            self._note(Departed(link.peer))
        # Who is gone for good is as one that has crashed; where that means nothing, the stack says so.
        with contextlib.suppress(UnsupportedByStackError):
            self._process.suspect(link.peer)

    def may_write(self) -> bool:
        return self._journal is None or self._written(self._journal.secure())

    def links_changed(self) -> None:
        self._settle(None)

    def may_read(self, link: Link) -> bool:
        return not self._choked and link not in self._held

    # ------------------------------------------------------------------ inside

    def _silent(self, link: Link) -> bool:
        """Whether its peer is taken for crashed: nothing waits for it."""
        return self._detector is not None and link.peer in self._detector.silent

    def _suspicion_changed(self, peer: ProcessId) -> None:
        if self._silent(self._links[peer]):
            self._process.suspect(peer)
        else:
            self._process.trust(peer)
        self._settle(None)

    def _fire(self, timer: Timer) -> None:
        super()._fire(timer)
        if self._journal is not None:
            self._note(Fired(timer))  # type: ignore[arg-type] # such are the timers of stacks that recover
        self._process.timer(timer)
        self._settle(None)

    def _write_ahead(self, journal: Journal, entry: AnyInput) -> None:
        try:
            journal.write_ahead(entry)
        except JournalError:
            self._written(done=False)
            raise
        if self._journal_fails:
            self._written(done=True)
        if journal.long:
            self._checkpoint_soon()

    def _note(self, entry: AnyInput) -> None:
        journal = self._journal
        assert journal is not None
        journal.append(entry)
        if journal.long:
            self._checkpoint_soon()

    def _written(self, done: bool) -> bool:
        """Say once that the journal cannot be written, and once that it can again."""
        if done == self._journal_fails:
            self._journal_fails = not done
            assert self._journal is not None
            if done:
                logger.warning("%s: the journal %s can be written again", self.name, self._journal.path)
            else:
                logger.error(
                    "%s: the journal %s cannot be written: nothing is sent or acknowledged until it can",
                    self.name,
                    self._journal.path,
                )
        return done

    def _checkpoint_soon(self) -> None:
        if not self._checkpointing:
            self._checkpointing = True
            asyncio.get_running_loop().call_soon(self._checkpoint)

    def _checkpoint(self) -> None:
        """Between two inputs: a snapshot takes the place of the journal's log."""
        self._checkpointing = False
        journal = self._journal
        assert journal is not None
        if not journal.closed:
            process = self._process.snapshot()
            state = encode_state(process, self._links, self.queue, self.rows(), self._moving_state())
            self._written(journal.replace(state))

    def _moving_state(self) -> MovingState | None:
        """What a host of fixed members does not have."""
        return None

    def _settle(self, link: Link | None) -> None:
        """Act on what the process or the links have just done."""
        if self.queue:
            self._wake_application()
        if self._full:
            self._full = {link for link in self._full if link.full}
            if self._detector is not None:
                for full in [full for full in self._full if self._silent(full)]:
                    self._full.discard(full)
                    cast("Mesh", self._mesh).give_up(full)
        if self._watchers:
            self.notify()
        if self._overflows or self._held or (link is not None and self._process.pending(link.peer) >= PENDING_MESSAGES):
            self._update_reading(link)

    def _update_reading(self, link: Link | None = None) -> None:
        super()._update_reading()
        pending = self._process.pending
        self._held = {held for held in self._held if pending(held.peer) >= PENDING_MESSAGES // 2}
        if link is not None and pending(link.peer) >= PENDING_MESSAGES:
            self._held.add(link)
        self._mesh.update_reading()
