"""Links on real sockets that are cut, reset, stopped, and spoken to by strangers."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

import causalcast
from causalcast import Delivered
from causalcast.runtime import endpoint, limits, mesh
from causalcast.runtime.frames import DATA, HEADER, close_frame, data_frame, hello_frame, read_hello
from causalcast.runtime.link import Identity, Link, roster_digest
from tests.runtime.cluster import DIALS_US, Application, Proxy, applications, members, proxies, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


@pytest.fixture(autouse=True)
def _dial_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh, "REDIAL_FIRST_S", 0.005)
    monkeypatch.setattr(mesh, "REDIAL_MOST_S", 0.05)


def connected(group: causalcast.Group) -> bool:
    return all(state.connected for state in group.links())


def dialled_again(cut: Sequence[Proxy], before: Sequence[int]) -> bool:
    return all(proxy.connections > number for proxy, number in zip(cut, before, strict=True))


async def until(condition: object, *args: object) -> None:
    while not condition(*args):  # type: ignore[operator]
        await asyncio.sleep(0.005)


def test_a_link_that_is_reset_a_hundred_times_under_load_loses_and_repeats_nothing() -> None:
    async def main() -> None:
        async with (
            proxies() as (made, through),
            members("abc", through) as groups,
            applications(groups) as apps,
        ):
            cut = made["a", "b"], made["a", "c"]
            resets = 0
            stop = False

            async def broadcast(group: causalcast.Group) -> int:
                number = 0
                while not stop:
                    await group.broadcast(b"%d " % number + bytes(number % 3000))
                    number += 1
                    if number % 20 == 0:
                        await asyncio.sleep(0.002)
                return number

            senders = [asyncio.create_task(broadcast(group)) for group in groups]
            while resets < 100:
                await until(connected, groups[0])
                await asyncio.sleep(0.003)
                # A link may be up again before anybody looks: what counts is that it was dialled again.
                before = [proxy.connections for proxy in cut]
                for proxy in cut:
                    proxy.cut()
                await until(dialled_again, cut, before)
                resets += 1
            stop = True
            counts = dict(zip("abc", await asyncio.gather(*senders), strict=True))
            for app in apps:
                await app.until_stable(sum(counts.values()))
                for peer in "abc".replace(app.group.name, ""):
                    assert [int(payload.split(b" ")[0]) for payload in app.payloads(peer)] == list(range(counts[peer]))
            assert made["a", "b"].connections >= 100

    run(main(), 60)


def test_a_link_cut_at_any_byte_goes_on_where_it_was() -> None:
    async def main() -> None:
        async with proxies() as (made, through), members("ab", through) as groups, applications(groups) as (_, b):
            await until(connected, groups[0])
            proxy = made["a", "b"]
            for cut in range(1, 300, 3):
                proxy.cuts_after = cut
                await groups[0].broadcast(b"%d" % cut)
                proxy.cut()
            proxy.cuts_after = None
            proxy.cut()
            await b.until_delivered(100)
            assert b.payloads() == [b"%d" % cut for cut in range(1, 300, 3)]

    run(main())


def test_one_broken_link_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with proxies() as (made, through), members("abc", through) as groups, applications(groups) as (_, b, c):
            await until(connected, groups[0])
            made["a", "b"].open.clear()
            for number in range(200):
                await groups[0].broadcast(b"%d" % number)
            await c.until_delivered(200)
            assert not b.delivered
            made["a", "b"].cut()
            made["a", "b"].open.set()
            await b.until_delivered(200)
            assert [state.reason for state in groups[0].links() if state.peer == "c"] == [None]

    run(main())


# ---------------------------------------------------------------- strangers and liars


async def speak(address: str, data: bytes) -> bytes:
    """Connect, say `data`, return all that comes back until the other side closes."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def hello_of(name: str, addressee: str = "b", **changes: object) -> bytes:
    facts = {
        "group": "default",
        "name": name,
        "roster": roster_digest(causalcast.runtime.group.Roster("ab")),
        "stack": "tcb",
        "frame_limit": limits.FRAME_LIMIT,
        "incarnation": 7,
        **changes,
    }
    link = Link(Identity(**facts), addressee)
    link.dial()
    return bytes(link.output(1 << 16))


