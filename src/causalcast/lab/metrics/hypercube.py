"""What document 002 states of the virtual hypercube without running anything: clusters, trees, rounds, examples.

Each is a function of parameters of the experiment, and asks the code of the protocols. Members are named by their
numbers, sets of them in words: `0 2 3`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from causalcast.protocols import stack
from causalcast.protocols.dissemination.aggregating_tree import HEADER_BYTES, Packet, message_bytes
from causalcast.protocols.membership.hypercube import cluster, dimension, everyone, first_child, height
from causalcast.protocols.ordering.aggregation import CausalMessage
from causalcast.protocols.pubsub.messages import PUB, SUB, Ack, Publication
from causalcast.protocols.pubsub.srpt import Routed, root_of
from causalcast.simulation import Broadcasts, Crash, Network, Simulator, Uniform, World, process_names
from causalcast.simulation.steps import Receive, Subscribe, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from causalcast.lab.metrics.base import Measured
    from causalcast.protocols.membership.diagnosis import DiagnosedVCube

_MS: Final = 1_000_000
_SECOND: Final = 1_000_000_000
_NAMES: Final = tuple(f"p{number}" for number in range(8))


def _present(nodes: int, failed: str) -> int:
    """The set of the members that have not failed."""
    present = everyone(nodes)
    for word in failed.split():
        present &= ~(1 << int(word))
    return present


def cluster_members(nodes: int, s: int) -> str:
    """The ordered members of cluster `s` of each member (document 002, figure 2.6)."""
    rows = []
    for member in range(nodes):
        present, row = everyone(nodes), []
        while (first := first_child(member, s, present)) is not None:
            row.append(str(first))
            present &= ~(1 << first)
        rows.append(" ".join(row))
    return "|".join(rows)


def clusters_of_zero(nodes: int) -> str:
    """The cluster of member 0 that holds 1, 2, ... (document 002, section 2.4.1)."""
    return " ".join(str(cluster(0, other)) for other in range(1, nodes))


def first_children(nodes: int, failed: str) -> str:
    """FIRSTCHILD(0,1), (1,2), (1,3), (7,2) and (4,1), a dash for none (document 002, section 2.4.1)."""
    present = _present(nodes, failed)
    found = (first_child(i, s, present) for i, s in ((0, 1), (1, 2), (1, 3), (7, 2), (4, 1)))
    return " ".join("-" if child is None else str(child) for child in found)


def _children(member: int, root: int, d: int, present: int) -> list[int]:
    span = height(member, root, d, present)
    found = (first_child(member, s, present) for s in range(1, span + 1))
    return [child for child in found if child is not None]


def tree(nodes: int, failed: str, root: int) -> str:
    """Who sends to whom in the tree of `root`, for all who have not failed (document 002, figure 2.8)."""
    present, d = _present(nodes, failed), dimension(nodes)
    members = [member for member in range(nodes) if present >> member & 1]
    return _shown((member, _children(member, root, d, present)) for member in members)


def _shown(rows: Iterable[tuple[int, Sequence[int]]]) -> str:
    return " ".join(f"{member}:{{{','.join(map(str, sorted(children)))}}}" for member, children in rows)


def tree_height(nodes: int) -> float:
    """The hops from the root of a fault-free tree to its farthest member (document 002, section 2.4.1)."""
    return float(max(_depths(nodes).values()))


def mean_depth(nodes: int) -> float:
    """The mean of the hops from the root of a fault-free tree to each other member."""
    depths = _depths(nodes)
    return sum(depths.values()) / (len(depths) - 1)


def most_children(nodes: int) -> float:
    """The most children that a member has in a fault-free tree (document 002, section 2.4.1)."""
    present, d = everyone(nodes), dimension(nodes)
    return float(max(len(_children(member, 0, d, present)) for member in range(nodes)))


def tree_levels(nodes: int) -> float:
    """log2 of the number of members: what section 2.4.1 of document 002 says of height and children."""
    return float(dimension(nodes))


def _depths(nodes: int) -> dict[int, int]:
    """By member, the hops from member 0 in its tree."""
    present, d = everyone(nodes), dimension(nodes)
    depths, level = {0: 0}, [0]
    while level:
        reached = [(child, depths[member] + 1) for member in level for child in _children(member, 0, d, present)]
        depths.update(reached)
        level = [child for child, _ in reached]
    return depths


def detection_rounds_mean(nodes: int) -> float:
    """Rounds until a survivor suspects a member that crashed, on average (document 002, section 2.4)."""
    found = [number for victim in _victims(nodes) for number in _rounds(nodes, victim)]
    return sum(found) / len(found)


def detection_rounds_most(nodes: int) -> float:
    """Rounds until all survivors suspect a member that crashed, the worst of all seen (document 002, section 2.4)."""
    return float(max(max(_rounds(nodes, victim)) for victim in _victims(nodes)))


def _victims(nodes: int) -> tuple[int, ...]:
    """The first member, the last, and one in the middle."""
    return 0, nodes // 2, nodes - 1


def _rounds(nodes: int, victim: int) -> list[int]:
    """After how many rounds each survivor suspects the member that crashed, everyone watching throughout."""
    names, d = process_names(nodes), dimension(nodes)
    crash = Crash(names[victim], _SECOND + _SECOND // 2)
    network = Network(Uniform(_MS, 10 * _MS))
    simulator = Simulator(stack("vcube-tree"), names, Broadcasts(0), network=network, faults=(crash,))
    there: dict[str, DiagnosedVCube] = {}
    for name, host in simulator.hosts.items():
        process: Any = host.process
        there[name] = process.membership
        there[name].watch(True)
    found: dict[str, int] = {}

    def look(number: int, _: None) -> None:
        for name, membership in there.items():
            if name != names[victim] and not membership.correct >> victim & 1:
                found.setdefault(name, number)

    # The first round after the crash begins at 2 s, and what it finds out is known by 3 s.
    last = d * d + 2
    for number in range(1, last + 1):
        simulator.queue.push((number + 2) * _SECOND + _SECOND // 2, look, number, None)
    simulator.run(until_ns=(last + 3) * _SECOND)
    return [found.get(name, last + 1) for name in names if name != names[victim]]


def smallest_packet_of_two() -> float:
    """The bytes of a packet of two messages, one of which names the other (document 002, section 4.5.3)."""
    cause, effect = CausalMessage("p0", 1, (), bytes(50)), CausalMessage("p1", 1, (0, 1), bytes(50))
    return float(HEADER_BYTES + message_bytes(cause) + message_bytes(effect))


_RECEIVED: Final[dict[str, tuple[tuple[int, int, int, tuple[int, ...]], ...]]] = {
    "4.4.3, first": ((6, 2, 1, ()), (6, 2, 3, ()), (0, 0, 1, (2, 3)), (6, 2, 2, ())),
    "4.4.3, second": ((0, 0, 1, (2, 1)), (0, 0, 2, ()), (6, 2, 1, ())),
    "figure 4.2": ((0, 0, 1, (1, 1, 2, 1)), (6, 2, 1, ()), (5, 1, 1, (2, 1))),
}
"""By example of document 002: what node 4 of 8 receives, as sender, source, counter, and what the message names."""


def node_4(example: str) -> str:
    """What node 4 sends upon each reception, as `receiver: messages` (document 002, section 4.4.3 and figure 4.2)."""
    world = World(stack("causal-aggregation"), _NAMES)
    answers = []
    for sender, source, counter, past in _RECEIVED[example]:
        before = {link: len(packets) for link, packets in world.in_flight.items()}
        message = CausalMessage(f"p{source}", counter, past, b"")
        world.processes["p4"].receive(f"p{sender}", Packet((message,)))
        sent = [
            f"{receiver[1:]}: " + " ".join(f"m{each.origin[1:]},{each.counter}" for each in packet.messages)
            for (origin, receiver), packets in world.in_flight.items()
            if origin == "p4"
            for packet in packets[before[origin, receiver] :]
        ]
        answers.append("; ".join(sent) or "nothing")
    return " | ".join(answers)


def _subscribed(name: str, members: int, subscribers: str, topic: str) -> World:
    """A world where these subscribe to `topic`, completely."""
    world = World(stack(name), _NAMES[:members])
    for word in subscribers.split():
        world.do(Subscribe(f"p{word}", topic))
        world.settle()
    return world


def publication_tree(subscribers: str, publisher: int) -> str:
    """Who of 8 members sends a publication to whom, those who send (document 002, figure 5.4)."""
    world = _subscribed("vcube-ps", 8, subscribers, "t")
    world.broadcast(f"p{publisher}", b"", "t")
    found: dict[int, list[int]] = {}
    while any(world.in_flight.values()):
        (sender, receiver), messages = next(each for each in world.in_flight.items() if each[1])
        if isinstance(messages[0], Publication):
            found.setdefault(int(sender[1:]), []).append(int(receiver[1:]))
        world.do(Receive(sender, receiver))
    return _shown(sorted(found.items()))


def relays(topic_stack: str) -> str:
    """Who of 8 members only passes on what 0 publishes to 0, 1, 3, 5 and 6 (document 002, figure 5.2)."""
    topic = next(name for name in map(str, range(100)) if root_of(name, 8) == 0)
    world = _subscribed(topic_stack, 8, "0 1 3 5 6", topic)
    world.broadcast("p0", b"", topic)
    reached: set[int] = set()
    while any(world.in_flight.values()):
        (sender, receiver), messages = next(each for each in world.in_flight.items() if each[1])
        message = messages[0]
        if isinstance(message, Publication) or (isinstance(message, Routed) and message.kind == PUB):
            reached.add(int(receiver[1:]))
        world.do(Receive(sender, receiver))
    return " ".join(map(str, sorted(reached - {0, 1, 3, 5, 6}))) or "none"


def causal_barriers() -> str:
    """The barriers of p1's publications of figure 5.3, and what the late subscriber p3 delivers (document 002)."""
    world = _subscribed("vcube-ps", 4, "0 1 2", "t")
    world.broadcast("p0", b"", "t")
    world.do(Receive("p0", "p1"))
    world.do(Take("p1"))
    world.broadcast("p2", b"", "t")
    # p2's publication stays under way while p3 subscribes and p1 publishes.
    late = [(link, each) for link, messages in world.in_flight.items() for each in messages if _is_of(each, "p2")]
    for link, each in late:
        world.in_flight[link].remove(each)
    world.do(Subscribe("p3", "t"))
    world.settle()
    first = world.broadcast("p1", b"", "t")
    for link, each in late:
        world.in_flight[link].append(each)
    world.settle()
    second = world.broadcast("p1", b"", "t")
    world.settle()
    barriers = [f"cb({each.origin},{each.counter})={{{_dots(each.context)}}}" for each in (first, second)]
    delivered = [entry.tag.dot for entry in world.logs["p3"] if entry.kind == "deliver" and entry.tag is not None]
    return f"{' '.join(barriers)}; p3: {_dots(delivered, in_order=False)}"


