"""The public face of a member: broadcast, take events, close."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from causalcast.model import (
    Delivered,
    Event,
    GroupClosedError,
    InvalidNameError,
    NotAMemberError,
    PayloadTooLargeError,
    Roster,
    Stable,
    Tag,
    UnsupportedByStackError,
)
from causalcast.model.roster import MAX_NAME_BYTES, is_name
from causalcast.protocols import stack
from causalcast.protocols.topics import MAX_TOPIC_BYTES
from causalcast.runtime.address import Address
from causalcast.runtime.dynamic_host import DynamicHost
from causalcast.runtime.dynamics import NO_DYNAMICS, Dynamics
from causalcast.runtime.host import Host
from causalcast.runtime.journal import DURABILITIES, Journal, Owner
from causalcast.runtime.journaled_host import JournaledHost
from causalcast.runtime.limits import (
    EVENTS_AT_ONCE,
    LINGER_S,
    STALL_WARNING_S,
    TRACE_FLUSH_S,
    TURN_S,
)
from causalcast.runtime.link import Identity, roster_digest
from causalcast.runtime.session_host import SessionHost
from causalcast.runtime.status import Status
from causalcast.runtime.topic import Topic
from causalcast.runtime.tracing import Tracer, open_sink

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from causalcast.model import ProcessId
    from causalcast.protocols import Stack
    from causalcast.runtime.endpoint import LinkState
    from causalcast.runtime.journal import Durability
    from causalcast.runtime.recovery import Past
    from causalcast.runtime.tls import Tls
    from causalcast.trace import TraceSink

logger = logging.getLogger("causalcast")

LEAST_FRAME_LIMIT: Final = 65_536
"""Where members come and go, what they tell each other of the group must fit into a frame too."""


class Group:
    """One member of a group. Made by `causalcast.open`; it lives inside `async with`.

    Iterating gives what happens, in causal order. Iterate in a task of its own if you broadcast long bursts: messages
    become stable only as every member takes them, and `broadcast` waits when too many are not.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - called by `open` only
        self,
        name: ProcessId,
        listen: str,
        peers: Mapping[ProcessId, str],
        stack_name: str,
        group: str,
        trace: str | os.PathLike[str] | TraceSink | None,
        frame_limit: int,
        tls: Tls | None = None,
        journal: str | os.PathLike[str] | None = None,
        durability: Durability = "every-message",
        contacts: Sequence[str] = (),
        dynamics: Dynamics = NO_DYNAMICS,
    ) -> None:
        self.name = name
        """The name of this member."""
        self._roster = Roster((name, *peers))
        self.payload_limit = frame_limit - _metadata_bound(self._roster)
        """The largest payload in bytes that `broadcast` takes."""
        if self.payload_limit < 1:
            raise ValueError(f"a frame limit of {frame_limit} bytes leaves no room for a payload")
        if not is_name(group):
            raise InvalidNameError(f"{group!r} cannot name a group: use 1 to {MAX_NAME_BYTES} bytes of UTF-8")
        self._stack = stack(stack_name)
        dynamics.check(self._stack)
        _check_for(self._stack, peers, contacts, frame_limit)
        if durability not in DURABILITIES:
            raise ValueError(f"durability is one of {', '.join(DURABILITIES)}, not {durability!r}")
        self._journal = Path(journal) if journal is not None and durability != "none" else None
        self._durability = durability
        if self._journal is not None and not self._stack.recovers:
            raise UnsupportedByStackError(f"members of {stack_name!r} cannot recover: {journal} would be of no use")
        fixed = "" if self._stack.dynamic else roster_digest(self._roster)
        self._me = Identity(group, name, fixed, stack_name, frame_limit, secrets.randbits(63) | 1)
        self._listen = Address.parse(listen)
        self._peers = {peer: Address.parse(text) for peer, text in peers.items()}
        self._contacts = tuple(each._replace(host=each.host or "localhost") for each in map(Address.parse, contacts))
        self._dynamics = dynamics
        self._tls = tls
        self._trace = trace
        self._tracer: Tracer | None = None
        self._flushing: asyncio.TimerHandle | None = None
        self._host: Host | SessionHost | None = None
        self._queue: deque[Event] = deque()
        """That of the host while events can be taken from it, by `_take`; empty before and after."""
        self._take: Callable[[], Event] = self._queue.popleft
        self._first: Event | None = None
        """What the application is told first, and knows already: that it has joined."""
        self._turn = asyncio.Lock()
        self._queued = 0
        """Broadcasts that wait for their turn or for room, in order of arrival."""
        self._in_turn = 0
        """Events taken and messages sent since the clock was last looked at."""
        self._turn_began = 0.0
        """When the event loop last got a turn from here, or nothing was there to take."""
        self._counts: dict[type, int] = dict.fromkeys((*get_args(Event), Tag), 0)
        """Events taken, and messages broadcast, by type."""
        self._closing = False
        self._over = False
        """Its links are closed."""
        self._closed = asyncio.Event()
        """For those who wait for that."""

    @property
    def address(self) -> str:
        """Where this member listens, with the real port once it does."""
        return str(self._running.mesh.address)

    @property
    def members(self) -> Roster:
        """The names of all members. On `tcb-dynamic` those of now, this one among them until it has left; on other
        stacks where they come and go, this one's alone.
        """
        host = self._host
        return Roster(host.members or (self.name,)) if isinstance(host, DynamicHost) else self._roster

    @property
    def evicted(self) -> bool:
        """Whether the others have taken this member for crashed: iteration ends behind what it has received."""
        return self._running.over

    def evict(self, name: ProcessId) -> None:
        """Take the member `name` for crashed: the others agree on what it has sent, and go on without it.

        It is done when `MembershipChanged` names it. One that is alive is told, and out. Raises `NotAMemberError` if
        `name` is no other member, `UnsupportedByStackError` on all stacks but `tcb-dynamic`.
        """
        host = self._open
        if not isinstance(host, DynamicHost):
            raise UnsupportedByStackError(
                f"{name!r} cannot be evicted: members of {self._stack.name!r} have no say in it"
            )
        host.evict(name)

    async def replicated(self, tag: Tag, members: int) -> None:
        """Wait until the message of `tag` is stable at so many members (k-stability): until the applications of so
        many, this one's included, are known to have taken it. What is concurrent with it may still come.

        Who has left or was evicted does not count. Raises `GroupClosedError` and `NotAMemberError` if this member
        closes or is evicted meanwhile, `ValueError` for less than one, `UnsupportedByStackError` on all stacks but
        `tcb-dynamic`.
        """
        host = self._open
        if not isinstance(host, DynamicHost):
            raise UnsupportedByStackError(f"{self._stack.name!r} does not tell how many have {tag}: wait for `Stable`")
        if members < 1:
            raise ValueError(f"a message is replicated at 1 member or more, not at {members}")
        while host.holders(tag) < members:
            if self._closing:
                raise GroupClosedError(f"{self.name} has closed its group before {members} members had {tag}")
            if host.over:
                raise NotAMemberError(f"{self.name} was evicted before {members} members had {tag}")
            await host.change()

    @property
    def untaken(self) -> int:
        """How many events wait here for the application to take them."""
        return len(self._running.queue)

    def links(self) -> tuple[LinkState, ...]:
        """The state of the link to every other member, in order of name."""
        return self._running.mesh.states()

    def status(self) -> Status:
        """How this member is doing now."""
        host = self._running
        links = self.links()
        others = [link.peer for link in links] if self._stack.session_links else self.members.others(self.name)
        own = () if isinstance(host, DynamicHost) and self.name not in host.members else (self.name,)
        return Status(
            name=self.name,
            group=self._me.group,
            stack=self._stack.name,
            address=self.address,
            members=tuple(sorted((*own, *others))),
            broadcasts=self._counts[Tag],
            deliveries=self._counts[Delivered],
            stable=self._counts[Stable],
            untaken=self.untaken,
            pending=sum(map(host.process.pending, others)),
            unstable=host.process.unstable,
            obstacle="" if host.has_room else host.obstacle,
            tables=host.process.tables(),
            links=links,
        )

    def topic(self, name: str) -> Topic:
        """The topic called `name`; nothing happens before it is used."""
        return Topic(self, name)

    def subscribe(self, topic: str) -> None:
        """See `Topic.subscribe`."""
        self._open.subscribe(topic)

    def unsubscribe(self, topic: str) -> None:
        """See `Topic.unsubscribe`."""
        self._open.unsubscribe(topic)

    async def broadcast(self, payload: bytes, topic: str = "") -> Tag:
        """Send `payload` to every member, or to the subscribers of `topic`; returns its tag.

        The tag is made at the moment of sending, from what the application has taken by then. While a bounded buffer
        is full this waits, in order of the calls; if it is cancelled while it waits, nothing is sent.
        Raises `PayloadTooLargeError`, `GroupClosedError`, and `TypeError` for what are not bytes; with a topic
        `UnsupportedByStackError` and `TopicError`, with a journal `JournalError` while it cannot be written.
        """
        if not isinstance(payload, bytes):
            raise TypeError(f"a payload is bytes, not {type(payload).__name__}; encode it first")
        if len(payload) > self.payload_limit:
            raise PayloadTooLargeError(len(payload), self.payload_limit)
        host = self._host or self._running
        if self._queued or (self._in_turn >= EVENTS_AT_ONCE and self._ends_turn()) or not host.has_room:
            await self._wait_for_room(host)
        if self._closing:
            raise GroupClosedError(f"{self.name} has closed its group; nothing was sent")
        self._in_turn += 1
        tag = host.broadcast(payload, topic)
        self._counts[Tag] += 1
        if self._tracer is not None:
            self._tracer.broadcast(*host.sent(tag, topic, payload))
        return tag

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if not self._queue or (self._in_turn >= EVENTS_AT_ONCE and self._ends_turn()):
            if self._first is not None:
                event, self._first = self._first, None
                return event
            await self._wait_for_event(self._running)
        self._in_turn += 1
        event = self._take()
        self._counts[type(event)] += 1
        if self._tracer is not None:
            self._tracer.take(event)
        return event

    async def _wait_for_event(self, host: Host | SessionHost) -> None:
        """Give the event loop its turn, if it is due, and wait until there is something to take.

        Raises `StopAsyncIteration` if nothing comes any more.
        """
        queue = host.queue
        while not self._over and (not queue or self._in_turn >= EVENTS_AT_ONCE):
            host.between_events()
            if queue:
                await asyncio.sleep(0)
            elif host.over or host.left:
                raise StopAsyncIteration
            else:
                host.arrived.clear()
                await host.arrived.wait()
            self._begin_turn()
        if self._over:
            raise StopAsyncIteration
        self._queue, self._take = queue, host.take

    async def close(self) -> None:
        """Leave: wait until the peers have acknowledged everything, at most `LINGER_S`, then close the links.

        Where members come and go the others are told, and have read all that was sent by then.

        Without a journal this is for good. With one it does not wait: the others expect this member back.

        Broadcasting ends at once, iteration when the links are closed. Raises the `OSError` that ended the trace, if
        one did.
        """
        host = self._host
        if host is None:
            self._closing = True
            self._end()
        if host is None or self._closing:
            await self._closed.wait()
            return
        self._closing = True
        host.add_waiting(1)
        host.notify()
        try:
            async with asyncio.timeout(LINGER_S):
                await host.finish()
        except TimeoutError:
            logger.warning("%s: closes although %s", self.name, host.unfinished(self.links()))
        finally:
            self._end()
            host.arrived.set()
            if self._flushing is not None:
                self._flushing.cancel()
            try:
                await host.close()
            finally:
                if self._tracer is not None:
                    last = host.last_event()
                    if last is not None:
                        self._tracer.take(last)
                    self._tracer.close()

    async def leave(self) -> None:
        """Leave for good, then close: what `close` does without a journal. The journal is of no use after that.

        Raises `GroupClosedError`, and `UnsupportedByStackError` where members are fixed.
        """
        host = self._open
        if not self._stack.dynamic:
            raise UnsupportedByStackError(f"the members of {self._stack.name!r} are fixed: {self.name} can only close")
        if isinstance(host, DynamicHost):
            host.leaves = True
        await self.close()

    async def __aenter__(self) -> Self:
        if self._host is not None:
            raise RuntimeError("a group can be entered once; open another")
        if self._closing:
            raise GroupClosedError(f"{self.name} has closed its group; open another")
        self._host = host = self._make_host()
        try:
            past = host.recover()
            await host.start()
            # Only now: who cannot have the address must not touch the trace of the one that has it.
            if self._trace is not None:
                self._begin_trace(past)
            host.begin()
            self._first = host.first_event()
            if self._first is not None and self._tracer is not None:
                self._tracer.take(self._first)
        except BaseException:
            self._closing = True
            self._end()
            await host.close()
            raise
        return self

    def _end(self) -> None:
        self._over = True
        self._queue = deque()
        self._closed.set()

    def _make_host(self) -> Host | SessionHost:
        if self._stack.dynamic and not self._stack.session_links:
            journal = self._open_journal()
            kind = DynamicHost if journal is None else JournaledHost
            me = self._identity(journal)
            return kind(me, self._stack, self._listen, self._contacts, self._tls, self._dynamics, journal)
        if self._stack.session_links:
            return SessionHost(self._me, self._stack, self._listen, self._contacts, self._tls)
        journal = self._open_journal()
        me = self._identity(journal)
        return Host(me, self._roster, self._stack, self._listen, self._peers, self._tls, journal)

    def _identity(self, journal: Journal | None) -> Identity:
        return self._me if journal is None else replace(self._me, incarnation=journal.incarnation)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _running(self) -> Host | SessionHost:
        if self._host is None:
            raise RuntimeError("enter the group first: async with causalcast.open(...) as group")
        return self._host

    @property
    def _open(self) -> Host | SessionHost:
        host = self._running
        if self._closing:
            raise GroupClosedError(f"{self.name} has closed its group")
        return host

    def _begin_turn(self) -> None:
        self._in_turn = 0
        self._turn_began = time.monotonic()

    def _ends_turn(self) -> bool:
        """After `EVENTS_AT_ONCE`: whether the event loop must get its turn now. If not, as many may follow."""
        if time.monotonic() - self._turn_began >= TURN_S:
            return True
        self._in_turn = 0
        return False

    async def _wait_for_room(self, host: Host | SessionHost) -> None:
        self._queued += 1
        try:
            async with self._turn:
                if self._in_turn >= EVENTS_AT_ONCE:
                    await asyncio.sleep(0)
                    self._begin_turn()
                if not host.has_room and not self._closing:
                    await self._wait_for_change(host)
        finally:
            self._queued -= 1

    async def _wait_for_change(self, host: Host | SessionHost) -> None:
        def complain() -> None:
            logger.warning("%s: a broadcast has waited %g s for %s", self.name, STALL_WARNING_S, host.obstacle)

        stalled = asyncio.get_running_loop().call_later(STALL_WARNING_S, complain)
        host.add_waiting(1)
        try:
            while not host.has_room and not self._closing:
                await host.change()
        finally:
            host.add_waiting(-1)
            stalled.cancel()

    def _open_journal(self) -> Journal | None:
        if self._journal is None:
            return None
        return Journal(self._journal, self._owner, self._durability)

    @property
    def _owner(self) -> Owner:
        me = self._me
        return Owner(me.group, me.name, self._roster.names, me.stack, me.frame_limit)

    def _begin_trace(self, past: Past | None) -> None:
        assert self._host is not None
        assert self._trace is not None
        sink, known = open_sink(self._trace, self.name, goes_on=past is not None)
        self._tracer = Tracer(sink, self.name, with_context="P4" in self._stack.promises)
        self._host.rows = self._tracer.rows
        if past is not None:
            self._tracer.recover(past, known)
        self._flush_trace()

    def _flush_trace(self) -> None:
        assert self._tracer is not None
        self._tracer.flush()
        self._flushing = asyncio.get_running_loop().call_later(TRACE_FLUSH_S, self._flush_trace)


def _check_for(stack: Stack, peers: Mapping[ProcessId, str], contacts: Sequence[str], frame_limit: int) -> None:
    """Raises `UnsupportedByStackError` and `ValueError` if that is no group of this stack."""
    name = stack.name
    if peers and stack.dynamic:
        raise UnsupportedByStackError(
            f"members of {name!r} come and go and are not listed: give the address of one that is there, to join "
            "through, instead of peers"
        )
    if contacts and not stack.dynamic:
        raise UnsupportedByStackError(f"the members of {name!r} are fixed: list them as peers, none can join")
    if stack.dynamic and frame_limit < LEAST_FRAME_LIMIT:
        raise ValueError(f"members of {name!r} need a frame limit of {LEAST_FRAME_LIMIT} bytes at least")


def _metadata_bound(members: Roster) -> int:
    """Bytes that are enough for what a stack adds to a payload in its message: a dot, a topic, a count per member."""
    return 64 + MAX_TOPIC_BYTES + sum(len(name.encode()) + 24 for name in members)
