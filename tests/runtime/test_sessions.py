"""Session links without a protocol above them: what is promised of one, and what a book remembers."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from causalcast.protocols.membership.hyparview_messages import Shuffle
from causalcast.runtime.address import Address
from causalcast.runtime.book import Book, Entry, names_in
from causalcast.runtime.frames import LEAVING, LinkError, ack_frame, book_frame, close_frame, data_frame, read_hello
from causalcast.runtime.session import Session
from causalcast.runtime.sessions import Sessions
from tests.runtime.cluster import run
from tests.runtime.pair import identity

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from causalcast.runtime.frames import Hello


def nothing(_: object) -> None:
    """Nothing to check, or to be told."""


def pair() -> tuple[Session, Session]:
    """Both sides, after the hellos."""
    a, b = (Session(identity(me), peer, 1, nothing, nothing) for me, peer in ("ab", "ba"))
    a.dial()
    found = read_hello(bytes(a.output(1 << 20)))
    assert found is not None
    b.accept(found[0])
    assert a.receive(bytes(b.output(1 << 20))) == []
    assert a.connected
    assert b.connected
    return a, b


def everything(session: Session) -> bytes:
    data = b""
    while more := session.output(1000):
        data += more
    return data


@pytest.mark.parametrize("step", [1, 7, 5000])
def test_bytes_in_any_pieces_are_the_same_frames_in_order(step: int) -> None:
    a, b = pair()
    bodies = [bytes([number]) * (number * 37 % 2500) for number in range(60)]
    a.tell([Entry("c", "host", 7400, 3)])
    for body in bodies:
        a.push(data_frame(0, body))
    a.keep_alive()
    data = everything(a)
    assert a.unsent_bytes == a.unsent == 0
    got = [body for start in range(0, len(data), step) for body in b.receive(data[start : start + step])]
    assert got == bodies
    assert b.entries == [Entry("c", "host", 7400, 3)]


def test_the_end_comes_behind_what_was_sent_and_what_still_comes_does_not_count() -> None:
    a, b = pair()
    a.push(data_frame(0, b"last words"))
    a.parting = True
    assert b.receive(everything(a)) == [b"last words"]
    assert b.ended is not None
    assert a.said_all
    b.push(data_frame(0, b"too late"))
    assert a.receive(everything(b)) == []


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n", "a frame of kind"),
        (data_frame(1, b"x"), "has no number on a session, and one came with 1"),
        (ack_frame(9), "has no number"),
        (data_frame(0, bytes((1 << 20) + 1)), "a frame of kind 2 and 1,048,577 bytes"),
        (book_frame("no list"), "a page of an address book cannot be read"),
        (book_frame([("", "host", 1, 1)]), "is no entry of an address book"),
        (book_frame([("c", "host", 0, 1)]), "is no entry of an address book"),
        (book_frame([("c", "h" * 256, 1, 1)]), "is no entry of an address book"),
    ],
)
def test_what_cannot_be_right_ends_the_session(data: bytes, complaint: str) -> None:
    _, b = pair()
    with pytest.raises(LinkError, match=complaint):
        b.receive(data)


def test_a_full_session_says_when_it_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.session.SESSION_ROOM", 1000)
    told: list[Session] = []
    a = Session(identity("a"), "b", 1, nothing, told.append)
    a.dial()
    frame = data_frame(0, bytes(87))
    for _ in range(10):
        assert not a.full
        a.push(frame)
    assert a.full
    b = Session(identity("b"), "a", 1, nothing, nothing)
    found = read_hello(bytes(a.output(1 << 20)))
    assert found is not None
    b.accept(found[0])
    a.receive(bytes(b.output(1 << 20)))
    a.output(400)
    assert a.full
    a.output(400)
    assert (a.full, told) == (False, [a])


# ---------------------------------------------------------------- the book


def test_hearsay_fills_gaps_and_first_hand_news_count() -> None:
    book = Book("me")
    book.write(Entry("a", "one", 1, 7))
    book.write(Entry("a", "two", 2, 7))
    assert book.address("a") == Address("one", 1)
    book.doubt("a")
    book.write(Entry("a", "of another life", 2, 8))
    assert book.address("a") == Address("one", 1)
    book.write(Entry("a", "two", 2, 7))
    assert book.address("a") == Address("two", 2)
    book.write(Entry("a", "three", 3, 7), first_hand=True)
    assert book.entries(["a", "b", "me"]) == [Entry("a", "three", 3, 7)]
    book.write(Entry("me", "elsewhere", 1, 1))
    assert (book.address("me"), book.address("b")) == (None, None)


def test_a_name_is_one_life() -> None:
    book = Book("me")
    book.meet("a", 7)
    book.write(Entry("a", "one", 1, 7))
    book.meet("a", 7)
    with pytest.raises(LinkError, match="the name 'a' is or was another member's"):
        book.meet("a", 8)


def test_a_book_is_bounded_and_forgets_what_was_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.book.BOOK_ENTRIES", 3)
    book = Book("me")
    for name in "abc":
        book.write(Entry(name, "host", 1, 1))
    book.entries(["a"])
    book.write(Entry("d", "host", 1, 1))
    assert len(book) == 3
    assert [name for name in "abcd" if book.address(name)] == ["a", "c", "d"]


def test_names_in_a_message() -> None:
    assert names_in(Shuffle("a", 3, ("b", "c"))) == ["a", "b", "c"]


# ---------------------------------------------------------------- over sockets


class Node:
    """An owner of sessions that writes down what it is told, and wants nothing by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: list[tuple[str, bytes]] = []
        self.downs: list[str] = []
        self.reads = True
        self.on_down: Callable[[str], None] = nothing
        self.sessions = Sessions(self, identity(name), Address("127.0.0.1", 0))

    def received(self, session: Session, bodies: Sequence[bytes]) -> None:
        if b"wrong" in bodies:
            raise LinkError(f"{session.peer} sent what is wrong")
        self.got += [(session.peer, body) for body in bodies]

    def link_down(self, peer: str) -> None:
        self.downs.append(peer)
        self.on_down(peer)

    def links_changed(self) -> None:
        """Asked for when it matters."""

    def may_read(self) -> bool:
        return self.reads

    def send(self, peer: str, body: bytes, *mentions: str) -> None:
        self.sessions.send(peer, data_frame(0, body), mentions)
        self.sessions.flush_soon()

    def knows(self, other: Node) -> None:
        host, port = other.sessions.address
        self.sessions.book.write(Entry(other.name, host, port, ord(other.name)))

    @property
    def connected(self) -> list[str]:
        return [state.peer for state in self.sessions.states() if state.connected]


