"""The explorer finds every mistake put back into tcb, cbcast and their twins, and shows each with a small schedule."""

from __future__ import annotations

import pytest

from causalcast.simulation.explorer import Case, explore
from causalcast.simulation.schedule import Schedule, load, replay
from causalcast.simulation.shrink import shrink
from tests.protocols.mutants import Mutant, mutated
from tests.protocols.mutants.plausible import PLAUSIBLE
from tests.protocols.mutants.printed import PRINTED
from tests.protocols.mutants.twins import TWINS

NAMES = ("p0", "p1", "p2")

STEPS = {
    ("tcb", "counters-from-0"): 2,
    ("tcb", "context-after-the-counter"): 9,
    ("tcb", "context-from-the-queue"): 4,
    ("tcb", "vector-from-the-queue"): 4,
    ("tcb", "phantom-forgets-what-is-missing"): 13,
    ("tcb", "phantom-applied-early"): 8,
    ("tcb", "bits-move-at-reception"): 9,
    ("tcb", "waits-for-the-stable"): 9,
    ("tcb", "stable-in-order-of-slot"): 7,
    ("tcb", "old-phantom-takes-back"): 25,
    ("tcb", "repeated-message-is-new"): 9,
    ("tcb", "heard-one-too-few"): 1,
    ("tcb", "waits-for-itself-to-agree"): 5,
    ("tcb", "stable-queued-before-the-delivery"): 3,
    ("tcb", "does-not-wait"): 6,
    ("tcb", "taken-not-counted"): 4,
    ("tcb", "own-message-speaks-of-the-next"): 4,
    ("cbcast", "counters-from-0"): 2,
    ("cbcast", "waits-for-itself"): 2,
    ("cbcast", "vector-from-the-queue"): 4,
    ("cbcast", "delivery-waits-for-the-application"): 9,
    ("cbcast", "repeated-message-is-new"): 6,
    ("cbcast", "repeated-while-it-waits"): 11,
    ("cbcast", "one-missing-is-fine"): 6,
    ("cbcast", "delivery-not-counted"): 5,
    ("cbcast", "one-waits-per-dot"): 13,
    ("cbcast", "sent-before-it-is-counted"): 2,
    ("cbcast", "taken-not-counted"): 4,
    ("vv", "receptions-counted"): 4,
    ("vv", "delivery-not-counted"): 5,
    ("vv", "queue-looked-through-once"): 8,
    ("vv-classical", "tags-of-the-middleware"): 5,
    ("vv-stable", "own-row-not-looked-at"): 6,
    ("vv-classical-stable", "rows-of-the-middleware"): 11,
    ("vv-stable", "phantom-applied-early"): 9,
    ("vv-stable", "phantom-takes-back"): 17,
    ("vv-stable", "phantom-forgotten"): 13,
    ("vv-stable", "stable-in-order-of-slot"): 7,
    ("tcb-delivery", "vectors-dropped-at-delivery"): 13,
}
"""Steps of the smallest schedule found for each."""


def case_of(mutant: Mutant) -> Case:
    made = mutated(mutant)
    settings = {"fifo": True, "properties": made.promises | {"P8"}, **mutant.case}
    return Case(made, NAMES[: mutant.nodes], mutant.broadcasts, **settings)


@pytest.mark.parametrize("mutant", [*PRINTED, *PLAUSIBLE, *TWINS], ids=lambda mutant: f"{mutant.stack}-{mutant.name}")
def test_the_explorer_finds_the_mistake(mutant: Mutant) -> None:
    case = case_of(mutant)
    outcome = explore(case, limit=200_000)
    assert outcome.found is not None
    violation, steps = outcome.found
    assert violation.property in mutant.breaks
    small = shrink(Schedule(mutant.stack, case.names, steps), violation.property, stack=case.stack)
    assert len(small.steps) == STEPS[mutant.stack, mutant.name]
    again = replay(load(small.dump()), case.stack)
    assert violation.property in {each.property for each in again.judge(case.checked)}


def test_every_mistake_is_in_the_table() -> None:
    assert {(mutant.stack, mutant.name) for mutant in (*PRINTED, *PLAUSIBLE, *TWINS)} == set(STEPS)
