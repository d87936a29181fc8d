"""The figures and examples of documents 000 and 001, replayed step by step on links that are drawn, as calculations.

Each asks our protocols. Where a figure shows what goes wrong without a mechanism, the protocol is the printed one, or
ours without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from causalcast.lab.metrics.overlay import relative_redundancy
from causalcast.model import Roster
from causalcast.protocols import STACKS
from causalcast.protocols.dissemination.cptcast import MISSING_TIMER, Announce, CPTCast, Prune
from causalcast.protocols.dissemination.pc import Pong
from causalcast.protocols.dissemination.safelinks import BUFFER, LINK_TIMER, Along
from causalcast.protocols.layers import Dissemination
from causalcast.protocols.membership.hyparview import HyParViewParameters
from causalcast.protocols.membership.overlay import Overlay
from causalcast.protocols.ordering.path import PathMessage
from causalcast.simulation.feeding import WorldPort
from causalcast.simulation.steps import Fire, Join, Receive, Suspect, Take
from causalcast.simulation.world import World

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from causalcast.lab.metrics.base import Measured
    from causalcast.model import ProcessId
    from causalcast.protocols import Port, Stack, WireMessage
    from causalcast.protocols.dissemination.identity import MessageId
    from causalcast.protocols.port import BroadcastMessage

_LINE: Final = (("A", "B"), ("B", "D"))
_NAMES: Final = {"A:1": "a", "A:2": "a'", "A:3": "a''"}


class _Drawn(Overlay):
    """Links as drawn; a process that is told to suspect somebody takes it for a neighbour, and is taken for one."""

    __slots__ = ("_edges", "_lazy", "closed")

    def __init__(self, port: Port, roster: Roster, edges: tuple[tuple[str, str], ...], lazy: bool) -> None:
        super().__init__(port)
        self._edges = edges
        self._lazy = lazy
        self.closed: list[ProcessId] = []

    def start(self) -> None:
        # As two who join at once: neither has anything to tell the other.
        self.member = False
        for edge in self._edges:
            if self.name in edge:
                (peer,) = set(edge) - {self.name}
                self._up(peer, joining=True)
                if self._lazy:
                    self.above.receive(peer, Prune())
        self.member = True

    def suspect(self, peer: ProcessId) -> None:
        between = [one for edge in self._edges for one in edge if self.name in edge and one != self.name]
        self._up(peer, route=(self.name, between[0], peer))

    def switch_neighbour(self, peer: ProcessId) -> None:
        self.closed.append(peer)
        self._down(peer)


class _Naive(Dissemination):
    """000, algorithm 1: causal broadcast for static overlays. A message that no link is expected to bring is new."""

    def __init__(self, port: Port, _: Overlay) -> None:
        self._port = port
        self._links: list[ProcessId] = []
        self._expected: dict[ProcessId, set[MessageId]] = {}

    def broadcast(self, message: BroadcastMessage) -> None:
        self._first(message, None)

    def receive(self, sender: ProcessId, message: WireMessage) -> None:
        assert isinstance(message, PathMessage)
        name = (message.origin, message.counter)
        if any(name in expected for expected in self._expected.values()):
            self._expected[sender].discard(name)
        else:
            self.upward(message)
            self._first(message, sender)

    def _first(self, message: BroadcastMessage, sender: ProcessId | None) -> None:
        assert isinstance(message, PathMessage)
        for peer in self._links:
            if peer != sender:
                self._expected[peer].add((message.origin, message.counter))
        self._port.send(self._links, message)

    def neighbour_up(self, peer: ProcessId) -> None:
        self._links.append(peer)
        self._expected[peer] = set()


class _NothingWaits(CPTCast):
    """000, figure 3.4: what follows an announcement does not wait for it."""

    def _hold(self, peer: ProcessId, queue: deque[WireMessage]) -> None:
        head = queue[0]
        assert isinstance(head, PathMessage)
        self._port.send((peer,), Announce(head.origin, head.counter))

    def _wanted(self, sender: ProcessId, name: MessageId) -> None:
        super()._wanted(sender, name)
        self._port.send((sender,), next(each for each in self._ledger.messages() if each.counter == name[1]))


def _drawn(name: str, edges: tuple[tuple[str, str], ...], *, lazy: bool = False, dissemination: Any = None) -> Stack:
    stack = STACKS[name]
    return replace(
        stack,
        membership=lambda port, roster: _Drawn(port, roster, edges, lazy),
        dissemination=dissemination or stack.dissemination,
    )


# ---------------------------------------------------------------------- document 000


def active_view(nodes: int) -> float:
    """How many neighbours HyParView keeps (000, section 4.2.1)."""
    return HyParViewParameters.of(nodes).active


def passive_view(nodes: int) -> float:
    """How many names HyParView keeps to replace neighbours from (000, section 4.2.1)."""
    return HyParViewParameters.of(nodes).passive


def redundancy(copies: int, receivers: int) -> float:
    """The relative message redundancy that so many copies make (000, section 4.1.1)."""
    return relative_redundancy(copies, receivers)


def naive_deliveries() -> float:
    """How often N2 of figure 3.2 delivers m1 by algorithm 1, when its link to N3 is new (000, section 3.4)."""
    world = World(_drawn("flood", (("N1", "N2"), ("N1", "N3")), dissemination=_Naive), ("N1", "N2", "N3"))
    world.broadcast("N1")
    _bring(world, "N1", "N2")
    for one, other in (("N2", "N3"), ("N3", "N2")):
        world.do(Suspect(one, other))
    _bring(world, "N1", "N3")
    _bring(world, "N3", "N2")
    return sum(entry.kind == "deliver" for entry in world.logs["N2"])


def order_with_waiting() -> str:
    """In which order N2 of figure 3.4 delivers (000, section 3.4.2)."""
    return _figure_3_4(CPTCast)


def order_without_waiting() -> str:
    """The same, if what follows an announcement does not wait for it (000, section 3.4.2)."""
    return _figure_3_4(_NothingWaits)


def _figure_3_4(dissemination: type[CPTCast]) -> str:
    world = World(_drawn("cptcast", (("N1", "N2"),), lazy=True, dissemination=dissemination), ("N1", "N2"))
    for _ in range(2):
        world.broadcast("N1")
    world.do(Receive("N1", "N2"))
    world.do(Fire("N2", (MISSING_TIMER, ("N1", 1))))
    _bring(world, "N2", "N1")
    world.broadcast("N1")
    _bring(world, "N1", "N2")
    if (MISSING_TIMER, ("N1", 2)) in world.ports["N2"].timers:
        world.do(Fire("N2", (MISSING_TIMER, ("N1", 2))))
        _bring(world, "N2", "N1")
        _bring(world, "N1", "N2")
    return ",".join(f"m{entry.message.counter}" for entry in world.logs["N2"] if entry.kind == "deliver")


# ---------------------------------------------------------------------- document 001


def order_over_new_link(stack: str) -> str:
    """In which order D of figures 3 and 4 delivers, when A uses its new link to D (001, sections 2 and 3.2)."""
    world = _figure_3(stack)
    _bring(world, "A", "D")
    for _ in range(2):
        for sender, receiver in (("A", "B"), ("B", "D"), ("D", "B"), ("B", "A"), ("D", "A"), ("A", "D")):
            _bring(world, sender, receiver)
    return ",".join(_NAMES[str(entry.message)] for entry in world.logs["D"] if entry.kind == "deliver")


def buffered_for_new_link() -> str:
    """What A of figure 4 keeps for D until the pong, and what it sends then (001, section 3.2)."""
    world = _figure_3("pc")
    links: Any = world.processes["A"].dissemination  # type: ignore[attr-defined]
    kept = [] if links.is_safe("D") else [_NAMES["A:2"]] * links.tables()["buffered"]
    before = len(world.in_flight["A", "D"])
    for sender, receiver in (("A", "B"), ("B", "D"), ("D", "A")):
        _bring(world, sender, receiver)
    sent = [_NAMES[f"{item.origin}:{item.counter}"] for item in world.in_flight["A", "D"][before:]]
    return f"{','.join(kept)} then {','.join(sent)}"


def _figure_3(name: str) -> World:
    world = World(_drawn(name, _LINE), ("A", "B", "D"))
    world.broadcast("A")
    world.do(Suspect("A", "D"))
    world.broadcast("A")
    return world


def overflow() -> float:
    """How many messages beyond its bound begin a new attempt, while D of figure 6 is silent (001, section 3.3)."""
    world, links = _overflowing()
    return world.logs["A"][-1].message.counter - BUFFER if not links.tables()["buffered"] else 0


def stale_pong_opens() -> float:
    """Whether the pong of the abandoned ping makes the link safe: 1 if so (001, figure 6)."""
    _, links = _overflowing()
    links.receive("D", Pong(1))
    return float(links.is_safe("D"))


def next_attempt_opens() -> float:
    """Whether the attempt that follows does, which asks D what it has: 1 if so (001, figure 6)."""
    world, links = _overflowing()
    world.do(Suspect("D", "A"))
    for sender, receiver in (("A", "D"), ("D", "A")):
        _bring(world, sender, receiver)
    return float(links.is_safe("D"))


def _overflowing() -> tuple[World, Any]:
    world = World(_drawn("pc", _LINE), ("A", "B", "D"))
    world.do(Suspect("A", "D"))
    links: Any = world.processes["A"].dissemination  # type: ignore[attr-defined]
    while True:
        world.broadcast("A")
        if not links.tables()["buffered"]:
            return world, links


def attempts_before_closing() -> float:
    """After how many attempts without an answer a link is closed (001, algorithm 3)."""
    return _never_answered()[0]


def left_after_closing() -> float:
    """How many links that are not safe, and messages for them, its opener still has then (001, algorithm 3)."""
    return _never_answered()[1]


def _never_answered() -> tuple[int, int]:
    world = World(_drawn("pc", _LINE), ("A", "B", "D"))
    world.do(Suspect("A", "D"))
    process: Any = world.processes["A"]
    attempts = 0
    while not process.membership.closed:
        attempts += 1
        world.broadcast("A")
        world.do(Fire("A", (LINK_TIMER, "D")))
    tables = process.dissemination.tables()
    return attempts, tables["opening"] + tables["buffered"]


def pings_of_first_link() -> float:
    """How many pings a joiner's first link and the one back need before they are safe (001, algorithm 2, line 7).

    -1 if they are not safe without.
    """
    world = World(STACKS["pc"], ("A",), ("B",))
    world.do(Join("B", "A"))
    pings = 0
    while any(world.in_flight.values()):
        for (sender, receiver), items in world.in_flight.items():
            pings += sum(isinstance(item, Along) for item in items)
            _bring(world, sender, receiver)
    ends: tuple[Any, Any] = (world.processes["A"], world.processes["B"])
    safe = ends[0].dissemination.is_safe("B") and ends[1].dissemination.is_safe("A")
    return pings if safe else -1


def pings_of_further_link() -> float:
    """How many pings are on their way once a process with a link has opened another (001, figure 4)."""
    world = World(_drawn("pc", _LINE), ("A", "B", "D"))
    world.do(Suspect("A", "D"))
    return sum(isinstance(item, Along) for items in world.in_flight.values() for item in items)


def forwards(view: int) -> float:
    """How many copies of a message a process passes on that has so many safe links (001, section 3.4)."""
    names = tuple(f"p{number}" for number in range(view + 1))
    edges = tuple((one, other) for place, one in enumerate(names) for other in names[place + 1 :])
    world = World(_drawn("pc", edges), names)
    world.broadcast(names[0])
    _bring(world, names[0], names[1])
    return sum(len(items) for (sender, _), items in world.in_flight.items() if sender == names[1])


def vector_entries(members: int) -> float:
    """Entries that a message of `cbcast` carries (001, table 1: O(N))."""
    sent: list[Any] = []
    port = WorldPort("p0", 0, lambda _, __, message: sent.append(message))
    process: Any = STACKS["cbcast"].process(port, Roster(f"p{number}" for number in range(members)))
    process.broadcast(b"")
    return float(process.ordering.entries(sent[0]))


def vector_words(members: int, waiting: int) -> float:
    """Words at a process of `cbcast` at which so many messages wait (001, table 1: O(N + W N))."""
    return _waiting(members, waiting)[0]


def vector_operations(members: int, waiting: int) -> float:
    """Words that `cbcast` looks at to deliver these, once what they wait for has come (001, table 1: O(W N))."""
    return _waiting(members, waiting)[1]


def _waiting(members: int, waiting: int) -> tuple[int, int]:
    names = tuple(f"p{number}" for number in range(members))
    world = World(STACKS["cbcast"], names)
    world.broadcast(names[0])
    _bring(world, names[0], names[1])
    for _ in range(waiting):
        world.broadcast(names[1])
    _bring(world, names[1], names[2])
    ordering: Any = world.processes[names[2]].ordering  # type: ignore[attr-defined]
    words, before = ordering.words(), ordering.operations
    _bring(world, names[0], names[2])
    return words, ordering.operations - before


def _bring(world: World, sender: str, receiver: str) -> None:
    """All that is in flight on one link arrives, and the application takes what that brings."""
    while world.in_flight[sender, receiver]:
        world.do(Receive(sender, receiver))
        while world.ports[receiver].queue:
            world.do(Take(receiver))


OVERLAY_CALCULATIONS: Final[dict[str, Callable[..., Measured]]] = {
    function.__name__: function
    for function in (
        active_view,
        passive_view,
        redundancy,
        naive_deliveries,
        order_with_waiting,
        order_without_waiting,
        order_over_new_link,
        buffered_for_new_link,
        overflow,
        stale_pong_opens,
        next_attempt_opens,
        attempts_before_closing,
        left_after_closing,
        pings_of_first_link,
        pings_of_further_link,
        forwards,
        vector_entries,
        vector_words,
        vector_operations,
    )
}
