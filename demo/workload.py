"""What the five members say, and why: the conversation and the stock trading of document 004 (sections 3.2, 3.4.1).

Nobody here knows sockets or time. A member is asked to start something (`tick`, `begin_round`) and is given what it
delivers (`receive`); both return the payloads that it broadcasts in consequence. The parts of all members together
are known beforehand, so that a member knows when it has seen everything.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from causalcast import Tag

MEMBERS: Final = ("ross", "rachel", "phoebe", "joey", "monica")

SCRIPT: Final = (
    ("ross", "I won't be able to join, I have to give a late lecture"),
    ("rachel", "Oh, too bad!"),
    ("ross", "Lecture canceled, joining soon!"),
    ("phoebe", "Great news!!"),
)
"""Each line is said once the one before it is delivered. Joey and Monica read."""


class Line(msgspec.Struct, frozen=True, tag="line"):
    """A line of the conversation."""

    round: int
    number: int
    text: str


class OptionPrice(msgspec.Struct, frozen=True, tag="option"):
    """A price that the option's server makes public."""

    option: str
    number: int
    price: float


class TheoreticalPrice(msgspec.Struct, frozen=True, tag="theory"):
    """A price derived from the option price with this number. The number is only for checking the monitors."""

    option: str
    number: int
    price: float


Payload: TypeAlias = Line | OptionPrice | TheoreticalPrice

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Payload).decode


class Plan(msgspec.Struct, frozen=True):
    """How much of everything there is."""

    ticks: int = 240
    tick_seconds: float = 0.04
    rounds: int = 100
    round_seconds: float = 0.1
    seed: int = 7

    @property
    def messages(self) -> int:
        """Of all members together: each option price has a theoretical price derived from it."""
        return 2 * self.ticks * len(MEMBERS) + self.rounds * len(SCRIPT)

    def broadcasts_of(self, member: str) -> int:
        """Of one member."""
        return 2 * self.ticks + self.rounds * sum(speaker == member for speaker, _ in SCRIPT)


class Score(msgspec.Struct):
    """What one member's application noticed."""

    delivered: int = 0
    stable: int = 0
    prices_shown: int = 0
    prices_ignored: int = 0
    prices_early: int = 0
    """Theoretical prices that came before the option price they are derived from."""
    prices_misjudged: int = 0
    """Obsolete ones shown or current ones ignored."""
    replies_early: int = 0
    """Lines that came before the line they answer."""
    confused: list[int] = []
    """Numbers of the lines of the first conversation that made no sense here, in the order in which they came."""


class Participant:
    """One member: speaker, option server, theoretical price server of its neighbour's option, monitor of all."""

    def __init__(self, name: str, plan: Plan) -> None:
        self.name = name
        self.score = Score()
        place = MEMBERS.index(name)
        self._values = MEMBERS[place - 1]
        """The option whose theoretical price is computed here."""
        self._random = random.Random(f"{plan.seed}/{name}")
        self._price = 25.0 + place
        self._ticks = 0
        self._options: dict[str, tuple[OptionPrice, Tag]] = {}
        self._heard: dict[int, list[int]] = {}
        """Round to the numbers of its lines, in the order in which they came."""

    def tick(self) -> bytes:
        """The price of this member's option moves."""
        self._ticks += 1
        self._price = round(max(1.0, self._price + self._random.choice((-0.5, -0.25, 0.25, 0.5))), 2)
        return _encode(OptionPrice(self.name, self._ticks, self._price))

    def begin_round(self, number: int) -> bytes:
        """The first line of a conversation."""
        return _encode(Line(number, 0, SCRIPT[0][1]))

    def sent(self, payload: bytes, tag: Tag) -> None:
        """This member's own broadcast is also something that happened to it."""
        self._notice(_decode(payload), tag)

    def receive(self, payload: bytes, tag: Tag) -> bytes | None:
        """A message is delivered; what it makes this member broadcast, if anything."""
        self.score.delivered += 1
        said = _decode(payload)
        self._notice(said, tag)
        if isinstance(said, OptionPrice) and said.option == self._values:
            return _encode(TheoreticalPrice(said.option, said.number, round(said.price * 0.96 + 1.0, 4)))
        if isinstance(said, Line) and said.number + 1 < len(SCRIPT):
            speaker, text = SCRIPT[said.number + 1]
            if speaker == self.name:
                return _encode(Line(said.round, said.number + 1, text))
        return None

    def _notice(self, said: Payload, tag: Tag) -> None:
        if isinstance(said, OptionPrice):
            self._options[said.option] = (said, tag)
        elif isinstance(said, Line):
            self._listen(said)
        else:
            self._judge(said, tag)

    def _listen(self, line: Line) -> None:
        heard = self._heard.setdefault(line.round, [])
        heard.append(line.number)
        if line.number and line.number - 1 not in heard:
            self.score.replies_early += 1
        if len(heard) == len(SCRIPT):
            del self._heard[line.round]
            if not self.score.confused and heard != sorted(heard):
                self.score.confused = heard

    def _judge(self, theory: TheoreticalPrice, tag: Tag) -> None:
        """Show a theoretical price, or ignore it: the option has changed when its latest price is concurrent."""
        latest, latest_tag = self._options.get(theory.option, (None, None))
        if latest is None or latest_tag is None or latest.number < theory.number:
            self.score.prices_early += 1
            return
        obsolete = tag.concurrent_with(latest_tag)
        if obsolete:
            self.score.prices_ignored += 1
        else:
            self.score.prices_shown += 1
        if obsolete != (latest.number > theory.number):
            self.score.prices_misjudged += 1
