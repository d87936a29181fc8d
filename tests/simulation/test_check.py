"""A run of the simulator is judged, and what it breaks becomes a small schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from causalcast.protocols import STACKS, Stack, stack
from causalcast.protocols.ordering.unordered import Unordered
from causalcast.simulation import NS_PER_MS, Broadcasts, Network, Simulator, Uniform, process_names
from causalcast.simulation.check import CHECK_LIMIT, UncheckableError, check
from causalcast.simulation.properties import ERROR
from causalcast.simulation.schedule import load, replay
from causalcast.simulation.world import Broadcast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from causalcast.protocols import BroadcastMessage
    from causalcast.simulation.check import Verdict
    from causalcast.simulation.schedule import Schedule
    from causalcast.simulation.world import Step

UNEVEN = Network(Uniform(1 * NS_PER_MS, 100 * NS_PER_MS))
LOSSY = Network(loss=0.2)


def checked(
    chosen: Stack, properties: Collection[str] | None = None, *, messages: int = 5, network: Network = UNEVEN
) -> Verdict:
    names = process_names(4)
    return check(
        lambda record: Simulator(chosen, names, Broadcasts(messages), network=network, seed=1, record=record),
        properties,
    )


def payloads(schedule: Schedule) -> list[bytes]:
    return [step.payload for step in schedule.steps if isinstance(step, Broadcast)]


class Forgetful(Unordered):
    """Never delivers the second message of anyone."""

    def receive(self, message: BroadcastMessage) -> None:
        if getattr(message, "counter", 0) != 2:
            super().receive(message)


class Failing(Unordered):
    """Fails on the third message of anyone."""

    def receive(self, message: BroadcastMessage) -> None:
        if getattr(message, "counter", 0) == 3:
            raise RuntimeError("three")
        super().receive(message)


class ReadsPayloads(Unordered):
    """Never delivers what the workload says, but would deliver anything shorter."""

    def receive(self, message: BroadcastMessage) -> None:
        if len(getattr(message, "payload", b"")) < 64:
            super().receive(message)


class ReadsTheClock(Unordered):
    """Drops what comes before 20 ms."""

    def receive(self, message: BroadcastMessage) -> None:
        if self._port.now_ns() >= 20 * NS_PER_MS:
            super().receive(message)


@pytest.mark.parametrize("name", ["tcb", "cbcast", "unordered"])
def test_a_stack_keeps_its_promises(name: str) -> None:
    verdict = checked(stack(name))
    assert (verdict.violation, verdict.schedule, verdict.left_open) == (None, None, frozenset())
    assert verdict.checked == stack(name).promises - {"P7"} | {ERROR}


def test_a_causal_order_that_breaks_becomes_a_small_schedule() -> None:
    verdict = checked(stack("unordered"), {"P3"})
    assert verdict.violation is not None
    assert verdict.schedule is not None
    assert (len(verdict.schedule.members), len(verdict.schedule.steps)) == (3, 6), "links that kept order keep it"
    assert all(payload.startswith(b"p") for payload in payloads(verdict.schedule))
    assert verdict.violation.property == verdict.schedule.breaks == "P3"
    again = replay(load(verdict.schedule.dump())).judge({"P3"})
    assert str(again[0]) == verdict.schedule.note


def test_what_never_happens_becomes_a_schedule_that_ends_at_rest() -> None:
    forgetful = replace(stack("unordered"), ordering=Forgetful)
    verdict = checked(forgetful)
    assert verdict.schedule is not None
    assert verdict.schedule.breaks == "P2"
    assert len(verdict.schedule.members) == 2
    assert replay(verdict.schedule, forgetful).judge({"P2"})


def test_a_process_that_fails_is_a_violation() -> None:
    verdict = checked(replace(stack("unordered"), ordering=Failing))
    assert verdict.violation is not None
    assert verdict.schedule is not None
    assert (verdict.violation.property, verdict.violation.detail) == (ERROR, "RuntimeError: three")
    assert len(verdict.schedule.members) == 2
    assert verdict.left_open == {"P2"}


def test_payloads_that_decide_are_kept() -> None:
    verdict = checked(replace(stack("unordered"), ordering=ReadsPayloads))
    assert verdict.schedule is not None
    assert verdict.schedule.breaks == "P2"
    assert payloads(verdict.schedule) == [bytes(64)]


def test_what_must_happen_at_last_is_left_open_after_a_loss() -> None:
    verdict = checked(stack("unordered"), network=LOSSY)
    assert verdict.violation is None
    assert verdict.checked == {"P1", ERROR}
    assert verdict.left_open == {"P2"}


def test_an_error_of_the_application_is_no_finding() -> None:
    def prepare(record: Callable[[Step], None]) -> Simulator:
        simulator = Simulator(stack("tcb"), ["ann", "bob"], Broadcasts(1), record=record)
        simulator.queue.push(1, raise_it, None)
        return simulator

    def raise_it(_: object, __: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check(prepare)


def test_a_run_that_is_too_long_is_refused() -> None:
    with pytest.raises(UncheckableError, match=f"{CHECK_LIMIT:,} steps"):
        checked(stack("unordered"), messages=400)


@pytest.mark.parametrize("name", [name for name, entry in STACKS.items() if entry.session_links])
def test_a_run_over_session_links_is_refused(name: str) -> None:
    with pytest.raises(UncheckableError, match=f"session links, as those of '{name}', cannot be repeated"):
        checked(stack(name))


def test_a_run_that_time_decides_is_refused() -> None:
    with pytest.raises(UncheckableError, match="reads the clock"):
        checked(replace(stack("unordered"), ordering=ReadsTheClock))
