"""VCube's own diagnosis: rounds of tests along the hypercube, the failure detector of its trees.

Source: document 002, section 2.4 (after Duarte et al. 2014). In a round a process tests the first member it trusts of
each of its clusters, log2(n) tests; who answers says what it knows of all others. Who has not answered a round later
is suspected, and the next of its cluster is tested at once. News about a member are numbered, odd for suspected and
even for trusted, and the higher number counts: a suspicion travels to all in log2(n) rounds on average. Whoever hears
from a member that it suspects, or hears that it is suspected itself, corrects the mistake with the next number.

Rounds last as long as somebody has a use for them: `watch` says whether this process has. Who watches begins a round
when its timer says so; a test carries the number of the round, and begins it at whoever is not that far yet. So news
come from everywhere to one who watches, and all is quiet once nobody does. Per process: a number for each member that
was ever suspected, and the tests without answer, at most log2(n).

Departures from the print: a test is asynchronous, with the length of a round as its time limit. In a fault-free system
a process is tested by one process of each of its clusters, so up to log2(n) times a round, not "at most once".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from causalcast.model import ProtocolViolationError
from causalcast.protocols.membership.vcube import VCube
from causalcast.protocols.port import WireMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import ProcessId, Roster
    from causalcast.protocols.port import Port, Timer

ROUND_NS: Final = 1_000_000_000
"""The length of a round, and the time that a tested process has to answer."""

NEWS_LIMIT: Final = 1 << 53


class Test(WireMessage, frozen=True, array_like=True, gc=False, tag=50):
    """Are you there?"""

    round: int


class Alive(WireMessage, frozen=True, array_like=True, gc=False, tag=51):
    """The answer to a test."""

    news: tuple[int, ...]
    """Slot, number, slot, number, ...: all members that were ever suspected."""


class DiagnosedVCube(VCube):
    """VCube with its diagnosis."""

    wire_types = (Test, Alive)
    timers = ("vcube-round",)

    __slots__ = ("_news", "_round", "_tested", "_watching", "on_round")

    def __init__(self, port: Port, roster: Roster) -> None:
        super().__init__(port, roster)
        self._news: dict[int, int] = {}
        self._tested: dict[int, None] = {}
        """Who has not answered this round's test."""
        self._round = 0
        self._watching = False
        self.on_round: Callable[[], None] | None = None
        """Called when a round begins."""

    def watch(self, wanted: bool) -> None:
        """Whether this process needs to know who crashes."""
        if wanted != self._watching and self.dimension:
            self._watching = wanted
            if wanted:
                self._port.set_timer(ROUND_NS, "vcube-round")
            else:
                self._port.cancel_timer("vcube-round")

    def timer(self, timer: Timer) -> None:
        """A round is over, and the next begins."""
        self._begin(self._round + 1)

    def _begin(self, number: int) -> None:
        self._round = number
        late, self._tested = list(self._tested), {}
        for slot in late:
            self._learn(slot, self._news.get(slot, 0) | 1)
        self._tested = {child: None for child in self.children() if child >= 0}
        if self._tested:
            names = self.roster.names
            self._port.send(tuple(names[slot] for slot in self._tested), Test(number))
        if self._watching:
            self._port.set_timer(ROUND_NS, "vcube-round")
        if self.on_round is not None:
            self.on_round()

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        """Raises `ProtocolViolationError`."""
        slot = self.slot_of(sender)
        match message:
            case Test(number):
                if not 0 < number < NEWS_LIMIT:
                    raise ProtocolViolationError(f"{number} is no number of a round")
                self._heard(slot)
                news = tuple(number for entry in self._news.items() for number in entry)
                self._port.send((sender,), Alive(news))
                if number > self._round:
                    self._begin(number)
            case Alive(news):
                self._check(news)
                self._heard(slot)
                self._tested.pop(slot, None)
                for place in range(0, len(news), 2):
                    self._learn(news[place], news[place + 1])
            case _:
                raise ProtocolViolationError(f"{sender!r} sent {type(message).__name__} to the membership")

    def _check(self, news: tuple[int, ...]) -> None:
        if (
            len(news) % 2
            or not all(0 <= slot < len(self.roster) for slot in news[::2])
            or not all(0 <= number < NEWS_LIMIT for number in news[1::2])
        ):
            raise ProtocolViolationError(f"{news} is no news of members")

    def _heard(self, slot: int) -> None:
        """Who speaks has not crashed."""
        number = self._news.get(slot, 0)
        if number & 1:
            self._learn(slot, number + 1)

    def _learn(self, slot: int, number: int) -> None:
        """News of a member; of itself, that it is suspected: it is not."""
        if number <= self._news.get(slot, 0):
            return
        if slot == self.slot:
            self._news[slot] = number + (number & 1)
            return
        self._news[slot] = number
        self._mark(slot, correct=not number & 1)

    def suspect(self, peer: ProcessId) -> None:
        slot = self._other(peer)
        self._learn(slot, self._news.get(slot, 0) | 1)

    def trust(self, peer: ProcessId) -> None:
        self._heard(self._other(peer))
