"""One process of a small case on its own: every state it can be in, each step run once.

What a process does is a function of its own inputs in their order (see `world`), so its states can be walked without
the others. A `Member` holds the states of one process as they are asked for. A *state* stands for all histories that
nothing later can tell apart: the same protocol state, queue, timers and account of what the application has seen. A
*cell* is a state with an inbox, what is in flight towards the process. The explorer puts cells together to the states
of the whole case; the protocol's code runs once per state and input, however many interleavings meet there.

A state of the protocol is compared by its pickle. Equal pickles are equal object graphs, so what is merged really is
the same; object graphs that cannot be pickled, or that are equal and pickle differently, are only kept apart. The time,
which counts steps, is part of a state only if the protocol ever reads it: see `ClockReadError`.
"""

from __future__ import annotations

import io
import pickle
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from causalcast.model import Roster, Stable, UnsupportedByStackError
from causalcast.protocols import Stack, WireMessage
from causalcast.simulation.feeding import Fed, InEpoch, InFlight, RefusedError, WorldPort, arrivals, feed
from causalcast.simulation.properties import Account, Violation, grown, left_over
from causalcast.simulation.steps import (
    ApplicationStep,
    Break,
    Broadcast,
    Closed,
    Crash,
    Duplicate,
    Fire,
    Join,
    LogEntry,
    Receive,
    Restart,
    Step,
    Suspect,
    Take,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from causalcast.model import ProcessId
    from causalcast.protocols import Process
    from causalcast.protocols.port import Timer
    from causalcast.simulation.properties import TableSizes

Post: TypeAlias = tuple[int, int, int]
"""Receiver's slot, sender's slot, number of the message."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class Mail:
    """What is in flight in a case, numbered: equal bytes, equal number."""

    def __init__(self) -> None:
        self.messages: list[InFlight] = []
        self._numbers: dict[object, int] = {}

    def number(self, item: InFlight) -> int:
        key = _in_bytes(item)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.messages)
            self.messages.append(item)
        return known


def _in_bytes(item: InFlight) -> object:
    if isinstance(item, Closed):
        return item
    if isinstance(item, InEpoch):
        return item.epoch, type(item.message), _ENCODER.encode(item.message)
    return type(item), _ENCODER.encode(item)


Told: TypeAlias = ApplicationStep | Crash
"""What a script tells a process to do."""


class Allotment(NamedTuple):
    """What one process may do of what the whole case has a fixed number of."""

    broadcasts: int = 0
    duplicates: int = 0
    """How often its incoming links repeat a message."""
    crashes: int = 0
    restarts: int = 0
    breaks: int = 0
    """How many of the session links that it keeps break."""
    suspicions: int = 0
    """How often it suspects somebody."""
    script: tuple[Told, ...] = ()
    """What it is told to do, in this order, at any time."""
    timers: int | None = None
    """How often each of its timers comes due, at most."""
    fired: tuple[Timer, ...] = ()
    """What has come due so far, in a fixed order; counted only where that is limited."""

    def after(self, timer: Timer) -> Allotment | None:
        """What is left once `timer` has come due; `None` if it does not any more."""
        if self.timers is None:
            return self
        if self.fired.count(timer) >= self.timers:
            return None
        return self._replace(fired=tuple(sorted((*self.fired, timer), key=repr)))


class Promptness(Enum):
    """Which events applications take at once, before anything else happens at their process."""

    NONE = "none"
    STABLE = "stable"
    ALL = "all"


class Input(NamedTuple):
    """A step of one process, with the number of the message it receives."""

    step: Step
    message: int = -1


class State(NamedTuple):
    """A state of one process: how to reach it, and what is known of it."""

    parent: int
    input: Input | None
    broadcasts: int
    absent: bool
    """Whether it has not joined yet."""
    crashed: bool
    retired: bool
    connected: tuple[ProcessId, ...]
    """To whom it keeps session links."""
    inputs: tuple[Input, ...]
    """Own steps that can be taken here; receptions depend on the inbox."""
    prompt: bool
    """Whether there is an event that the application takes before anything else happens here."""
    account: Account
    rest: tuple[Violation, ...]
    """P7 and P8, should this be the end."""


class Move(NamedTuple):
    """A step from one cell to the next."""

    input: Input
    cell: int
    posts: tuple[Post, ...]
    entries: tuple[LogEntry, ...]
    before: int
    """State before."""
    failure: str | None = None


class _Cell(NamedTuple):
    state: int
    inbox: tuple[tuple[int, ...], ...]
    """By sender's slot: numbers of messages in flight, in the order in which the link takes them."""
    left: Allotment


class _Edge(NamedTuple):
    state: int
    posts: tuple[Post, ...]
    entries: tuple[LogEntry, ...]
    failure: str | None


_BY_NAME: Final[dict[type, Callable[[Any], tuple[Callable[[str], str], tuple[str]]]]] = {
    WorldPort: lambda port: (str, (port.name,)),
    Roster: lambda roster: (str, (" ".join((roster.topic, *roster.names)),)),
    Stack: lambda stack: (str, (stack.name,)),
    type(WireMessage): lambda kind: (str, (kind.__qualname__,)),
}
"""What the digest of a state holds instead of what belongs to its host or never changes."""


class ClockReadError(Exception):
    """The protocol asks what time it is: states that differ in it must be kept apart, from the start."""


class Member:
    """The cells of one process of a case, made as they are asked for."""

    def __init__(  # noqa: PLR0913 - what a case says of a process, by name
        self,
        stack: Stack,
        roster: Roster,
        founders: Roster,
        name: ProcessId,
        mail: Mail,
        *,
        fifo: bool,
        prompt: Promptness = Promptness.NONE,
        merge: bool = True,
        clocked: bool = False,
        sizes: TableSizes | None = None,
    ) -> None:
        self.name = name
        self.slot = roster.slot(name)
        self.states: list[State] = []
        self.cells: list[_Cell] = []
        self.runs = 0
        """How often a step of the protocol was run to find out what it does."""
        self._stack = stack
        self._roster = roster
        self._founder = name in founders
        self._started_with = founders if name in founders else Roster([name])
        self._mail = mail
        self._fifo = fifo or stack.session_links
        self._prompt = prompt
        self._merge = merge
        self._clocked = clocked
        self._sizes = sizes
        self._session_links = stack.session_links
        self._out: list[Post] = []
        self._states: dict[object, int] = {}
        self._edges: dict[tuple[int, type, Input], _Edge | None] = {}
        """With the type of the step: as tuples, steps of different types can be equal."""
        self._cells: dict[_Cell, int] = {}
        self._moves: dict[int, tuple[Move, ...]] = {}
        self._posted: dict[tuple[int, int, int], int] = {}

    # ------------------------------------------------------------------ cells

    def start(self, allotment: Allotment) -> tuple[int, tuple[Post, ...]]:
        """The first cell with this allotment, and what the process sends at its start."""
        self._out.clear()
        process, port = self._fresh()
        posts = tuple(self._out)
        account = Account(self.name) if self._founder else Account.absent(self.name)
        state = self._state(-1, None, process, port, account, 0)
        return self._cell(_Cell(state, ((),) * len(self._roster), allotment)), posts

    def post(self, cell: int, sender: int, message: int) -> int:
        """The cell once a message of `sender` is in flight towards it."""
        key = (cell, sender, message)
        known = self._posted.get(key)
        if known is None:
            before = self.cells[cell]
            known = cell
            at = self.states[before.state]
            if not at.crashed and not at.retired:
                known = self._cell(before._replace(inbox=self._with(before.inbox, sender, message)))
            self._posted[key] = known
        return known

    def moves(self, cell: int) -> tuple[Move, ...]:
        """Every step that this process can take in `cell`."""
        known = self._moves.get(cell)
        if known is None:
            known = self._moves[cell] = tuple(self._find_moves(cell))
        return known

    def _find_moves(self, number: int) -> list[Move]:
        cell = self.cells[number]
        state = self.states[cell.state]
        inputs = list(_own(cell, state))
        if state.crashed or state.retired or state.prompt:
            inputs = inputs[:1]
        else:
            inputs += [(Input(step), cell.inbox, left) for step, left in self._asked(state, cell.left)]
            if not state.absent:
                inputs += self._arriving(cell, state)
        found = (self._move(cell, *each) for each in inputs)
        moves = [move for move in found if move is not None]
        if not state.prompt and not state.absent:
            moves += self._faults(cell)
        return moves

    def _asked(self, state: State, left: Allotment) -> list[tuple[Step, Allotment]]:
        """What the process may be told next, and the faults of its own that are steps of it."""
        steps: list[tuple[Step, Allotment]] = []
        if left.script and state.absent == isinstance(left.script[0], Join) and not isinstance(left.script[0], Crash):
            step: Step = left.script[0]
            if isinstance(step, Broadcast) and not step.payload:
                step = step._replace(payload=self._payload(state))
            steps.append((step, left._replace(script=left.script[1:])))
        if state.absent:
            return steps
        if left.broadcasts:
            fewer = left._replace(broadcasts=left.broadcasts - 1)
            steps.append((Broadcast(self.name, self._payload(state)), fewer))
        if left.restarts:
            steps.append((Restart(self.name), left._replace(restarts=left.restarts - 1)))
        if left.breaks:
            fewer = left._replace(breaks=left.breaks - 1)
            steps += [(Break(self.name, peer), fewer) for peer in state.connected]
        if left.suspicions:
            fewer = left._replace(suspicions=left.suspicions - 1)
            steps += [(Suspect(self.name, peer), fewer) for peer in self._roster.others(self.name)]
        return steps

    def _payload(self, state: State) -> bytes:
        return f"{self.name}/{state.broadcasts + 1}".encode()

    def _arriving(self, cell: _Cell, state: State) -> list[tuple[Input, tuple[tuple[int, ...], ...], Allotment]]:
        names = self._roster.names
        inputs = []
        for sender, messages in enumerate(cell.inbox):
            if not messages:
                continue
            if self._session_links:
                items = [self._mail.messages[number] for number in messages]
                places: Sequence[int] = arrivals(items, names[sender] in state.connected)
            else:
                places = (0,) if self._fifo else _distinct(messages)
            for place in places:
                inbox = self._after_arrival(cell.inbox, sender, place)
                step: Step = Receive(names[sender], self.name, place)
                if not self._session_links and isinstance(self._mail.messages[messages[place]], Closed):
                    step = Suspect(self.name, names[sender])
                inputs.append((Input(step, messages[place]), inbox, cell.left))
        return inputs

    def _after_arrival(
        self, inbox: tuple[tuple[int, ...], ...], sender: int, place: int
    ) -> tuple[tuple[int, ...], ...]:
        messages = inbox[sender]
        if self._session_links:
            item = self._mail.messages[messages[place]]
            rest = messages[place if isinstance(item, Closed) and item.last else place + 1 :]
        else:
            rest = messages[:place] + messages[place + 1 :]
        return (*inbox[:sender], rest, *inbox[sender + 1 :])

    def _move(self, cell: _Cell, each: Input, inbox: tuple[tuple[int, ...], ...], left: Allotment) -> Move | None:
        # A message in another place of the inbox is the same input.
        step = each.step._replace(place=0) if isinstance(each.step, Receive) else each.step
        edge = self._edge(cell.state, Input(step, each.message))
        if edge is None:
            return None
        if self.states[edge.state].retired:
            inbox, left = ((),) * len(self._roster), Allotment()
        target = self._cell(_Cell(edge.state, inbox, left))
        return Move(each, target, edge.posts, edge.entries, cell.state, edge.failure)

    def _faults(self, cell: _Cell) -> list[Move]:
        moves = []
        if cell.left.duplicates and not self._session_links:
            left = cell.left._replace(duplicates=cell.left.duplicates - 1)
            for sender, messages in enumerate(cell.inbox):
                for place in _distinct(messages):
                    inbox = self._with(cell.inbox, sender, messages[place])
                    step = Duplicate(self._roster.names[sender], self.name, place)
                    target = self._cell(_Cell(cell.state, inbox, left))
                    moves.append(Move(Input(step, messages[place]), target, (), (), cell.state))
        if cell.left.crashes or isinstance(next(iter(cell.left.script), None), Crash):
            state = self._crashed(cell.state)
            target = self._cell(_Cell(state, ((),) * len(self._roster), Allotment()))
            moves.append(Move(Input(Crash(self.name)), target, self._last_words(), (), cell.state))
        return moves

    def _last_words(self) -> tuple[Post, ...]:
        """The end of its links, or what tells a failure detector: behind all that it sent."""
        if not self._session_links and not self._stack.suspects:
            return ()
        number = self._mail.number(Closed(0, graceful=False, last=True))
        return tuple((slot, self.slot, number) for slot in range(len(self._roster)) if slot != self.slot)

    def _with(self, inbox: tuple[tuple[int, ...], ...], sender: int, message: int) -> tuple[tuple[int, ...], ...]:
        messages = (*inbox[sender], message)
        if not self._fifo:
            # Where any may come first their order says nothing: one cell for all orders.
            messages = tuple(sorted(messages))
        return (*inbox[:sender], messages, *inbox[sender + 1 :])

    def _cell(self, cell: _Cell) -> int:
        known = self._cells.get(cell)
        if known is None:
            known = self._cells[cell] = len(self.cells)
            self.cells.append(cell)
        return known

    # ------------------------------------------------------------------ states

    def state_of(self, cell: int) -> int:
        """The number of the state in `cell`."""
        return self.cells[cell].state

    def history(self, state: int) -> list[Input]:
        """The inputs that lead to `state`, the first ones found."""
        inputs: list[Input] = []
        while True:
            at = self.states[state]
            if at.input is None:
                return inputs[::-1]
            inputs.append(at.input)
            state = at.parent

    def _fresh(self) -> tuple[Process, WorldPort]:
        peers = self._roster.others(self.name) if self._session_links else None
        port = WorldPort(self.name, 0, self._carry, peers)
        process = self._stack.process(port, self._started_with)
        if self._founder:
            process.start()
        return process, port

    def _carry(self, _: ProcessId, destinations: Sequence[ProcessId], item: InFlight) -> None:
        number = self._mail.number(item)
        slots = self._roster.slots
        self._out.extend((slots[destination], self.slot, number) for destination in destinations)

    def _edge(self, state: int, each: Input) -> _Edge | None:
        key = (state, type(each.step), each)
        if key not in self._edges:
            self._edges[key] = self._run(state, each)
        return self._edges[key]

    def _run(self, number: int, each: Input) -> _Edge | None:
        """What the input does; `None` if the process refuses what its application asks."""
        self.runs += 1
        process, port = self._fresh()
        for earlier in self.history(number):
            process = self._feed(process, port, earlier).process
        self._out.clear()
        before = self.states[number]
        try:
            fed = self._feed(process, port, each)
            if port.clock_was_read and not self._clocked:
                raise ClockReadError
        except RefusedError:
            return None
        except ClockReadError:
            raise
        except Exception as error:
            if isinstance(error, UnsupportedByStackError) and isinstance(each.step, ApplicationStep | Restart):
                raise
            # Whatever a protocol raises between correct processes is a finding, and must not end the search.
            return _Edge(self._crashed(number), (), (), f"{type(error).__name__}: {error}")
        posts = tuple(self._out)
        account = before.account
        for entry in fed.entries:
            account = account.after(entry)
        broadcasts = before.broadcasts + isinstance(each.step, Broadcast)
        return _Edge(self._state(number, each, fed.process, port, account, broadcasts), posts, fed.entries, None)

    def _feed(self, process: Process, port: WorldPort, each: Input) -> Fed:
        item = self._mail.messages[each.message] if each.message >= 0 else None
        return feed(self._stack, self._started_with, process, port, each.step, item)

    def _state(
        self, parent: int, each: Input | None, process: Process, port: WorldPort, account: Account, broadcasts: int
    ) -> int:
        digest = self._digest(process, port) if self._merge else None
        absent = not self._founder and not port.steps
        key = (
            (digest, account.key, broadcasts, absent)
            if digest is not None
            else (parent, each and type(each.step), each)
        )
        known = self._states.get(key)
        if known is None:
            known = self._states[key] = len(self.states)
            inputs = [Input(Take(self.name))] if port.queue else []
            inputs.extend(Input(Fire(self.name, timer)) for timer in port.timers)
            rest = []
            if not account.out:
                rest = [
                    *left_over(self.name, process, self._roster.others(self.name)),
                    *grown(self.name, process, self._sizes),
                ]
            prompt = bool(port.queue) and (
                self._prompt is Promptness.ALL
                or (self._prompt is Promptness.STABLE and isinstance(port.queue[0], Stable))
            )
            self.states.append(
                State(
                    parent,
                    each,
                    broadcasts,
                    absent,
                    False,
                    port.retired,
                    tuple(sorted(port.connected)),
                    tuple(inputs),
                    prompt,
                    account,
                    tuple(rest),
                )
            )
        return known

    def _crashed(self, number: int) -> int:
        before = self.states[number]
        key = ("crashed", before.account.key, before.broadcasts) if self._merge else ("crashed", number)
        known = self._states.get(key)
        if known is None:
            known = self._states[key] = len(self.states)
            self.states.append(before._replace(crashed=True, inputs=(), connected=(), prompt=False, rest=()))
        return known

    def _digest(self, process: Process, port: WorldPort) -> bytes | None:
        drawn = port.drawn.getstate() if port.drawn is not None else None
        clock = port.steps if self._clocked else None
        out = io.BytesIO()
        pickler = pickle.Pickler(out, protocol=5)
        pickler.dispatch_table = _BY_NAME
        try:
            pickler.dump((process, list(port.queue), list(port.timers), drawn, clock, port.links, port.retired))
        except (TypeError, AttributeError, RecursionError, pickle.PicklingError):
            return None
        return out.getvalue()


def _own(cell: _Cell, state: State) -> Iterator[tuple[Input, tuple[tuple[int, ...], ...], Allotment]]:
    for each in state.inputs:
        left = cell.left.after(each.step.timer) if isinstance(each.step, Fire) else cell.left
        if left is not None:
            yield each, cell.inbox, left


def _distinct(messages: Sequence[int]) -> list[int]:
    """The first place of each message."""
    return [place for place, message in enumerate(messages) if message not in messages[:place]]
