"""The host: runs one process of a stack between its links and its application. See `protocols.port` for the rules.

Backpressure has three bounds. A full resend buffer, or too many own messages that are not stable, makes `broadcast`
wait. Events that the application does not take stop all reading, unless a broadcast waits: what it waits for comes by
the same links, and whoever broadcasts from the loop that takes events cannot do both. Messages of one peer that wait
for causes stop reading from that peer alone.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from causalcast.model import Delivered, ProtocolViolationError, Stable
from causalcast.runtime.frames import LinkError, data_frame
from causalcast.runtime.limits import PENDING_MESSAGES, QUEUED_EVENTS, UNSTABLE_MESSAGES
from causalcast.runtime.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Event, Message, ProcessId, Roster, Tag
    from causalcast.protocols import Stack, Timer, WireMessage
    from causalcast.runtime.address import Address
    from causalcast.runtime.link import Identity, Link
    from causalcast.runtime.tls import Tls


class Host:
    """`Port` to a process, `MeshHost` to its links, and the queue towards its application."""

    def __init__(
        self,
        me: Identity,
        roster: Roster,
        stack: Stack,
        listen: Address,
        peers: Mapping[ProcessId, Address],
        tls: Tls | None = None,
    ) -> None:
        self.name = me.name
        self.random = random.Random()
        self.queue: deque[Event] = deque()
        """What the application has not taken."""
        self.arrived = asyncio.Event()
        """Set while the queue holds something, and for good once the group is closed."""
        self.encoded_bytes = 0
        """Size of the message sent last."""
        self._mesh = Mesh(self, me, listen, peers, tls)
        self._links = self._mesh.links
        self._full: set[Link] = set()
        self._held: set[Link] = set()
        """Links not read because messages of their peer wait for causes."""
        self._waiting = 0
        self._choked = False
        """Nothing is read because the queue is full."""
        self._watchers: list[asyncio.Future[None]] = []
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = stack.decoder().decode
        self._process = stack.process(self, roster)
        self._take = self._process.take

    @property
    def mesh(self) -> Mesh:
        """The links."""
        return self._mesh

    async def start(self) -> None:
        """Listen, dial and let the process begin; raises `OSError` if the address cannot be had."""
        await self._mesh.start()
        self._process.start()

    # ------------------------------------------------------------------ towards the application

    @property
    def has_room(self) -> bool:
        """Whether a broadcast may be sent now."""
        return not self._full and self._process.unstable < UNSTABLE_MESSAGES

    @property
    def obstacle(self) -> str:
        """What a broadcast waits for."""
        if self._full:
            return f"{', '.join(sorted(link.peer for link in self._full))} to acknowledge"
        return f"own messages to become stable ({self._process.unstable} are not)"

    @property
    def settled(self) -> bool:
        """Everything sent is acknowledged, and the process has nothing left to say by itself."""
        return not self._timers and not any(link.unacknowledged for link in self._links.values())

    async def change(self) -> None:
        """Wait until `has_room` or `settled` may have changed, or `notify` is called."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        await watcher

    def notify(self) -> None:
        """Wake everyone in `change`."""
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
        self._watchers.clear()

    def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """Broadcast now."""
        tag = self._process.broadcast(payload, topic)
        if self.queue:
            self._wake_application()
        return tag

    def subscribe(self, topic: str) -> None:
        """Ask for a topic."""
        self._process.subscribe(topic)
        self._settle(None)

    def unsubscribe(self, topic: str) -> None:
        """Ask for no more of a topic."""
        self._process.unsubscribe(topic)
        self._settle(None)

    def take(self) -> Event:
        """The next event, which the application receives now; the queue must not be empty."""
        queue = self.queue
        event = queue.popleft()
        self._take(event)
        if not queue:
            self.arrived.clear()
        if self._choked and len(queue) < QUEUED_EVENTS // 2:
            self._update_reading()
        return event

    def add_waiting(self, change: int) -> None:
        """One more, or one less, waits for what only comes by reading: room, or acknowledgements at the end."""
        self._waiting += change
        if self._choked or len(self.queue) >= QUEUED_EVENTS:
            self._update_reading()

    async def close(self) -> None:
        """Close every link; the process is not called again."""
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        await self._mesh.close()

    # ------------------------------------------------------------------ `Port`

    def now_ns(self) -> int:
        return time.monotonic_ns()

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
            link.push(frame)
            if link.full:
                self._full.add(link)
        self._mesh.flush_soon()

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.queue.append(Stable(tag, topic))

    def announce(self, event: Event) -> None:
        self.queue.append(event)

    def connect(self, peer: ProcessId) -> None:
        """Links are durable here, and stand already."""

    def disconnect(self, peer: ProcessId) -> None:
        """Links are durable here, and stay."""

    def retire(self) -> None:
        """Members are fixed here."""

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        self.cancel_timer(timer)
        self._timers[timer] = asyncio.get_running_loop().call_later(delay_ns / 1e9, self._fire, timer)

    def cancel_timer(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

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
        except (msgspec.DecodeError, ProtocolViolationError) as error:
            raise LinkError(f"{peer} sent what no correct member sends: {error}") from None
        finally:
            if done < len(bodies):
                link.unprocessed(len(bodies) - done)
            self._settle(link)

    def links_changed(self) -> None:
        self._settle(None)

    def may_read(self, link: Link) -> bool:
        return not self._choked and link not in self._held

    # ------------------------------------------------------------------ inside

    def _fire(self, timer: Timer) -> None:
        del self._timers[timer]
        self._process.timer(timer)
        self._settle(None)

    def _wake_application(self) -> None:
        if not self.arrived.is_set():
            self.arrived.set()

    def _settle(self, link: Link | None) -> None:
        """Act on what the process or the links have just done."""
        if self.queue:
            self._wake_application()
        if self._full:
            self._full = {link for link in self._full if link.full}
        if self._watchers:
            self.notify()
        if (
            (len(self.queue) >= QUEUED_EVENTS and not self._choked and not self._waiting)
            or self._held
            or (link is not None and self._process.pending(link.peer) >= PENDING_MESSAGES)
        ):
            self._update_reading(link)

    def _update_reading(self, link: Link | None = None) -> None:
        """Work out which links may be read. What was stopped goes on at half the bound."""
        self._choked = not self._waiting and len(self.queue) >= (QUEUED_EVENTS // 2 if self._choked else QUEUED_EVENTS)
        pending = self._process.pending
        self._held = {held for held in self._held if pending(held.peer) >= PENDING_MESSAGES // 2}
        if link is not None and pending(link.peer) >= PENDING_MESSAGES:
            self._held.add(link)
        self._mesh.update_reading()