@asynccontextmanager
async def nodes(names: str) -> AsyncIterator[list[Node]]:
    """One a letter; all know where all listen."""
    made = [Node(name) for name in names]
    async with AsyncExitStack() as stack:
        for node in made:
            await node.sessions.start()
            stack.push_async_callback(node.sessions.close, LEAVING)
        for node in made:
            for other in made:
                node.knows(other)
        yield made


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def test_both_connect_at_once_and_one_session_carries_both_ways() -> None:
    async def main() -> None:
        for _ in range(20):
            async with nodes("ab") as (a, b):
                for node, peer in ((a, "b"), (b, "a")):
                    node.sessions.connect(peer)
                    for number in range(5):
                        node.send(peer, b"%d" % number)
                expected = [b"%d" % number for number in range(5)]
                await until(lambda: len(a.got) == len(b.got) == 5)
                assert [body for _, body in a.got] == [body for _, body in b.got] == expected
                await until(lambda: len(a.sessions._connections) == len(b.sessions._connections) == 1)
                assert (a.downs, b.downs) == ([], [])

    run(main())


def test_the_end_of_a_session_is_heard_by_who_wanted_it_behind_what_was_sent() -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            a.sessions.connect("b")
            await until(lambda: a.connected == ["b"] and b.connected == ["a"])
            b.sessions.connect("a")
            seen: list[int] = []
            b.on_down = lambda _: seen.append(len(b.got))
            for number in range(100):
                a.send("b", b"%d" % number)
            a.sessions.disconnect("b")
            await until(lambda: b.downs == ["a"])
            assert seen == [100]
            assert a.downs == []
            await until(lambda: a.sessions.quiet and b.sessions.quiet)

    run(main())


