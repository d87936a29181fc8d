"""HyParView: a small active view of mutual neighbours, and a larger passive view to replace them from.

Source: document 000, sections 2.2.1 and 4.2.1, after Leitao, Pereira and Rodrigues, "HyParView: a membership protocol
for reliable gossip-based broadcast" (DSN 2007). Active view log10(n) + 1, passive view 6 times that; JOIN walks at
random for 6 steps and leaves its name in a passive view after 3; NEIGHBOR with high priority from who has no neighbour
left; SHUFFLE of 3 active and 4 passive names. Per process: both views, and as many lost peers as passive ones.

Departures from the paper, each for an overlay that stays or becomes one:

* A contact answers a JOIN, so the joiner knows when it is in; one that is not in itself refuses, and is asked again.
* Who ends a walk, and whoever asks to be a neighbour, counts as one only when the other has agreed.
* Peers whose link failed are remembered, as many as fit the passive view, and one is asked again now and then with high
  priority: two halves of a broken network have nobody else to find each other by.
* Who is parted with for the sake of another is told of one who has room: the joiner, or whom the other side parts with.
  So making room does not cut the overlay apart.
* Every `mix_every`-th round asks a passive peer with high priority: where all joined at once through one contact,
  views can be full and closed, and nothing else would open them.
* A process around which nothing changes for `quiet_rounds` stops shuffling until something does, unless it lost
  somebody: an idle overlay costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.protocols.membership.hyparview_messages import (
    Answer,
    Disconnect,
    ForwardJoin,
    Join,
    Neighbour,
    Shuffle,
    ShuffleReply,
)
from causalcast.protocols.membership.overlay import DEFAULT_SIZE, Overlay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port, Timer, WireMessage

ROUND_TIMER: Final = "hyparview.round"
JOIN_TIMER: Final = "hyparview.join"

JOIN_AGAIN_NS: Final = 500_000_000
"""How long a joiner waits before it asks again, after a refusal or a broken link."""

LONGEST_WAIT: Final = 32
"""At most so many rounds between two attempts to reach a lost peer; they double from one."""


@dataclass(frozen=True, slots=True)
class HyParViewParameters:
    """Sizes of the views, lengths of the walks in hops, and the time between rounds in nanoseconds."""

    active: int
    passive: int
    walk: int = 6
    """ARWL of the paper."""
    passive_walk: int = 3
    """PRWL: with so many hops left the joiner's name goes into the passive view."""
    shuffle_active: int = 3
    """ka."""
    shuffle_passive: int = 4
    """kp."""
    round_ns: int = 10_000_000_000
    quiet_rounds: int = 6
    mix_every: int = 3

    @classmethod
    def of(cls, size: int) -> HyParViewParameters:
        """For a group of about `size` members: 5 and 30 for 10,000 (000 section 4.2.1); never below 3."""
        active = max(3, round(math.log10(max(size, 1))) + 1)
        return cls(active, 6 * active)


