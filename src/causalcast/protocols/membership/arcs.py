"""Memberships whose view is a set of *arcs* that are exchanged all the time: what Spray and Cyclon have in common.

An arc belongs to the process that it leaves from; the link under it carries messages both ways ("links are FIFO,
bidirectional", 001 section 4). So two processes are neighbours while either has an arc to the other: each tells the
other when its first arc there comes and its last one goes. A link whose last arc went stays for `linger_ns`, for the
control messages of new links go over it: whoever gave an arc away is the way to its end (001: the ping goes over the
introducer).

A peer whose link failed is remembered, as many as `LOST`, and one is asked now and then whether it is there again. So
are the latest names that were heard of: a process that has no neighbour left asks them all, and every `mix_every`-th
round one of them gets an arc in place of an older one, or parts that crashes have cut apart would not meet again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.protocols.membership.overlay import Overlay
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols.port import Port, Timer

ROUND_TIMER: Final = "arcs.round"
LINGER_TIMER: Final = "arcs.linger"
JOIN_TIMER: Final = "arcs.join"

JOIN_AGAIN_NS: Final = 500_000_000
LOST: Final = 16
LONGEST_WAIT: Final = 16
"""At most so many rounds between two attempts to reach a lost peer; they double from one."""


@dataclass(frozen=True, slots=True)
class ArcParameters:
    """Times in nanoseconds; of Cyclon also the size of the view and of what is exchanged."""

    round_ns: int = 10_000_000_000
    linger_ns: int = 20_000_000_000
    quiet_rounds: int = 10
    """Rounds go on for so long after a member came or went nearby."""
    mix_every: int = 2
    view: int = 8
    exchanged: int = 4


class Join(WireMessage, frozen=True, array_like=True, gc=False, tag=140):
    """Let me in."""


class Answer(WireMessage, frozen=True, array_like=True, gc=False, tag=141):
    """To a join."""

    accepted: bool


class Arc(WireMessage, frozen=True, array_like=True, gc=False, tag=142):
    """The sender's first arc to the receiver has come, or its last one has gone."""

    up: bool
    route: tuple[str, ...] = ()
    """A way from the receiver to the sender over others, if one is known."""


class Introduce(WireMessage, frozen=True, array_like=True, gc=False, tag=143):
    """Take an arc to the joiner."""

    joiner: str


class Exchange(WireMessage, frozen=True, array_like=True, gc=False, tag=144):
    """Arcs for arcs; `reply`: these are for those."""

    reply: bool
    names: tuple[str, ...]


class Leave(WireMessage, frozen=True, array_like=True, gc=False, tag=145):
    """The sender leaves the group."""


class Meet(WireMessage, frozen=True, array_like=True, gc=False, tag=146):
    """Are you there again? `reply`: yes."""

    reply: bool