def wrong_version() -> bytes:
    frame = bytearray(hello_of("a"))
    frame[HEADER.size - 1] += 1
    return bytes(frame)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(lambda: b"GET / HTTP/1.1\r\n\r\n", b"no hello of causalcast", id="garbage"),
        pytest.param(wrong_version, b"speaks version 2", id="another version"),
        pytest.param(lambda: hello_of("a", group="other"), b"in group 'other'", id="another group"),
        pytest.param(lambda: hello_of("zoe"), b"'zoe' is not a member", id="unknown member"),
        pytest.param(lambda: hello_of("a", "z"), b"looks for 'z'", id="another addressee"),
        pytest.param(lambda: hello_of("a", roster="0"), b"different members", id="another roster"),
        pytest.param(lambda: hello_of("a", stack="cbcast"), b"the stack 'cbcast'", id="another stack"),
        pytest.param(lambda: hello_of("a", frame_limit=9), b"frame limit is 9", id="another frame limit"),
        pytest.param(lambda: hello_of("a"), b"was started again and has lost its state", id="another incarnation"),
        pytest.param(lambda: hello_of("b", "a"), b"'b' is not a member", id="oneself"),
        pytest.param(lambda: hello_frame(None)[:-1] + b"\xc1", b"hello cannot be read", id="a broken hello"),  # type: ignore[arg-type]
        pytest.param(
            lambda: hello_of("a").replace(b"\xa1a\xa1b", b"\xa1\x80\xa1b"), b"hello cannot be read", id="text"
        ),
        pytest.param(lambda: HEADER.pack(0xFFFFFFFF, DATA, 1), b"no hello", id="an oversize header"),
    ],
)
def test_who_does_not_belong_is_told_why_and_the_group_goes_on(
    data: object, reason: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            await until(connected, groups[0])
            answer = await speak(groups[1].address, data())  # type: ignore[operator]
            assert reason in answer
            await groups[0].broadcast(b"x")
            await b.until_delivered(1)
            assert all(state.connected and state.reason is None for group in groups for state in group.links())

    with caplog.at_level(logging.WARNING, "causalcast"):
        run(main())
    assert reason.decode() in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(data_frame(1, b"\xc1"), "sent what no correct member sends", id="not a message"),
        pytest.param(data_frame(1, b"\x93\x01\xa1a"), "sent what no correct member sends", id="a truncated message"),
        pytest.param(data_frame(1, b"\x92\x01\xa1\x80"), "sent what no correct member sends", id="not UTF-8"),
        pytest.param(data_frame(1, b"\x91" * 100_000), "sent what no correct member sends", id="nesting without end"),
        pytest.param(data_frame(1, b"\x95\x01\xa1z\x01\x90\xc4\x00"), "in the name of 'z'", id="a false origin"),
        pytest.param(data_frame(1, b"\x95\x01\xa1a\x00\x90\xc4\x00"), "is no dot", id="an impossible dot"),
        pytest.param(HEADER.pack(limits.FRAME_LIMIT + 1, DATA, 1), "exceeds the limit", id="an oversize header"),
        pytest.param(data_frame(5, b""), "data frame 5 came where 1 was due", id="a number out of order"),
        pytest.param(bytes(range(64)), "cannot come here", id="garbage"),
    ],
)
def test_a_member_that_misbehaves_loses_its_connection_with_the_reason_and_nothing_else_happens(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}) as b:
            answer = await speak(b.address, hello_of("a") + data)
            assert reason.encode() in answer
            (state,) = b.links()
            assert not state.connected
            assert state.reason is not None
            assert reason in state.reason
            good = data_frame(1, b"\x95\x01\xa1a\x01\x90\xc4\x01!")
            found = read_hello(hello_of("a"))
            assert found is not None
            hello = msgspec.structs.replace(found[0], attempt=2)
            host, _, port = b.address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(hello_frame(hello) + good)
            async for event in b:
                assert isinstance(event, Delivered)
                assert event.message.payload == b"!"
                break
            writer.write(close_frame(1, "a leaves"))
            await until(lambda: not b.links()[0].connected)
            writer.close()

    with caplog.at_level(logging.WARNING, "causalcast"):
        run(main())
    assert "b: link to a is down" in caplog.text
    assert "Traceback" not in caplog.text


def test_strangers_that_say_nothing_are_few_and_soon_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "STRANGERS", 5)
    monkeypatch.setattr("causalcast.runtime.connection.HANDSHAKE_S", 0.3)

    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}) as b:
            answers = [asyncio.create_task(speak(b.address, b"")) for _ in range(20)]
            await asyncio.sleep(0.1)
            assert len(b._running.mesh._strangers) == 5
            async with causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}) as a:
                await until(connected, a)
            texts = await asyncio.gather(*answers)
            assert sum(b"too many connections" in text for text in texts) >= 15
            assert any(b"no hello came within" in text for text in texts)

    run(main())