def test_what_is_sent_after_an_end_arrives_after_it() -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            for number in range(40):
                a.sessions.connect("b")
                a.send("b", b"%d" % number)
                if number % 3:
                    await asyncio.sleep(0)
                a.sessions.disconnect("b")
                a.send("b", b"%d once" % number)
            expected = [body for number in range(40) for body in (b"%d" % number, b"%d once" % number)]
            await until(lambda: len(b.got) == 80)
            assert [body for _, body in b.got] == expected
            await until(lambda: a.sessions.quiet and b.sessions.quiet)
            assert a.downs == b.downs == []

    run(main())


def test_who_keeps_no_link_is_sent_to_once_and_told_where_others_listen() -> None:
    async def main() -> None:
        async with nodes("abc") as (a, b, c):
            b.sessions.book = Book("b")
            a.send("b", b"ask c", "c", "nobody")
            await until(lambda: b.got == [("a", b"ask c")])
            await until(lambda: a.sessions.quiet and b.sessions.quiet)
            assert b.sessions.book.address("c") == Address(*c.sessions.address)
            b.sessions.connect("c")
            await until(lambda: b.connected == ["c"])
            # And by its hello it knows who asked.
            b.send("a", b"answer")
            await until(lambda: a.got == [("b", b"answer")])

    run(main())


def test_who_hears_of_another_of_its_name_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            b.sessions.connect("a")
            await until(lambda: a.connected == ["b"])
            for _ in range(2):
                session = next(iter(a.sessions._connections))
                session.tell([Entry("b", "twin", 1, 999)])
                a.send("b", b"x")
            await until(lambda: len(b.got) == 2)

    run(main())
    told = [record.getMessage() for record in caplog.records if "another member of this name" in record.getMessage()]
    assert told == ["b: a tells of another member of this name: close one of the two"]


def test_nobody_there_is_link_down_once_and_nobody_is_told_of_what_was_sent_once() -> None:
    async def main() -> None:
        async with nodes("a") as (a,):
            a.sessions.book.write(Entry("b", "127.0.0.1", 1, 1))
            a.sessions.connect("b")
            a.sessions.connect("unknown")
            assert a.downs == []
            a.send("b", b"x")
            await until(lambda: sorted(a.downs) == ["b", "unknown"])
            a.send("b", b"once")
            await until(lambda: a.sessions.quiet)
            assert sorted(a.downs) == ["b", "unknown"]
            a.sessions.connect("b")
            a.sessions.disconnect("b")
            await until(lambda: a.sessions.quiet)
            assert sorted(a.downs) == ["b", "unknown"]
            assert a.sessions.states() == ()

    run(main())


def test_a_violation_ends_that_session_only() -> None:
    async def main() -> None:
        async with nodes("abc") as (a, b, c):
            for node in (a, b):
                node.sessions.connect("c")
                node.send("c", b"hello")
            await until(lambda: len(c.got) == 2)
            a.send("c", b"wrong")
            await until(lambda: a.downs == ["c"])
            b.send("c", b"still here")
            await until(lambda: ("b", b"still here") in c.got)
            assert b.downs == []

    run(main())


def test_a_silent_peer_counts_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.endpoint.HEARTBEAT_S", 0.05)
    monkeypatch.setattr("causalcast.runtime.endpoint.SILENCE_S", 0.3)

    async def main() -> None:
        async with nodes("ab") as (a, b):
            a.sessions.connect("b")
            b.sessions.connect("a")
            await until(lambda: a.connected == ["b"] and b.connected == ["a"])
            await asyncio.sleep(0.6)
            assert (a.downs, b.downs) == ([], [])
            assert b.sessions._ticking is not None
            b.sessions._ticking.cancel()
            await until(lambda: a.downs == ["b"])

    run(main())


