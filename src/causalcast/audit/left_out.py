"""What a clock and a replay have to know of messages that are left out of the logs since they are settled.

It says of who came late, or is gone, what the rows that are left out said: what they are entitled to, and what follows
their messages. Of all others the rows that are left say enough; see `settled`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.audit.cover import Reach

Numbers: TypeAlias = "Mapping[str, int]"
"""A number of each origin."""


@dataclass(frozen=True, slots=True)
class Dues:
    """What one process is entitled to by one stay in one topic; see `members` for what the rows that are left add.

    Of a stay that is over that is what each origin sent from number `first` to number `last`, of other origins nothing.
    """

    first: Numbers
    """From which numbers on it met each origin in its stay."""
    last: Numbers | None = None
    since: Numbers | None = None
    """Where its first message in its stay is left out: from which numbers on messages follow that. So do what
    `LeftOut.after` has, and what follows any of these."""

    @property
    def size(self) -> int:
        """How many numbers that are, or one."""
        return max(len(self.first) + len(self.last or ()) + len(self.since or ()), 1)


@dataclass(frozen=True, slots=True)
class Begun:
    """Of one who came late: by origin, from which number on messages follow its first one since it first came.

    So do those that `LeftOut.after` has, and what follows any of these. `None` where that message is not left out.
    `last` is the same since it came by row `came` of its log, the last time then.
    """

    first: Numbers | None = None
    last: Numbers | None = None
    came: int = 0

    @property
    def size(self) -> int:
        """How many numbers that are."""
        return len(self.first or ()) + len(self.last or ())


@dataclass(frozen=True, slots=True)
class LeftOut:
    """By topic, what is to be known of processes that came late or are gone."""

    dues: Mapping[str, Mapping[str, Sequence[Dues]]] = field(default_factory=dict)
    """Of each process, those of all its stays, in order."""
    after: Mapping[str, Numbers] = field(default_factory=dict)
    """From which numbers on messages follow all that is left out; those of others do if they follow one of these."""
    begun: Mapping[str, Mapping[str, Begun]] = field(default_factory=dict)
    """Of each who came late, and whose first message since is left out."""
    bonds: Mapping[str, Reach] = field(default_factory=dict)
    """From which numbers on messages follow one that stays, where that is not in the rows that are left."""


NOTHING = LeftOut()
