"""Whatever bytes or values a peer sends, the answer is one of two errors, and the process goes on."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.model import ProtocolViolationError, Roster
from causalcast.protocols import STACKS, Stack
from causalcast.protocols.wire import UNDECODABLE

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.sampled_from("abz") | st.binary(max_size=4),
    lambda children: st.lists(children, max_size=5),
    max_leaves=12,
)
DOTS = st.lists(st.tuples(st.sampled_from("abcz"), st.integers(-1, 4) | st.just(2**63)), max_size=4)


class QuietPort:
    name = "b"
    random = random.Random(0)

    def __init__(self) -> None:
        self.delivered: list[object] = []

    def now_ns(self) -> int:
        return 0

    def send(self, destinations: object, message: object) -> None: ...

    def deliver(self, message: object) -> None:
        self.delivered.append(message)

    def stable(self, tag: object, topic: str = "") -> None: ...

    def announce(self, event: object) -> None: ...

    def connect(self, peer: str) -> None: ...

    def disconnect(self, peer: str) -> None: ...

    def retire(self) -> None: ...

    def set_timer(self, delay_ns: int, timer: object) -> None: ...

    def cancel_timer(self, timer: object) -> None: ...


def feed(stack: Stack, bodies: list[bytes]) -> None:
    port = QuietPort()
    process = stack.process(port, Roster("abc"))
    process.start()
    decode = stack.decoder().decode
    for body in bodies:
        with contextlib.suppress(*UNDECODABLE, ProtocolViolationError):
            process.receive("a", decode(body))


@pytest.mark.parametrize("stack", STACKS.values(), ids=list(STACKS))
@settings(max_examples=150, deadline=None)
@given(bodies=st.lists(st.binary(max_size=30), max_size=5))
def test_any_bytes(stack: Stack, bodies: list[bytes]) -> None:
    feed(stack, bodies)


@pytest.mark.parametrize("stack", STACKS.values(), ids=list(STACKS))
@settings(max_examples=150, deadline=None)
@given(values=st.lists(st.tuples(st.integers(0, 5), st.lists(VALUES, max_size=5)), max_size=5))
def test_any_values(stack: Stack, values: list[tuple[int, list[object]]]) -> None:
    feed(stack, [msgspec.msgpack.encode([tag, "a", *rest]) for tag, rest in values])


@settings(max_examples=300, deadline=None)
@given(
    messages=st.lists(
        st.tuples(st.just(1), st.just("a"), st.integers(-1, 5), DOTS, st.binary(max_size=2))
        | st.tuples(st.just(2), st.just("a"), st.integers(-1, 5), st.integers(-1, 3), DOTS),
        max_size=12,
    )
)
def test_any_dots_and_contexts(messages: list[tuple[object, ...]]) -> None:
    feed(STACKS["tcb"], [msgspec.msgpack.encode(message) for message in messages])
