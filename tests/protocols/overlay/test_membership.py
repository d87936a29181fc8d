"""HyParView, Spray and Cyclon: one connected overlay, mutual neighbours, nothing that grows; USERS 9, 14 to 18."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from causalcast.model import NotAMemberError
from causalcast.protocols import STACKS
from causalcast.protocols.dissemination.plumtree import ANNOUNCED_AT_ONCE, IHave, Plumtree
from causalcast.protocols.ordering.path import PathMessage
from causalcast.simulation import Churn, Crash, Partition, process_names
from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.local import Promptness
from causalcast.simulation.steps import Suspect
from tests.protocols.overlay.drawn import drawn
from tests.protocols.overlay.judged import judged

if TYPE_CHECKING:
    from causalcast.simulation.simulator import Simulator

S = 1_000_000_000
OVERLAYS = ("prc", "pc", "cptcast-cyclon")
"""HyParView, Spray, Cyclon."""


def neighbours(run: Simulator) -> dict[str, set[str]]:
    assert run.sessions is not None
    alive = [name for name in run.hosts if name not in run.sessions._gone]
    return {name: set(run.hosts[name].process.membership.neighbours) for name in alive}  # type: ignore[attr-defined]


def reached(links: dict[str, set[str]]) -> int:
    first = next(iter(links))
    seen, todo = {first}, [first]
    while todo:
        for peer in links[todo.pop()] - seen:
            seen.add(peer)
            todo.append(peer)
    return len(seen)


def check(run: Simulator) -> None:
    links = neighbours(run)
    assert reached(links) == len(links)
    assert all(name in links[peer] for name, peers in links.items() for peer in peers)


@pytest.mark.parametrize("name", OVERLAYS)
def test_nine_join_at_once_through_one_contact(name: str) -> None:
    """USERS 15."""
    for seed in range(8):
        run, judge = judged(STACKS[name], 9, times=[400 * S], seed=seed, until_ns=450 * S)
        check(run)
        assert (dict(judge.faults), run.counters.joins) == ({}, 8)


@pytest.mark.parametrize("name", OVERLAYS)
def test_two_halves_meet_again_without_evictions(name: str) -> None:
    """USERS 14: apart for longer than every timeout."""
    names = process_names(20)
    apart = Partition((tuple(names[:10]), tuple(names[10:])), 60 * S, 600 * S)
    run, judge = judged(STACKS[name], 20, times=[30 * S, 1_500 * S], faults=[apart], until_ns=1_600 * S)
    check(run)
    assert judge.lapses == 0
    assert (dict(judge.faults), len(judge.pasts)) == ({}, 40)


@pytest.mark.parametrize("name", OVERLAYS)
def test_many_short_lived_members_leave_nothing_behind(name: str) -> None:
    """USERS 17: each table is as large as before."""

    def sizes(run: Simulator) -> dict[str, int]:
        assert run.sessions is not None
        largest: dict[str, int] = {}
        for host_name, host in run.hosts.items():
            if host_name not in run.sessions._gone:
                process: Any = host.process
                for table, size in {**process.dissemination.tables(), **process.membership.tables()}.items():
                    largest[table] = max(largest.get(table, 0), size)
        return largest

    churn = Churn(10 * S, 30 * S, 600 * S)
    run, _ = judged(STACKS[name], 12, times=[20 * S, 300 * S], faults=[churn], until_ns=4_000 * S)
    assert run.counters.joins > 500
    bounds = {
        "neighbours": 20,
        "passive": 18,
        "lost": 18,
        "asked": 3,
        "arcs": 20,
        "theirs": 12,
        "linger": 12,
        "heard": 16,
    }
    bounds |= {"safe": 20, "in": 20, "lazy": 20, "opening": 0}
    assert {table: size for table, size in sizes(run).items() if size > bounds.get(table, 0)} == {}


def test_a_tenth_crashes_and_the_rest_is_one_overlay() -> None:
    names = process_names(60)
    run, judge = judged(
        STACKS["cptcast"], 60, times=[20 * S, 31 * S, 120 * S], speakers=set(names[::6]),
        faults=[Crash(name, 30 * S) for name in names[3::10]], until_ns=300 * S,
    )  # fmt: skip
    check(run)
    assert dict(judge.faults) == {}


def test_views_of_cyclon_are_full_after_a_few_rounds() -> None:
    """Nobody is left with two neighbours, who may crash together."""
    names = process_names(100)
    run, _ = judged(
        STACKS["cptcast-cyclon"], 100, times=[20 * S], speakers=set(names[:1]),
        faults=[Crash(name, 40 * S) for name in names[3::10]], until_ns=100 * S,
    )  # fmt: skip
    check(run)
    views: list[Any] = [run.hosts[name].process.membership for name in neighbours(run)]  # type: ignore[attr-defined]
    assert min(len(view.arcs) for view in views) >= 6
    assert min(len(view._theirs) for view in views) >= 2


def test_a_send_races_the_parting_of_neighbours() -> None:
    """USERS 16: whoever parts, messages under way on that link are lost or arrive, and nothing else."""
    edges = (("a", "b"), ("b", "c"), ("a", "c"))
    case = Case(
        drawn("cptcast", edges), ("a", "b", "c"), (1, 0, 1), prompt=Promptness.ALL, scripts={"a": (Suspect("a", "c"),)}
    )
    assert explore(case).exhausted


def test_nobody_broadcasts_before_its_join_is_complete() -> None:
    run, _ = judged(STACKS["cptcast"], 2, times=[], until_ns=500_000)
    run.hosts["p1"].process.join("p0")
    with pytest.raises(NotAMemberError, match="wait until its join is complete"):
        run.hosts["p1"].broadcast(b"early")


class Port:
    """Keeps what is sent."""

    name = "me"

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, destinations: list[str], message: object) -> None:
        self.sent.append(message)

    def set_timer(self, delay_ns: int, timer: object) -> None: ...

    def cancel_timer(self, timer: object) -> None: ...


class Alone:
    neighbours = ()


def test_a_backlog_of_announcements_never_exceeds_a_frame() -> None:
    """USERS 9: 100,000 messages, of which the latest are announced to a new neighbour, in parts."""
    port: Any = Port()
    alone: Any = Alone()
    tree = Plumtree(port, alone)
    tree.upward = lambda message: None
    for number in range(1, 100_001):
        tree.receive("peer", PathMessage("somebody", number, b""))
    tree.neighbour_up("new")
    parts = [message for message in port.sent if isinstance(message, IHave)]
    assert len(parts) == 4096 // ANNOUNCED_AT_ONCE
    assert max(len(msgspec.msgpack.encode(part)) for part in parts) < 8_192


@pytest.mark.parametrize("name", ["plumtree", "cptcast"])
def test_any_one_control_message_may_be_lost_with_its_link(name: str) -> None:
    """USERS 18: the link breaks at any point, and everything arrives all the same."""
    edges = (("a", "b"), ("b", "c"), ("a", "c"))
    case = Case(drawn(name, edges, lazy=(("a", "c"),) if name == "cptcast" else ()), ("a", "b", "c"), (1, 0, 0),
                prompt=Promptness.ALL, breaks=(1, 0, 0))  # fmt: skip
    outcome = explore(case, limit=250_000)
    assert (outcome.found, outcome.exhausted) == (None, True)
