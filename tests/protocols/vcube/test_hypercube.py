"""Golden values of document 002, section 2.4, and the arithmetic against the definitions for any number of members."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from causalcast.protocols.membership import hypercube
from causalcast.protocols.membership.hypercube import cluster, everyone, first_child

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL = everyone(8)


def without(*faulty: int) -> int:
    return ALL & ~sum(1 << each for each in faulty)


def cluster_members(i: int, s: int) -> Iterator[int]:
    """c(i, s) in its order."""
    nearest = i ^ 1 << s - 1
    return (nearest ^ t for t in range(1 << s - 1))


def children(i: int, root: int, d: int, present: int) -> list[int]:
    """CHILDREN: the children of `i` in the tree of `root` over `present`."""
    found = (first_child(i, s, present) for s in range(1, hypercube.height(i, root, d, present) + 1))
    return [child for child in found if child is not None]


def depth(tree: dict[int, list[int]], root: int) -> int:
    """How many hops the farthest is away from `root`."""
    hops, level = 0, tree[root]
    while level:
        hops, level = hops + 1, [below for child in level for below in tree[child]]
    return hops


def test_figure_2_6_the_clusters_of_8_nodes() -> None:
    table = {
        1: ["1", "0", "3", "2", "5", "4", "7", "6"],
        2: ["2 3", "3 2", "0 1", "1 0", "6 7", "7 6", "4 5", "5 4"],
        3: ["4 5 6 7", "5 4 7 6", "6 7 4 5", "7 6 5 4", "0 1 2 3", "1 0 3 2", "2 3 0 1", "3 2 1 0"],
    }
    for s, row in table.items():
        assert [" ".join(map(str, cluster_members(i, s))) for i in range(8)] == row


def test_section_2_4_1_cluster_and_first_child() -> None:
    assert [cluster(0, k) for k in range(1, 8)] == [1, 2, 2, 3, 3, 3, 3]
    assert first_child(0, 1, ALL) == 1
    assert first_child(1, 2, ALL) == 3
    assert [first_child(1, 3, ALL), first_child(7, 2, ALL), first_child(4, 1, ALL)] == [5, 5, 5]
    faulty = without(5)
    assert [first_child(1, 3, faulty), first_child(7, 2, faulty), first_child(4, 1, faulty)] == [4, 4, None]


def tree(root: int, present: int, members: int) -> dict[int, list[int]]:
    d = hypercube.dimension(members)
    return {i: children(i, root, d, present) for i in range(members) if present >> i & 1}


def test_figure_2_7_the_children_of_4_in_the_tree_of_2() -> None:
    assert children(4, 2, 3, ALL) == [5]


def test_figure_2_8_trees() -> None:
    assert tree(0, ALL, 8) == {0: [1, 2, 4], 1: [], 2: [3], 3: [], 4: [5, 6], 5: [], 6: [7], 7: []}
    assert tree(0, without(2, 4, 6), 8) == {0: [1, 3, 5], 1: [], 3: [], 5: [7], 7: []}
    assert tree(2, ALL, 8) == {2: [3, 0, 6], 3: [], 0: [1], 1: [], 6: [7, 4], 7: [], 4: [5], 5: []}


@pytest.mark.parametrize("members", [1, 2, 3, 5, 6, 7, 8, 13, 16, 21, 33])
def test_trees_of_any_size_reach_everyone_present_once(members: int) -> None:
    draw = random.Random(members)
    d = hypercube.dimension(members)
    for present in (everyone(members), *(draw.getrandbits(members) for _ in range(20))):
        for root in range(members):
            here = present | 1 << root
            found = tree(root, here, members)
            reached = sorted(child for below in found.values() for child in below)
            assert reached == [i for i in range(members) if here >> i & 1 and i != root]
            assert all(len(below) <= d for below in found.values())
            assert depth(found, root) <= d


@pytest.mark.parametrize("members", [4, 7, 16, 19])
def test_first_child_is_the_first_of_the_cluster_that_is_present(members: int) -> None:
    draw = random.Random(members)
    for _ in range(200):
        present = draw.getrandbits(members)
        i, s = draw.randrange(members), draw.randint(1, hypercube.dimension(members))
        first = next((j for j in cluster_members(i, s) if present >> j & 1), None)
        assert first_child(i, s, present) == first


@pytest.mark.parametrize("members", [5, 8, 12, 16, 31])
def test_a_cluster_is_its_first_member_and_that_members_lower_clusters(members: int) -> None:
    """Why a receiver finds its duty in CLUSTER(sender, itself) - 1, whichever member of the cluster it is."""
    for i in range(members):
        for s in range(1, hypercube.dimension(members) + 1):
            whole = set(cluster_members(i, s))
            for j in whole:
                assert {j}.union(*(cluster_members(j, t) for t in range(1, s))) == whole
                assert cluster(i, j) == s