def _is_of(message: Any, publisher: str) -> bool:
    return isinstance(message, Publication) and message.origin == publisher


def _dots(dots: Iterable[tuple[str, int]], *, in_order: bool = True) -> str:
    return " ".join(f"{origin},{counter}" for origin, counter in (sorted(dots) if in_order else dots))


def acknowledged(subscribers: str) -> str:
    """Which subscribers each child of node 0 acknowledges when it subscribes (document 002, figure 5.5)."""
    world = _subscribed("vcube-ps", 8, subscribers, "t")
    world.do(Subscribe("p0", "t"))
    found: dict[int, list[int]] = {}
    while any(world.in_flight.values()):
        (sender, receiver), messages = next(each for each in world.in_flight.items() if each[1])
        message = messages[0]
        if isinstance(message, Ack) and receiver == "p0" and message.kind == SUB:
            triples = zip(*(iter(message.found),) * 3, strict=True)
            found[int(sender[1:])] = [member for member, _, subscribes in triples if subscribes]
        world.do(Receive(sender, receiver))
    return _shown(sorted(found.items()))


HYPERCUBE_CALCULATIONS: Final[dict[str, Callable[..., Measured]]] = {
    function.__name__: function
    for function in (
        cluster_members,
        clusters_of_zero,
        first_children,
        tree,
        tree_height,
        mean_depth,
        most_children,
        tree_levels,
        detection_rounds_mean,
        detection_rounds_most,
        smallest_packet_of_two,
        node_4,
        publication_tree,
        relays,
        causal_barriers,
        acknowledged,
    )
}
