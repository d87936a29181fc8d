"""Workloads: what the simulated applications do, as data."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from causalcast.model import Delivered
from causalcast.simulation.models import NS_PER_MS, Constant, Delay, InvalidModelError, Uniform
from causalcast.simulation.portable import choose
from causalcast.simulation.publisher import Publisher
from causalcast.simulation.stream import Streamer

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Roster
    from causalcast.simulation.host import Application, SimulatedHost


class _Workload(msgspec.Struct, frozen=True, tag_field="workload", forbid_unknown_fields=True):
    """What the applications of a run do."""


class Broadcasts(_Workload, frozen=True, tag="broadcasts"):
    """Each sender broadcasts `messages` payloads of `payload_bytes`, one after each draw of `interval`.

    A `Constant` interval sends at a fixed rate, an `Exponential` one as document 004 has it (section 8.1.1).
    """

    messages: int
    interval: Delay = Uniform(5 * NS_PER_MS, 15 * NS_PER_MS)
    payload_bytes: int = 64
    senders: int | None = None
    """The first so many of the members of the start; `None`: everyone, those who join later too."""
    begin_ns: int = 0
    """Nobody sends before this time, and those who join later not before they are members."""

    def __post_init__(self) -> None:
        for name in ("messages", "payload_bytes", "senders", "begin_ns"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidModelError(f"a workload with {name} of {getattr(self, name)} cannot be")

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Application:
        if not self.messages or (self.senders is not None and name not in roster.names[: self.senders]):
            return _Reader()
        return _Sender(self, random.Random(f"{seed}=workload/{name}"))


class Replies(_Workload, frozen=True, tag="replies"):
    """Everyone broadcasts once, in answer to what it saw (document 002, section 5.6.4).

    `first` processes, chosen by the seed, broadcast at the beginning; every other process does after it has taken the
    message of each of them and a draw of `wait`.
    """

    first: int = 1
    wait: Delay = Uniform(0, 99 * NS_PER_MS)
    payload_bytes: int = 50

    def __post_init__(self) -> None:
        if self.first < 1 or self.payload_bytes < 0:
            raise InvalidModelError(f"replies to {self.first} messages of {self.payload_bytes} bytes cannot be")

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Application:
        if name not in roster:
            return _Reader()
        first = choose(random.Random(f"{seed}=first"), roster.names, min(self.first, len(roster)))
        return _Replier(self, frozenset(first), random.Random(f"{seed}=workload/{name}"))


class Publications(_Workload, frozen=True, tag="publications"):
    """Each process subscribes to some of `topics`, and publishes to topics drawn with Zipf's weights.

    The topic of rank k, called `t0`, `t1`, ... in order of rank, has the weight (k + 1) ** -exponent: 0 makes all
    equally likely, 0.825 is what document 002, section 5.6.5, takes from Twitter. `subscribers` processes, chosen by
    the seed, subscribe to each topic at the start; `None`: everyone. With `session` they come and go at constant
    number: when a draw of it is over the subscriber unsubscribes, and another process subscribes in its place (section
    5.6.6). Publishers need not be subscribers; `subscribers_only` has them publish only to topics whose subscription
    is complete.
    """

    topics: int
    messages: int
    interval: Delay = Uniform(5 * NS_PER_MS, 15 * NS_PER_MS)
    exponent: float = 0.0
    subscribers: int | None = None
    publishers: int | None = None
    """The first so many of the members of the start publish; `None`: everyone."""
    subscribers_only: bool = False
    session: Delay | None = None
    payload_bytes: int = 64
    begin_ns: int = 0
    """Nobody publishes, and no subscriber goes, before this time."""
    until_ns: int | None = None
    """Subscribers come and go until then; must be given with `session`."""
    preset: bool = False
    """Whether those who subscribe at the start are known to everybody, without a message."""

    def __post_init__(self) -> None:
        for name in ("messages", "payload_bytes", "subscribers", "publishers", "begin_ns", "exponent"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidModelError(f"publications with {name} of {getattr(self, name)} cannot be")
        if self.topics < 1:
            raise InvalidModelError(f"publications need a topic, not {self.topics}")
        if (self.session is None) != (self.until_ns is None):
            raise InvalidModelError("publications have both a `session` and an `until_ns`, or neither")

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Application:
        return Publisher(self, name, roster, seed)


class Stream(_Workload, frozen=True, tag="stream"):
    """One topic, one publication after each draw of `interval`, each by one of those who subscribe then.

    `subscribers` processes, chosen by the seed among all but the first `spared`, subscribe from the start, and
    everybody knows; `None`: all of these. The publisher is drawn anew each time (document 002, sections 5.6.2, 5.6.6
    and 5.6.7). With `session` subscribers come and go at constant number until the last publication, as in
    `Publications`; who is drawn and whose subscription is not complete by then publishes nothing.
    """

    messages: int
    interval: Delay = Constant(500 * NS_PER_MS)
    subscribers: int | None = None
    spared: int = 0
    """Brokers, for example, who subscribe to nothing themselves."""
    session: Delay | None = None
    payload_bytes: int = 50
    begin_ns: int = 0
    """Nobody publishes before this time."""

    def __post_init__(self) -> None:
        for name in ("messages", "subscribers", "spared", "payload_bytes", "begin_ns"):
            if (getattr(self, name) or 0) < 0:
                raise InvalidModelError(f"a stream with {name} of {getattr(self, name)} cannot be")

    def application(self, name: ProcessId, roster: Roster, seed: int) -> Application:
        if self.spared >= len(roster):
            raise InvalidModelError(f"a stream spares {self.spared} of {len(roster)} processes: nobody subscribes")
        return Streamer(self, name, roster, seed)


AnyWorkload: TypeAlias = Broadcasts | Replies | Publications | Stream


class _Reader:
    """Takes what it is given."""

    def start(self, host: SimulatedHost) -> None:
        """Nothing begins here."""

    def receive(self, host: SimulatedHost, event: Event) -> None:
        """Nothing is answered."""


class _Sender(_Reader):
    """A sender of `Broadcasts`."""

    def __init__(self, workload: Broadcasts, source: random.Random) -> None:
        self._workload = workload
        self._left = workload.messages
        self._random = source

    def start(self, host: SimulatedHost) -> None:
        self._schedule(host, max(self._workload.begin_ns - host.now_ns(), 0))

    def _schedule(self, host: SimulatedHost, wait_ns: int = 0) -> None:
        if self._left:
            host.call_after(wait_ns + self._workload.interval.draw(self._random), lambda: self._broadcast(host))

    def _broadcast(self, host: SimulatedHost) -> None:
        if host.leaving:
            return
        self._left -= 1
        host.broadcast(bytes(self._workload.payload_bytes))
        self._schedule(host)


class _Replier:
    """A process of `Replies`."""

    def __init__(self, workload: Replies, first: frozenset[ProcessId], source: random.Random) -> None:
        self._workload = workload
        self._awaited = set(first)
        self._random = source

    def start(self, host: SimulatedHost) -> None:
        if host.name in self._awaited:
            self._awaited.clear()
            self._broadcast_after(host, 0)

    def receive(self, host: SimulatedHost, event: Event) -> None:
        if isinstance(event, Delivered) and self._awaited:
            self._awaited.discard(event.message.tag.origin)
            if not self._awaited:
                self._broadcast_after(host, self._workload.wait.draw(self._random))

    def _broadcast_after(self, host: SimulatedHost, delay_ns: int) -> None:
        host.call_after(delay_ns, lambda: self._broadcast(host))

    def _broadcast(self, host: SimulatedHost) -> None:
        if not host.leaving:
            host.broadcast(bytes(self._workload.payload_bytes))
