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
  then. An idle member sends one by itself, `PHANTOM_DELAY_NS` after it took something it has not yet spoken of.
* A tag also holds its past as a vector, made once at delivery from the predecessors' vectors and what its
  origin was heard to have; it never travels. It makes comparison one look-up, and lets a tag outlive its node. With
  it a delivered node needs no edges: only dots that are awaited know who waits.
* What a message's past has newly covered is read from its vector and that of its origin's previous message, not by
  walking back along the edges: each bit of each dot is touched once, however many edges lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from causalcast.model import Delivered, Message, ProtocolViolationError, RawDot, Stable, Tag
from causalcast.protocols.ordering.meter import Meter
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId
    from causalcast.protocols.dissemination import Direct
    from causalcast.protocols.membership import StaticMembership
    from causalcast.protocols.port import Port, Timer

PHANTOM_DELAY_NS: Final = 50_000_000
"""How long a member stays silent about what it has taken: also the shortest time between two of its phantoms."""

PHANTOM_TIMER: Final = "tcb.phantom"

SLOT, RECEIVED, DELIVERED, STABLE = range(4)
STAGE_NAMES: Final = ("slt", "rcv", "dlv", "stb")


class TaggedMessage(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=1):
    """A message with its dot and context."""

    counter: int
    context: tuple[RawDot, ...]
    payload: bytes


class Phantom(BroadcastMessage, frozen=True, array_like=True, gc=False, tag=2):
    """What an idle member has taken: the dot it would use next and its context. Never enters the graph."""

    counter: int
    number: int
    context: tuple[RawDot, ...]


