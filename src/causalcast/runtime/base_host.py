"""What the hosts of both kinds of links have in common: clock, timers, and the queue towards the application."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING

from causalcast.model import Delivered, Stable
from causalcast.protocols.wire import FRAME_HEADER_BYTES
from causalcast.runtime.limits import QUEUED_EVENTS
from causalcast.runtime.recovery import Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import Event, Message, ProcessId, Tag
    from causalcast.protocols import Process, Timer
    from causalcast.runtime.endpoint import LinkState


class BaseHost:
    """The part of `Port` that is the same whatever the links are, and the queue."""

    _process: Process

    def __init__(self, name: ProcessId) -> None:
        self.name = name
        self.random = random.Random()
        self.queue: deque[Event] = deque()
        """What the application has not taken."""
        self.arrived = asyncio.Event()
        """Something is in the queue that the application did not see when it waited last, or the group is closed."""
        self.encoded_bytes = 0
        """Size of the message sent last."""
        self.rows: Callable[[], int] = int
        """Brings the trace to where it is kept, and tells how many rows it has."""
        self.over = False
        """This process was evicted: nothing comes after the events in the queue."""
        self.left = False
        """It has left: likewise."""
        self._waiting = 0
        self._choked = False
        """Nothing is read because the queue is full."""
        self._watchers: list[asyncio.Future[None]] = []
        self._timers: dict[Timer, asyncio.TimerHandle] = {}

    # ------------------------------------------------------------------ towards the application

    @property
    def process(self) -> Process:
        """What it hosts."""
        return self._process

    def take(self) -> Event:
        """The next event, which the application receives now; the queue must not be empty."""
        event = self.queue.popleft()
        self._process.take(event)
        return event

    def between_events(self) -> None:
        """The application asks for the next event, has done with the last one, and waits, if only for its turn."""
        if self._choked and len(self.queue) < QUEUED_EVENTS // 2:
            self._update_reading()

    def add_waiting(self, change: int) -> None:
        """One more, or one less, waits for what only comes by reading: room, or acknowledgements at the end."""
        self._waiting += change
        if self._choked or len(self.queue) >= QUEUED_EVENTS:
            self._update_reading()

    @property
    def _overflows(self) -> bool:
        """Whether reading must stop now because of the queue."""
        return len(self.queue) >= QUEUED_EVENTS and not self._choked and not self._waiting

    def _update_reading(self) -> None:
        """Work out whether anything may be read. What was stopped goes on at half the bound."""
        self._choked = not self._waiting and len(self.queue) >= (QUEUED_EVENTS // 2 if self._choked else QUEUED_EVENTS)

    def sent(self, tag: Tag, topic: str, payload: bytes) -> Sent:
        """What the trace tells of the message broadcast last."""
        return Sent(tag, topic, len(payload), FRAME_HEADER_BYTES + self.encoded_bytes - len(payload))

    def unfinished(self, links: Sequence[LinkState]) -> str:
        """What is left to do although it closes; `links` are the states of the links."""
        behind = [f"{link.peer} ({link.unacknowledged} frames)" for link in links if link.unacknowledged]
        return f"not everything is acknowledged: {', '.join(behind)}"

    def begin(self) -> None:
        """The trace, if there is one, has gone as far as the process: `rows` tells the truth from now on."""

    async def change(self) -> None:
        """Wait until something may have changed that a broadcast or `close` waits for, or `notify` is called."""
        watcher = asyncio.get_running_loop().create_future()
        self._watchers.append(watcher)
        await watcher

    def notify(self) -> None:
        """Wake everyone in `change`."""
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)
        self._watchers.clear()

    def _wake_application(self) -> None:
        if not self.arrived.is_set():
            self.arrived.set()

    # ------------------------------------------------------------------ `Port`

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def deliver(self, message: Message) -> None:
        self.queue.append(Delivered(message))

    def stable(self, tag: Tag, topic: str = "") -> None:
        self.queue.append(Stable(tag, topic))

    def announce(self, event: Event) -> None:
        self.queue.append(event)

    def set_timer(self, delay_ns: int, timer: Timer) -> None:
        self.cancel_timer(timer)
        self._timers[timer] = asyncio.get_running_loop().call_later(delay_ns / 1e9, self._fire, timer)

    def cancel_timer(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _cancel_timers(self) -> None:
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()

    def _fire(self, timer: Timer) -> None:
        """The timer is due."""
        del self._timers[timer]
