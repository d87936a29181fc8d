"""The explorer: every schedule of a small case, up to the order of steps that cannot feel each other.

Theory of operation. A *case* is a stack, a few processes, what each may broadcast, and faults. Its *state* is one cell
per process (see `local`) and the truth about the broadcasts so far (see `properties`). The search goes through states
breadth first, in layers of schedules of equal length, so the first breach found has a schedule that is as short as
any it looks at. States of a layer that are equal are one state, and the number of schedules that meet there is
carried along, so the report says how many interleavings the states stand for.

What is shared is dealt before the run: who has which of the broadcasts, at which process the links repeat a message,
who crashes or restarts, whose session link breaks. Every deal is explored. Within a deal a step of one process touches
its own cell, and otherwise only adds to the inboxes of others: two steps of different processes are independent, in
either order they lead to the same state, and neither can disable the other. That is why a join is no different from
the other steps: what is sent to a process that has not joined yet waits in its inbox. It is also why the end of a link
is a message (see `feeding`), and why that of a process that is gone stays: whether somebody connects before or after,
the same end is met.

One thing is shared all the same. Who is entitled to a message depends on whether a join (a subscription) was complete
before the broadcast. Where members or subscriptions can change, the application's taking of such news and a broadcast
do not commute, and are taken for dependent.

**Reduction.** In each state only the steps of some processes S are followed, if the processes outside of S, left to
themselves, can never send S anything that would enable a step there, nor take a step that does not commute with what S
can do now. Where links keep order, a message behind another one enables nothing. Those
steps are a persistent set (Godefroid 1996): whatever the others do before the first step of a process of S adds to the
ends of its inboxes at most, so that first step is one that is enabled now, and it is independent of all that the others
did. The smallest such S that can move is taken; whether the others can still send is found out by walking all that
they can do, which is exact, and remembered. Every step uses something up, so there is no cycle and hence no step
ignored for ever; then a search by persistent sets reaches every state without successors, through a schedule of every
class of equivalent schedules that end in one (the proof is by induction on the length: the first step from S in any
such schedule can be moved to its front). A breach of P1, P3, P4 or P5 is a matter of one process's own history and of
the past and the audience of what is in it. That is the same in all equivalent schedules, and every history is the
beginning of one in a complete schedule, so none is missed; what must hold at last (P2, P6, P7, P8) is judged in the
states without successors, and none of those is missed.
`tests/simulation/test_explorer.py` compares with a plain walk of `World` over every interleaving.
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from causalcast.model import Roster
from causalcast.simulation.local import Allotment, ClockReadError, Mail, Member, Move, Post, Promptness, Told
from causalcast.simulation.properties import ERROR, End, Violation, judge_end
from causalcast.simulation.steps import Closed, Duplicate, Join, Receive, Step, Suspect
from causalcast.simulation.truth import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from causalcast.protocols import Stack
    from causalcast.simulation.properties import TableSizes

_LETS_IN: Final = frozenset({"join", "subscribe"})
_SENDS: Final = frozenset({"broadcast"})
_NEWS: Final = ((_SENDS, _LETS_IN), (_LETS_IN, _SENDS))
"""Kinds of log entries, and those with which they do not commute: who was there when something was broadcast."""

SILENCE_LIMIT: Final = 20_000
"""States looked at to find out that some processes will never send to the others: timers that come again may have no
end of them. After that they are taken to send, which is always safe.
"""

DEFAULT_LIMIT: Final = 2_000_000
"""States after which a search gives up and says so."""

Composite: TypeAlias = tuple[int, ...]
"""A state of the case: the cell of each process, then the number of the truth."""


@dataclass(frozen=True, slots=True)
class Case:
    """What to explore."""

    stack: Stack
    names: tuple[str, ...]
    """All processes; those whose script begins with `Join` are absent until then."""
    broadcasts: int | tuple[int, ...]
    """Of all members from the start together, in turn; with `anyone`, in every way to share them out among all
    processes; or how many of each. At any time.
    """
    anyone: bool = False
    fifo: bool = False
    """Links keep order, as session links always do. Otherwise whatever is in flight on a link may come next."""
    duplicates: int | tuple[int, ...] = 0
    """How many messages in flight are repeated, at most; or how many on the way to each."""
    crashes: int | tuple[int, ...] = 0
    """How many processes crash, at most; or which, as 0 or 1 for each. Where the stack suspects, all others are told so
    by what comes on their links behind all that was sent.
    """
    restarts: int | tuple[int, ...] = 0
    """How many times a process restarts, at most; or how many times each. Where the stack recovers."""
    breaks: int | tuple[int, ...] = 0
    """How many session links break, at most; or how many of those that each keeps."""
    suspicions: int | tuple[int, ...] = 0
    """How many times a process takes another for crashed, at most; or how many times each does."""
    scripts: Mapping[str, tuple[Told, ...]] = field(default_factory=dict)
    """What processes are told to do, in this order, each step at any time; a broadcast without payload gets one."""
    prompt: Promptness = Promptness.NONE
    """Which events applications take at once; a restriction, which makes larger cases possible."""
    timers: int | None = None
    """How often each timer of a process comes due, at most; a restriction, without which a case whose timers come
    again for ever has no end.
    """
    properties: frozenset[str] | None = None
    """What to check; what the stack promises if `None`."""
    sizes: TableSizes | None = None
    """For P7."""

    @property
    def checked(self) -> frozenset[str]:
        """The properties to check: P7 only with `sizes`, and where time is not cut short, which empties tables; that a
        process fails is always a finding.
        """
        checked = (self.stack.promises if self.properties is None else self.properties) | {ERROR}
        return checked if self.sizes is not None and self.timers is None else checked - {"P7"}

    @property
    def joiners(self) -> tuple[str, ...]:
        """Those who are absent at the start."""
        return tuple(name for name, steps in self.scripts.items() if steps and isinstance(steps[0], Join))

    @property
    def members(self) -> tuple[str, ...]:
        """Those who are there from the start."""
        joiners = self.joiners
        return tuple(name for name in self.names if name not in joiners)

    def deals(self) -> Iterator[tuple[Allotment, ...]]:
        """Every way to share out broadcasts and faults, one allotment per process in order of name."""
        names, members = Roster(self.names).names, Roster(self.members).names
        broadcasts = self.broadcasts
        if isinstance(broadcasts, int) and not self.anyone:
            turns, rest = divmod(broadcasts, max(len(members), 1))
            dealt = {name: turns + (place < rest) for place, name in enumerate(members)}
            broadcasts = tuple(dealt.get(name, 0) for name in names)
        shared = (broadcasts, self.duplicates, self.crashes, self.restarts, self.breaks, self.suspicions)
        scripts = tuple(tuple(self.scripts.get(name, ())) for name in names)
        for deal in product(*(_shares(total, len(names)) for total in shared)):
            if max(deal[2]) <= 1:
                yield tuple(map(Allotment, *deal, scripts, (self.timers,) * len(names)))


def _shares(total: int | tuple[int, ...], number: int) -> Iterator[tuple[int, ...]]:
    """Every way to share `total` things among `number`; just one if they are shared out already."""
    if isinstance(total, tuple):
        yield total
        return
    for bars in combinations(range(total + number - 1), number - 1):
        ends = (-1, *bars, total + number - 1)
        yield tuple(after - before - 1 for before, after in pairwise(ends))


class Found(NamedTuple):
    """A breach, and the schedule that leads to it."""

    violation: Violation
    schedule: tuple[Step, ...]


@dataclass(slots=True)
class Outcome:
    """What a search covered, and the first breach it found."""

    states: int = 0
    steps: int = 0
    """Transitions between states."""
    schedules: int = 0
    """Complete schedules that these states stand for; those of the reduction only, each for all its equivalents."""
    runs: int = 0
    """How often a step of protocol code was run."""
    depth: int = 0
    """Steps of the longest schedule looked at."""
    exhausted: bool = True
    """Whether the search saw everything, rather than stop at a breach or a limit."""
    limited: bool = False
    seconds: float = 0.0
    found: Found | None = None


def _property(violation: Violation) -> str:
    return violation.property


class _ViolatedError(Exception):
    def __init__(self, found: Found) -> None:
        super().__init__(found)
        self.found = found


class _LimitError(Exception):
    pass


def explore(
    case: Case,
    *,
    limit: int = DEFAULT_LIMIT,
    reduce: bool = True,
    merge: bool = True,
    progress: Callable[[Outcome], None] | None = None,
    on_end: Callable[[tuple[Step, ...]], None] | None = None,
) -> Outcome:
    """Search `case` until a breach, the end, or `limit` states.

    Without `reduce` every interleaving is followed, without `merge` only equal histories are one state. `on_end` is
    given a schedule that leads to each state without successors.
    """
    started = time.perf_counter()
    outcome = Outcome()
    search = _Search(case, outcome, limit, reduce=reduce, merge=merge, progress=progress, on_end=on_end)
    try:
        try:
            search.run_all()
        except ClockReadError:
            outcome = Outcome()
            search = _Search(
                case, outcome, limit, reduce=reduce, merge=merge, clocked=True, progress=progress, on_end=on_end
            )
            search.run_all()
    except _ViolatedError as violated:
        outcome.found = violated.found
        outcome.exhausted = False
    except _LimitError:
        outcome.exhausted = False
        outcome.limited = True
    outcome.runs = sum(member.runs for member in search.members)
    outcome.seconds = time.perf_counter() - started
    return outcome


class _Layer(NamedTuple):
    """States that are equally many steps from the start, and for each where it was come from first."""

    states: list[Composite]
    schedules: list[int]
    parents: array[int]
    moves: array[int]
    """Place among the moves of its process, times the number of processes, plus the slot of the process."""


class _Search:
    def __init__(
        self,
        case: Case,
        outcome: Outcome,
        limit: int,
        *,
        reduce: bool,
        merge: bool,
        clocked: bool = False,
        progress: Callable[[Outcome], None] | None,
        on_end: Callable[[tuple[Step, ...]], None] | None,
    ) -> None:
        self.case = case
        self.outcome = outcome
        self.limit = limit
        self.reduce = reduce
        self.progress = progress
        self.on_end = on_end
        roster = Roster(case.names)
        founders = Roster(case.members)
        self.mail = Mail()
        self.members = [
            Member(
                case.stack,
                roster,
                founders,
                name,
                self.mail,
                fifo=case.fifo,
                prompt=case.prompt,
                merge=merge,
                clocked=clocked,
                sizes=case.sizes,
            )
            for name in roster.names
        ]
        self.slots = tuple(range(len(roster)))
        self.groups = [
            (group, tuple(slot for slot in self.slots if slot not in group))
            for size in range(1, len(roster))
            for group in combinations(self.slots, size)
        ]
        self.checked = case.checked
        self.tags_checked = "P4" in self.checked
        self.truths: list[Truth] = [Truth.start(case.stack, founders)]
        self.truth_numbers = {self.truths[0].key: 0}
        self.judged: dict[tuple[int, int, int, int], tuple[int, tuple[Violation, ...]]] = {}
        self.silent: dict[tuple[int, ...], bool] = {}
        self.opened: dict[frozenset[tuple[int, int]], int] = {}
        self.keeps_order = case.fifo and not case.stack.session_links
        self.trail: list[tuple[array[int], array[int]]] = []

    # ------------------------------------------------------------------ the walk

    def run_all(self) -> None:
        """Every schedule of the case."""
        for deal in self.case.deals():
            self.run(deal)

    def run(self, deal: Sequence[Allotment]) -> None:
        """Every schedule of one deal."""
        self.trail.clear()
        self.start = self._start(deal)
        layer = _Layer([self.start], [1], array("L", [0]), array("L", [0]))
        self.outcome.states += 1
        while layer.states:
            self.trail.append((layer.parents, layer.moves))
            self.outcome.depth = max(self.outcome.depth, len(self.trail) - 1)
            layer = self._next(layer)
            if self.progress is not None:
                self.progress(self.outcome)

    def _start(self, deal: Sequence[Allotment]) -> Composite:
        cells: list[int] = []
        posts: list[Post] = []
        for member, allotment in zip(self.members, deal, strict=True):
            cell, sent = member.start(allotment)
            cells.append(cell)
            posts.extend(sent)
        for receiver, sender, message in posts:
            cells[receiver] = self.members[receiver].post(cells[receiver], sender, message)
        return (*cells, 0)

    def _next(self, layer: _Layer) -> _Layer:
        outcome, members, number = self.outcome, self.members, len(self.members)
        after = _Layer([], [], array("L"), array("L"))
        places: dict[Composite, int] = {}
        for index, (state, schedules) in enumerate(zip(layer.states, layer.schedules, strict=True)):
            slots = self._to_follow(state)
            if not slots:
                outcome.schedules += schedules
                self._judge_end(state, index)
                if self.on_end is not None:
                    self.on_end(self._schedule(index))
            for slot in slots:
                for place, move in enumerate(members[slot].moves(state[slot])):
                    outcome.steps += 1
                    target = self._after(state, slot, move)
                    if move.entries or move.failure is not None:
                        truth, found = self._judge(slot, state[slot], place, state[-1])
                        target[-1] = truth
                        if found:
                            raise _ViolatedError(Found(found[0], self._schedule(index, (slot, place))))
                    key = tuple(target)
                    known = places.get(key)
                    if known is None:
                        places[key] = len(after.states)
                        after.states.append(key)
                        after.schedules.append(schedules)
                        after.parents.append(index)
                        after.moves.append(place * number + slot)
                    else:
                        after.schedules[known] += schedules
            if outcome.states + len(after.states) > self.limit:
                raise _LimitError
        outcome.states += len(after.states)
        return after

    def _after(self, state: Composite, slot: int, move: Move, without: tuple[int, ...] = ()) -> list[int]:
        """The state after a move; processes `without` a cell in it get no messages."""
        target = list(state)
        target[slot] = move.cell
        for receiver, sender, message in move.posts:
            if receiver not in without:
                target[receiver] = self.members[receiver].post(target[receiver], sender, message)
        return target

    # ------------------------------------------------------------------ reduction

    def _to_follow(self, state: Composite) -> tuple[int, ...]:
        """The processes whose steps are a persistent set; empty if nobody can move."""
        movable = tuple(slot for slot in self.slots if self.members[slot].moves(state[slot]))
        if not self.reduce or len(movable) < 2:
            return movable
        for group, others in self.groups:
            followed = tuple(slot for slot in group if slot in movable)
            if followed and len(followed) < len(movable) and self._silent_towards(group, others, state):
                return followed
        return movable

    def _open_to(self, group: tuple[int, ...], others: tuple[int, ...], state: Composite) -> frozenset[tuple[int, int]]:
        """Receivers of the group and senders of the others, such that the next message would enable a step."""
        cells = {slot: self.members[slot].cells[state[slot]] for slot in group}
        return frozenset(
            (receiver, sender)
            for receiver, cell in cells.items()
            for sender in others
            if not self.keeps_order or not cell.inbox[sender]
        )

    def _conflicts(self, group: tuple[int, ...], state: Composite) -> int:
        """Which of `_NEWS` must not come from others before the group moves: a bit for each."""
        if self.truths[0].present is None:
            return 0
        moves = (move for slot in group for move in self.members[slot].moves(state[slot]))
        kinds = {entry.kind for move in moves for entry in move.entries}
        return sum(bit for bit, (_, conflicting) in enumerate(_NEWS, 1) if kinds & conflicting)

    def _silent_towards(self, group: tuple[int, ...], others: tuple[int, ...], state: Composite) -> bool:
        """Whether the others, left to themselves, can never send to the group."""
        conflicts = self._conflicts(group, state)
        opened = self._open_to(group, others, state)
        here = (conflicts, self.opened.setdefault(opened, len(self.opened)))
        start = (*(state[slot] if slot in others else -1 for slot in self.slots), *here)
        news: frozenset[str] = frozenset().union(*(kinds for bit, (kinds, _) in enumerate(_NEWS, 1) if conflicts & bit))
        known = self.silent.get(start)
        if known is not None:
            return known
        seen = {start}
        todo = [start]
        while todo:
            if len(seen) > SILENCE_LIMIT:
                self.silent[start] = False
                return False
            at = todo.pop()
            for slot in others:
                for move in self.members[slot].moves(at[slot]):
                    if any((receiver, slot) in opened for receiver, _, _ in move.posts) or (
                        news and any(entry.kind in news for entry in move.entries)
                    ):
                        self.silent[start] = False
                        return False
                    after = tuple(self._after(at, slot, move, group))
                    if after not in seen:
                        known = self.silent.get(after)
                        if known is False:
                            self.silent[start] = False
                            return False
                        seen.add(after)
                        if known is None:
                            todo.append(after)
        # All that was seen can do no more than the start can.
        self.silent.update(dict.fromkeys(seen, True))
        return True

    # ------------------------------------------------------------------ judgement

    def _judge(self, slot: int, cell: int, place: int, truth_number: int) -> tuple[int, tuple[Violation, ...]]:
        """The truth after a move that the application sees, and what the move breaks."""
        key = (slot, cell, place, truth_number)
        known = self.judged.get(key)
        if known is None:
            move = self.members[slot].moves(cell)[place]
            known = self.judged[key] = self._judge_anew(slot, move, truth_number)
        return known

    def _judge_anew(self, slot: int, move: Move, truth_number: int) -> tuple[int, tuple[Violation, ...]]:
        member = self.members[slot]
        if move.failure is not None:
            return truth_number, (Violation(ERROR, member.name, move.failure),)
        account = member.states[move.before].account
        truth = self.truths[truth_number]
        found: list[Violation] = []
        for entry in move.entries:
            truth = truth.after(entry, account)
            found += account.judge(entry, truth, tags=self.tags_checked)
            account = account.after(entry)
        if truth is not self.truths[truth_number]:
            truth_number = self.truth_numbers.setdefault(truth.key, len(self.truths))
            if truth_number == len(self.truths):
                self.truths.append(truth)
        return truth_number, tuple(violation for violation in found if violation.property in self.checked)

    def _judge_end(self, state: Composite, index: int) -> None:
        """Raise if the case must not end like this."""
        states = (member.states[member.state_of(cell)] for member, cell in zip(self.members, state, strict=False))
        ends = [End(end.account, end.crashed, end.rest) for end in states]
        found = [each for each in judge_end(self.truths[state[-1]], ends) if each.property in self.checked]
        if found:
            raise _ViolatedError(Found(min(found, key=_property), self._schedule(index)))

    # ------------------------------------------------------------------ schedules

    def _schedule(self, index: int, last: tuple[int, int] | None = None) -> tuple[Step, ...]:
        """The steps to the state at `index` of the layer at hand, and one more move."""
        number = len(self.members)
        path = [] if last is None else [last]
        for parents, moves in reversed(self.trail[1:]):
            place, slot = divmod(moves[index], number)
            path.append((slot, place))
            index = parents[index]
        links = {
            (sender, slot): list(in_flight)
            for slot, member in enumerate(self.members)
            for sender, in_flight in enumerate(member.cells[self.start[slot]].inbox)
        }
        steps: list[Step] = []
        state = self.start
        slots = {member.name: member.slot for member in self.members}
        for slot, place in reversed(path):
            move = self.members[slot].moves(state[slot])[place]
            step = move.input.step
            if isinstance(step, Receive | Duplicate):
                # An inbox without order says which message; the world wants to know where it is.
                messages = links[slots[step.sender], slot]
                step = step._replace(place=messages.index(move.input.message))
                if isinstance(step, Receive):
                    self._arrive(messages, step.place)
                else:
                    messages.append(move.input.message)
            elif move.input.message >= 0 and isinstance(step, Suspect):
                links[slots[step.peer], slot].remove(move.input.message)
            steps.append(step)
            for receiver, sender, message in move.posts:
                links[sender, receiver].append(message)
            state = tuple(self._after(state, slot, move))
        return tuple(steps)

    def _arrive(self, messages: list[int], place: int) -> None:
        item = self.mail.messages[messages[place]]
        if self.case.stack.session_links:
            del messages[: place if isinstance(item, Closed) and item.last else place + 1]
        else:
            del messages[place]
