"""The figures of documents 000 and 001 as runs whose steps the test decides, with the violations they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols.dissemination import safelinks
from causalcast.protocols.dissemination.pc import Pong
from causalcast.protocols.dissemination.safelinks import Along
from causalcast.protocols.ordering.path import PathMessage
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.steps import Fire, Receive, Suspect, Take
from causalcast.simulation.world import World
from tests.protocols.overlay import variants
from tests.protocols.overlay.drawn import drawn

if TYPE_CHECKING:
    from tests.protocols.overlay.drawn import Edges

TRIANGLE: Edges = (("A", "B"), ("B", "C"), ("A", "C"))
LINE: Edges = (("A", "B"), ("B", "D"))
OVER_B = {("A", "D"): ("A", "B", "D"), ("D", "A"): ("D", "B", "A")}


def delivered(world: World, name: str) -> list[str]:
    return [str(entry.message) for entry in world.logs[name] if entry.kind in ("deliver", "broadcast")]


def pass_all(world: World, sender: str, receiver: str) -> None:
    """Everything in flight on one link arrives, and is taken."""
    while world.in_flight[sender, receiver]:
        world.do(Receive(sender, receiver))
        while world.ports[receiver].queue:
            world.do(Take(receiver))


def kinds(world: World, sender: str, receiver: str) -> list[str]:
    """What is in flight on a link: message numbers, and names of what is not a message."""
    return [
        f"{item.origin}:{item.counter}" if isinstance(item, PathMessage)
        else item.kind if isinstance(item, Along)
        else type(item).__name__
        for item in world.in_flight[sender, receiver]
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["flood", "pc", "prc", "cptcast"])
def test_001_figures_1_and_2_forwarding_over_fifo_links_is_causal_while_no_link_is_added(name: str) -> None:
    case = Case(
        drawn(name, TRIANGLE), ("A", "B", "C"), (1, 1, 0), prompt=Promptness.ALL, properties=frozenset({"P1", "P3"})
    )
    assert explore(case).exhausted


def test_001_figure_3_a_shortcut_brings_the_effect_before_its_cause() -> None:
    world = World(drawn("flood", LINE), ("A", "B", "D"))
    world.broadcast("A")
    world.do(Suspect("A", "D"))
    world.broadcast("A")
    pass_all(world, "A", "D")
    assert delivered(world, "D") == ["A:2"]
    pass_all(world, "A", "B")
    pass_all(world, "B", "D")
    assert delivered(world, "D") == ["A:2", "A:1"]


def test_001_figure_4_the_new_link_waits_for_the_ping_behind_what_is_under_way() -> None:
    world = World(drawn("pc", LINE, OVER_B), ("A", "B", "D"))
    world.broadcast("A")
    world.do(Suspect("A", "D"))
    assert kinds(world, "A", "B") == ["A:1", "ping"]
    world.broadcast("A")
    pass_all(world, "A", "D")
    assert delivered(world, "D") == []
    pass_all(world, "A", "B")
    pass_all(world, "B", "D")
    assert delivered(world, "D") == ["A:1", "A:2"]
    pass_all(world, "D", "A")
    assert kinds(world, "A", "D")[-1] == "A:2"
    world.broadcast("A")
    assert kinds(world, "A", "D")[-2:] == ["A:2", "A:3"]
    pass_all(world, "A", "D")
    assert delivered(world, "D") == ["A:1", "A:2", "A:3"]


def test_001_figures_5_and_6_a_full_buffer_begins_anew_and_the_late_pong_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(safelinks, "BUFFER", 2)
    world = World(drawn("pc", LINE, OVER_B, link_timers=9), ("A", "B", "D"))
    world.do(Suspect("A", "D"))
    links: Any = world.processes["A"]
    for _ in range(3):
        world.broadcast("A")
    assert links.dissemination.tables()["buffered"] == 0
    links.dissemination.receive("D", Pong(1))
    assert not links.dissemination.is_safe("D")
    world.settle()
    assert links.dissemination.is_safe("D")
    assert delivered(world, "D") == ["A:1", "A:2", "A:3"]
    assert links.dissemination.tables()["opening"] == 0


def test_000_figure_3_2_a_new_link_whose_receiver_expects_nothing_brings_a_message_twice() -> None:
    case = Case(
        drawn("prc", LINE, OVER_B, dissemination=variants.ANewLinkExpectsNothing),
        ("A", "B", "D"),
        (2, 0, 0),
        prompt=Promptness.ALL,
        scripts={"A": (Suspect("A", "D"),)},
    )
    found = explore(case).found
    assert found is not None
    assert found.violation.property == "P1"


def test_000_figure_3_3_alpha_beta_pi_rho_and_the_buffer() -> None:
    world = World(drawn("prc", LINE, {("A", "D"): ("A", "B", "D")}), ("A", "B", "D"))
    world.broadcast("A")
    world.do(Suspect("A", "D"))
    assert kinds(world, "A", "B") == ["A:1", "alpha"]
    pass_all(world, "A", "D")
    pass_all(world, "A", "B")
    assert kinds(world, "B", "D") == ["A:1", "alpha"]
    pass_all(world, "B", "D")
    assert "beta" in kinds(world, "D", "B")
    world.broadcast("D")
    pass_all(world, "D", "B")
    pass_all(world, "B", "A")
    assert "pi" in kinds(world, "A", "B")
    pass_all(world, "A", "B")
    world.broadcast("A")
    pass_all(world, "B", "D")
    assert "rho" in kinds(world, "D", "B")
    pass_all(world, "D", "B")
    pass_all(world, "B", "A")
    assert [kind for kind in kinds(world, "A", "D") if kind in ("Begin", "D:1", "A:2")] == ["Begin", "D:1", "A:2"]
    world.settle()
    assert delivered(world, "D") == ["A:1", "D:1", "A:2"]
    for process in world.processes.values():
        assert process.dissemination.tables()["expected"] == 0  # type: ignore[attr-defined]


def test_000_figure_3_4_what_follows_an_announcement_waits_for_it() -> None:
    world = World(drawn("cptcast", (("N1", "N2"),), lazy=(("N1", "N2"),)), ("N1", "N2"))
    for _ in range(2):
        world.broadcast("N1")
    assert kinds(world, "N1", "N2") == ["Announce"]
    world.do(Receive("N1", "N2"))
    world.do(Fire("N2", ("cptcast.missing", ("N1", 1))))
    pass_all(world, "N2", "N1")
    world.broadcast("N1")
    assert kinds(world, "N1", "N2") == ["N1:1", "N1:2", "N1:3"]
    pass_all(world, "N1", "N2")
    assert delivered(world, "N2") == ["N1:1", "N1:2", "N1:3"]


def test_000_figure_3_4_without_waiting_a_message_overtakes_the_one_before() -> None:
    case = Case(
        drawn("cptcast", (("N1", "N2"),), lazy=(("N1", "N2"),), dissemination=variants.NothingWaits),
        ("N1", "N2"),
        (3, 0),
        prompt=Promptness.ALL,
    )
    found = explore(case).found
    assert found is not None
    assert found.violation.property == "P3"
