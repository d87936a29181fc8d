"""TCB, tagged causal broadcast over the graph of dots, with causal stability.

Source: document 004, algorithms 8 (client) and 9 (middleware), with the phantoms of 10 and 11; sections 4.4, 4.5,
5.3, 5.4. Keeps P1 to P6, and P7 in its own terms: the graph holds what is not stable yet. Per message on the wire:
one dot and the dots of its immediate predecessors (at most one per member). Per process: a node per unstable
message, a vector.

Theory of operation. A message's dot enters the graph when it arrives (stage *received*) or, before that, when a
message that depends on it arrives (stage *slot*). While a node waits, its bits name the origins of its undelivered
predecessors; at zero it is delivered. From then on its bits name the members from whom nothing in its future was
delivered here yet; delivering a message of a member clears that member's bit in its whole past, as far as it is
still set. At zero the dot is stable: the application is told, and when it takes that event the node goes.

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
* A tag also holds its past as a vector, made once at delivery from the predecessors' vectors and the stable
  frontier; it never travels. It makes comparison one look-up, and lets a tag outlive its node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.model import Delivered, Message, ProtocolViolationError, RawDot, Stable, Tag
from causalcast.protocols.port import BroadcastMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Node:
    """A dot in the graph."""

    __slots__ = ("bits", "context", "counter", "index", "payload", "pred", "slot", "stage", "succ", "tag")

    tag: Tag
    payload: bytes
    context: tuple[RawDot, ...]

    def __init__(self, slot: int, counter: int, stage: int) -> None:
        self.slot = slot
        self.counter = counter
        self.stage = stage
        self.bits = 0
        self.pred: Sequence[Node] = ()
        self.succ: list[Node] = []
        self.index = 0
        """Place in the order of delivery at this process."""


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
        self._graph: dict[RawDot, Node] = {}
        self._delivered = [0] * size
        self._deliveries = 0
        self._stable: list[int] = [0] * size
        self._pending = [0] * size
        self._phantoms: dict[int, Phantom] = {}

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

        node = Node(slot, counter, DELIVERED)
        node.tag = tag
        node.bits = self._all_bits & ~(1 << slot)
        node.index = self._deliveries
        self._deliveries += 1
        self._delivered[slot] = counter
        graph = self._graph
        pred = []
        for dot in context:
            before = graph.get(dot)
            if before is not None and before.stage != STABLE:
                before.succ.append(node)
                pred.append(before)
        node.pred = pred
        graph[self._me, counter] = node
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
            node = self._graph.pop((event.tag.origin, event.tag.counter))
            # Breaks the cycles between predecessors and successors, so that memory is freed at once.
            node.pred = ()
            node.succ = []

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
        origin = message.origin
        counter = message.counter
        slot = self._check(origin, counter, message.context)
        delivered = self._delivered
        if counter <= delivered[slot]:
            return
        graph = self._graph
        dot = (origin, counter)
        node = graph.get(dot)
        if node is None:
            node = graph[dot] = Node(slot, counter, RECEIVED)
        elif node.stage == SLOT:
            node.stage = RECEIVED
        else:
            return

        slots = self._slots
        bits = 0
        pred = []
        for before_dot in message.context:
            before = graph.get(before_dot)
            if before is None:
                before_slot = slots[before_dot[0]]
                if before_dot[1] <= delivered[before_slot]:
                    continue
                before = graph[before_dot] = Node(before_slot, before_dot[1], SLOT)
            elif before.stage == STABLE:
                continue
            before.succ.append(node)
            pred.append(before)
            if before.stage < DELIVERED:
                bits |= 1 << before.slot
        if delivered[slot] != counter - 1 and not bits & 1 << slot:
            previous_dot = (origin, counter - 1)
            previous = graph.get(previous_dot)
            if previous is None:
                previous = graph[previous_dot] = Node(slot, counter - 1, SLOT)
            previous.succ.append(node)
            bits |= 1 << slot
        node.pred = pred
        node.context = message.context
        node.payload = message.payload
        node.bits = bits
        self._pending[slot] += 1
        if not bits:
            self._deliver(node)

    def _check(self, origin: ProcessId, counter: int, context: tuple[RawDot, ...]) -> int:
        """The slot of `origin`; raises `ProtocolViolationError` on what no correct member sends."""
        slots = self._slots
        slot = slots.get(origin)
        if slot is None:
            raise ProtocolViolationError(f"{origin!r} is not a member of this group")
        if slot == self._my_slot:
            raise ProtocolViolationError(f"a message of {origin!r} came back to {origin!r}: is the name used twice?")
        if counter < 1:
            raise ProtocolViolationError(f"{origin}:{counter} is no dot; counters start at 1")
        seen = 0
        for before_origin, before_counter in context:
            before_slot = slots.get(before_origin)
            if before_slot is None:
                raise ProtocolViolationError(
                    f"{origin}:{counter} depends on {before_origin!r}, which is not a member of this group"
                )
            if seen >> before_slot & 1:
                raise ProtocolViolationError(f"the context of {origin}:{counter} names {before_origin!r} twice")
            seen |= 1 << before_slot
            if (
                before_counter < 1
                or (before_slot == slot and before_counter != counter - 1)
                or (before_slot == self._my_slot and before_counter > self._taken[before_slot])
            ):
                raise ProtocolViolationError(
                    f"{origin}:{counter} depends on {before_origin}:{before_counter}, which cannot be"
                )
        return slot

    def _deliver(self, first: Node) -> None:
        """Deliver `first` and all that becomes deliverable with it (algorithm 9 deliver, without recursion)."""
        names = self._roster.names
        all_bits = self._all_bits & ~(1 << self._my_slot)
        ready = [first]
        for node in ready:
            slot = node.slot
            bit = 1 << slot
            tag = self._tag(node, names[slot])
            self._delivered[slot] = node.counter
            self._pending[slot] -= 1
            node.tag = tag
            node.stage = DELIVERED
            node.bits = all_bits & ~bit
            node.index = self._deliveries
            self._deliveries += 1
            self._port.deliver(Message(node.payload, tag))
            del node.payload, node.context
            for after in node.succ:
                if after.stage == RECEIVED and after.bits & bit:
                    after.bits ^= bit
                    if not after.bits:
                        ready.append(after)
            self._update_stability(bit, node.pred)
            if not node.bits:
                self._stabilize([node])
        if self._phantoms:
            self._apply_phantoms()

    def _tag(self, node: Node, origin: ProcessId) -> Tag:
        """The tag of a message whose past is delivered: what is stable, its predecessors and their pasts."""
        vectors = [before.tag.counts for before in node.pred]
        counts = list(map(max, self._stable, *vectors)) if vectors else list(self._stable)
        counts[node.slot] = node.counter
        return Tag(origin, node.counter, node.context, tuple(counts), self._roster)

    def _update_stability(self, bit: int, nodes: Sequence[Node]) -> None:
        """A message of the member of `bit` is in the future of `nodes` and their pasts (algorithm 9, lines 47 to 56).

        Where the bit is clear already, it is clear in everything before too.
        """
        stack = list(nodes)
        complete = []
        while stack:
            node = stack.pop()
            if node.bits & bit and node.stage == DELIVERED:
                node.bits ^= bit
                if not node.bits:
                    complete.append(node)
                stack.extend(node.pred)
        if complete:
            self._stabilize(complete)

    def _stabilize(self, nodes: list[Node]) -> None:
        """Report `nodes` stable; all that precedes them is stable already or among them."""
        if len(nodes) > 1:
            nodes.sort(key=_delivery_index)
        for node in nodes:
            node.stage = STABLE
            self._stable[node.slot] = node.counter
            self._port.stable(node.tag)

    # ------------------------------------------------------------------ phantoms

    def _receive_phantom(self, phantom: Phantom) -> None:
        slot = self._check(phantom.origin, phantom.counter, phantom.context)
        known = self._phantoms.get(slot)
        if known is None or (known.counter, known.number) < (phantom.counter, phantom.number):
            self._phantoms[slot] = phantom
            self._apply_phantoms()

    def _apply_phantoms(self) -> None:
        """Use every phantom whose time has come, and drop those that a later message has overtaken."""
        for slot, phantom in list(self._phantoms.items()):
            spoken = self._delivered[slot]
            if spoken < phantom.counter - 1:
                continue
            if spoken == phantom.counter - 1:
                if any(self._delivered[self._slots[origin]] < counter for origin, counter in phantom.context):
                    continue
                nodes = [self._graph[dot] for dot in phantom.context if dot in self._graph]
                self._update_stability(1 << slot, nodes)
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
        return len(self._graph)

    def describe(self) -> list[str]:
        """The graph as lines `dot stage bits`, in order of dot; bits in roster order from the left (figure 24)."""
        names = self._roster.names
        lines = []
        for node in sorted(self._graph.values(), key=lambda node: (node.slot, node.counter)):
            bits = "".join("1" if node.bits >> slot & 1 else "0" for slot in range(len(names)))
            lines.append(f"{names[node.slot]}:{node.counter} {STAGE_NAMES[node.stage]} {bits}")
        return lines


def _delivery_index(node: Node) -> int:
    return node.index
