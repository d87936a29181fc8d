"""The arithmetic of the virtual hypercube: clusters, first members, trees (document 002, section 2.4).

Members are numbers from 0, those of a set the bits of an integer. The members of cluster `s` of `i` are, in order,
`i ^ (2 ** (s - 1) + t)` for t = 0, 1, ..., which is what the recursive definition of section 2.4 unrolls to. Numbers
that are no members, because there are not 2 ** d of them, are skipped like faulty ones; nothing else changes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def dimension(members: int) -> int:
    """How many clusters a member has: log2 of `members`, rounded up."""
    return (members - 1).bit_length()


@lru_cache(maxsize=8)
def everyone(members: int) -> int:
    """The set of all members; one object for all processes of a group."""
    return (1 << members) - 1


def cluster(i: int, j: int) -> int:
    """CLUSTER: the index of the cluster of `i` that holds `j`; 0 if they are the same."""
    return (i ^ j).bit_length()


def cluster_members(i: int, s: int) -> Iterator[int]:
    """c(i, s) in its order, all numbers of it."""
    nearest = i ^ 1 << s - 1
    return (nearest ^ t for t in range(1 << s - 1))


def first_child(i: int, s: int, present: int) -> int | None:
    """FIRSTCHILD: the first member of c(i, s) that is in the set `present`.

    The order of a cluster prefers, bit by bit from the highest, numbers that agree with `i` outside of bit s - 1: a
    walk down a binary tree, not along the cluster.
    """
    half = 1 << s - 1
    nearest = i ^ half
    at = nearest & -half
    block = present >> at & (1 << half) - 1
    if not block:
        return None
    while half > 1:
        half >>= 1
        side = nearest & half
        part = block >> side & (1 << half) - 1
        if part:
            at += side
            block = part
        else:
            at += half - side
            block = block >> half - side & (1 << half) - 1
    return at


def height(i: int, root: int, d: int, present: int) -> int:
    """How many clusters of `i` its sub-tree spans in the tree of `root`; `d` for the root itself.

    `i` has to be in `present`. Document 002 finds it by recursion in CHILDREN (algorithm 1).
    """
    while root != i:
        d = cluster(root, i) - 1
        nearest = first_child(root, d + 1, present)
        assert nearest is not None
        root = nearest
    return d


def children(i: int, root: int, d: int, present: int) -> list[int]:
    """CHILDREN: the children of `i` in the tree of `root` over `present` (algorithm 1; its line 3 means 1 <= s)."""
    found = (first_child(i, s, present) for s in range(1, height(i, root, d, present) + 1))
    return [child for child in found if child is not None]


def depth(i: int, root: int, present: int) -> int:
    """How many hops `i` is away from `root` in the tree of `root` over `present`."""
    hops = 0
    while root != i:
        nearest = first_child(root, cluster(root, i), present)
        assert nearest is not None
        root = nearest
        hops += 1
    return hops
