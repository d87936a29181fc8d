"""The picture that proves a finding: the two messages, how one led to the other, and what the process did.

The path from cause to message is read from the logs' immediate dependencies, so every arrow is an event that some
log holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.picture import NEVER
from causalcast.audit.result import PictureEvent, SpaceTime

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causalcast.audit.clocks import Clock
    from causalcast.audit.digests import LogIndex
    from causalcast.audit.findings import Case
    from causalcast.audit.result import Role
    from causalcast.audit.topic_clock import TopicClock

MAX_PROCESSES: Final = 6
MAX_EVENTS: Final = 40


@dataclass(frozen=True, slots=True)
class _Event:
    process: str
    seq: int
    event: str
    message: str


class Witness:
    """Draws pictures from the clock and the indices of the logs."""

    def __init__(self, clock: Clock, logs: Mapping[str, LogIndex]) -> None:
        self.clock = clock
        self.logs = logs

    def picture(self, case: Case) -> SpaceTime | None:
        """Return the picture of one finding, `None` where the logs hold nothing to draw."""
        topic = self.clock.topics.get(case.topic)
        if topic is None or case.process is None:
            return None
        events: dict[_Event, Role] = {}
        message, cause = case.row, case.cause_row
        if case.kind == "undelivered" and case.effect_row >= 0:
            message, cause = case.effect_row, case.row
        if message >= 0 and cause >= 0:
            for event in self._path(topic, cause, message):
                events.setdefault(event, "path")
        for row, role in ((cause, "cause"), (message, "message")):
            if row >= 0 and topic.logged[row]:
                sender = topic.origins[int(topic.owner[row])]
                events[_Event(sender, int(topic.seq[row]), "broadcast", topic.name(row))] = role  # type: ignore[assignment]
        for event, role in self._at_the_process(case, topic):
            events[event] = role
        return _lay_out(case.process, events)

    def _at_the_process(self, case: Case, topic: TopicClock) -> list[tuple[_Event, Role]]:
        """Return what the process itself did with the messages of the finding."""
        process, name = case.process or "", case.message or ""
        found: list[tuple[_Event, Role]] = []
        if case.kind == "undelivered":
            if case.effect_row >= 0:
                seen = _Event(process, case.effect_at, "deliver", topic.name(case.effect_row))
                found.append((seen, "message"))
            found.append((self._never(process, name), "cause" if case.effect_row >= 0 else "message"))
        elif case.kind == "tag-mismatch":
            pass
        elif case.kind == "stable-order":
            found.append((_Event(process, case.at, "stable", name), "message"))
            if case.cause_at and case.cause is not None:
                what = "deliver" if "concurrent" in case.detail else "stable"
                found.append((_Event(process, case.cause_at, what, case.cause), "cause"))
        elif case.at:
            found.append((_Event(process, case.at, "deliver", name), "message"))
            if case.kind == "duplicate" and case.cause_at:
                found.append((_Event(process, case.cause_at, "deliver", name), "message"))
            elif case.cause is not None and case.cause_at:
                found.append((_Event(process, case.cause_at, "deliver", case.cause), "cause"))
            elif case.kind == "missing-cause" and case.cause is not None:
                found.append((self._never(process, case.cause), "cause"))
        return [(self._own(event, topic), role) for event, role in found]

    def _never(self, process: str, message: str) -> _Event:
        """Return what stands behind the process's last row for a message that it never delivered."""
        log = self.logs.get(process)
        last = log.rows + log.missing_rows if log is not None else 0
        return _Event(process, last + 1, NEVER, message)

    def _own(self, event: _Event, topic: TopicClock) -> _Event:
        """Name an own delivery what it is when the broadcast itself stands for it."""
        log = self.logs.get(event.process)
        index = log.topics.get(topic.topic) if log is not None else None
        if event.event == "deliver" and index is not None and event.message.startswith(f"{event.process}:"):
            at = int(np.searchsorted(index.seq, event.seq))
            if at < index.seq.size and int(index.seq[at]) == event.seq:
                return _Event(event.process, event.seq, "broadcast", event.message)
        return event

    def _path(self, topic: TopicClock, cause: int, message: int) -> list[_Event]:
        """Return the deliveries and broadcasts through which `cause` came to be before `message`, last first."""
        source = int(topic.owner[cause])
        rank = cause - int(topic.starts[source]) + 1
        found: list[_Event] = []
        current = message
        while int(topic.owner[current]) != source and len(found) < MAX_EVENTS:
            owner = int(topic.owner[current])
            sender = topic.origins[owner]
            first = int(topic.starts[owner]) + int(np.searchsorted(topic.past[source, topic.block(owner)], rank))
            if first > current:
                break
            found.append(_Event(sender, int(topic.seq[first]), "broadcast", topic.name(first)))
            step = self._step(topic, sender, first, cause, source, rank)
            if step is None:
                break
            current, seq = step
            found.append(_Event(sender, seq, "deliver", topic.name(current)))
        if int(topic.owner[current]) == source and current != cause and topic.logged[current]:
            found.append(_Event(topic.origins[source], int(topic.seq[current]), "broadcast", topic.name(current)))
        return [event for event in found if event.seq]

    def _step(
        self, topic: TopicClock, sender: str, row: int, cause: int, source: int, rank: int
    ) -> tuple[int, int] | None:
        """Return an immediate dependency of broadcast `row` that has `cause` in its past, and its delivery row."""
        log = self.logs.get(sender)
        if log is None:
            return None
        index = log.topics[topic.topic]
        at = int(np.searchsorted(index.seq, topic.seq[row]))
        start = int(index.delta_ends[at - 1]) if at else 0
        part = slice(start, int(index.delta_ends[at]))
        rows = topic.locate(log.names, index.delta_origin[part], index.delta_last[part])
        seqs = index.delta_seq[part]
        for i in np.argsort(seqs).tolist():
            dependency = int(rows[i])
            if dependency < 0:
                continue
            same = int(topic.owner[dependency]) == source and dependency >= cause
            if same or int(topic.past[source, dependency]) >= rank:
                return dependency, int(seqs[i])
        return None


