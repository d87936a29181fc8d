"""Groups whose members come and go, on real sockets."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import causalcast
from causalcast import JoinError, MembershipChanged, Tls, UnsupportedByStackError
from causalcast.protocols.membership.hyparview_messages import Join
from causalcast.protocols.registry import STACKS
from causalcast.runtime.frames import Hello, data_frame, hello_frame
from causalcast.runtime.session_host import SessionHost
from causalcast.trace import read_jsonl
from tests.runtime.cluster import Application, run
from tests.runtime.test_sessions import until
from tests.runtime.test_tls import Files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from causalcast import Group
    from causalcast.trace import TraceEvent

OVERLAYS = [name for name, stack in STACKS.items() if stack.session_links]
CAUSAL = [name for name in OVERLAYS if "P3" in STACKS[name].promises]


@asynccontextmanager
async def overlay(names: Iterable[str], **options: Any) -> AsyncIterator[list[Application]]:
    """The first is the contact of all others; all take what comes."""
    options = {"stack": "cptcast", **options}
    made: list[Application] = []
    async with AsyncExitStack() as stack:
        for name in names:
            join = made[0].group.address if made else ()
            group = causalcast.open(name, listen="127.0.0.1:0", join=join, **options)
            made.append(Application(await stack.enter_async_context(group)))
        yield made
        await asyncio.gather(*(app.group.close() for app in made))
        for app in made:
            await app.finished()


async def kill(group: Group) -> None:
    """As `kill -9` looks to the others: the sockets are gone, and nobody says a word."""
    host = group._running
    assert isinstance(host, SessionHost)
    host.retire()
    sessions = host.mesh
    for task in sessions._dialling:
        task.cancel()
    assert sessions._server is not None
    sessions._server.close()
    for connection in list(sessions._connections.values()):
        if connection._transport is not None:
            connection._transport.abort()


def assert_causal(folder: Path) -> dict[str, list[TraceEvent]]:
    """No message of the traces comes before one that happened before it; returns the rows of each process."""
    logs = {path.stem: list(read_jsonl(path)) for path in folder.glob("*.jsonl")}
    past: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for name, rows in logs.items():
        seen: set[tuple[str, int]] = set()
        for row in rows:
            if row.event in ("broadcast", "deliver"):
                assert row.origin is not None
                assert row.counter is not None
                dot = (row.origin, row.counter)
                if row.event == "broadcast":
                    past[dot] = set(seen)
                assert dot not in seen, f"{name} delivered {dot} twice"
                seen.add(dot)
    for name, rows in logs.items():
        seen = set()
        for row in rows:
            if row.event == "deliver":
                dot = (row.origin or "", row.counter or 0)
                assert past[dot] <= seen, f"{name} delivered {dot} before {past[dot] - seen}"
            if row.event in ("broadcast", "deliver"):
                seen.add((row.origin or "", row.counter or 0))
    return logs


@pytest.mark.parametrize("stack", OVERLAYS)
def test_eight_join_through_one_and_all_survivors_of_a_kill_deliver_all(tmp_path: Path, stack: str) -> None:
    names = [f"m{number}" for number in range(8)]

    async def main() -> None:
        async with overlay(names, stack=stack, trace=tmp_path) as apps:
            for number in range(6):
                for app in apps:
                    await app.group.broadcast(b"before %d" % number)
                await asyncio.sleep(0.01)
            for app in apps:
                await app.until_delivered(6 * 7)
            await kill(apps[3].group)
            survivors = apps[:3] + apps[4:]
            for number in range(6):
                for app in survivors:
                    await app.group.broadcast(b"after %d" % number)
                await asyncio.sleep(0.01)
            # The control floods over whatever links there are while one of them breaks, and repeats nothing.
            if stack != "flood":
                for app in survivors:
                    await app.until_delivered(6 * 7 + 6 * 6)

    run(main(), 60)
    if stack in CAUSAL:
        logs = assert_causal(tmp_path)
        assert all(log[-1].event == "leave" for name, log in logs.items() if name != "m3")


def test_a_joiner_has_joined_when_its_context_is_entered_and_leaves_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with overlay("ab", trace=tmp_path) as (a, b):
            await b.group.broadcast(b"at once")
            await a.until_delivered(1)
            assert b.group.members.names == ("b",)
            assert [link.peer for link in b.group.links()] == ["a"]
            await b.group.broadcast(b"last words")
            await b.group.close()
            await a.until_delivered(2)
            await until(lambda: not a.group.links())
            await a.group.broadcast(b"alone")

    run(main())
    assert [row.event for row in read_jsonl(tmp_path / "b.jsonl")] == ["join", "broadcast", "broadcast", "leave"]


def test_the_contact_may_be_gone_when_others_join_through_somebody_else() -> None:
    async def main() -> None:
        async with overlay("abc") as (a, b, c):
            await a.group.close()
            async with causalcast.open("d", listen=":0", join=[c.group.address], stack="cptcast") as d:
                await d.broadcast(b"hello")
                for app in (b, c):
                    await app.until_delivered(1)

    run(main())


def test_an_unreachable_contact_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 0.5)

    async def main() -> None:
        group = causalcast.open("a", listen="127.0.0.1:0", join="127.0.0.1:1", stack="cptcast")
        with pytest.raises(JoinError, match=r"a cannot join the group through 127\.0\.0\.1:1: .*Connection refused"):
            await group.__aenter__()

    run(main())


def test_a_contact_that_starts_later_is_waited_for_and_of_several_one_is_enough() -> None:
    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", stack="prc") as b:
            address = b.address
        joins = causalcast.open("a", listen="127.0.0.1:0", join=["127.0.0.1:1", address], stack="prc")
        entering = asyncio.create_task(joins.__aenter__())
        await asyncio.sleep(0.2)
        async with causalcast.open("b", listen=address, stack="prc"):
            a = await entering
            async for event in a:
                assert event == MembershipChanged(joined=("a",))
                break
            await a.close()

    run(main())


def test_who_is_not_a_member_yet_lets_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 0.8)

    async def main() -> None:
        b = causalcast.open("b", listen="127.0.0.1:0", join="127.0.0.1:1", stack="cptcast")
        entering = asyncio.create_task(b.__aenter__())
        await asyncio.sleep(0.1)
        a = causalcast.open("a", listen="127.0.0.1:0", join=b.address, stack="cptcast")
        with pytest.raises(JoinError, match=r"b is not a member yet|Connection refused"):
            await a.__aenter__()
        with pytest.raises(JoinError):
            await entering

    run(main())


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("b", {}, "the name 'b' is or was another member's"),
        ("a", {}, "the name 'a' is another member's"),
        ("c", {"group": "other"}, "c is in group 'other', a in 'default'"),
        ("c", {"stack": "prc"}, "c runs the stack 'prc', a 'cptcast'"),
        ("c", {"frame_limit": 1 << 20}, "the frame limit is 1048576 at c"),
    ],
)
def test_who_does_not_fit_is_refused_with_the_reason(name: str, options: dict[str, Any], complaint: str) -> None:
    async def main() -> None:
        async with overlay("ab") as (a, _):
            options.setdefault("stack", "cptcast")
            with pytest.raises(JoinError, match=complaint):
                await causalcast.open(name, listen="127.0.0.1:0", join=a.group.address, **options).__aenter__()

    run(main())


def test_a_name_that_has_left_is_not_taken_again() -> None:
    async def main() -> None:
        async with overlay("ab") as (a, b):
            await b.group.close()
            with pytest.raises(JoinError, match="the name 'b' is or was"):
                await causalcast.open("b", listen=":0", join=a.group.address, stack="cptcast").__aenter__()

    run(main())


def test_members_of_a_durable_group_and_of_an_overlay_refuse_each_other() -> None:
    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": "127.0.0.1:1"}) as b:
            with pytest.raises(JoinError, match="a runs the stack 'cptcast', b 'tcb'"):
                await causalcast.open("a", listen=":0", join=b.address, stack="cptcast").__aenter__()

    run(main())


def test_what_a_stack_cannot_do_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(UnsupportedByStackError, match="members of 'flood' come and go"):
        causalcast.open("a", listen=":0", peers={"b": "localhost:1"}, stack="flood")
    with pytest.raises(UnsupportedByStackError, match="the members of 'tcb' are fixed"):
        causalcast.open("a", listen=":0", join="localhost:1")
    with pytest.raises(UnsupportedByStackError, match="cannot recover"):
        causalcast.open("a", listen=":0", stack="flood", journal="x")
    with pytest.raises(ValueError, match="need a frame limit of 65536"):
        causalcast.open("a", listen=":0", stack="flood", frame_limit=10_000)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(5000),
        b"\xff" * 64,
        data_frame(1, b"x"),
        # A hello that fits, and then bytes that are no message.
        b"hello and garbage",
    ],
)
def test_garbage_to_the_port_harms_nothing(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with overlay("abc") as (a, b, c):
            host, _, port = a.group.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            if garbage.startswith(b"hello"):
                writer.write(stranger("x", a.group) + data_frame(0, b"\xc1 no message"))
            else:
                writer.write(garbage)
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
            await c.group.broadcast(b"all is well")
            await a.until_delivered(1)
            await b.until_delivered(1)

    caplog.set_level(logging.CRITICAL)
    run(main())


def stranger(name: str, group: Group) -> bytes:
    """The hello of somebody who speaks the protocol by hand."""
    me = group._me
    return hello_frame(
        Hello(me.group, name, "", me.roster, me.stack, me.frame_limit, 99, 0, 1, 0, host="127.0.0.1", port=1)
    )


def test_a_member_that_stops_reading_is_cut_off_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.session.SESSION_ROOM", 1 << 20)
    monkeypatch.setattr("causalcast.runtime.sessions.SESSION_BYTES", 2 << 20)

    async def main() -> None:
        async with overlay("abc", stack="flood") as (a, b, c):
            host, _, port = a.group.address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(stranger("x", a.group) + data_frame(0, msgspec.msgpack.encode(Join())))
            await until(lambda: "x" in {link.peer for link in a.group.links()})
            # What a broadcasts itself would wait; what others broadcast has to be passed on.
            sent = 0
            while "x" in {link.peer for link in a.group.links() if link.connected}:
                await b.group.broadcast(bytes(1 << 17))
                sent += 1
                assert sum(link.resend_bytes for link in a.group.links()) < 8 << 20
                await asyncio.sleep(0.001)
            await c.until_delivered(sent)
            writer.close()

    run(main())


def test_a_broadcast_waits_for_a_neighbour_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.session.SESSION_ROOM", 1 << 18)
    monkeypatch.setattr("causalcast.runtime.base_host.QUEUED_EVENTS", 20)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            a = await stack.enter_async_context(causalcast.open("a", listen=":0", stack="prc"))
            b = await stack.enter_async_context(causalcast.open("b", listen=":0", join=a.address, stack="prc"))
            application = Application(b)
            sent = 0

            async def send() -> None:
                nonlocal sent
                for _ in range(400):
                    await b.broadcast(bytes(1 << 16))
                    sent += 1

            sending = asyncio.create_task(send())
            await until(lambda: a.untaken >= 20)
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.2)
            assert sent < 400
            assert a.untaken < 400
            reader = Application(a)
            await sending
            await reader.until_delivered(400)
        await application.finished()
        await reader.finished()

    run(main())


def test_members_of_an_overlay_know_each_other_by_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 5.0)
    files = Files(tmp_path / "one")
    other = Files(tmp_path / "other")

    async def main() -> None:
        def member(name: str, join: str | tuple[()], tls: Tls | None) -> Group:
            return causalcast.open(name, listen="127.0.0.1:0", join=join, stack="cptcast", tls=tls)

        async with AsyncExitStack() as stack:
            groups: list[Group] = []
            for name in "abcd":
                join = groups[0].address if groups else ()
                groups.append(await stack.enter_async_context(member(name, join, files.tls(name))))
            apps = [Application(group) for group in groups]
            await groups[3].broadcast(b"hello")
            for app in apps[:3]:
                await app.until_delivered(1)
            contact = groups[0].address
            with pytest.raises(JoinError, match="who calls itself 'x' shows a certificate of e"):
                await member("x", contact, files.tls("e")).__aenter__()
            monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 0.4)
            for outsider in (other.tls("y"), None):
                with pytest.raises(JoinError, match="y cannot join the group"):
                    await member("y", contact, outsider).__aenter__()
        for app in apps:
            await app.finished()

    run(main())
