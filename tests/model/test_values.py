"""Dots, rosters, vectors and tags as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from causalcast.model import (
    Dot,
    IncomparableTagsError,
    InvalidNameError,
    NotAMemberError,
    Roster,
    Tag,
    VersionVector,
)

ROSTER = Roster(["b", "a", "c"])
VECTORS = st.tuples(*[st.integers(0, 3)] * 3).map(lambda counts: VersionVector(ROSTER, counts))


def test_a_dot_is_equal_to_the_plain_pair_that_travels() -> None:
    assert Dot("a", 1) == ("a", 1)
    assert hash(Dot("a", 1)) == hash(("a", 1))
    assert str(Dot("a", 1)) == "a:1"


def test_a_roster_sorts_its_names_and_numbers_them() -> None:
    assert ROSTER.names == ("a", "b", "c")
    assert [ROSTER.slot(name) for name in "abc"] == [0, 1, 2]
    assert ROSTER.others("b") == ("a", "c")
    assert Roster(["c", "b", "a"]) == ROSTER
    assert hash(Roster(["c", "b", "a"])) == hash(ROSTER)
    with pytest.raises(NotAMemberError, match="'d' is not a member; members are a, b, c"):
        ROSTER.slot("d")


@pytest.mark.parametrize("name", ["", "two words", "a,b", "a=b", "../a", "x" * 129, "é" * 65])
def test_a_name_that_no_command_line_can_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="cannot name a process"):
        Roster([name])


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InvalidNameError, match="a is given twice"):
        Roster(["a", "b", "a"])


@given(VECTORS, VECTORS)
def test_vectors_are_a_lattice(a: VersionVector, b: VersionVector) -> None:
    join = a.join(b)
    assert a <= join
    assert b <= join
    assert all(count == max(x, y) for count, x, y in zip(join.counts, a.counts, b.counts, strict=True))
    assert (a <= b <= a) == (a == b)
    assert (a < b) == (a <= b and a != b)
    assert (a > b, a >= b) == (b < a, b <= a)
    assert a.concurrent_with(b) == (not a <= b and not b <= a)


def test_a_vector_advances_one_member() -> None:
    vector = VersionVector(ROSTER).advance("b").advance("b").advance("c")
    assert vector["b"] == 2
    assert list(vector.items()) == [("b", 2), ("c", 1)]
    with pytest.raises(IncomparableTagsError):
        VersionVector(ROSTER, (1, 2))


def tag(origin: str, *counts: int) -> Tag:
    return Tag(origin, counts[ROSTER.slot(origin)], (), counts, ROSTER)


def test_tags_compare_by_what_happened_before() -> None:
    a1, b1, b2 = tag("a", 1, 0, 0), tag("b", 0, 1, 0), tag("b", 1, 2, 0)
    assert a1 < b2
    assert b2 > a1
    assert b1 < b2
    assert a1.concurrent_with(b1)
    assert not a1 < b1
    assert not a1 <= b1
    assert a1 <= a1  # noqa: PLR0124 - reflexive
    assert not a1.concurrent_with(a1)
    assert (a1 == tag("a", 1, 0, 0), a1 == b1, a1 == "a:1") == (True, False, False)
    assert b2.dot == ("b", 2)
    assert b2.vector == VersionVector(ROSTER, (1, 2, 0))
    assert len({a1, tag("a", 1, 0, 0), b1}) == 2


def test_tags_of_different_groups_do_not_compare() -> None:
    other = Tag("a", 1, (), (1,), Roster(["a"]))
    with pytest.raises(IncomparableTagsError, match="groups with different members"):
        _ = tag("a", 1, 0, 0) < other
    assert other != tag("a", 1, 0, 0)


def test_equal_rosters_need_not_be_one_object() -> None:
    assert tag("a", 1, 0, 0) < Tag("b", 1, (), (1, 1, 0), Roster("abc"))


def test_a_tag_does_not_compare_with_what_is_no_tag() -> None:
    with pytest.raises(TypeError, match="not supported between"):
        _ = tag("a", 1, 0, 0) < 5  # type: ignore[operator]
    with pytest.raises(TypeError, match="not supported between"):
        _ = tag("a", 1, 0, 0) > "a:1"  # type: ignore[operator]