def _lay_out(process: str, events: dict[_Event, Role]) -> SpaceTime | None:
    """Place events on process lines and in columns that respect both program order and the arrows."""
    if not events:
        return None
    lines = list(dict.fromkeys([*(event.process for event in events), process]))
    if len(lines) > MAX_PROCESSES:
        kept = {event.process for event, role in events.items() if role in ("message", "cause")} | {process}
        lines = [line for line in lines if line in kept] + [line for line in lines if line not in kept]
        lines = lines[:MAX_PROCESSES]
    shown = sorted((event for event in events if event.process in lines), key=lambda e: (e.process, e.seq))
    shown = shown[:MAX_EVENTS]
    sent = {event.message: i for i, event in enumerate(shown) if event.event == "broadcast"}
    arrows = [
        (sent[event.message], i)
        for i, event in enumerate(shown)
        if event.event in ("deliver", NEVER)
        and event.message in sent
        and shown[sent[event.message]].process != event.process
    ]
    before: dict[int, set[int]] = {i: set() for i in range(len(shown))}
    for i in range(1, len(shown)):
        if shown[i].process == shown[i - 1].process:
            before[i].add(i - 1)
    for source, target in arrows:
        before[target].add(source)
    columns: dict[int, int] = {}
    while len(columns) < len(shown):
        ready = [i for i in before if i not in columns and before[i] <= columns.keys()]
        # Logs that contradict each other have no linear extension: go on with the first event that is left.
        chosen = ready[0] if ready else next(i for i in before if i not in columns)
        columns[chosen] = len(columns)
    return SpaceTime(
        processes=tuple(sorted(lines)),
        events=tuple(
            PictureEvent(event.process, event.seq, columns[i], event.event, event.message, events[event])
            for i, event in enumerate(shown)
        ),
        arrows=tuple(arrows),
    )