class HyParView(Overlay):
    """One process's views."""

    __slots__ = (
        "_asked",
        "_awake",
        "_contact",
        "_given_up",
        "_lost",
        "_lost_wait",
        "_passive",
        "_quiet",
        "_refused",
        "_round",
        "_sent",
        "of",
    )

    wire_types: ClassVar[tuple[type[WireMessage], ...]] = (
        Join,
        ForwardJoin,
        Neighbour,
        Answer,
        Disconnect,
        Shuffle,
        ShuffleReply,
    )
    timers: ClassVar[tuple[str, ...]] = (ROUND_TIMER, JOIN_TIMER)

    def __init__(self, port: Port, roster: Roster, parameters: HyParViewParameters | None = None) -> None:
        super().__init__(port)
        self.of = parameters or HyParViewParameters.of(len(roster) if len(roster) > 1 else DEFAULT_SIZE)
        self._passive: dict[ProcessId, None] = {}
        self._lost: dict[ProcessId, None] = {}
        self._asked: dict[ProcessId, None] = {}
        """Who has not answered yet whether it becomes a neighbour."""
        self._refused: dict[ProcessId, None] = {}
        """Who refused since the last round."""
        self._sent: tuple[ProcessId, ...] = ()
        """Names in the last SHUFFLE of this process: the first to make room for those that come back."""
        self._contact: ProcessId | None = None
        """Through whom it joins, until it has."""
        self._given_up: ProcessId = ""
        """With whom it parts when who was asked last agrees, if it has to."""
        self._round = 0
        self._quiet = 0
        """Rounds since a member came or went nearby."""
        self._awake = True
        """Whether another round is due."""
        self._lost_wait = (1, 1)
        """Rounds until a lost peer is tried again, and the wait after that."""

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
        self._port.send(peers, Disconnect(True))
        for peer in peers:
            self._down(peer)
            self._port.disconnect(peer)
        for peer in self._asked:
            self._port.disconnect(peer)
        self._asked.clear()
        self._contact = None
        self._port.cancel_timer(ROUND_TIMER)
        self._port.cancel_timer(JOIN_TIMER)
        self._retire()

    def suspect(self, peer: ProcessId) -> None:
        if peer in self._neighbours or peer in self._asked or peer == self._contact:
            self._port.disconnect(peer)
            self.link_down(peer)

    def switch_neighbour(self, peer: ProcessId) -> None:
        if peer in self._neighbours:
            self._part(peer, Disconnect(False))
            self._refused[peer] = None
            self._fill()

    # ------------------------------------------------------------------ messages

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """One of its own messages."""
        if isinstance(message, ForwardJoin | Shuffle) and sender not in self._neighbours:
            # Walks go from neighbour to neighbour: the sender takes this process for one.
            self._port.send((sender,), Disconnect(False))
        match message:
            case Join():
                self._join(sender)
            case ForwardJoin():
                self._walk(sender, message)
            case Neighbour():
                self._neighbour(sender, message)
            case Answer(accepted):
                self._answer(sender, accepted=accepted)
            case Disconnect():
                self._parted(sender, message)
            case Shuffle():
                self._shuffled(sender, message)
            case ShuffleReply(names):
                self._learn(names)
            case _:
                super().receive(sender, message)

    def _join(self, joiner: ProcessId) -> None:
        if not self.member:
            self._port.send((joiner,), Answer(False))
            return
        if joiner in self._neighbours:
            # It has lost its state, or comes back before the end of its old link is known here.
            self._down(joiner)
        self._port.connect(joiner)
        self._port.send((joiner,), Answer(True))
        others = [peer for peer in self._neighbours if peer != joiner]
        self._stir()
        self._add(joiner, joining=True)
        if others:
            self._port.send(others, ForwardJoin(joiner, self.of.walk, (self.name,)))

    def _walk(self, sender: ProcessId, message: ForwardJoin) -> None:
        joiner, hops = message.joiner, message.hops
        if joiner == self.name:
            return
        nexts = [peer for peer in self._neighbours if peer not in (sender, joiner)]
        if hops <= 0 or not nexts or len(message.path) > self.of.walk:
            if joiner not in self._neighbours and joiner not in self._asked:
                self._ask(joiner, high=True, route=(joiner, *message.path, self.name))
            return
        if hops == self.of.passive_walk:
            self._remember(joiner)
        self._port.send((self._one_of(nexts),), ForwardJoin(joiner, hops - 1, (*message.path, self.name)))

    def _neighbour(self, sender: ProcessId, message: Neighbour) -> None:
        if sender in self._neighbours:
            self._port.send((sender,), Answer(True))
        elif self.member and (message.high or len(self._neighbours) < self.of.active):
            self._port.connect(sender)
            self._port.send((sender,), Answer(True))
            self._asked.pop(sender, None)
            self._add(sender, route=message.route, instead=message.instead)
        else:
            self._port.send((sender,), Answer(False))

    def _answer(self, sender: ProcessId, *, accepted: bool) -> None:
        if sender == self._contact:
            if not accepted:
                self._port.set_timer(JOIN_AGAIN_NS, JOIN_TIMER)
                return
            self._contact = None
            self._add(sender, joining=True)
            if not getattr(self.above, "transfers_state", False):
                self.settle()
            return
        wanted = sender in self._asked
        self._asked.pop(sender, None)
        if accepted:
            self._port.connect(sender)
            self._add(sender)
        elif wanted:
            self._port.disconnect(sender)
            self._refused[sender] = None
            self._fill()

    def _parted(self, sender: ProcessId, message: Disconnect) -> None:
        if message.gone:
            self._passive.pop(sender, None)
            self._lost.pop(sender, None)
        if sender not in self._neighbours:
            return
        self._down(sender)
        if message.gone:
            self._stir()
        else:
            self._remember(sender)
            self._refused[sender] = None
        instead = message.instead
        if instead and instead != self.name and instead not in self._neighbours and instead not in self._asked:
            self._ask(instead, high=not self._neighbours)
        elif not message.wait or not self._neighbours:
            self._fill()

    def _shuffled(self, sender: ProcessId, message: Shuffle) -> None:
        hops = message.hops - 1
        nexts = [peer for peer in self._neighbours if peer not in (sender, message.origin)]
        if hops > 0 and nexts:
            self._port.send((self._one_of(nexts),), Shuffle(message.origin, hops, message.names))
        elif message.origin != self.name:
            passive = list(self._passive)
            back = self._port.random.sample(passive, min(len(message.names), len(passive)))
            if back:
                self._port.send((message.origin,), ShuffleReply(tuple(back)))
            self._learn(message.names, back)

    # ------------------------------------------------------------------ links and time

    def link_down(self, peer: ProcessId) -> None:
        if peer == self._contact:
            self._port.set_timer(JOIN_AGAIN_NS, JOIN_TIMER)
            return
        known = peer in self._neighbours or peer in self._asked
        self._asked.pop(peer, None)
        self._passive.pop(peer, None)
        if known:
            self._lost.pop(peer, None)
            if len(self._lost) >= self.of.passive:
                del self._lost[next(iter(self._lost))]
            self._lost[peer] = None
            self._lost_wait = (1, 1)
            self._stir()
        if peer in self._neighbours:
            self._down(peer)
            # Should it be there, and have taken this process for a neighbour meanwhile: it is none.
            self._port.send((peer,), Disconnect(False))
        self._fill()

    def timer(self, timer: Timer) -> None:
        """A round, or a joiner's next attempt."""
        if timer == JOIN_TIMER:
            self._join_again()
            return
        self._round += 1
        self._refused.clear()
        if self.member:
            self._seek_lost()
            self._fill()
            self._shuffle()
            if self._round % self.of.mix_every == 0:
                self._mix()
        self._quiet += 1
        self._awake = bool(self._lost) or self._quiet < self.of.quiet_rounds
        if self._awake:
            self._port.set_timer(self.of.round_ns, ROUND_TIMER)

    def _stir(self) -> None:
        """Members came or went nearby: rounds go on, or begin again."""
        self._quiet = 0
        if not self._awake:
            self._awake = True
            self._port.set_timer(self.of.round_ns, ROUND_TIMER)

    def _join_again(self) -> None:
        """Through somebody who took this process for a neighbour meanwhile, else through the contact."""
        if self._contact is not None:
            known = [peer for peer in (*self._neighbours, *self._passive) if peer != self._contact]
            if known:
                peer = self._one_of(known)
                if peer in self._neighbours:
                    self._down(peer)
                self._contact = peer
            self.join(self._contact)

    def _shuffle(self) -> None:
        if not self._neighbours:
            return
        random, of = self._port.random, self.of
        active, passive = list(self._neighbours), list(self._passive)
        self._sent = tuple(random.sample(passive, min(of.shuffle_passive, len(passive))))
        names = (self.name, *random.sample(active, min(of.shuffle_active, len(active))), *self._sent)
        self._port.send((self._one_of(active),), Shuffle(self.name, of.walk, names))

    def _mix(self) -> None:
        candidates = [peer for peer in self._passive if peer not in self._asked]
        if candidates and not self._asked and self._quiet < self.of.quiet_rounds:
            self._swap(self._one_of(candidates))

    def _swap(self, peer: ProcessId) -> None:
        """Ask `peer` to be a neighbour, in place of one of now if there is no room."""
        full = len(self._neighbours) >= self.of.active
        self._given_up = self._one_of(self._neighbours) if full else ""
        self._ask(peer, high=True, instead=self._given_up)

    def _seek_lost(self) -> None:
        left, wait = self._lost_wait
        candidates = [peer for peer in self._lost if peer not in self._asked]
        if left > 1 or not candidates:
            self._lost_wait = (max(left - 1, 1), wait)
            return
        wait = min(2 * wait, LONGEST_WAIT)
        self._lost_wait = (wait, wait)
        self._swap(self._one_of(candidates))

    # ------------------------------------------------------------------ views

    def _add(
        self, peer: ProcessId, *, joining: bool = False, route: tuple[ProcessId, ...] = (), instead: ProcessId = ""
    ) -> None:
        """Make `peer` a neighbour, and room for it; its link stands. `instead` has room for who makes it."""
        self._passive.pop(peer, None)
        self._lost.pop(peer, None)
        if peer in self._neighbours:
            return
        if len(self._neighbours) >= self.of.active:
            given_up = self._given_up
            if given_up in self._neighbours:
                self._part(given_up, Disconnect(False, "", True))
            else:
                self._part(self._one_of(self._neighbours), Disconnect(False, instead or peer))
        self._given_up = ""
        self._up(peer, joining=joining, route=route)

    def _part(self, peer: ProcessId, farewell: Disconnect) -> None:
        self._port.send((peer,), farewell)
        self._down(peer)
        self._port.disconnect(peer)
        self._remember(peer)

    def _fill(self) -> None:
        """Ask passive peers until there will be enough neighbours, or none is left to ask in this round."""
        if not self.member:
            return
        while len(self._neighbours) + len(self._asked) < self.of.active:
            candidates = [peer for peer in self._passive if peer not in self._refused and peer not in self._asked]
            if not candidates:
                return
            self._ask(self._one_of(candidates), high=not self._neighbours)

    def _ask(self, peer: ProcessId, *, high: bool, route: tuple[ProcessId, ...] = (), instead: ProcessId = "") -> None:
        self._asked[peer] = None
        self._port.connect(peer)
        self._port.send((peer,), Neighbour(high, route, instead))

    def _remember(self, peer: ProcessId, sent: Iterable[ProcessId] = ()) -> None:
        passive = self._passive
        if peer == self.name or peer in self._neighbours or peer in passive:
            return
        if len(passive) >= self.of.passive:
            first = next((name for name in sent if name in passive), None)
            del passive[self._one_of(passive) if first is None else first]
        passive[peer] = None

    def _learn(self, names: Iterable[ProcessId], sent: Iterable[ProcessId] | None = None) -> None:
        sent = self._sent if sent is None else sent
        for name in names:
            self._remember(name, sent)

    def _one_of(self, names: Iterable[ProcessId]) -> ProcessId:
        choices = list(names)
        return choices[int(self._port.random.random() * len(choices))]

    standing = Overlay.standing | {"passive"}

    def tables(self) -> dict[str, int]:
        return {
            **super().tables(),
            "passive": len(self._passive),
            "lost": len(self._lost),
            "asked": len(self._asked),
        }
