"""What a publish/subscribe process counts for the experiments of document 002, chapter 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from causalcast.protocols.membership.waves import SentTally


class Tally:
    """Counts so far. No part of the protocol's state: pickles as empty."""

    __slots__ = ("acks", "barriers", "false_positives", "operations", "sent", "waited")

    def __init__(self, sent: SentTally) -> None:
        self.sent = sent
        """Copies of PUB, SUB, UNS and ASK sent, by kind (figures 5.6 and 5.7)."""
        self.acks = 0
        """Acknowledgements sent."""
        self.false_positives = 0
        """Publications received without a subscription (section 5.6.6)."""
        self.operations = 0
        """Entries of barriers that decisions about delivery have looked at."""
        self.waited = 0
        """Publications that were not delivered when they came (section 5.6.4)."""
        self.barriers: dict[int, int] = {}
        """Publications by the size of their causal barrier (figure 5.9)."""

    def __reduce__(self) -> tuple[type[Tally], tuple[SentTally]]:
        return Tally, (self.sent,)

    def published(self, barrier: int) -> None:
        """A publication with so many direct dependencies."""
        self.barriers[barrier] = self.barriers.get(barrier, 0) + 1