class Node(msgspec.Struct, eq=False, gc=False):
    """A dot in the graph. It refers only to nodes that wait for it, so reference counting frees every graph."""

    slot: int
    counter: int
    stage: int
    bits: int = 0
    index: int = 0
    """Place in the order of delivery at this process."""
    tag: Tag | None = None
    message: TaggedMessage | None = None
    """While it waits: what came."""
    pred: Sequence[tuple[int, int]] = ()
    """While it waits: slot and counter of the dots of its context that were not stable when it came."""
    succ: list[Node] | None = None
    """Until it is delivered: who waits for it."""


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
        self._all_bits = (1 << size) - 1
        # The application's side (algorithm 8): what it has taken.
        self._context: dict[ProcessId, int] = {}
        self._taken = [0] * size
        self._silent_about_news = False
        self._phantom_timer_set = False
        self._phantoms_sent = 0
        # The middleware's side (algorithm 9).
        self._graph: list[dict[int, Node]] = [{} for _ in roster]
        """For each slot, its dots that are not stable here or whose stable event is not taken."""
        self._delivered = [0] * size
        self._deliveries = 0
        self._stable: list[int] = [0] * size
        self._heard: list[tuple[int, ...]] = [(0,) * size] * size
        """For each slot, the past of the latest message or phantom of that member that counts here."""
        self._pending = [0] * size
        self._phantoms: dict[int, Phantom] = {}
        self._meter = Meter()

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
        self._silent_about_news = False
        tag = Tag(self._me, counter, context, tuple(self._taken), self._roster)

        node = Node(slot, counter, DELIVERED, self._all_bits & ~(1 << slot), self._deliveries, tag)
        self._deliveries += 1
        self._delivered[slot] = counter
        self._graph[slot][counter] = node
        self._dissemination.broadcast(TaggedMessage(self._me, counter, context, payload))
        if not node.bits:
            self._stabilize([node])
        return tag

    def take(self, event: Event) -> None:
        """The application receives `event`: the context moves now, or the stable dot leaves the graph."""
        if isinstance(event, Delivered):
            tag = event.message.tag
            context = self._context
            for origin, counter in tag.context:
                if context.get(origin) == counter:
                    del context[origin]
            context[tag.origin] = tag.counter
            self._taken[self._slots[tag.origin]] = tag.counter
            self._silent_about_news = True
            if not self._phantom_timer_set:
                self._phantom_timer_set = True
                self._port.set_timer(PHANTOM_DELAY_NS, PHANTOM_TIMER)
        elif isinstance(event, Stable):
            del self._graph[self._slots[event.tag.origin]][event.tag.counter]

    def timer(self, timer: Timer) -> None:
        """Speak of what was taken, if no broadcast has done so meanwhile (algorithm 10, stabPhantom)."""
        if timer != PHANTOM_TIMER:
            return
        self._phantom_timer_set = False
        if self._silent_about_news:
            self._silent_about_news = False
            self._phantoms_sent += 1
            counter = self._taken[self._my_slot] + 1
            context = tuple(self._context.items())
            self._dissemination.broadcast(Phantom(self._me, counter, self._phantoms_sent, context))

    # ------------------------------------------------------------------ the middleware's side

    def receive(self, message: BroadcastMessage) -> None:
        """A message or phantom of another member (algorithm 9 receive, 11 phantom)."""
        if isinstance(message, TaggedMessage):
            self._receive_message(message)
        elif isinstance(message, Phantom):
            self._receive_phantom(message)

    def _receive_message(self, message: TaggedMessage) -> None:
        counter = message.counter
        context = message.context
        if len(context) == 1 and context[0][1] == counter - 1 and context[0][0] == message.origin:
            slot = self._slots.get(message.origin, self._my_slot)
            if counter - 1 == self._delivered[slot] > 0 and counter not in self._graph[slot] and slot != self._my_slot:
                self._deliver_follower(slot, message)
                return
        slot, unstable = self._check(message.origin, counter, context)
        delivered = self._delivered[slot]
        if counter <= delivered:
            return
        nodes = self._graph[slot]
        node = nodes.get(counter)
        if node is None:
            node = nodes[counter] = Node(slot, counter, RECEIVED)
        elif node.stage == SLOT:
            node.stage = RECEIVED
        else:
            return

        bits = 0
        graph = self._graph
        self._meter.count += len(context)
        for before_slot, before_counter in unstable:
            before = graph[before_slot].get(before_counter)
            if before is None or before.stage < DELIVERED:
                self._wait(node, before_slot, before_counter)
                bits |= 1 << before_slot
        if delivered != counter - 1 and not bits & 1 << slot:
            self._wait(node, slot, counter - 1)
            bits |= 1 << slot
        node.pred = unstable
        node.message = message
        node.bits = bits
        self._pending[slot] += 1
        if not bits:
            self._deliver(node)

    def _wait(self, node: Node, slot: int, counter: int) -> None:
        """`node` waits for a dot that is not delivered here, and may not have come at all."""
        nodes = self._graph[slot]
        before = nodes.get(counter)
        if before is None:
            before = nodes[counter] = Node(slot, counter, SLOT)
        if before.succ is None:
            before.succ = [node]
        else:
            before.succ.append(node)

    def _deliver_follower(self, slot: int, message: TaggedMessage) -> None:
        """Deliver a message whose sender took nothing since its previous one, delivered here; nobody waits for it.

        Its past is what its sender was heard to have, and the previous message: nothing new is behind anyone.
        """
        counter = message.counter
        self._meter.count += 1
        past = list(self._heard[slot])
        past[slot] = counter
        counts = self._heard[slot] = tuple(past)
        tag = Tag(message.origin, counter, message.context, counts, self._roster)
        bits = self._all_bits & ~(1 << self._my_slot | 1 << slot)
        node = self._graph[slot][counter] = Node(slot, counter, DELIVERED, bits, self._deliveries, tag)
        self._delivered[slot] = counter
        self._deliveries += 1
        self._port.deliver(Message(message.payload, tag))
        if not bits:
            self._stabilize([node])
        if self._phantoms:
            self._apply_phantoms()

    def _check(self, origin: ProcessId, counter: int, context: tuple[RawDot, ...]) -> tuple[int, list[tuple[int, int]]]:
        """The slot of `origin`, and slot and counter of each dot in its context that is not stable here.

        Raises `ProtocolViolationError` on what no correct member sends.
        """
        slots = self._slots
        slot = slots.get(origin)
        if slot is None:
            raise ProtocolViolationError(f"{origin!r} is not a member of this group")
        me = self._my_slot
        if slot == me:
            raise ProtocolViolationError(f"a message of {origin!r} came back to {origin!r}: is the name used twice?")
        if counter < 1:
            raise ProtocolViolationError(f"{origin}:{counter} is no dot; counters start at 1")
        seen = 0
        unstable = []
        stable = self._stable
        for before_origin, before_counter in context:
            before = slots.get(before_origin)
            if (
                before is None
                or seen >> before & 1
                or before_counter < 1
                or (before == slot and before_counter != counter - 1)
                or (before == me and before_counter > self._taken[me])
            ):
                raise ProtocolViolationError(
                    f"the context of {origin}:{counter} cannot hold {before_origin}:{before_counter}: "
                    "no such member, twice, or a dot that cannot precede it"
                )
            seen |= 1 << before
            if before_counter > stable[before]:
                unstable.append((before, before_counter))
        return slot, unstable

    def _deliver(self, first: Node) -> None:
        """Deliver `first` and all that becomes deliverable with it (algorithm 9 deliver, without recursion)."""
        names = self._roster.names
        all_bits = self._all_bits & ~(1 << self._my_slot)
        ready = [first]
        for node in ready:
            slot = node.slot
            bit = 1 << slot
            message = node.message
            assert message is not None
            counts = self._past(slot, node.counter, node.pred)
            tag = Tag(names[slot], node.counter, message.context, counts, self._roster)
            self._delivered[slot] = node.counter
            self._pending[slot] -= 1
            node.tag = tag
            node.stage = DELIVERED
            node.bits = all_bits & ~bit
            node.index = self._deliveries
            self._deliveries += 1
            self._port.deliver(Message(message.payload, tag))
            for after in node.succ or ():
                if after.bits & bit:
                    after.bits ^= bit
                    if not after.bits:
                        ready.append(after)
            node.message = node.succ = None
            node.pred = ()
            self._update_stability(slot, counts)
            if not node.bits:
                self._stabilize([node])
        if self._phantoms:
            self._apply_phantoms()

    def _past(self, slot: int, counter: int, pred: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """The vector of a dot whose past is delivered: itself, its predecessors and their pasts.

        What its origin was heard to have is in it, and so is what is stable, since stable is what was heard of all. A
        predecessor is the last of its origin there; of the others, only those of whom more is here than is known to
        be in it need a look at the pasts.
        """
        counts = list(self._heard[slot])
        self._meter.count += len(counts) * len(pred)
        tags = []
        known = 1 << slot
        for before_slot, before_counter in pred:
            before = self._graph[before_slot].get(before_counter)
            if before is not None and before.tag is not None:
                tags.append(before.tag)
                counts[before_slot] = before_counter
                known |= 1 << before_slot
        if tags:
            pasts = None
            for other, (count, here) in enumerate(zip(counts, self._delivered, strict=True)):
                if count < here and not known >> other & 1:
                    if pasts is None:
                        pasts = [tag.counts for tag in tags]
                    counts[other] = max(count, *[past[other] for past in pasts])
        counts[slot] = counter
        return tuple(counts)

    def _update_stability(self, slot: int, counts: tuple[int, ...]) -> None:
        """The member of `slot` has all of `counts` in its past: clear its bit there (algorithm 9, lines 47 to 56)."""
        bit = 1 << slot
        self._meter.count += len(counts)
        complete = []
        for nodes, heard, count in zip(self._graph, self._heard[slot], counts, strict=True):
            if heard < count:
                for counter in range(heard + 1, count + 1):
                    node = nodes[counter]
                    if node.bits & bit:
                        node.bits ^= bit
                        if not node.bits:
                            complete.append(node)
        self._heard[slot] = counts
        if complete:
            self._stabilize(complete)

    def _stabilize(self, nodes: list[Node]) -> None:
        """Report `nodes` stable; all that precedes them is stable already or among them."""
        if len(nodes) > 1:
            nodes.sort(key=_delivery_index)
        for node in nodes:
            node.stage = STABLE
            self._stable[node.slot] = node.counter
            tag = node.tag
            assert tag is not None
            self._port.stable(tag)

    # ------------------------------------------------------------------ phantoms

    def _receive_phantom(self, phantom: Phantom) -> None:
        slot, _ = self._check(phantom.origin, phantom.counter, phantom.context)
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
                dots = [(self._slots[origin], counter) for origin, counter in phantom.context]
                if any(delivered[before] < counter for before, counter in dots):
                    continue
                pred = [(before, counter) for before, counter in dots if counter > self._stable[before]]
                # An older phantom of the same dot may come again: what was heard since must not be unheard.
                past = map(max, self._heard[slot], self._past(slot, spoken, pred))
                self._update_stability(slot, tuple(past))
            del self._phantoms[slot]

    # ------------------------------------------------------------------ what the host and the laboratory ask

    def pending(self, origin: ProcessId) -> int:
        """Messages of `origin` received and not delivered."""
        return self._pending[self._roster.slot(origin)]

    @property
    def unstable(self) -> int:
        """Own messages not stable here yet."""
        return self._taken[self._my_slot] - self._stable[self._my_slot]

    @property
    def graph_size(self) -> int:
        """Nodes in the graph, slots included."""
        return sum(map(len, self._graph))

    def words(self) -> int:
        """The graph, counted as in 004 section 8.3.1.1: 4 per node (dot 2, stage 1, bits 1) and 4 per edge.

        An edge of the document is 2 words where its later dot names its predecessor and 2 where its earlier one names
        its successor, until the earlier one is deleted. Edges are not kept here once their later dot is delivered: they
        are counted from the contexts of the nodes, for each dot of a context that is a node itself.
        """
        count = 0
        for nodes in self._graph:
            for node in nodes.values():
                carrier = node.tag or node.message
                context = carrier.context if carrier is not None else ()
                edges = sum(counter in self._graph[self._slots[origin]] for origin, counter in context)
                count += 4 + 4 * edges
        return count

    def entries(self, message: BroadcastMessage) -> int:
        """The dots of its context."""
        return len(message.context) if isinstance(message, TaggedMessage | Phantom) else 0

    @property
    def operations(self) -> int:
        """One per edge looked at, and one per vector entry."""
        return self._meter.count

    def describe(self) -> list[str]:
        """The graph as lines `dot stage bits`, in order of dot; bits in roster order from the left (figure 24)."""
        names = self._roster.names
        lines = []
        nodes = [node for counters in self._graph for _, node in sorted(counters.items())]
        for node in nodes:
            bits = "".join("1" if node.bits >> slot & 1 else "0" for slot in range(len(names)))
            lines.append(f"{names[node.slot]}:{node.counter} {STAGE_NAMES[node.stage]} {bits}")
        return lines


def _delivery_index(node: Node) -> int:
    return node.index