def test_a_member_that_was_started_again_under_its_name_is_refused_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("causalcast.runtime.group.LINGER_S", 0.1)

    async def main() -> None:
        async with (
            causalcast.open("c", listen="127.0.0.1:0", peers={"a": DIALS_US, "b": DIALS_US}) as c,
            causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US, "c": c.address}) as b,
        ):
            peers = {"b": b.address, "c": c.address}
            first = causalcast.open("a", listen="127.0.0.1:0", peers=peers)
            async with first:
                await until(connected, first)
                for connection in list(first._running.mesh._connections.values()):
                    connection._transport.abort()  # type: ignore[union-attr] # it crashes: no last words
                first._running.mesh.links.clear()
            async with causalcast.open("a", listen="127.0.0.1:0", peers=peers) as again:
                await until(lambda: all(state.reason and "started again" in state.reason for state in again.links()))
                assert not any(state.connected for state in again.links())
                await b.broadcast(b"x")
                async for event in c:
                    assert isinstance(event, Delivered)
                    break
                assert "a was started again and has lost its state" in caplog.text

    run(main())


def test_a_silent_connection_is_closed_and_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(endpoint, "SILENCE_S", 0.4)

    async def main() -> None:
        async with proxies() as (made, through), members("ab", through) as groups, applications(groups) as (_, b):
            await until(connected, groups[0])
            await asyncio.sleep(1)
            assert all(state.connected and state.reason is None for group in groups for state in group.links())
            made["a", "b"].open.clear()
            await groups[0].broadcast(b"x")
            await until(lambda: not connected(groups[0]))
            assert groups[0].links()[0].reason == "nothing was heard for 0.4 s"
            made["a", "b"].cut()
            made["a", "b"].open.set()
            await b.until_delivered(1)

    run(main())


# ---------------------------------------------------------------- slow and stopped members


def test_a_burst_of_a_hundred_thousand_against_a_slow_consumer_is_bounded_and_drops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("causalcast.runtime.base_host.QUEUED_EVENTS", 1_000)
    monkeypatch.setattr("causalcast.runtime.link.RESEND_FRAMES", 5_000)

    async def main() -> None:
        total = 100_000
        async with members("ab", stack="unordered") as (a, b):
            sending = asyncio.create_task(_broadcast_many(a, total))
            most_untaken = most_unacknowledged = 0
            received = 0
            async for event in b:
                assert isinstance(event, Delivered)
                received += 1
                assert event.message.tag.counter == received
                most_untaken = max(most_untaken, b.untaken)
                most_unacknowledged = max(most_unacknowledged, a.links()[0].unacknowledged)
                if received <= 5_000 and received % 50 == 0:
                    await asyncio.sleep(0.005)  # slow at first, so that everything fills up
                if received == total:
                    break
            await sending
            assert most_unacknowledged == 5_000
            one_read = 256 * 1024 // 20
            assert 1_000 <= most_untaken <= 1_000 + one_read

    run(main(), 60)


async def _broadcast_many(group: causalcast.Group, count: int, payload: bytes = b"") -> None:
    for _ in range(count):
        await group.broadcast(payload)


def test_a_peer_that_stops_reading_costs_a_bounded_buffer_and_no_copy_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.link.RESEND_BYTES", 20 * 2**20)

    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}) as b:
            host, _, port = b.address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(hello_of("a"))
            await until(lambda: b.links()[0].connected)
            sending = asyncio.create_task(_broadcast_many(b, 1_000, bytes(100_000)))
            await asyncio.sleep(0.3)
            (state,) = b.links()
            assert 20 * 2**20 <= state.resend_bytes <= 20 * 2**20 + 100_100
            (connection,) = b._running.mesh._connections.values()
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= 2 * limits.WRITE_CHUNK
            assert not sending.done()
            sending.cancel()
            writer.write(close_frame(1, "a leaves"))
            await until(lambda: not b.links()[0].connected)
            writer.transport.abort()

    run(main())


