"""VCube-PS while members are suspected and subscriptions change (document 002, section 6.2.2.1)."""

from __future__ import annotations

from typing import Any

import pytest

from causalcast.protocols import stack
from causalcast.protocols.pubsub import topic as topics
from causalcast.protocols.pubsub.topic import Topic
from causalcast.protocols.pubsub.vcube_ps import VCubePS
from causalcast.simulation.world import Crash, Subscribe, Suspect, Trust, World
from tests.protocols.vcube.worlds import Run, sizes

PS = stack("vcube-ps")

CASES: dict[str, dict[str, Any]] = {
    "wrong suspicions": {"actions": 25, "wrong": 3},
    "wrong suspicions that are taken back": {"actions": 25, "wrong": 5, "corrected": True},
    "a crash and wrong suspicions": {"actions": 25, "crashes": 1, "wrong": 3},
    "two crashes and many wrong suspicions": {"actions": 40, "crashes": 2, "wrong": 6},
    "crashes in the middle of sending": {"actions": 25, "crashes": 2, "cut": True},
    "crashes in the middle of sending to the group": {"actions": 25, "crashes": 2, "cut": True, "topics": ("",)},
    "two topics, slow applications, repeating links": {
        "actions": 40,
        "wrong": 3,
        "topics": ("t", "u"),
        "late": 0.8,
        "duplicates": True,
    },
}

WENT_WRONG = {
    "wrong suspicions": (30, 132, 138, 186, 234),
    "a crash and wrong suspicions": (6, 97, 108, 241, 1783, 1879, 2274, 2551),
    "two crashes and many wrong suspicions": (145, 266, 744, 984, 1548),
    "two topics, slow applications, repeating links": (2423,),
}
"""Seeds that broke P2, P3, P7 or P8 before this or that of the repair was there."""


def members(seed: int) -> int:
    return 3 + seed % 6


@pytest.mark.parametrize("case", list(CASES))
def test_random_schedules_keep_what_is_promised(case: str) -> None:
    for seed in (*range(40), *WENT_WRONG.get(case, ())):
        assert Run(PS, seed, members=members(seed), **CASES[case]).run() == [], seed


def nothing(*_: Any) -> None:
    """In the place of a part of the repair."""


MISTAKES: dict[str, tuple[type, str, str]] = {
    "who was not waited for is not told of the subscription": (VCubePS, "_tell", "wrong suspicions"),
    "who has not answered is not sent publications": (Topic, "assume", "a crash and wrong suspicions"),
    "what waits for what is lost waits for ever": (VCubePS, "_look_for_lost", "a crash and wrong suspicions"),
    "the last publication of a crashed one is not handed over": (
        VCubePS,
        "_hand",
        "crashes in the middle of sending to the group",
    ),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_each_part_of_the_repair_is_needed(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, case = MISTAKES[mistake]
    monkeypatch.setattr(owner, name, nothing)
    for seed in (*WENT_WRONG.get(case, ()), *range(600)):
        if Run(PS, seed, members=members(seed), **CASES[case]).run():
            return
    pytest.fail("600 schedules, and nothing found")


def world(subscribers: str) -> World:
    """Four processes; these subscribe, completely."""
    made = World(PS, [f"p{i}" for i in range(4)])
    for name in subscribers.split():
        made.do(Subscribe(name, "t"))
        made.settle()
    return made


def delivered(made: World, name: str) -> list[bytes]:
    return [entry.payload for entry in made.logs[name] if entry.kind == "deliver"]


def test_a_publication_that_comes_after_its_publisher_is_suspected_comes_to_all() -> None:
    made = world("p0 p1 p2 p3")
    made.broadcast("p0", b"x", "t")
    made.do(Crash("p0"))
    made.in_flight["p0", "p2"].clear()
    for name in ("p1", "p2", "p3"):
        made.do(Suspect(name, "p0"))
    made.settle()
    assert [delivered(made, name) for name in ("p1", "p2", "p3")] == [[b"x"]] * 3


def settle_but(made: World, sender: str, receiver: str) -> None:
    """Let all happen but what arrives over this link."""
    while steps := [step for step in made.enabled(fifo=True) if step[:2] != (sender, receiver)]:
        made.do(steps[0])


def sent_past_one_who_does_not_know() -> list[bytes]:
    """p0 publishes, and could send by p2 to p3, of which p2 has not heard; then p2 crashes. What p3 delivers."""
    made = world("p0 p2")
    made.do(Suspect("p3", "p2"))
    made.do(Subscribe("p3", "t"))
    settle_but(made, "p3", "p2")
    made.broadcast("p0", b"x", "t")
    settle_but(made, "p3", "p2")
    made.do(Crash("p2"))
    for name in ("p0", "p1", "p3"):
        made.do(Suspect(name, "p2"))
    made.settle()
    return delivered(made, "p3")


def test_who_may_not_know_of_a_subscriber_is_not_relied_on_to_send_on_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent_past_one_who_does_not_know() == [b"x"]
    monkeypatch.setattr(Topic, "relied_on", lambda _, membership: membership.correct)
    assert sent_past_one_who_does_not_know() == []


def test_of_what_was_published_past_a_subscriber_the_last_ones_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """p0, alone, publishes on while it has not heard of p1; what it no longer has is not waited for."""
    monkeypatch.setattr(topics, "RETAINED", 3)
    made = world("p0")
    made.do(Suspect("p1", "p0"))
    made.do(Subscribe("p1", "t"))
    settle_but(made, "p1", "p0")
    for number in range(5):
        made.broadcast("p0", b"%d" % number, "t")
    made.settle()
    made.do(Trust("p1", "p0"))
    made.broadcast("p0", b"5", "t")
    made.settle()
    assert delivered(made, "p1") == [b"2", b"3", b"4", b"5"]
    assert not any(sizes(made.processes["p1"]).values())
