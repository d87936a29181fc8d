"""TCB, tagged causal broadcast over the graph of dots, with causal stability.

Source: document 004, algorithms 8 (client) and 9 (middleware), with the phantoms of 10 and 11; sections 4.4, 4.5,
5.3, 5.4. Keeps P1 to P6, and P7 in its own terms: the graph holds what is not stable yet. Per message on the wire:
one dot and the dots of its immediate predecessors (at most one per member). Per process: a node per unstable
message, a vector.

Theory of operation. A message's dot enters the graph when it arrives (stage *received*) or, before that, when a
message that depends on it arrives (stage *slot*). While a node waits, its bits name the origins of its undelivered
predecessors; at zero it is delivered. From then on its bits name the members from whom nothing in its future was
delivered here yet; delivering a message of a member clears that member's bit in all of its past. At zero the dot is
stable: the application is told, and when it takes that event the node goes.

The application's side (`broadcast`, `take`) keeps the context, the dots it has taken that no other taken dot has in
its past. That side alone makes tags, at the moment of the call.

Departures from the print:

* Counters start at 1, and the context becomes the dot just sent before the counter rises (as in algorithm 12).
* Delivery and stability iterate; the print recurses. What becomes stable together is reported in order of delivery,
  which extends causal order.
* A message also waits for its origin's previous message, which a correct context always implies: a gap neither
  advances the vector nor loses anything.
* A phantom counts only once everything its sender broadcast before it, and all of its context, is delivered here
  (the print applies it to what happens to be there, and loses the rest). The latest one per member is kept until
  then. An idle member sends one by itself some time after it took something it has not yet spoken of, see `idle`.
* A tag also holds its past as a vector, made once at delivery from the predecessors' vectors and what its
  origin was heard to have; it never travels. It makes comparison one look-up, and lets a tag outlive its node. With
  it a delivered node needs no edges: only dots that are awaited know who waits.
* The bits of delivered dots are not kept: the bit of a member in a dot is whether its latest vector here has the dot.
  What all have is the smallest count of each column, kept up in a tournament; the document clears bits by walking
  back along the edges, once per member. Vectors are packed (see `lanes`), so both cost few operations.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import Delivered, Message, ProtocolViolationError, RawDot, Stable, Tag
from causalcast.protocols.ordering.idle import Idle
from causalcast.protocols.ordering.lanes import Lanes, Minima
from causalcast.protocols.ordering.meter import Meter
from causalcast.protocols.ordering.tcb_graph import (
    DELIVERED,
    RECEIVED,
    SLOT,
    STABLE,
    Node,
    Phantom,
    TaggedMessage,
    TCBState,
    decode_state,
    encode_state,
    graph_of,
    graph_state,
    lines_of,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from causalcast.model import Event, ProcessId
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import BroadcastMessage, Port, Timer

PHANTOM_TIMER: Final = "tcb.phantom"


class TCB:
    """Tagged causal delivery with stability, both sides of the queue, for one process."""

    wire_types: ClassVar[tuple[type[BroadcastMessage], ...]] = (TaggedMessage, Phantom)

    def __init__(self, port: Port, membership: StaticMembership, dissemination: Direct) -> None:
        roster = membership.roster
        size = len(roster)
        self._port = port
        self._roster = roster
        self._slots = roster.slots
        self._dissemination = dissemination
        self._me = membership.name
        self._my_slot = roster.slot(membership.name)
        # The application's side (algorithm 8): what it has taken.
        self._context: dict[ProcessId, int] = {}
        self._taken = [0] * size
        self._idle = Idle(port, PHANTOM_TIMER, size)
        self._phantoms_sent = 0
        # The middleware's side (algorithm 9).
        self._graph: dict[RawDot, Node] = {}
        """Dots that are not stable here, or whose stable event is not taken."""
        self._delivered = [0] * size
        self._last: list[RawDot | None] = [None] * size
        """For each slot of another member, its last dot that is delivered here, if that was since the start."""
        self._deliveries = 0
        self._stable: tuple[int, ...] = (0,) * size
        self._heard: list[tuple[int, ...]] = [self._stable] * size
        """For each slot, the past of the latest message or phantom of that member that counts here."""
        self._meter = Meter()
        self._lanes = Lanes(size)
        self._all_have = self._minima()
        self._pending = [0] * size
        self._phantoms: dict[int, Phantom] = {}
        self._awaited: dict[int, int] = {}
        """By slot, the first count whose delivery may let a phantom that waits be used, or overtake it."""

    # ------------------------------------------------------------------ the application's side

    def start(self) -> None:
        """Nothing to do: a static group is complete from the start."""

    def broadcast(self, payload: bytes) -> Tag:
        """Tag `payload` from what the application has taken, and send it (algorithm 8 tcbcast, 9 lines 9 to 17)."""
        slot = self._my_slot
        counter = self._taken[slot] + 1
        context = tuple(self._context.items())
        self._context = {self._me: counter}
        self._taken[slot] = counter
        self._idle.spoke()
        tag = Tag(self._me, counter, context, tuple(self._taken), self._roster)

        if counter >= self._lanes.limit:
            self._widen()
        past = self._lanes.pack(tag.counts)
        self._graph[self._me, counter] = Node(slot, counter, DELIVERED, 0, self._deliveries, past, tag)
        self._deliveries += 1
        self._delivered[slot] = counter
        self._dissemination.broadcast(TaggedMessage(self._me, counter, context, payload))
        if len(self._roster) == 1:
            self._hear(slot, tag.counts, past)
        return tag

    def take(self, event: Event) -> None:
        """The application receives `event`: the context moves now, or the stable dot leaves the graph."""
        if isinstance(event, Delivered):
            self._take(event.message.tag)
            if not self._idle.news:
                self._idle.took()
        elif isinstance(event, Stable):
            del self._graph[event.tag.origin, event.tag.counter]

    def _take(self, tag: Tag) -> None:
        context = self._context
        for origin, counter in tag.context:
            if context.get(origin) == counter:
                del context[origin]
        context[tag.origin] = tag.counter
        self._taken[self._slots[tag.origin]] = tag.counter

    def timer(self, timer: Timer) -> None:
        """Speak of what was taken, if no broadcast has done so meanwhile (algorithm 10, stabPhantom)."""
        if self._idle.must_speak(timer):
            self._phantoms_sent += 1
            counter = self._taken[self._my_slot] + 1
            context = tuple(self._context.items())
            self._dissemination.broadcast(Phantom(self._me, counter, self._phantoms_sent, context))

    # ------------------------------------------------------------------ the middleware's side

    def receive(self, message: BroadcastMessage) -> None:
        """A message or phantom of another member (algorithm 9 receive, 11 phantom)."""
        if isinstance(message, TaggedMessage):
            if not self._follow(message):
                self._receive_message(message)
        elif isinstance(message, Phantom):
            self._receive_phantom(message)

    def _follow(self, message: TaggedMessage) -> bool:
        """Deliver what follows only its origin's previous message, which is delivered; returns whether that was it.

        Nothing is asked of it that `_receive_message` would not find to be so, and its past differs from what its
        origin was heard to have in one count. In a burst these are all messages but the first.
        """
        counter, context = message.counter, message.context
        slot = self._slots.get(message.origin)
        if slot is None or len(context) != 1 or counter >= self._lanes.limit:
            return False
        # Names and dots are those that are here already, so that each is held once.
        last = self._last[slot]
        if last is None or context[0] != last or counter != last[1] + 1:
            return False
        graph = self._graph
        origin = last[0]
        dot = origin, counter
        if dot in graph:
            return False
        heard = self._heard[slot]
        counts = (*heard[:slot], counter, *heard[slot + 1 :])
        past = self._all_have.of(slot) + self._lanes.units[slot]
        self._meter.count += 1 + (last in graph) * self._lanes.words
        tag = Tag(origin, counter, (last,), counts, self._roster)
        self._last[slot] = dot
        graph[dot] = Node(slot, counter, DELIVERED, 0, self._deliveries, past, tag)
        self._deliveries += 1
        self._delivered[slot] = counter
        self._port.deliver(Message(message.payload, tag))
        self._heard[slot] = counts
        if self._all_have.rise(slot, past, slot, counter):
            self._settle()
        awaited = self._awaited.get(slot)
        if awaited is not None and awaited <= counter:
            self._apply_phantoms()
        return True

    def _receive_message(self, message: TaggedMessage) -> None:
        origin, counter, context = message.origin, message.counter, message.context
        graph = self._graph
        befores = list(map(graph.get, context))
        slot = self._check(origin, counter, context, known=all(befores))
        delivered = self._delivered[slot]
        if counter <= delivered:
            return
        node = graph.get((origin, counter))
        if node is None:
            node = graph[origin, counter] = Node(slot, counter, RECEIVED)
        elif node.stage == SLOT:
            node.stage = RECEIVED
        else:
            return

        self._meter.count += len(context)
        node.message = message
        self._pending[slot] += 1
        if delivered == counter - 1 and all(befores):
            pasts = list(map(_get_past, befores))
            if all(pasts):
                self._deliver(node, pasts)
                return
        bits = 0
        pasts = node.pasts = []
        missing = node.missing = []
        for dot, before in zip(context, befores, strict=True):
            if before is not None and before.past:
                pasts.append(before.past)
            elif dot[1] > self._stable[self._slots[dot[0]]]:
                before_slot = self._slots[dot[0]]
                self._wait(node, before_slot, dot)
                missing.append(dot)
                bits |= 1 << before_slot
        if delivered != counter - 1 and not bits & 1 << slot:
            self._wait(node, slot, (origin, counter - 1))
            bits |= 1 << slot
        node.bits = bits
        if not bits:
            self._deliver(node, pasts)

    def _wait(self, node: Node, slot: int, dot: RawDot) -> None:
        """`node` waits for a dot that is not delivered here, and may not have come at all."""
        before = self._graph.get(dot)
        if before is None:
            before = self._graph[dot] = Node(slot, dot[1], SLOT)
        if before.succ is None:
            before.succ = [node]
        else:
            before.succ.append(node)

    def _check(self, origin: ProcessId, counter: int, context: tuple[RawDot, ...], *, known: bool = False) -> int:
        """The slot of `origin`. Raises `ProtocolViolationError` on what no correct member sends.

        `known`: all dots of the context are in the graph, so there are such dots.
        """
        slots = self._slots
        slot = slots.get(origin)
        if slot is None:
            raise ProtocolViolationError(f"{origin!r} is not a member of this group")
        me = self._me
        if origin == me:
            raise ProtocolViolationError(f"a message of {origin!r} came back to {origin!r}: is the name used twice?")
        if counter < 1:
            raise ProtocolViolationError(f"{origin}:{counter} is no dot; counters start at 1")
        dots = dict(context)
        if (
            len(dots) != len(context)
            or dots.get(origin, counter - 1) != counter - 1
            or dots.get(me, 0) > self._taken[self._my_slot]
            or not (known or (dots.keys() <= slots.keys() and min(dots.values(), default=1) >= 1))
        ):
            raise ProtocolViolationError(
                f"the context of {origin}:{counter} cannot hold all of {context}: "
                "no such member, one twice, or a dot that cannot precede it"
            )
        return slot

    def _deliver(self, first: Node, pasts: list[int]) -> None:
        """Deliver `first` and all that becomes deliverable with it (algorithm 9 deliver, without recursion).

        `pasts` are those of its predecessors.
        """
        ready = [first]
        for node in ready:
            slot, counter, message = node.slot, node.counter, node.message
            assert message is not None
            bit = 1 << slot
            if counter >= self._lanes.limit:
                self._widen()
                pasts = self._pasts(message.context)
            elif node is not first:
                assert node.pasts is not None
                assert node.missing is not None
                pasts = node.pasts + self._pasts(node.missing)
            counts, past = self._past(slot, counter, message.context, pasts)
            tag = Tag(message.origin, counter, message.context, counts, self._roster)
            self._delivered[slot] = counter
            self._last[slot] = self._roster.names[slot], counter
            self._pending[slot] -= 1
            node.tag = tag
            node.stage = DELIVERED
            node.index = self._deliveries
            node.past = past
            self._deliveries += 1
            self._port.deliver(Message(message.payload, tag))
            for after in node.succ or ():
                if after.bits & bit:
                    after.bits ^= bit
                    if not after.bits:
                        ready.append(after)
            node.message = node.succ = node.pasts = node.missing = None
            self._hear(slot, counts, past)
        if self._phantoms:
            self._apply_phantoms()

    def _pasts(self, context: Iterable[RawDot]) -> list[int]:
        """The pasts of the dots in the graph of a context that is delivered; those of the others are heard of all."""
        return [before.past for before in map(self._graph.get, context) if before is not None]

    def _past(
        self, slot: int, counter: int, context: tuple[RawDot, ...], pasts: list[int]
    ) -> tuple[tuple[int, ...], int]:
        """The vector of a dot whose past is delivered: itself, its predecessors and their pasts; and the same packed.

        What its origin was heard to have is in it, and so is what is stable, since stable is what was heard of all. A
        predecessor is the last of its origin there.
        """
        slots = self._slots
        counts = list(self._heard[slot])
        for origin, before in context:
            counts[slots[origin]] = before
        counts[slot] = counter
        lanes = self._lanes
        known = lanes.pack(counts)
        past = lanes.join(known, pasts)
        self._meter.count += lanes.words * len(pasts)
        return tuple(counts) if past == known else lanes.unpack(past), past

    def _hear(self, slot: int, counts: tuple[int, ...], past: int) -> None:
        """The member of `slot` has all of `counts` (packed: `past`) behind it: find what all members have."""
        self._heard[slot] = counts
        if self._all_have.put(slot, past):
            self._settle()

    def _settle(self) -> None:
        """What all have has changed: report what is stable now."""
        before, self._stable = self._stable, self._lanes.unpack(self._all_have.lowest)
        self._meter.count += len(before)
        nodes = []
        for name, old, new in zip(self._roster.names, before, self._stable, strict=True):
            if old < new:
                nodes.extend([self._graph[name, counter] for counter in range(old + 1, new + 1)])
        if len(nodes) > 1:
            nodes.sort(key=_get_index)
        self._report(nodes)

    def _report(self, nodes: list[Node]) -> None:
        """Report `nodes` stable; all that precedes them is stable already or among them."""
        for node in nodes:
            node.stage = STABLE
            assert node.tag is not None
            self._port.stable(node.tag)

    def _minima(self) -> Minima:
        """What all other members have; this one has what is delivered here, which is all that they can have."""
        others = [slot for slot in range(len(self._roster)) if slot != self._my_slot] or [self._my_slot]
        return Minima(self._lanes, {slot: self._lanes.pack(self._heard[slot]) for slot in others}, self._meter)

    def _widen(self) -> None:
        """Repack all vectors for larger counts."""
        old, self._lanes = self._lanes, self._lanes.wider()
        for node in self._graph.values():
            node.past = self._lanes.pack(old.unpack(node.past))
            if node.pasts is not None:
                node.pasts = [self._lanes.pack(old.unpack(past)) for past in node.pasts]
        self._all_have = self._minima()

    # ------------------------------------------------------------------ phantoms

    def _receive_phantom(self, phantom: Phantom) -> None:
        slot = self._check(phantom.origin, phantom.counter, phantom.context)
        known = self._phantoms.get(slot)
        if known is None or (known.counter, known.number) < (phantom.counter, phantom.number):
            self._phantoms[slot] = phantom
            self._apply_phantoms()

    def _apply_phantoms(self) -> None:
        """Use every phantom whose time has come, and drop those that a later message has overtaken."""
        delivered = self._delivered
        for slot, phantom in list(self._phantoms.items()):
            spoken = delivered[slot]
            if spoken < phantom.counter - 1:
                continue
            if spoken == phantom.counter - 1:
                self._meter.count += len(phantom.context)
                if any(delivered[self._slots[origin]] < counter for origin, counter in phantom.context):
                    continue
                # An older phantom of the same dot may come again: what was heard since must not be unheard.
                _, past = self._past(slot, spoken, phantom.context, self._pasts(phantom.context))
                past = self._lanes.join(past, [self._lanes.pack(self._heard[slot])])
                self._hear(slot, self._lanes.unpack(past), past)
            del self._phantoms[slot]
        self._await()

    def _await(self) -> None:
        """What the phantoms that are left wait for: the next of their origin, or the first missing of their context."""
        delivered = self._delivered
        self._awaited = {slot: delivered[slot] + 1 for slot in self._phantoms}
        for phantom in self._phantoms.values():
            for origin, counter in phantom.context:
                slot = self._slots[origin]
                if delivered[slot] < counter:
                    self._awaited[slot] = min(counter, self._awaited.get(slot, counter))
                    break

    # ------------------------------------------------------------------ what the host and the laboratory ask

    def pending(self, origin: ProcessId) -> int:
        """Messages of `origin` received and not delivered."""
        return self._pending[self._roster.slot(origin)]

    def tables(self) -> dict[str, int]:
        """The sizes of what must be empty at rest."""
        return {"graph": len(self._graph), "phantoms": len(self._phantoms)}

    @property
    def unstable(self) -> int:
        """Own messages not stable here yet."""
        return self._taken[self._my_slot] - self._stable[self._my_slot]

    @property
    def graph_size(self) -> int:
        """Nodes in the graph, slots included."""
        return len(self._graph)

    def words(self) -> int:
        """See `words_of`."""
        return words_of(self._graph)

    def entries(self, message: BroadcastMessage) -> int:
        """The dots of its context."""
        return len(message.context) if isinstance(message, TaggedMessage | Phantom) else 0

    @property
    def operations(self) -> int:
        """Edges looked at, and words of packed vectors compared."""
        return self._meter.count

    def describe(self) -> list[str]:
        """The graph as lines `dot stage bits`, in order of dot; bits in roster order from the left (figure 24).

        The bits of a delivered dot name the members that were not heard yet to have it; of a stable one there are none.
        """
        others = [heard for slot, heard in enumerate(self._heard) if slot != self._my_slot]
        return lines_of(self._graph, self._roster, others, self._my_slot)

    # ------------------------------------------------------------------ recovery

    def snapshot(self) -> bytes:
        """See `Recoverable`."""
        return encode_state(
            TCBState(
                tuple(self._context.items()),
                self._taken,
                self._idle.news,
                self._phantoms_sent,
                graph_state(self._graph.values(), self._roster),
                self._delivered,
                self._deliveries,
                self._stable,
                self._heard,
                self._lanes.width,
                list(self._phantoms.values()),
            )
        )

    def restore(self, snapshot: bytes) -> None:
        """See `Recoverable`."""
        state = decode_state(snapshot)
        self._context = dict(state.context)
        self._taken = state.taken
        self._idle.restore(state.idle)
        self._phantoms_sent = state.phantoms_sent
        self._delivered = state.delivered
        self._deliveries = state.deliveries
        self._stable = state.stable
        self._heard = state.heard
        self._lanes = Lanes(len(self._roster), state.width)
        self._phantoms = {self._slots[phantom.origin]: phantom for phantom in state.phantoms}
        self._await()
        self._all_have = self._minima()
        self._graph = graph_of(state.nodes, self._roster, self._lanes)
        for node in self._graph.values():
            self._pending[node.slot] += node.message is not None


_get_past: Final = attrgetter("past")
_get_index: Final = attrgetter("index")
