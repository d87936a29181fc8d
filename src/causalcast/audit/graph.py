"""Circles in large directed graphs, by arrays and without recursion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def order_of(nodes: int, before: Ints, after: Ints) -> tuple[list[int], list[int]]:
    """Order a graph's nodes so that each edge, `before[i]` to `after[i]`, goes forward (Kahn).

    Returns the nodes that can be ordered, and the edges left over to the others: both empty parts of a graph
    without circles are what a caller hopes for. Costs O(nodes + edges) steps.
    """
    starts, heads = rows_of(nodes, before, after)
    waiting = np.bincount(after, minlength=nodes).tolist()
    ready = [node for node in range(nodes) if waiting[node] == 0]
    first, target = starts.tolist(), heads.tolist()
    at = 0
    while at < len(ready):
        node = ready[at]
        at += 1
        for i in range(first[node], first[node + 1]):
            head = target[i]
            waiting[head] -= 1
            if waiting[head] == 0:
                ready.append(head)
    return ready, [node for node in range(nodes) if waiting[node] > 0]


def rows_of(nodes: int, before: Ints, after: Ints) -> tuple[Ints, Ints]:
    """Return the edges by their first node: those of node `i` lead to `heads[starts[i]:starts[i + 1]]`."""
    order = np.argsort(before, kind="stable")
    starts = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(before, minlength=nodes), out=starts[1:])
    return starts, after[order]


def circle(nodes: int, before: Ints, after: Ints) -> list[int]:
    """Return the nodes of a short circle in the order of its edges, or nothing where there is none.

    Every node that no order can place follows another such node: going back from one to the next ends in a circle.
    The shortest circle through a node of it is then found by breadth.
    """
    _, left = order_of(nodes, before, after)
    if not left:
        return []
    inside = np.zeros(nodes, dtype=bool)
    inside[left] = True
    keep = inside[before] & inside[after]
    before, after = before[keep], after[keep]
    back: dict[int, int] = dict(zip(after.tolist(), before.tolist(), strict=True))
    node, seen = left[0], set[int]()
    while node not in seen:
        seen.add(node)
        node = back[node]
    return _shortest(nodes, before, after, node)


def path_between(nodes: int, before: Ints, after: Ints, start: int, end: int) -> list[int]:
    """Return the nodes of a shortest path of at least one edge, both ends included, or nothing."""
    starts, heads = rows_of(nodes, before, after)
    came: dict[int, int] = {}
    frontier = [start]
    while frontier and end not in came:
        following: list[int] = []
        for node in frontier:
            for head in heads[starts[node] : starts[node + 1]].tolist():
                if head not in came:
                    came[head] = node
                    following.append(head)
        frontier = following
    if end not in came:
        return []
    path = [end]
    while len(path) == 1 or path[-1] != start:
        path.append(came[path[-1]])
    return path[::-1]


def _shortest(nodes: int, before: Ints, after: Ints, node: int) -> list[int]:
    found: Any = path_between(nodes, before, after, node, node)
    return [int(each) for each in found[:-1]]
