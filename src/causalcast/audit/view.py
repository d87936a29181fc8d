"""One process in one topic: what its log says there, and what the checks find out about it on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.violations import CODE, NO_REASON, Violations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import LogBody, TopicBody
    from causalcast.audit.members import Attendance, Member
    from causalcast.audit.result import FindingKind
    from causalcast.audit.topic_clock import Joiner, TopicClock
    from causalcast.audit.violations import Replay

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


class View:
    """The state of one process's replay in one topic. Positions are rows of its log, 0 where it never delivered."""

    def __init__(
        self,
        body: LogBody,
        attendance: Attendance,
        clock: Clock,
        topic: TopicClock,
        log: TopicBody | None,
        result: Replay,
    ) -> None:
        self.names = body.names
        self.clock = clock
        self.topic = topic
        self.log = log
        self.result = result
        self.process = body.process
        self.member: Member = clock.members[body.process]
        self.arrivals = attendance.arrivals(topic.topic)
        self.spans = attendance.intervals(topic.topic)
        """When it was a member of the topic."""
        self.dues = clock.left_out.dues.get(topic.topic, {}).get(body.process, ())
        """What it is entitled to by each stay, where rows that said so are left out."""
        self.own = topic.place.get(body.process, -1)
        self.position = np.zeros(topic.messages, dtype=np.int64)
        self.explicit = False
        """Whether it logs its own deliveries."""
        self.delivered = np.zeros(0, dtype=np.int64)
        """Messages in the order of its log, repeats included, and the rows where they stand."""
        self.delivered_at = np.zeros(0, dtype=np.int64)
        self.owed = np.zeros(topic.messages, dtype=bool)
        """Messages that it is entitled to, and those that it owes even if nothing that it saw depends on them."""
        self.owed_to_the_end = np.zeros(topic.messages, dtype=bool)
        self.stable_owed = np.zeros(topic.messages, dtype=bool)
        """Messages that it must report stable once it delivered them."""

    def add(
        self,
        kind: FindingKind,
        message: Ints,
        cause: Ints | None = None,
        at: Ints | None = None,
        cause_at: Ints | None = None,
        root: Bools | None = None,
        reason: int = NO_REASON,
        phantoms: tuple[Ints, Ints] | None = None,
    ) -> None:
        """Add violations; `phantoms` are the origins and numbers of dots that are not in the universe."""
        size = message.size
        if size == 0:
            return
        zero = np.zeros(size, dtype=np.int64)
        self.result.violations.append(
            Violations(
                topic=self.topic.topic,
                kind=CODE[kind],
                reason=reason,
                message=message,
                cause=zero - 1 if cause is None else cause,
                at=zero if at is None else at.astype(np.int64),
                cause_at=zero if cause_at is None else cause_at.astype(np.int64),
                root=np.ones(size, dtype=bool) if root is None else root,
                origin=None if phantoms is None else phantoms[0].astype(np.int64),
                counter=None if phantoms is None else phantoms[1].astype(np.int64),
            )
        )

    def first_absent(self, absent: Bools, rows: Ints) -> tuple[Ints, Ints]:
        """Of `rows`, return those with an absent message in their past, and for each the first such message."""
        topic = self.topic
        cause = np.full(rows.size, -1, dtype=np.int64)
        gone = np.flatnonzero(absent)
        origins, at = np.unique(topic.owner[gone], return_index=True)
        for a, first in zip(origins[::-1].tolist(), gone[at][::-1].tolist(), strict=True):
            cause[topic.past[a][rows] > first - topic.starts[a]] = first
        found = cause >= 0
        return rows[found], cause[found]

    def add_absent(self, kind: FindingKind, message: Ints, because: Ints, at: Ints | None = None) -> None:
        """Add absent messages; `because` is what `explain` says of them."""
        if message.size:
            self.add(kind, message, at=at, root=because < 0)
            self.result.violations[-1] = replace(self.result.violations[-1], because=because)

    def explain(self, absent: Bools, rows: Ints) -> Ints:
        """Return, for each of the rising `rows`, the first absent message in its past, -1 where there is none."""
        because = np.full(rows.size, -1, dtype=np.int64)
        explained, first = self.first_absent(absent, rows)
        because[np.searchsorted(rows, explained)] = first
        return because

    def foreign_past(self) -> Bools:
        """Mark what one who came late was given or delivered before it came, which may have become stable by then."""
        if self.arrivals:
            return ~self.owed | (self.position <= self.arrivals[-1])
        return np.zeros(self.topic.messages, dtype=bool)

    def after_joins(self, rows: Ints, joiners: Sequence[Joiner], *, last: bool = False) -> Bools:
        """Mark, for each joiner, the messages that follow, or are, its first since it came: joiners x rows.

        With `last`, since it last came.
        """
        topic = self.topic
        joiner = np.array([each.origin for each in joiners], dtype=np.int64)
        rank = np.array([each.last if last else each.first for each in joiners], dtype=np.int64)
        found: Bools = topic.owner[rows] == joiner[:, None]
        found &= rows - topic.starts[joiner][:, None] + 1 >= rank[:, None]
        found |= topic.past[np.ix_(joiner, rows)] >= rank[:, None]
        owner = topic.owner[rows]
        for i, each in enumerate(joiners):
            since = each.since_last if last else each.since
            if since is not None:
                found[i] = rows - topic.starts[owner] + 1 >= since[owner]
        return found
