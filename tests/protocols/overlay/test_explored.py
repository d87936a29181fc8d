"""Every schedule of three and four processes with a link added, removed, broken, a process joining or crashing; and
each mistake put back is found. What only time mends is left out (see `drawn`), so P7 does not ask for links not safe
yet, where a control message may be lost with a crash or reach somebody who has not joined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols.dissemination import search
from causalcast.simulation.explorer import Case, Outcome, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.steps import Join, Suspect
from tests.protocols.overlay import variants
from tests.protocols.overlay.drawn import Edges, drawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from causalcast.protocols import Process

NAMES = ("a", "b", "c")
PAIR: Edges = (("a", "b"),)
LINE: Edges = (("a", "b"), ("b", "c"))
TRIANGLE: Edges = (*LINE, ("a", "c"))
BENT: Edges = (("a", "b"), ("a", "d"), ("c", "d"))
OVER_B = {("a", "c"): ("a", "b", "c"), ("c", "a"): ("c", "b", "a")}

AT_REST = ("buffered", "held", "bursts", "expected", "waiting", "missing", "grafted")
STACKS = ("plumtree", "pc", "prc", "cptcast")


def tables(process: Process) -> Mapping[str, int]:
    sizes = process.dissemination.tables()  # type: ignore[attr-defined]
    return {name: size for name, size in sizes.items() if name in AT_REST}


def links(process: Process) -> Mapping[str, int]:
    return {"opening": process.dissemination.tables()["opening"]}  # type: ignore[attr-defined]


def case(
    name: str,
    edges: Edges,
    broadcasts: tuple[int, ...],
    *scripted: Any,
    names: tuple[str, ...] = NAMES,
    routes: dict[tuple[str, str], tuple[str, ...]] | None = None,
    lazy: Edges = (),
    variant: Any = None,
    link_timers: int = 0,
    **more: Any,
) -> Case:
    scripts: dict[str, tuple[Any, ...]] = {}
    for step in scripted:
        scripts[step.process] = (*scripts.get(step.process, ()), step)
    stack = drawn(
        name, edges, OVER_B if routes is None else routes, lazy=lazy, link_timers=link_timers, dissemination=variant
    )
    return Case(stack, names, broadcasts, prompt=Promptness.ALL, scripts=scripts, **{"sizes": tables, **more})


def explored(given: Case, limit: int = 250_000) -> Outcome:
    outcome = explore(given, limit=limit)
    assert outcome.found is None, outcome.found
    assert outcome.exhausted
    return outcome


ADD, JOIN = Suspect("a", "c"), Join("c", "b")
CASES: dict[str, tuple[Edges, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = {
    "a link added": (LINE, (2, 0, 0), (ADD,), {}),
    "a link added, others speak": (LINE, (0, 1, 0), (ADD,), {}),
    "a link removed": (TRIANGLE, (1, 1, 0), (ADD,), {}),
    "a link added and removed": (LINE, (1, 0, 0), (ADD, ADD), {}),
    "a process joins": (PAIR, (1, 1, 0), (JOIN,), {}),
    "a process joins and takes a link": (PAIR, (1, 0, 0), (JOIN, Suspect("c", "a")), {}),
    "a process crashes": (TRIANGLE, (1, 0, 1), (), {"crashes": (0, 1, 0)}),
    "nothing changes": (TRIANGLE, (1, 1, 0), (), {}),
}


@pytest.mark.parametrize("what", list(CASES))
@pytest.mark.parametrize("name", STACKS)
def test_every_schedule(name: str, what: str) -> None:
    edges, broadcasts, steps, more = CASES[what]
    assert explored(case(name, edges, broadcasts, *steps, **more)).states > 50


@pytest.mark.parametrize("name", ["pc", "prc", "cptcast"])
def test_every_schedule_with_a_link_that_breaks(name: str) -> None:
    explored(case(name, TRIANGLE, (1, 0, 0), breaks=(1, 0, 0), sizes=None))


FOUR = (*NAMES, "d")
ROW: Edges = (*LINE, ("c", "d"))
SQUARE: Edges = (*ROW, ("a", "d"))
OF_FOUR: dict[str, tuple[Edges, tuple[int, ...], tuple[Any, ...], dict[str, Any]]] = {
    "a link added": (ROW, (1, 0, 0, 0), (Suspect("a", "d"),), {}),
    "a link removed": (SQUARE, (1, 0, 1, 0), (Suspect("a", "d"),), {}),
    "a process joins": (LINE, (1, 0, 1, 0), (Join("d", "c"),), {}),
    "a process crashes": (SQUARE, (1, 0, 0, 0), (), {"crashes": (0, 1, 0, 0)}),
}


@pytest.mark.parametrize("what", list(OF_FOUR))
@pytest.mark.parametrize("name", STACKS)
def test_every_schedule_of_four_processes(name: str, what: str) -> None:
    edges, broadcasts, steps, more = OF_FOUR[what]
    routes = {("a", "d"): ("a", "b", "c", "d"), ("d", "a"): ("d", "c", "b", "a")}
    assert explored(case(name, edges, broadcasts, *steps, names=FOUR, routes=routes, **more)).states > 150


def test_the_way_of_a_control_message_breaks_and_another_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "FEW_ORIGINS", 0)
    explored(
        case("prc", BENT, (0, 0, 0, 0), ADD, names=(*NAMES, "d"), sizes=links),
    )


def test_a_message_announced_by_one_who_goes_comes_from_the_next() -> None:
    lazy: Edges = (("a", "c"), ("b", "c"))
    explored(case("cptcast", TRIANGLE, (1, 0, 0), ADD, lazy=lazy))


def test_a_pong_of_an_abandoned_ping_opens_nothing() -> None:
    explored(case("pc", LINE, (2, 0, 0), ADD, link_timers=1, properties=frozenset({"P1", "P3"})))


def test_naive_flooding_on_a_growing_overlay_breaks_causal_order() -> None:
    """001, figure 3."""
    found = explore(case("flood", LINE, (2, 0, 0), ADD, properties=frozenset({"P3"}), sizes=None)).found
    assert found is not None
    assert (found.violation.property, str(found.violation.message), str(found.violation.cause)) == ("P3", "a:2", "a:1")


LAZY: dict[str, Any] = {"lazy": (("a", "c"), ("b", "c"))}
MISTAKES: list[tuple[Any, str, str, tuple[Edges, tuple[int, ...], tuple[Any, ...], dict[str, Any]]]] = [
    (variants.NothingIsMarked, "prc", "P1", CASES["a link added"]),
    (variants.ANewLinkExpectsNothing, "prc", "P1", CASES["a link added"]),
    (variants.BufferBetaIsForgotten, "prc", "P3", CASES["a link added"]),
    (variants.BufferAlphaIsIgnored, "prc", "P1", CASES["a link added"]),
    (
        variants.ABrokenWayIsNotMended,
        "prc",
        "P7",
        (BENT, (0, 0, 0, 0), (ADD,), {"names": (*NAMES, "d"), "sizes": links}),
    ),
    (variants.AllButTheAnnouncersAreTold, "cptcast", "P2", (TRIANGLE, (1, 0, 0), (ADD,), LAZY)),
    (variants.TheTimerFindsTheQueueEmpty, "cptcast", "error", (TRIANGLE, (1, 0, 0), (ADD,), LAZY)),
    (variants.TheHeadIsRemoved, "cptcast", "P7", (TRIANGLE, (1, 1, 0), (), {"lazy": (("a", "c"),)})),
    (variants.NothingWaits, "cptcast", "P3", (TRIANGLE, (2, 0, 0), (), LAZY)),
    (variants.AGraftIsAnsweredTwice, "cptcast", "P1", (TRIANGLE, (1, 0, 0), (ADD,), LAZY)),
    (
        variants.AnyPongOpens,
        "pc",
        "P3",
        (LINE, (2, 0, 0), (ADD,), {"link_timers": 1, "properties": frozenset({"P1", "P3"})}),
    ),
    (variants.NothingIsBuffered, "pc", "P3", CASES["a link added"]),
    (variants.NoPing, "pc", "P3", CASES["a link added"]),
    (variants.AJoinerKnowsNothing, "pc", "P3", (PAIR, (1, 1, 0), (JOIN, Suspect("c", "a")), {"routes": {}})),
    (variants.AClosedLinkLeavesItsBuffer, "pc", "P7", (LINE, (2, 0, 0), (ADD, ADD), {})),
    (variants.AGraftIsForgotten, "plumtree", "P2", (LINE, (1, 1, 0), (ADD,), {})),
]


@pytest.mark.parametrize(
    ("variant", "name", "property_", "what"), MISTAKES, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_mistake_put_back_is_found(
    variant: Any, name: str, property_: str, what: tuple[Edges, tuple[int, ...], tuple[Any, ...], dict[str, Any]]
) -> None:
    edges, broadcasts, steps, more = what
    found = explore(case(name, edges, broadcasts, *steps, variant=variant, **more), limit=250_000).found
    assert found is not None
    assert found.violation.property == property_, found
