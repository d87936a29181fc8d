"""The link state machine: reliable and in order over any number of connections, without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from causalcast.runtime.frames import (
    ACK,
    CLOSE,
    DATA,
    HEADER,
    HELLO,
    LEAVING,
    LinkError,
    PeerClosedError,
    ack_frame,
    close_frame,
    data_frame,
    hello_frame,
    read_hello,
)
from causalcast.runtime.limits import (
    ACK_BYTES,
    ACK_FRAMES,
    HELLO_LIMIT,
    REASON_LIMIT,
    RESEND_BYTES,
    RESEND_FRAMES,
    WRITE_CHUNK,
)
from causalcast.runtime.link import Link
from tests.runtime.pair import Pair, identity

BODIES = [b"", b"x", b"second", bytes(300), b"last"]


def open_pair(**changes: object) -> Pair:
    pair = Pair(**changes)
    pair.connect()
    pair.run()
    return pair


def load(pair: Pair) -> None:
    for body in BODIES:
        pair.a.push(b"a" + body)
        pair.b.push(b"b" + body)


def assert_all_arrived_once_in_order(pair: Pair) -> None:
    assert pair.b.got == [b"a" + body for body in BODIES]
    assert pair.a.got == [b"b" + body for body in BODIES]
    assert pair.a.link.unacknowledged == pair.b.link.unacknowledged == 0
    assert pair.a.link.resend_bytes == pair.b.link.resend_bytes == 0


def test_both_directions_carry_frames_in_order() -> None:
    pair = Pair()
    load(pair)
    pair.connect()
    pair.run()
    assert_all_arrived_once_in_order(pair)


def test_bytes_one_at_a_time_make_the_same_frames() -> None:
    pair = Pair()
    load(pair)
    pair.connect()
    pair.run(step=1)
    assert_all_arrived_once_in_order(pair)


def test_cut_at_every_byte_of_handshake_and_frames_loses_and_repeats_nothing() -> None:
    whole = Pair()
    load(whole)
    whole.connect()
    a_to_b, b_to_a = whole.run()
    for cut in range(a_to_b + 1):
        pair = Pair()
        load(pair)
        pair.connect()
        pair.run(a_to_b=cut)
        pair.connect()
        pair.run()
        assert_all_arrived_once_in_order(pair)
    for cut in range(b_to_a + 1):
        pair = Pair()
        load(pair)
        pair.connect()
        pair.run(b_to_a=cut)
        pair.connect()
        pair.run()
        assert_all_arrived_once_in_order(pair)


@settings(max_examples=150, deadline=None)
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.binary(max_size=60), max_size=8),
            st.lists(st.binary(max_size=60), max_size=8),
            st.integers(0, 700),
            st.integers(0, 700),
            st.integers(1, 90),
            st.sampled_from([16, 64, 1 << 16]),
        ),
        max_size=12,
    )
)
def test_random_cuts_of_both_directions_deliver_everything_once_in_order(rounds: list[tuple]) -> None:
    pair = Pair()
    sent_a: list[bytes] = []
    sent_b: list[bytes] = []
    for bodies_a, bodies_b, cut_a, cut_b, step, chunk in rounds:
        pair.connect()
        for body in bodies_a:
            pair.a.push(body)
        for body in bodies_b:
            pair.b.push(body)
        sent_a += bodies_a
        sent_b += bodies_b
        pair.run(a_to_b=cut_a, b_to_a=cut_b, step=step, chunk=chunk)
        assert pair.b.got == sent_a[: len(pair.b.got)]
        assert pair.a.got == sent_b[: len(pair.a.got)]
    pair.connect()
    pair.run()
    assert pair.b.got == sent_a
    assert pair.a.got == sent_b
    assert pair.a.link.unacknowledged == pair.b.link.unacknowledged == 0


def test_a_frame_larger_than_the_write_chunk_leaves_in_pieces_and_arrives_whole() -> None:
    pair = open_pair()
    body = bytes(range(256)) * 2000
    pair.a.push(b"before")
    pair.a.push(body)
    pair.a.push(b"after")
    sizes = []
    while data := pair.a.link.output(1000):
        sizes.append(len(data))
        pair.b.feed(bytes(data))
    assert max(sizes) <= 1000
    assert pair.b.got == [b"before", body, b"after"]


@pytest.mark.parametrize(
    "bytes_in",
    [
        pytest.param(data_frame(2, b"x"), id="a number too far"),
        pytest.param(data_frame(0, b"x"), id="a number too low"),
        pytest.param(data_frame(1, b"x") + data_frame(1, b"x"), id="a repeated frame"),
        pytest.param(data_frame(1, b"x") + data_frame(3, b"x"), id="a gap"),
        pytest.param(HEADER.pack((1 << 20) + 1, DATA, 1), id="an oversize header"),
        pytest.param(HEADER.pack(0xFFFFFFFF, DATA, 1), id="the largest header"),
        pytest.param(HEADER.pack(REASON_LIMIT + 1, CLOSE, 1), id="an oversize close"),
        pytest.param(HEADER.pack(0, HELLO, 1), id="a second hello"),
        pytest.param(HEADER.pack(0, 77, 1), id="an unknown kind"),
        pytest.param(HEADER.pack(0, 0, 0), id="zeros"),
        pytest.param(ack_frame(2), id="an acknowledgement of what was not sent"),
        pytest.param(ack_frame(0), id="an acknowledgement that goes back"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
def test_what_no_correct_peer_sends_ends_the_connection_and_nothing_is_lost(bytes_in: bytes) -> None:
    pair = open_pair()
    load(pair)
    with pytest.raises(LinkError):
        pair.b.link.receive(bytes_in)
    pair.connect()
    pair.run()
    assert_all_arrived_once_in_order(pair)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(1, 50))
def test_garbage_is_refused_or_ignored_and_the_link_goes_on(garbage: bytes, step: int) -> None:
    pair = open_pair()
    load(pair)
    try:
        for start in range(0, len(garbage), step):
            pair.b.got += pair.b.link.receive(garbage[start : start + step])
    except LinkError:
        pass
    if pair.b.got:
        return  # the garbage happened to be well-formed frames
    pair.connect()
    pair.run()
    assert_all_arrived_once_in_order(pair)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100))
def test_garbage_instead_of_a_hello_is_refused_with_a_reason(garbage: bytes) -> None:
    try:
        found = read_hello(garbage)
    except LinkError:
        return
    assert found is None


def test_a_stranger_cannot_make_us_hold_more_than_a_hello() -> None:
    with pytest.raises(LinkError, match="no hello"):
        read_hello(HEADER.pack(HELLO_LIMIT + 1, HELLO, 0))


def test_another_protocol_version_is_named() -> None:
    frame = bytearray(hello_frame(identity_hello()))
    frame[HEADER.size - 1] += 1
    with pytest.raises(LinkError, match="version 2"):
        read_hello(frame)


def identity_hello() -> object:
    link = Link(identity("a"), "b")
    link.dial()
    found = read_hello(bytes(link.output(WRITE_CHUNK)))
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, "a is in group 'other', b in 'g'"),
        ({"roster": "other"}, "different members"),
        ({"stack": "cbcast"}, "runs the stack 'cbcast'"),
        ({"frame_limit": 5}, "frame limit is 5 at a"),
        ({"name": "c"}, "'c' answered where 'a' was expected"),
    ],
)
def test_a_hello_that_does_not_fit_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    pair = Pair()
    pair.a.link = Link(identity("a", **change), "b")
    pair.connect()
    with pytest.raises(LinkError, match=reason):
        pair.run()
    assert not pair.b.link.connected


def test_a_hello_for_somebody_else_is_refused() -> None:
    pair = Pair()
    pair.a.link = Link(identity("a"), "z")
    pair.connect()
    with pytest.raises(LinkError, match="looks for 'z', but here is 'b'"):
        pair.run()


def test_a_member_that_returns_without_its_state_is_refused_even_if_it_has_said_nothing() -> None:
    pair = open_pair()
    pair.a.link = Link(identity("a", incarnation=999), "b")
    pair.connect()
    with pytest.raises(LinkError, match="a was started again and has lost its state"):
        pair.run()


def test_a_member_that_returns_without_its_state_learns_it_from_the_hello_it_gets() -> None:
    pair = open_pair()
    pair.b.link = Link(identity("b", incarnation=999), "a")
    pair.connect()
    with pytest.raises(LinkError, match="b was started again and has lost the state"):
        pair.run()
    assert not pair.b.link.connected


def test_a_newer_connection_takes_the_place_of_a_lingering_one_and_goes_on_from_it() -> None:
    pair = open_pair()
    load(pair)
    pair.run(a_to_b=40, b_to_a=40)
    pair.a.link.lost()
    pair.a.link.dial()
    pair.b.greeting = bytearray()  # the old connection of b was never seen to end
    pair.run()
    assert_all_arrived_once_in_order(pair)


def test_an_older_connection_that_is_read_late_does_not_take_the_place_of_a_newer_one() -> None:
    pair = Pair()
    pair.a.link.dial()
    late = bytes(pair.a.link.output(WRITE_CHUNK))
    pair.connect()
    pair.run()
    found = read_hello(late)
    assert found is not None
    with pytest.raises(LinkError, match="a later connection of a"):
        pair.b.link.accept(found[0])
    load(pair)
    pair.run()
    assert_all_arrived_once_in_order(pair)


def test_a_body_that_the_host_could_not_process_comes_again() -> None:
    pair = open_pair()
    for body in (b"1", b"2", b"3"):
        pair.a.push(body)
    bodies = pair.b.link.receive(bytes(pair.a.link.output(WRITE_CHUNK)))
    assert bodies == [b"1", b"2", b"3"]
    pair.b.link.unprocessed(2)
    pair.connect()
    pair.run()
    assert pair.b.got == [b"2", b"3"]


def test_the_last_words_of_a_peer_come_after_its_data() -> None:
    pair = open_pair()
    pair.a.push(b"data")
    line = bytes(pair.a.link.output(WRITE_CHUNK)) + pair.a.link.farewell(LEAVING, "a leaves")
    for byte in line[:-1]:
        pair.b.feed(bytes([byte]))
        assert pair.b.link.ended is None
    pair.b.feed(line[-1:])
    assert pair.b.got == [b"data"]
    assert isinstance(pair.b.link.ended, PeerClosedError)
    assert (pair.b.link.ended.code, pair.b.link.ended.reason) == (LEAVING, "a leaves")


def test_the_reason_of_a_refusal_reaches_the_one_who_dialled() -> None:
    pair = Pair()
    pair.connect()
    with pytest.raises(PeerClosedError, match="not today"):
        pair.a.feed(close_frame(2, "not today"))


def test_nothing_is_kept_for_a_peer_that_has_left() -> None:
    pair = open_pair()
    pair.a.push(b"x")
    pair.a.link.depart()
    pair.a.push(b"y")
    assert (pair.a.link.unacknowledged, pair.a.link.resend_bytes) == (0, 0)
    assert not pair.a.link.output(WRITE_CHUNK)


def test_acknowledgements_are_due_by_frames_and_by_bytes() -> None:
    pair = open_pair()
    for _ in range(ACK_FRAMES - 1):
        pair.a.push(b"")
    pair.b.feed(bytes(pair.a.link.output(WRITE_CHUNK)))
    assert pair.b.link.owes_acknowledgement
    assert not pair.b.link.acknowledgement_due
    pair.a.push(b"")
    pair.b.feed(bytes(pair.a.link.output(WRITE_CHUNK)))
    assert pair.b.link.acknowledgement_due
    pair.run()
    assert not pair.b.link.owes_acknowledgement
    pair.a.push(bytes(ACK_BYTES // 2))
    pair.a.push(bytes(ACK_BYTES // 2))
    while data := pair.a.link.output(WRITE_CHUNK):
        pair.b.feed(bytes(data))
    assert pair.b.link.acknowledgement_due


def test_an_acknowledgement_rides_with_data() -> None:
    pair = open_pair()
    pair.a.push(b"x")
    pair.b.feed(bytes(pair.a.link.output(WRITE_CHUNK)))
    pair.b.push(b"y")
    pair.a.feed(bytes(pair.b.link.output(WRITE_CHUNK)))
    assert pair.a.got == [b"y"]
    assert pair.a.link.unacknowledged == 0


def test_a_quiet_link_says_that_it_is_there() -> None:
    pair = open_pair()
    assert not pair.a.link.output(WRITE_CHUNK)
    pair.a.link.keep_alive()
    assert HEADER.unpack(bytes(pair.a.link.output(WRITE_CHUNK))) == (0, ACK, 1)


def test_the_resend_buffer_is_full_at_its_bound_in_frames_and_in_bytes() -> None:
    link = Link(identity("a"), "b")
    for _ in range(RESEND_FRAMES):
        assert not link.full
        link.push(data_frame(link.next_number, b""))
    assert link.full
    link = Link(identity("a"), "b")
    large = data_frame(1, bytes(RESEND_BYTES // 4))
    for _ in range(4):
        assert not link.full
        link.push(large)
    assert link.full