class Arcs(Overlay):
    """The links under a view of arcs."""

    __slots__ = (
        "_awake",
        "_contact",
        "_heard",
        "_linger",
        "_lost",
        "_lost_wait",
        "_mixed",
        "_offered",
        "_quiet",
        "_theirs",
        "of",
    )

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (Join, Answer, Arc, Introduce, Exchange, Leave, Meet)
    timers: ClassVar[tuple[str, ...]] = (ROUND_TIMER, LINGER_TIMER, JOIN_TIMER)

    def __init__(self, port: Port, parameters: ArcParameters) -> None:
        super().__init__(port)
        self.of = parameters
        self._theirs: dict[ProcessId, None] = {}
        """Who has an arc to this process."""
        self._linger: dict[ProcessId, None] = {}
        """To whom the last arc went not long ago."""
        self._offered: tuple[ProcessId, tuple[ProcessId, ...]] | None = None
        """The exchange at hand: with whom, and which arcs were offered."""
        self._lost: dict[ProcessId, None] = {}
        self._lost_wait = (1, 1)
        self._heard: dict[ProcessId, None] = {}
        """The latest names in joins and exchanges, the oldest first."""
        self._contact: ProcessId | None = None
        self._mixed: ProcessId | None = None
        """Who is to get an arc in place of an older one, if it is there."""
        self._quiet = 0
        self._awake = True

    @property
    def arcs(self) -> Sequence[ProcessId]:
        """Where its arcs lead, one name for each."""
        return tuple(self._arcs())

    @property
    def _on_offer(self) -> Sequence[ProcessId]:
        """Arcs of the exchange at hand, which go once its reply comes."""
        return self._offered[1] if self._offered is not None else ()

    # ------------------------------------------------------------------ the view, which a protocol keeps

    def _arcs(self) -> Sequence[ProcessId]:
        """Where its arcs lead, one name for each."""
        return ()

    def _add(self, peer: ProcessId) -> None:
        """One more arc, to somebody else."""

    def _remove(self, peer: ProcessId) -> bool:
        """One arc to `peer` less; whether there was one."""
        return False

    def _failed(self, peer: ProcessId) -> None:
        """The link to `peer`, if any, is gone, and all arcs to it go."""

    def _partner(self) -> ProcessId | None:
        """With whom to exchange in this round; arcs grow older."""
        return None

    def _sample(self, partner: ProcessId, *, reply: bool) -> list[ProcessId]:
        """Arcs to give to `partner`; `reply`: it has asked."""
        return []

    # ------------------------------------------------------------------ coming and going

    def start(self) -> None:
        """Rounds begin at random, so that those of a group are spread over time."""
        self._port.set_timer(1 + int(self._port.random.random() * self.of.round_ns), ROUND_TIMER)

    def join(self, contact: ProcessId) -> None:
        self.member = False
        self._contact = contact
        self._port.connect(contact)
        self._port.send((contact,), Join())

    def leave(self) -> None:
        peers = tuple(self._neighbours)
        self._port.send(peers, Leave())
        for peer in peers:
            self._down(peer)
            self._port.disconnect(peer)
            self._port.cancel_timer((LINGER_TIMER, peer))
        self._port.cancel_timer(ROUND_TIMER)
        self._port.cancel_timer(JOIN_TIMER)
        self._contact = None
        self._retire()

    def suspect(self, peer: ProcessId) -> None:
        if peer in self._neighbours or peer == self._contact:
            self._port.disconnect(peer)
            self.link_down(peer)

    def switch_neighbour(self, peer: ProcessId) -> None:
        if peer in self._neighbours:
            self._port.disconnect(peer)
            self._gone(peer)

    def link_down(self, peer: ProcessId) -> None:
        if peer == self._contact:
            self._port.set_timer(JOIN_AGAIN_NS, JOIN_TIMER)
        elif peer in self._neighbours:
            self._lost.pop(peer, None)
            if len(self._lost) >= LOST:
                del self._lost[next(iter(self._lost))]
            self._lost[peer] = None
            self._lost_wait = (1, 1)
            self._gone(peer)
            # Should it be there, and have taken this process for a neighbour meanwhile: it is none.
            self._port.send((peer,), Arc(False))

    def _gone(self, peer: ProcessId) -> None:
        self._theirs.pop(peer, None)
        if self._linger.pop(peer, peer) is None:
            self._port.cancel_timer((LINGER_TIMER, peer))
        self._down(peer)
        self._failed(peer)
        self._stir()
        if not self._neighbours and self.member:
            self._port.send((*self._lost, *self._heard), Meet(False))

    # ------------------------------------------------------------------ messages

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """One of its own messages."""
        match message:
            case Join():
                self._join(sender)
            case Answer(accepted):
                self._answered(sender, accepted=accepted)
            case Arc(up, route):
                self._arc(sender, up=up, route=route)
            case Introduce(joiner):
                if joiner != self.name:
                    self._take(joiner, (self.name, sender, joiner))
            case Exchange(reply, names):
                self._exchanged(sender, names, reply=reply)
            case Leave():
                self._lost.pop(sender, None)
                self._heard.pop(sender, None)
                if sender in self._neighbours:
                    self._gone(sender)
            case Meet(reply):
                self._met(sender, reply=reply)
            case _:
                super().receive(sender, message)

    def _join(self, joiner: ProcessId) -> None:
        if not self.member:
            self._port.send((joiner,), Answer(False))
            return
        if joiner in self._neighbours:
            self._gone(joiner)
        arcs = list(self._arcs())
        self._port.connect(joiner)
        self._port.send((joiner,), Answer(True))
        self._theirs[joiner] = None
        self._up(joiner, joining=True)
        self._stir()
        for peer in arcs:
            self._port.send((peer,), Introduce(joiner))
        if not arcs:
            self._take(joiner, ())

    def _answered(self, sender: ProcessId, *, accepted: bool) -> None:
        if sender != self._contact:
            return
        if not accepted:
            self._port.set_timer(JOIN_AGAIN_NS, JOIN_TIMER)
            return
        self._contact = None
        self._add(sender)
        if sender not in self._neighbours:
            self._up(sender, joining=True)
        if not getattr(self.above, "transfers_state", False):
            self.settle()

    def _arc(self, sender: ProcessId, *, up: bool, route: tuple[ProcessId, ...]) -> None:
        if up:
            self._hear(sender)
            self._theirs[sender] = None
            if sender not in self._neighbours:
                self._port.connect(sender)
                self._up(sender, route=route)
        else:
            self._theirs.pop(sender, None)
            self._close(sender)

    def _met(self, sender: ProcessId, *, reply: bool) -> None:
        if not reply:
            self._port.send((sender,), Meet(True))
        elif sender in self._lost or not self._neighbours:
            self._lost.pop(sender, None)
            self._take(sender, ())
        elif sender == self._mixed and sender not in self._neighbours:
            oldest = next((name for name in self._arcs() if name not in self._on_offer), None)
            self._take(sender, ())
            if oldest is not None:
                self._give(oldest)

    def _hear(self, name: ProcessId) -> None:
        if name != self.name:
            self._heard.pop(name, None)
            if len(self._heard) >= LOST:
                del self._heard[next(iter(self._heard))]
            self._heard[name] = None

    # ------------------------------------------------------------------ arcs and their links

    def _take(self, peer: ProcessId, route: tuple[ProcessId, ...]) -> None:
        """One more arc to `peer`, and the link under it."""
        if peer == self.name:
            return
        self._hear(peer)
        first = peer not in self._arcs()
        self._add(peer)
        if not first or peer not in self._arcs():
            return
        if self._linger.pop(peer, peer) is None:
            self._port.cancel_timer((LINGER_TIMER, peer))
            return
        self._lost.pop(peer, None)
        new = peer not in self._neighbours
        if new:
            self._port.connect(peer)
        self._port.send((peer,), Arc(True, route[::-1]))
        if new:
            self._up(peer, route=route)

    def _give(self, peer: ProcessId) -> None:
        """One arc to `peer` less; its link stays for a while."""
        if self._remove(peer) and peer not in self._arcs() and peer in self._neighbours:
            self._linger[peer] = None
            self._port.set_timer(self.of.linger_ns, (LINGER_TIMER, peer))

    def _close(self, peer: ProcessId) -> None:
        """Part with `peer` if nobody has an arc."""
        kept = peer in self._theirs or peer in self._linger or peer in self._arcs()
        if peer in self._neighbours and not kept:
            self._down(peer)
            self._port.disconnect(peer)

    def _exchanged(self, sender: ProcessId, names: tuple[ProcessId, ...], *, reply: bool) -> None:
        if sender not in self._neighbours:
            # Exchanges are between neighbours: the sender takes this process for one.
            self._port.send((sender,), Arc(False))
            return
        if reply:
            if self._offered is None or self._offered[0] != sender:
                return
            given = self._offered[1]
            self._offered = None
        else:
            given = tuple(self._sample(sender, reply=True))
            self._port.send((sender,), Exchange(True, tuple(self.name if name == sender else name for name in given)))
        self._trade(sender, given, names)

    def _trade(self, partner: ProcessId, given: Sequence[ProcessId], names: Sequence[ProcessId]) -> None:
        """Part with arcs and take others. An arc to the other side becomes, there, one from it to here."""
        for name in given:
            self._give(name)
        for name in names:
            self._take_from(partner, name)

    def _take_from(self, partner: ProcessId, name: ProcessId) -> None:
        """One more arc, to `name`, which `partner` gave."""
        self._take(name, (self.name, partner, name) if name != partner else ())

    # ------------------------------------------------------------------ time

    def timer(self, timer: Timer) -> None:
        """A round, the end of a link without arcs, or a joiner's next attempt."""
        if timer == ROUND_TIMER:
            self._round()
        elif timer == JOIN_TIMER:
            if self._contact is not None:
                self.join(self._contact)
        elif isinstance(timer, tuple) and self._linger.pop(timer[1], timer[1]) is None:
            self._port.send((timer[1],), Arc(False))
            self._close(timer[1])

    def _round(self) -> None:
        self._quiet += 1
        alone = not self._neighbours and bool(self._heard)
        self._awake = alone or bool(self._lost) or self._quiet < self.of.quiet_rounds
        if self._awake:
            self._port.set_timer(self.of.round_ns, ROUND_TIMER)
        if not self.member:
            return
        self._seek_lost()
        strangers = [name for name in self._heard if name not in self._neighbours]
        if strangers and self._quiet % self.of.mix_every == 0:
            self._mixed = self._one_of(strangers)
            self._port.send((self._mixed,), Meet(False))
        partner = self._partner()
        if partner is not None:
            sample = self._sample(partner, reply=False)
            self._offered = (partner, tuple(sample))
            self._port.send(
                (partner,), Exchange(False, tuple(self.name if name == partner else name for name in sample))
            )

    def _seek_lost(self) -> None:
        left, wait = self._lost_wait
        if not self._neighbours:
            self._port.send((*self._lost, *self._heard), Meet(False))
            return
        if left > 1 or not self._lost:
            self._lost_wait = (max(left - 1, 1), wait)
            return
        wait = min(2 * wait, LONGEST_WAIT)
        self._lost_wait = (wait, wait)
        self._port.send((self._one_of(tuple(self._lost)),), Meet(False))

    def _stir(self) -> None:
        """Members came or went nearby: rounds go on, or begin again."""
        self._quiet = 0
        if not self._awake:
            self._awake = True
            self._port.set_timer(self.of.round_ns, ROUND_TIMER)

    def _usable(self, peer: ProcessId) -> bool:
        """Whether arcs to `peer` may be given away or exchanged over: the link carries messages."""
        is_safe = getattr(self.above, "is_safe", None)
        return peer in self._neighbours and (is_safe is None or bool(is_safe(peer)))

    def _one_of(self, names: Sequence[ProcessId]) -> ProcessId:
        return names[int(self._port.random.random() * len(names))]

    standing = Overlay.standing | {"arcs", "theirs", "heard"}

    def tables(self) -> dict[str, int]:
        return {
            **super().tables(),
            "arcs": len(self._arcs()),
            "theirs": len(self._theirs),
            "linger": len(self._linger),
            "lost": len(self._lost),
            "heard": len(self._heard),
        }