def test_a_member_that_takes_nothing_makes_the_others_wait_and_then_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.host.UNSTABLE_MESSAGES", 2_000)

    async def main() -> None:
        async with members("abc") as (a, b, c):
            apps = [Application(a), Application(b)]
            sending = asyncio.create_task(_broadcast_many(a, 5_000))
            await apps[1].until_delivered(2_000)
            await asyncio.sleep(0.3)
            assert len(apps[1].delivered) == 2_000
            assert not sending.done()
            apps.append(Application(c))
            await sending
            for app in apps:
                await app.until_stable(5_000)
            await asyncio.gather(a.close(), b.close(), c.close())
            await asyncio.gather(*(app.finished() for app in apps))

    run(main())


def test_applications_that_reply_from_the_loop_that_takes_do_not_block_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("causalcast.runtime.base_host.QUEUED_EVENTS", 50)
    monkeypatch.setattr("causalcast.runtime.link.RESEND_FRAMES", 100)
    monkeypatch.setattr("causalcast.runtime.link.ACK_FRAMES", 10)

    async def reply_to_all(group: causalcast.Group, total: int) -> None:
        replies = 0
        delivered = 0
        async for event in group:
            if isinstance(event, Delivered):
                delivered += 1
                if event.message.payload == b"question":
                    await group.broadcast(b"answer")
                    replies += 1
            if delivered == total:
                return

    async def main() -> None:
        async with members("abc") as groups:
            questions = 2_000
            async with asyncio.TaskGroup() as tasks:
                for group in groups:
                    tasks.create_task(_ask(group, questions))
                    # questions of two others, and the answers of two others to two members' questions each
                    tasks.create_task(reply_to_all(group, 2 * questions + 4 * questions))
            await asyncio.gather(*(group.close() for group in groups))

    async def _ask(group: causalcast.Group, count: int) -> None:
        for _ in range(count):
            await group.broadcast(b"question")

    run(main(), 60)


def test_messages_that_wait_for_a_cause_stop_their_own_link_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.host.PENDING_MESSAGES", 200)

    async def main() -> None:
        async with proxies() as (made, through), members("abc", through) as groups, applications(groups) as (_, b, c):
            await until(lambda: all(connected(group) for group in groups))
            made["a", "c"].open.clear()
            await groups[0].broadcast(b"cause")
            await b.until_delivered(1)
            for number in range(20_000):
                await groups[1].broadcast(b"%d" % number)
            await asyncio.sleep(0.3)
            assert not c.delivered
            process = groups[2]._running._process
            assert 200 <= process.pending("b") < 20_000
            made["a", "c"].open.set()
            await c.until_delivered(20_001)
            assert c.payloads("b") == [b"%d" % number for number in range(20_000)]
            assert c.payloads()[0] == b"cause"

    run(main())


STOPPED_MEMBER = """
import asyncio, sys, causalcast
async def main():
    peers = dict(pair.split("=") for pair in sys.argv[2:])
    async with causalcast.open(sys.argv[1], listen="127.0.0.1:0", peers=peers) as group:
        print("up", flush=True)
        async for event in group:
            if isinstance(event, causalcast.Delivered):
                print(event.message.payload.decode(), flush=True)
                if event.message.payload == b"end":
                    break
asyncio.run(main())
"""


def test_a_stopped_process_does_not_slow_the_others_and_catches_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            causalcast.open("c", listen="127.0.0.1:0", peers={"a": DIALS_US, "b": DIALS_US}) as c,
            causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US, "c": c.address}) as b,
        ):
            command = [sys.executable, "-c", STOPPED_MEMBER, "a", f"b={b.address}", f"c={c.address}"]
            with (tmp_path / "out").open("w+") as out, subprocess.Popen(command, stdout=out) as process:
                try:
                    async with applications([b, c]) as (app_b, app_c):
                        await until(lambda: connected(b) and connected(c))
                        process.send_signal(signal.SIGSTOP)
                        for number in range(10_000):
                            await b.broadcast(b"b%d" % number)
                            await c.broadcast(b"c%d" % number)
                        await app_b.until_delivered(10_000)
                        await app_c.until_delivered(10_000)
                        assert not app_b.stable  # so it is still stopped
                        process.send_signal(signal.SIGCONT)
                        await b.broadcast(b"end")
                        await asyncio.to_thread(process.wait)
                        await app_b.until(lambda app: len(app.stable) >= 10_000)
                finally:
                    if process.poll() is None:
                        process.kill()
                out.seek(0)
                lines = out.read().split()
            assert [line for line in lines if line[0] == "b"] == [f"b{number}" for number in range(10_000)]
            assert lines[-1] == "end"

    run(main(), 60)
