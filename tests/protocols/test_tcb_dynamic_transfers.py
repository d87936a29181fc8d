"""What a contact gives a joiner is taken as a whole or not at all, whatever it is."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from causalcast.model import ProtocolViolationError
from causalcast.protocols.ordering.tcb_dynamic_messages import Transfer
from causalcast.simulation.steps import Crash, Join, Leave, Receive, Suspect
from tests.protocols.test_tcb_dynamic import STACK, judged, state, world

if TYPE_CHECKING:
    from causalcast.simulation.world import World

NAMES = ["ann", "bob", "cat", "dan", "zoe", "ann/", "zoe/", ""]
NUMBERS = [-1, 0, 1, 130, 40_000, 2**62, 2**63 - 1]


def some_steps(draw: random.Random, run: World, most: int) -> None:
    for _ in range(draw.randint(0, most)):
        if steps := run.enabled(fifo=True):
            run.do(draw.choice(steps))


def waiting_for_its_state(draw: random.Random) -> World:
    """The state is the next message from ann to cat."""
    run = world("ann bob dan", "cat")
    names = ["ann", "bob", "dan"]
    for _ in range(draw.randint(0, 12)):
        run.broadcast(draw.choice(names))
        some_steps(draw, run, 8)
    for step in draw.choice([(), (Leave("dan"),), (Crash("dan"), Suspect("bob", "dan"))]):
        run.do(step)
    some_steps(draw, run, 8)
    run.do(Join("cat", "ann"))
    while not any(isinstance(message, Transfer) for message in run.in_flight["ann", "cat"]):
        run.do(draw.choice(run.enabled(fifo=True)))
    while not isinstance(run.in_flight["ann", "cat"][0], Transfer):
        run.do(Receive("ann", "cat"))
    return run


def changed(draw: random.Random, body: list[Any]) -> list[Any]:
    """The encoded message with one to three values changed, left out or repeated."""
    body = copy.deepcopy(body)
    for _ in range(draw.choice([1, 1, 2, 3])):
        places = [(body, place) for place in range(1, len(body))]
        for inside, place in places:
            if isinstance(inside[place], list):
                places.extend((inside[place], index) for index in range(len(inside[place])))
        inside, place = draw.choice(places)
        value = inside[place]
        if inside is not body and draw.random() < 0.2:
            inside[place : place + 1] = draw.choice([[], [value, copy.deepcopy(value)]])
        elif isinstance(value, bool):
            inside[place] = not value
        elif isinstance(value, int):
            inside[place] = draw.choice([value + 1, value - 1, *NUMBERS])
        elif isinstance(value, str):
            inside[place] = draw.choice(NAMES)
        elif isinstance(value, list):
            inside[place] = [] if draw.random() < 0.5 else draw.sample(value, len(value))
    return body


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_a_state_that_cannot_be_is_refused_and_the_next_one_is_taken(seed: int) -> None:
    draw = random.Random(seed)
    run = waiting_for_its_state(draw)
    flight = run.in_flight["ann", "cat"]
    right = flight[0]
    body = changed(draw, msgspec.msgpack.decode(msgspec.msgpack.encode(right)))
    try:
        wrong = STACK.decoder().decode(msgspec.msgpack.encode(body))
    except msgspec.DecodeError:
        return
    try:
        run.processes["cat"].receive("ann", wrong)
    except ProtocolViolationError:
        if state(run, "cat") == "joining":
            judged(run)
            assert state(run, "cat") == "member"
        return
    # What is possible and not true may let the group come to rest in any way, but nothing falls over.
    del flight[0]
    for _ in range(80):
        if steps := run.enabled(fifo=True):
            with contextlib.suppress(ProtocolViolationError):
                run.do(draw.choice(steps))