def test_more_sessions_than_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.sessions.SESSIONS", 2)

    async def main() -> None:
        async with nodes("abcd") as (a, b, c, d):
            for node in (b, c, d):
                node.sessions.connect("a")
            await until(lambda: len(b.downs + c.downs + d.downs) == 1)
            assert len(a.connected) == 2
            for peer in "bcd":
                a.sessions.connect(peer)
            await until(lambda: len(a.downs) == 1)

    run(main())


def test_who_does_not_read_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.session.SESSION_ROOM", 1 << 19)
    monkeypatch.setattr("causalcast.runtime.sessions.SESSION_BYTES", 1 << 20)

    async def main() -> None:
        async with nodes("ab") as (a, b):
            a.sessions.connect("b")
            await until(lambda: b.connected == ["a"])
            b.reads = False
            b.sessions.update_reading()
            sent = 0
            while not a.downs:
                a.send("b", bytes(1 << 16))
                sent += 1
                await asyncio.sleep(0)
                assert sum(state.resend_bytes for state in a.sessions.states()) < 2 << 20
            assert a.downs == ["b"]
            assert sent > 16

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_connected_and_disconnected_what_arrives_is_in_order(seed: int) -> None:
    """Every session of a sender carries rising numbers, and a later session's are greater."""
    draw = random.Random(seed)

    async def main() -> None:
        async with nodes("abcd") as made:
            sent = {(node.name, peer.name): 0 for node in made for peer in made}
            for _ in range(1500):
                node, peer = draw.sample(made, 2)
                what = draw.random()
                if what < 0.15:
                    node.sessions.connect(peer.name)
                elif what < 0.25:
                    node.sessions.disconnect(peer.name)
                elif what < 0.9:
                    sent[node.name, peer.name] += 1
                    node.send(peer.name, b"%d" % sent[node.name, peer.name])
                else:
                    await asyncio.sleep(draw.random() * 0.003)

            def settled(node: Node) -> bool:
                # Which sides have ended which sessions is known to both: what is sent now is not lost with one.
                sessions = node.sessions
                return not sessions._dials and not any(session.parting for session in sessions._connections)

            await until(lambda: all(map(settled, made)))
            for node in made:
                for peer in made:
                    if peer is not node:
                        sent[node.name, peer.name] += 1
                        node.send(peer.name, b"%d" % sent[node.name, peer.name])

            def numbers(node: Node, peer: Node) -> list[int]:
                return [int(body) for name, body in node.got if name == peer.name]

            def all_there() -> bool:
                return all(
                    numbers(node, peer)[-1:] == [sent[peer.name, node.name]]
                    for node in made
                    for peer in made
                    if peer is not node
                )

            await until(all_there)
            for node in made:
                for peer in made:
                    got = numbers(node, peer)
                    assert got == sorted(set(got))
                node.sessions.part()
            await until(lambda: all(node.sessions.quiet for node in made))
            for node in made:
                assert not node.sessions._peers
                assert not node.sessions._greetings
                assert not node.sessions.full

    run(main())


def test_the_hello_of_another_name_is_refused() -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            host, port = b.sessions.address
            a.sessions.book.write(Entry("c", host, port, 1))
            a.sessions.connect("c")
            await until(lambda: a.downs == ["c"])
            assert b.downs == []
            assert b.got == []

    run(main())


def test_a_goodbye_where_a_hello_is_due_is_a_refusal() -> None:
    a = Session(identity("a"), "b", 1, nothing, nothing)
    a.dial()
    with pytest.raises(LinkError, match="no room"):
        a.receive(close_frame(LEAVING, "no room"))


def test_a_hello_that_does_not_fit_is_refused_before_anything_is_sent() -> None:
    def refuse(hello: Hello) -> None:
        raise LinkError(f"not {hello.sender}")

    a = Session(identity("a"), "b", 1, refuse, nothing)
    a.push(data_frame(0, b"secret"))
    a.dial()
    a.output(1000)
    b = Session(identity("b"), "a", 1, nothing, nothing)
    b.dial()
    with pytest.raises(LinkError, match="not b"):
        a.receive(bytes(b.output(1000)))
    assert a.output(1000) == b""
