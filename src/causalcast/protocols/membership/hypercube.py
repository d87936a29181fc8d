"""The arithmetic of the virtual hypercube: clusters, first members, trees (document 002, section 2.4).

Members are numbers from 0, those of a set the bits of an integer. The members of cluster `s` of `i` are, in order,
`i ^ (2 ** (s - 1) + t)` for t = 0, 1, ..., which is what the recursive definition of section 2.4 unrolls to. Numbers
that are no members, because there are not 2 ** d of them, are skipped like faulty ones; nothing else changes.
"""

from __future__ import annotations

from functools import lru_cache


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

    `i` has to be in `present`. Its children there are the first members of that many of its clusters: CHILDREN, which
    finds the height by recursion and whose line 3 means 1 <= s (algorithm 1).
    """
    while root != i:
        d = cluster(root, i) - 1
        nearest = first_child(root, d + 1, present)
        assert nearest is not None
        root = nearest
    return d
