"""What a clock and a replay have to know of messages that are left out of the logs since they are settled.

It says of who came late, or is gone, what the rows that are left out said: what they are entitled to, and what follows
their messages. Of all others the rows that are left say enough; see `settled`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causalcast.audit.cover import Reach

Numbers: TypeAlias = "Mapping[str, int]"
"""A number of each origin."""


@dataclass(frozen=True, slots=True)
class Dues:
    """What one process is entitled to in one topic.

    That is what each origin sent from number `first` on, of other origins from `others` on; see `members` for what the
    rows that are left add. Of one that is gone it is no more than up to number `last`, of other origins nothing.
    """

    first: Numbers
    others: int
    last: Numbers | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """By topic, what is to be known of processes that came late or are gone."""

    dues: Mapping[str, Mapping[str, Dues]] = field(default_factory=dict)
    begun: Mapping[str, Mapping[str, Numbers]] = field(default_factory=dict)
    """Who came late and whose first message since is left out: by origin, from which number on messages follow it.
    Of other origins all do."""
    bonds: Mapping[str, Reach] = field(default_factory=dict)
    """From which numbers on messages follow one that stays, where that is not in the rows that are left."""


NOTHING = LeftOut()
