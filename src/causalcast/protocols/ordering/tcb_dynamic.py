"""TCB with members that come and go: tagged causal delivery and stability over the graph of dots.

Source: document 004, algorithms 12 (client) and 13 (middleware), chapter 6; `docs/membership.md` specifies what is
done. Keeps P1 to P8. Per message on the wire: one dot and the dots of its immediate predecessors. Per process: a node
per unstable message with its payload, a vector of two counts per member.

Theory of operation. Everything about delivery, stability and tags is as in `tcb`. Joins, leaves, evictions and
forgettings are dots in the same graph, in a column of their own per member: see `tcb_dynamic_messages`. The membership
(`membership/dots.py`) hears of them when they are delivered here, and when they are *taken*: these dots are no events
of the application, and are taken as soon as all in their past is.

Departures from `tcb`:

* A context may name a process that is not known yet: it waits, by number of missing predecessors instead of a bit for
  each origin.
* Payloads are kept until their dot is stable and the application knows: a member that is evicted cannot repeat them.
* A phantom says how many dots its origin had made, and phantoms older than the last one used are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from causalcast.model import Delivered, Message, ProtocolViolationError, RawDot, Stable, Tag
from causalcast.protocols.membership.dot_records import LEAVING
from causalcast.protocols.ordering.tcb_dynamic_base import DottedOrdering
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    DotNode,
    Dotted,
    DottedMessage,
    EvictDot,
    ForgetDot,
    JoinDot,
    LeaveDot,
    Spoken,
    column_of,
    is_process_name,
)
from causalcast.protocols.ordering.tcb_dynamic_tag import DottedTag
from causalcast.protocols.ordering.tcb_graph import DELIVERED, RECEIVED, STABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from causalcast.model import Event, ProcessId
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership.dots import DotMembership
    from causalcast.protocols.port import BroadcastMessage, Port, Timer, WireMessage


class DynamicTCB(DottedOrdering):
    """Tagged causal delivery with stability among members that come and go, for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (
        DottedMessage,
        JoinDot,
        LeaveDot,
        EvictDot,
        ForgetDot,
        Spoken,
    )

    def __init__(self, port: Port, membership: DotMembership, dissemination: Direct) -> None:
        super().__init__(port, membership)
        self._dissemination = dissemination
        membership.ordering = self

    # ------------------------------------------------------------------ the application's side

    def start(self) -> None:
        """Nothing to do: a joiner begins with what is transferred to it."""

    def broadcast(self, payload: bytes) -> Tag:
        """Tag `payload` from what the application has taken, and send it; raises `NotAMemberError`."""
        self._membership.check_member()
        me = self._me
        counter = self.taken[me] + 1
        context, seen = self._contexts.speak(me, counter)
        message = DottedMessage(me, counter, context, payload, seen)
        # Where it follows only the last one, nothing was taken since.
        last = self.graph.nodes.get(context[0]) if context == ((me, counter - 1),) else None
        node = self._add_own(message, me, last)
        vectors = self._vectors
        tag = DottedTag(me, counter, context if seen is None else seen, vectors.lanes.head(node.past), vectors.view)
        node.tagged(message, tag)
        self._send(message)
        return tag

    def emit(self, dot: Callable[[int, tuple[RawDot, ...]], Dotted]) -> DotNode:
        """Make a dot of another kind, deliver and take it here, and send it; `dot` is given counter and context."""
        column = self._mine[1]
        message = dot(self.taken[column] + 1, self._contexts.of_dot())
        self._contexts.emitted(column, message.counter)
        node = self._add_own(message, column)
        node.taken = True
        self._send(message)
        self._membership.delivered(message, node)
        self._membership.taken(message)
        return node

    def _add_own(self, message: Dotted, column: str, last: DotNode | None = None) -> DotNode:
        """`last`: of the same column, if nothing was taken since."""
        counter = message.counter
        vectors = self._vectors
        if counter >= vectors.lanes.limit:
            vectors.widen(self.graph.nodes.values())
        self.taken[column] = self.delivered[column] = counter
        self._idle.spoke()
        if last is None:
            past = vectors.lanes.pack(self.taken.values())
        else:
            past = last.past + vectors.lanes.units[vectors.view.columns[column]]
        node = DotNode(column, counter, DELIVERED, 0, self._deliveries, past, kept=message)
        self.graph.nodes[column, counter] = node
        self._deliveries += 1
        return node

    def _send(self, message: Dotted) -> None:
        self._dissemination.broadcast(message)
        if not self._vectors.heard:
            self._report(self._vectors.settle(self.delivered))

    def take(self, event: Event) -> None:
        """The application receives `event`: the context moves now, or the stable dot leaves the graph."""
        membership = self._membership
        # `isinstance` is quick to say that something is of a class of events, and slow to say that it is not.
        if type(event) is Stable:
            tag = event.tag
            del self.graph.nodes[tag.origin, tag.counter]
        elif isinstance(event, Delivered):
            if membership.state == LEAVING:
                return
            tag = event.message.tag
            origin, counter = tag.origin, tag.counter
            before = self._apart.pop((origin, counter), None) if self._apart else None
            self._contexts.took_message(origin, counter, tag.context, before)
            self.taken[origin] = counter
            if not self._idle.news and membership.speaks:
                self._idle.took()
            if self._hidden:
                self._take_hidden()
        else:
            return
        if not membership.is_calm:
            membership.advance()

    def take_all(self) -> None:
        """Take what is delivered, though the application has not: it makes one more dot and no broadcast."""
        self._apart.clear()
        for node in self.graph.in_order():
            if node.tag is not None and node.counter > self.taken[node.column] and node.message is not None:
                self._take_dot(node.column, node.counter, node.message.context)
            self._take_hidden()

    def _take_dot(self, column: str, counter: int, context: Iterable[RawDot]) -> None:
        self._contexts.took(column, counter, context)
        self.taken[column] = counter
        if self._membership.speaks:
            self._idle.took()

    def _take_hidden(self) -> None:
        """Take the dots that are no messages and whose past is taken."""
        hidden, self._hidden = self._hidden, []
        for node in hidden:
            message = node.message
            assert message is not None
            if any(self.taken[column] < counter for column, counter in message.context):
                self._hidden.append(node)
                continue
            self._take_dot(node.column, node.counter, message.context)
            node.taken = True
            self._membership.taken(message)
            if node.stage == STABLE:
                self._leave_graph(node)

    def timer(self, timer: Timer) -> None:
        """Speak of what was taken, if no broadcast has done so meanwhile."""
        if self._idle.must_speak(timer) and self._membership.speaks:
            self._dissemination.broadcast(self.phantoms.next(self.taken, self._contexts.of_dot()))

    def may_speak(self) -> None:
        """From now on this process speaks of what it takes; it has taken something."""
        self._idle.took()

    def is_silent(self) -> None:
        """From now on it does not."""
        self._idle.spoke()

    # ------------------------------------------------------------------ the middleware's side

    def receive(self, message: BroadcastMessage) -> None:
        """A dot or phantom of another member arrived from it."""
        if self.follow(message.origin, iter((message,))) is not None:
            self._receive(message)

    def follow(self, sender: ProcessId, messages: Iterator[WireMessage]) -> WireMessage | None:
        """As `receive`, of messages of `sender`; returns the first that is anything else, and leaves what is behind."""
        while (message := self._follow(sender, messages)) is not None:
            if not isinstance(message, DottedMessage) or message.origin != sender:
                return message
            self._receive(message)
        return None

    def _receive(self, message: BroadcastMessage) -> None:
        if self._membership.keeps(message) or not self._membership.accepts(message.origin):
            return
        if isinstance(message, Spoken):
            if min((counter for _, counter in message.context), default=1) < 1:
                raise ProtocolViolationError(f"no context can be {message.context}")
            self.phantoms.receive(message)
        else:
            self.accept(message)  # type: ignore[arg-type] # the host has looked for its type
        self.settle()

    def _follow(self, sender: ProcessId, messages: Iterator[WireMessage]) -> WireMessage | None:
        """As in `tcb`: deliver messages of `sender` while each follows only the previous one.

        Returns the first that does not, which is left as it is, and those behind it with it.
        """
        vectors, membership = self._vectors, self._membership
        before = self._last.get(sender)
        past = vectors.heard.get(sender)
        if before is None or past is None or not membership.is_calm:
            return next(messages, None)
        # Names and dots are those that are here already, so that each is held once.
        ((origin, counter),) = before
        view, lanes = vectors.view, vectors.lanes
        slot = view.columns[origin]
        if past >> lanes.shifts[slot] & lanes.mask != counter:
            return next(messages, None)
        unit, limit, words = lanes.units[slot], lanes.limit, lanes.words
        counts = lanes.head(past)
        left, right = counts[:slot], counts[slot + 1 :]
        nodes, all_have, news = self.graph.nodes, vectors.all_have, membership.news
        deliver = news.deliver
        assert all_have is not None
        # Up to there stability may have waited for this member; beyond, it waits for another one as well.
        beside = all_have.beside(slot, slot)
        awaited = self.phantoms.awaited.get(origin, limit)
        first = counter
        try:
            for message in messages:
                number = counter + 1
                if (
                    not isinstance(message, DottedMessage)
                    or message.context != before
                    or message.counter != number
                    or message.origin != origin
                    or message.seen is not None
                    or number >= limit
                ):
                    return message
                dot, risen = (origin, number), past + unit
                tag = DottedTag(origin, number, before, (*left, number, *right), view)
                index = self._deliveries + counter - first
                node = DotNode(origin, number, DELIVERED, 0, index, risen, tag, message.payload)
                if nodes.setdefault(dot, node) is not node:
                    return message
                counter, past, before = number, risen, (dot,)
                deliver(Message(message.payload, tag))
                if counter <= beside and all_have.rise(slot, past, slot, counter):
                    vectors.one_more_stable(slot)
                    node.stage = STABLE
                    news.stable(tag)
                if awaited <= counter:
                    # Nothing is taken by it, so that phantoms are all that it may let happen.
                    break
            else:
                return None
        finally:
            done = counter - first
            if done:
                self._meter.count += done * (1 + words)
                self._deliveries += done
                self._last[origin] = before
                self.delivered[origin] = counter
                vectors.heard[origin] = past
                all_have.replace(slot, past)
        self.settle()
        return next(messages, None)

    def accept(self, message: Dotted) -> None:
        """A dot has come, from its origin or carried by another member. Raises `ProtocolViolationError`."""
        column, counter = column_of(message), message.counter
        self._check(message, column)
        if counter <= self.delivered.get(column, 0) or self._membership.is_evicted(message.origin):
            return
        if self._membership.has_left(message.origin):
            raise ProtocolViolationError(f"{message.origin!r} has left: {column}:{counter} cannot follow")
        node = self.graph.receive(message)
        if node is None:
            return
        before = dict.fromkeys(message.context)
        if counter > 1:
            before[column, counter - 1] = None
        self._meter.count += len(before)
        for dot in before:
            if self.delivered.get(dot[0], 0) < dot[1]:
                self.graph.wait(node, dot)
        if isinstance(message, EvictDot):
            self._membership.evictions.hear(message)
        if not node.waits and node.stage == RECEIVED:
            self._deliver(node)

    def _check(self, message: Dotted, column: str) -> None:
        """Raises `ProtocolViolationError` on what no correct member sends."""
        origin, counter, context = message.origin, message.counter, message.context
        if origin == self._me:
            raise ProtocolViolationError(f"a dot of {origin!r} came back to {origin!r}: is the name used twice?")
        dots = dict(context)
        if (
            counter < 1
            or len(dots) != len(context)
            or dots.get(column, counter - 1) != counter - 1
            or any(dots.get(mine, 0) > self.taken[mine] for mine in self._mine)
            or min(dots.values(), default=1) < 1
        ):
            raise ProtocolViolationError(f"{column}:{counter} is no dot, or its context cannot be {context}")
        if isinstance(message, JoinDot | EvictDot) and not is_process_name(message.member):
            raise ProtocolViolationError(f"{message.member!r} cannot name a process")
        if column not in self.delivered and all(self.delivered.get(name, 0) >= dots[name] for name in dots):
            raise ProtocolViolationError(f"{origin!r} has not joined this group")

    def _deliver(self, first: DotNode) -> None:
        """Deliver `first` and all that becomes deliverable with it."""
        ready = [first]
        for node in ready:
            message, column = node.message, node.column
            assert message is not None
            self.graph.received_no_more(message.origin)
            if message.origin not in self._vectors.heard:
                # Only one that sends what no member does comes to this.
                self.graph.leave(node)
                continue
            if node.counter >= self._vectors.lanes.limit:
                self._vectors.widen(self.graph.nodes.values())
            own = (column, node.counter)
            # In a burst a message adds itself, and nothing else, to what its origin was heard to have.
            alone = isinstance(message, DottedMessage) and message.context == self._last.get(column)
            if alone:
                node.past = self._vectors.one_more(column)
            else:
                befores = self.graph.of(message.context)
                node.past = self._vectors.past(message.origin, (*message.context, own), befores)
            node.stage = DELIVERED
            node.index = self._deliveries
            self._deliveries += 1
            self.delivered[column] = node.counter
            if isinstance(message, DottedMessage):
                self._last[column] = (own,)
            for after in node.succ or ():
                after.waits -= 1
                if not after.waits and after.stage == RECEIVED:
                    ready.append(after)
            node.succ = None
            if isinstance(message, DottedMessage):
                self._pass_on(message, node)
            else:
                self._hidden.append(node)
            if alone:
                self._report(self._vectors.hear_one_more(own, node.past))
                continue
            self._hear(message.origin, node.past)
            if not isinstance(message, DottedMessage):
                self._membership.delivered(message, node)

    def _pass_on(self, message: DottedMessage, node: DotNode) -> None:
        """The message of `node`, which is delivered, goes to the application."""
        if self._membership.leaving:
            # It is owed nothing any more, and gets nothing that nobody else might get.
            node.taken = True
            self.taken[node.column] = node.counter
            return
        tag = self._tag(message, node.past)
        node.tagged(message, tag)
        if message.seen is not None:
            self._apart[node.column, node.counter] = message.context
        self._membership.news.deliver(Message(message.payload, tag))

    def _hear(self, member: ProcessId, past: int) -> None:
        self._report(self._vectors.hear(member, past, self.delivered))

    def settle(self) -> None:
        """Do what has become possible; called when all that a step brought has been dealt with."""
        if self._membership.is_out:
            return
        if self.phantoms.waiting:
            for origin, context in self.phantoms.due(self.delivered, self._vectors.heard):
                self._meter.count += len(context)
                self._hear(origin, self._vectors.past(origin, context, self.graph.of(context)))
        if self._hidden:
            self._take_hidden()
        self._membership.advance()
