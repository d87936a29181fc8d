"""What a process of `tcb-dynamic` knows, and what membership, joiners, journal and laboratory ask of it.

Source: document 004, algorithms 12 and 13, chapter 6. What it does with messages is in `tcb_dynamic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from causalcast.protocols.membership.dot_snapshot import membership_state, restore_membership
from causalcast.protocols.ordering.base import Ordering
from causalcast.protocols.ordering.meter import Meter
from causalcast.protocols.ordering.tcb_dynamic_contexts import Contexts
from causalcast.protocols.ordering.tcb_dynamic_graph import DotGraph, index_of
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    DotNode,
    Dotted,
    DottedMessage,
    ForgetDot,
    Spoken,
    Transfer,
    column_of,
    columns_of,
)
from causalcast.protocols.ordering.tcb_dynamic_phantoms import Phantoms
from causalcast.protocols.ordering.tcb_dynamic_snapshot import (
    DynamicState,
    decode_state,
    encode_state,
    nodes_state,
    restore_nodes,
    restore_vectors,
    tag_of,
    vectors_state,
)
from causalcast.protocols.ordering.tcb_dynamic_vectors import Vectors
from causalcast.protocols.ordering.tcb_graph import DELIVERED, STABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.membership.dots import DotMembership
    from causalcast.protocols.ordering.tcb_dynamic_messages import TransferredEviction, TransferredMember
    from causalcast.protocols.ordering.tcb_dynamic_tag import DottedTag
    from causalcast.protocols.port import BroadcastMessage, Port


class DottedOrdering(Ordering):
    """The tables of one process: what it has taken, what it has, and what the others were heard to have."""

    def __init__(self, port: Port, membership: DotMembership) -> None:
        roster = membership.roster
        self._membership = membership
        self._me = membership.name
        self._mine = columns_of(self._me)
        # The application's side: what it has taken.
        self._contexts = Contexts()
        """The dots it has taken that no other dot it has taken has in its past."""
        self._meter = Meter()
        self._vectors = Vectors(roster, roster.topic, self._meter)
        self.taken: dict[str, int] = dict.fromkeys(self._vectors.view.columns, 0)
        """By column, in the order of the vectors."""
        self._hidden: list[DotNode] = []
        """Delivered dots that are no messages, with something untaken in their past; in order of delivery."""
        self._apart: dict[RawDot, tuple[RawDot, ...]] = {}
        """The contexts of delivered messages that are not taken, where those of their tags differ."""
        self.phantoms = Phantoms(port, len(roster))
        self._idle = self.phantoms.idle
        # The middleware's side.
        self.graph = DotGraph()
        self.delivered = dict(self.taken)
        self._last: dict[ProcessId, tuple[RawDot]] = {}
        """By other member, the context of what follows only its last message, if that was delivered since the start."""
        self._deliveries = 0
        self.count(roster.others(self._me))

    def _leave_graph(self, node: DotNode) -> None:
        self.graph.leave(node)
        if isinstance(node.message, ForgetDot) and node.stage == STABLE:
            self._membership.may_forget(node.message.members)

    def _tag(self, message: DottedMessage, past: int) -> DottedTag:
        return tag_of(message, self._vectors.messages(past), self._vectors.view)

    def _report(self, stable: Iterable[RawDot]) -> None:
        """These dots are stable now; all that precedes them is stable already or among them."""
        tell = self._membership.news.stable
        for node in sorted(self.graph.of(stable), key=index_of):
            node.stage = STABLE
            tag = node.tag
            if tag is not None:
                tell(tag)
            elif node.taken:
                self._leave_graph(node)

    # ------------------------------------------------------------------ what the membership asks and decides

    @property
    def is_level(self) -> bool:
        """Whether the application has taken all that is delivered here."""
        return self.taken == self.delivered

    @property
    def has_hidden(self) -> bool:
        """Whether a delivered dot that is no message is not taken."""
        return bool(self._hidden)

    def count(self, members: Iterable[ProcessId]) -> None:
        """From now on `members` are those whose word stability waits for; those not heard have nothing."""
        heard = self._vectors.heard
        self._vectors.heard = {name: heard.get(name, 0) for name in members}
        self._vectors.recount()
        self._report(self._vectors.settle(self.delivered))

    def add(self, name: ProcessId, past: int) -> None:
        """`name` has joined with `past`; who is counted is not changed otherwise."""
        for column in columns_of(name):
            self.taken[column] = self.delivered[column] = 0
        heard = {**self._vectors.heard, name: past}
        self._vectors.heard = heard
        self._rename([*self._vectors.view, name])

    def forget(self, names: Collection[ProcessId]) -> None:
        """Nothing names these any more."""
        for name in names:
            for column in columns_of(name):
                del self.taken[column], self.delivered[column]
            self._last.pop(name, None)
            self.phantoms.forget(name)
        self._rename([name for name in self._vectors.view if name not in names])

    def _rename(self, names: Collection[ProcessId]) -> None:
        self._vectors.rename(names, self.graph.nodes.values())
        columns = self._vectors.view.columns
        self.taken = {column: self.taken[column] for column in columns}
        self.delivered = {column: self.delivered[column] for column in columns}
        self._idle.members(len(names))

    def is_in(self, past: int, dot: RawDot) -> bool:
        """Whether `dot`, which is delivered here, is in `past`; what is of a forgotten member is in all."""
        return dot[0] not in self.delivered or self._vectors.count(past, dot[0]) >= dot[1]

    def own_since(self, name: ProcessId) -> tuple[Dotted, ...]:
        """This process's dots that `name` was not heard to have, in order."""
        past = self._vectors.heard.get(name, 0)
        known = {column: self._vectors.count(past, column) for column in self._mine}
        return tuple(
            node.message
            for node in self.graph.in_order()
            if node.message is not None and node.column in known and node.counter > known[node.column]
        )

    def follows_last(self, node: DotNode) -> bool:
        """Whether `node` follows this process's latest dot that is no message."""
        column = self._mine[1]
        return self.is_in(node.past, (column, self.taken[column]))

    def before_last(self, dots: Iterable[Dotted]) -> tuple[Dotted, ...]:
        """Those of `dots` that precede this process's latest dot that is no message, while that is not stable."""
        last = self.graph.nodes.get((self._mine[1], self.taken[self._mine[1]]))
        if last is None:
            return ()
        return tuple(dot for dot in dots if self.is_in(last.past, (column_of(dot), dot.counter)))

    # ------------------------------------------------------------------ state for a joiner

    def transfer(
        self,
        join: DotNode,
        members: tuple[TransferredMember, ...],
        evictions: tuple[TransferredEviction, ...],
        carried: tuple[RawDot, ...],
        state: bytes | None,
    ) -> Transfer:
        """What a joiner takes over, the application's `state` with it; this process is level."""
        vectors = self._vectors
        return Transfer(
            join=(join.column, join.counter),
            names=vectors.view.names,
            members=members,
            taken=tuple(self.taken[column] for column in vectors.view.columns),
            stable=vectors.stable,
            nodes=self.graph.transferred(vectors.lanes),
            context=self._contexts.of_dot(),
            seen=self._contexts.of_tag(),
            evictions=evictions,
            carried=carried,
            waiting=self.graph.received(),
            phantoms=tuple(self.phantoms.waiting.values()),
            state=state,
        )

    def heard(self, name: ProcessId) -> tuple[int, ...]:
        """What `name` was heard to have; nothing if it is not counted."""
        past = self._vectors.heard.get(name)
        return () if past is None else self._vectors.lanes.unpack(past)

    def install(self, state: Transfer, heard: dict[ProcessId, tuple[int, ...]], *, has_state: bool) -> None:
        """Take up from `state`, with what the members that are counted were heard to have.

        `has_state`: the application has the contact's, and is told when messages in it become stable.
        """
        self._vectors = Vectors(state.names, self._vectors.view.topic, self._meter)
        self._vectors.fit(max(state.taken, default=0))
        lanes, columns = self._vectors.lanes, self._vectors.view.columns
        self.taken = dict(zip(columns, state.taken, strict=True))
        self.delivered = dict(self.taken)
        self._contexts.restore(state.context, state.seen)
        self._vectors.stable = state.stable
        self._vectors.heard = {name: lanes.pack(counts) for name, counts in heard.items()}
        self._vectors.recount()
        for index, each in enumerate(state.nodes):
            message, column = each.message, column_of(each.message)
            past = lanes.pack(each.counts)
            node = DotNode(column, message.counter, STABLE if each.stable else DELIVERED, 0, index, past)
            node.kept = message
            if isinstance(message, DottedMessage) and has_state:
                tag = self._tag(message, past)
                node.tagged(message, tag)
                self.graph.enter(node)
                if each.stable:
                    self._membership.news.stable(tag)
            elif not each.stable:
                # An application that took over no state has nothing of this message that could become stable.
                node.taken = True
                self.graph.enter(node)
        self._deliveries = len(state.nodes)
        self.phantoms.install(state)

    # ------------------------------------------------------------------ recovery

    def snapshot(self) -> bytes:
        """See `Recoverable`; the membership is in it."""
        nodes = self.graph.nodes.values()
        return encode_state(
            DynamicState(
                self._contexts.of_dot(),
                self._contexts.of_tag(),
                self.taken,
                self.delivered,
                self._deliveries,
                tuple((node.column, node.counter) for node in self._hidden),
                self.phantoms.snapshot(),
                vectors_state(self._vectors, nodes),
                nodes_state(nodes, self._vectors.lanes),
                membership_state(self._membership),
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """See `Recoverable`."""
        state = decode_state(snapshot)
        self._contexts.restore(state.context, state.seen)
        self.taken, self.delivered = state.taken, state.delivered
        self._deliveries = state.deliveries
        views = restore_vectors(self._vectors, state.vectors)
        restore_nodes(self.graph, state.nodes, self._vectors.lanes, views)
        self._hidden = self.graph.of(state.hidden)
        self._apart = {
            (node.column, node.counter): node.kept.context
            for node in self.graph.nodes.values()
            if isinstance(node.kept, DottedMessage) and node.tag is not None and node.counter > self.taken[node.column]
        }
        restore_membership(self._membership, state.membership)
        self.phantoms.restore(state.phantoms, len(self._vectors.view))

    # ------------------------------------------------------------------ what the host and the laboratory ask

    def pending(self, origin: ProcessId) -> int:
        """Messages of `origin` received and not delivered."""
        return self.graph.pending.get(origin, 0)

    @property
    def unstable(self) -> int:
        """Own messages not stable here yet."""
        return self.taken[self._me] - self._vectors.stable[self._vectors.view.columns[self._me]]

    def tables(self) -> dict[str, int]:
        """See `Process.tables`."""
        return {
            "graph": len(self.graph.nodes),
            "untaken dots": len(self._hidden),
            "phantoms": len(self.phantoms.waiting),
        }

    def holders(self, dot: RawDot) -> int:
        """How many members, this one included, are known to have taken `dot`, a message (k-stability).

        A joiner counts once it has said anything: before, it may not have got the state that its join promises. Of a
        member that is forgotten all have taken all. Source: document 004, future work, "K-stability".
        """
        column, counter = dot
        heard = {name: past for name, past in self._vectors.heard.items() if self._has_spoken(name)}
        if column not in self.taken:
            return len(heard) + 1
        others = sum(self._vectors.count(past, column) >= counter for past in heard.values())
        return others + (self.taken[column] >= counter)

    def _has_spoken(self, name: ProcessId) -> bool:
        return name in self.phantoms.spoken or any(self.delivered[column] for column in columns_of(name))

    def entries(self, message: BroadcastMessage) -> int:
        """The dots of its context."""
        return len(message.context) if isinstance(message, DottedMessage | Spoken) else 0

    @property
    def operations(self) -> int:
        """Edges looked at, and words of packed vectors compared."""
        return self._meter.count
