"""VCube-PS of four members under every schedule of small cases: SUB, UNS, PUB, a crash, a wrong suspicion."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.cli.script import scripts_of
from causalcast.protocols import stack
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.properties import own_tables
from causalcast.simulation.schedule import Schedule, replay
from causalcast.simulation.shrink import shrink
from tests.simulation.test_explorer import explored

if TYPE_CHECKING:
    from causalcast.protocols import Stack

PS = stack("vcube-ps")
CHECKED = frozenset({"P1", "P2", "P3", "P7", "P8"})


def case(script: str, nodes: int = 4, made: Stack = PS) -> Case:
    names = tuple(f"p{number}" for number in range(nodes))
    scripts = scripts_of(script, names, made)
    return Case(made, names, 0, fifo=True, scripts=scripts, properties=CHECKED, sizes=own_tables)


@pytest.mark.parametrize(
    ("script", "states"),
    [
        ("p0: broadcast; p2: unsubscribe; p3: crash", 3_089),
        ("p0: broadcast; p2: unsubscribe, subscribe", 2_902),
        ("p0: subscribe a, broadcast a; p1: subscribe a", 2_855),
        ("p0: broadcast; p1: unsubscribe; p2: suspect p3", 1_211),
    ],
)
def test_every_schedule_of_four_members_keeps_what_is_promised(script: str, states: int) -> None:
    outcome = explore(case(script))
    assert outcome.found is None
    assert outcome.exhausted
    assert outcome.states == states


def test_the_first_schedules_of_a_larger_case_keep_what_is_promised() -> None:
    outcome = explore(case("p0: broadcast, broadcast; p2: unsubscribe, subscribe; p3: crash"), limit=8_000)
    assert outcome.found is None
    assert outcome.limited


@pytest.mark.parametrize("script", ["p0: broadcast; p1: broadcast; p2: crash", "p0: broadcast, crash; p1: unsubscribe"])
def test_the_reduction_loses_no_end(script: str) -> None:
    tried = replace(case(script, 3), properties=frozenset())
    assert explored(tried, reduce=True, merge=True)[1] == explored(tried, reduce=False, merge=True)[1]


class WaitsForTheCrashed(VCubePS):
    """Mistake: a suspicion changes nothing."""

    __slots__ = ()

    def neighbour_down(self, _: str) -> None:
        """Nothing."""


class HandsNothingOver(VCubePS):
    """Mistake: nobody takes the place of a publisher that crashed."""

    __slots__ = ()

    def _hand(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("mistake", "script", "broken"),
    [
        (WaitsForTheCrashed, "p0: broadcast; p2: crash", "P2"),
        (HandsNothingOver, "p0: broadcast, crash; p2: crash", "P2"),
    ],
)
def test_a_mistake_about_crashes_becomes_a_small_schedule(mistake: type[VCubePS], script: str, broken: str) -> None:
    made = replace(PS, dissemination=mistake)
    tried = case(script, made=made)
    outcome = explore(tried)
    assert outcome.found is not None
    assert outcome.found.violation.property == broken
    found = Schedule("", tried.names, outcome.found.schedule)
    small = shrink(found, broken, stack=made, sizes=own_tables)
    assert replay(small, made).judge({broken}, own_tables)
    assert not replay(small, PS).judge({broken}, own_tables)
