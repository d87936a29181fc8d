"""A group as an application sees it, on real sockets."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest

import causalcast
from causalcast import (
    Delivered,
    GroupClosedError,
    InvalidAddressError,
    InvalidNameError,
    PayloadTooLargeError,
    UnknownStackError,
)
from causalcast.runtime.limits import EVENTS_AT_ONCE, TURN_S
from tests.runtime.cluster import DIALS_US, Application, applications, members, run


def test_three_members_deliver_everything_and_agree_on_stability() -> None:
    async def main() -> None:
        async with members("abc") as groups, applications(groups) as apps:
            for round_number in range(50):
                for group in groups:
                    await group.broadcast(b"%s %d" % (group.name.encode(), round_number))
            for app in apps:
                await app.until_stable(150)
                assert len(app.delivered) == 100
                for peer in app.group.members:
                    if peer != app.group.name:
                        assert app.payloads(peer) == [b"%s %d" % (peer.encode(), number) for number in range(50)]
                assert {str(tag.dot) for tag in app.stable} == {f"{name}:{n}" for name in "abc" for n in range(1, 51)}

    run(main())


def test_every_stack_runs() -> None:
    async def main(stack: str) -> None:
        async with members("ab", stack=stack) as groups, applications(groups) as (_, b):
            await groups[0].broadcast(b"x")
            await b.until_delivered(1)

    for stack in ("tcb", "cbcast", "unordered"):
        run(main(stack))


def test_a_group_of_one_broadcasts_and_is_stable_at_once() -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}) as group:
            tag = await group.broadcast(b"x")
            async for event in group:
                assert event == causalcast.Stable(tag)
                break

    run(main())


# ---------------------------------------------------------------- the end-to-end rule, 004 sections 3.6 and 3.7


def test_the_reply_to_a_message_is_after_it() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            question = await a.broadcast(b"question")
            async for event in b:
                assert isinstance(event, Delivered)
                break
            answer = await b.broadcast(b"answer")
            assert question < answer
            assert answer.context == (question.dot,)

    run(main())


def test_pitfall_independent_queues_a_message_that_waits_in_the_queue_is_not_in_the_tag() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            first = await a.broadcast(b"in the queue of b")
            while not b.untaken:
                await asyncio.sleep(0.01)
            concurrent = await b.broadcast(b"b knows nothing of it")
            assert concurrent.concurrent_with(first)
            async for event in b:
                assert isinstance(event, Delivered)
                assert event.message.tag == first
                break
            assert (await b.broadcast(b"now it does")) > first

    run(main())


def test_pitfall_over_ordering_only_what_was_taken_comes_before() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            tags = [await a.broadcast(b"%d" % number) for number in range(5)]
            while b.untaken < 10:  # delivered, and stable
                await asyncio.sleep(0.01)
            taken = 0
            async for event in b:
                if not isinstance(event, Delivered):
                    continue
                taken += 1
                reply = await b.broadcast(b"reply")
                assert [tag < reply for tag in tags] == [number < taken for number in range(5)]
                if taken == 5:
                    break

    run(main())


def test_pitfall_reentrancy_a_broadcast_while_handling_an_event_is_after_it_and_before_the_next() -> None:
    async def main() -> None:
        async with members("abc") as groups:
            a, b, c = groups
            tags = [await a.broadcast(b"%d" % number) for number in range(3)]

            async def echo() -> None:
                async for event in b:
                    if isinstance(event, Delivered) and event.message.tag.origin == "a":
                        await b.broadcast(b"echo " + event.message.payload)
                        if event.message.payload == b"2":
                            return

            await echo()
            seen: list[bytes] = []
            async for event in c:
                if isinstance(event, Delivered):
                    seen.append(event.message.payload)
                    if event.message.payload.startswith(b"echo"):
                        number = int(event.message.payload.split()[1])
                        assert [tag < event.message.tag for tag in tags] == [n <= number for n in range(3)]
                if len(seen) == 6:
                    break
            for number in (b"0", b"1", b"2"):
                assert seen.index(number) < seen.index(b"echo " + number)

    run(main())


def test_broadcasts_of_several_tasks_are_in_order_of_the_calls() -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            tags = await asyncio.gather(*(groups[0].broadcast(b"%d" % number) for number in range(500)))
            assert [tag.counter for tag in tags] == list(range(1, 501))
            await b.until_delivered(500)
            assert b.payloads() == [b"%d" % number for number in range(500)]

    run(main())


# ---------------------------------------------------------------- what users reported of others


def test_ten_thousand_sends_in_one_tick_have_rising_identifiers_and_none_is_lost() -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            tags = await asyncio.gather(*(groups[0].broadcast(b"") for _ in range(10_000)))
            assert [tag.counter for tag in tags] == list(range(1, 10_001))
            await b.until_delivered(10_000)
            assert [event.message.tag.counter for event in b.delivered] == list(range(1, 10_001))

    run(main())


def test_the_same_payload_twice_is_two_messages() -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            first = await groups[0].broadcast(b"again")
            second = await groups[0].broadcast(b"again")
            assert first != second
            await b.until_delivered(2)
            assert [event.message.tag for event in b.delivered] == [first, second]

    run(main())


def test_a_message_sent_before_the_receiver_is_there_arrives() -> None:
    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}) as b:
            tag = await b.broadcast(b"early")
            async with causalcast.open("a", listen="127.0.0.1:0", peers={"b": b.address}) as a:
                async for event in a:
                    assert event == Delivered(causalcast.Message(b"early", tag))
                    break

    run(main())


def test_payloads_around_the_limit_are_delivered_or_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        async with members("ab", frame_limit=100_000) as groups, applications(groups) as (_, b):
            a = groups[0]
            limit = a.payload_limit
            for size in (limit - 1, limit):
                await a.broadcast(bytes(size))
            for size in (limit + 1, 100_000_000):
                with pytest.raises(PayloadTooLargeError, match=f"{size:,} bytes exceeds the limit of {limit:,}"):
                    await a.broadcast(bytes(size))
            tag = await a.broadcast(b"after")
            assert tag.counter == 3
            await b.until_delivered(3)
            assert [len(payload) for payload in b.payloads()] == [limit - 1, limit, 5]
            assert all(state.reason is None for state in a.links())

    run(main())


def test_the_largest_payload_of_the_default_limit_is_delivered() -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            payload = bytes(groups[0].payload_limit)
            assert len(payload) > 16_700_000
            await groups[0].broadcast(payload)
            await b.until_delivered(1)
            assert b.payloads() == [payload]

    run(main())


def test_the_largest_payload_fits_with_the_largest_context() -> None:
    async def main(stack: str) -> None:
        async with members("abcdefgh", frame_limit=20_000, stack=stack) as groups, applications(groups) as apps:
            for _ in range(3):
                await asyncio.gather(*(group.broadcast(b"x") for group in groups))
            await asyncio.gather(*(app.until_delivered(21) for app in apps))
            await asyncio.gather(*(group.broadcast(bytes(group.payload_limit)) for group in groups))
            await asyncio.gather(*(app.until_delivered(28) for app in apps))

    for stack in ("tcb", "cbcast"):
        run(main(stack))


def test_everything_becomes_stable_after_everyone_goes_idle() -> None:
    async def main() -> None:
        async with members("abcd") as groups, applications(groups) as apps:
            for number in range(25):
                for group in groups[: 1 + number % 3]:
                    await group.broadcast(b"x")
                await asyncio.sleep(0)
            total = sum(1 + number % 3 for number in range(25))
            for app in apps:
                await app.until_stable(total)

    run(main())


@pytest.mark.parametrize(("per_ms", "most"), [(10, EVENTS_AT_ONCE), (100, 2 * EVENTS_AT_ONCE)])
def test_the_event_loop_gets_its_turn_while_events_are_taken_and_messages_sent(
    monkeypatch: pytest.MonkeyPatch, per_ms: int, most: int
) -> None:
    """An application that does `per_ms` things in a millisecond is never at it for longer than `most` of them."""
    done = 0
    at_turns: list[int] = []

    async def turns() -> None:
        while True:
            at_turns.append(done)
            await asyncio.sleep(0)

    async def main() -> None:
        nonlocal done
        async with members("ab") as (a, b):
            for _ in range(1_000):
                await b.broadcast(b"x")
            while a.untaken < 1_000:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(
                "causalcast.runtime.group.time", SimpleNamespace(monotonic=lambda: done * TURN_S / per_ms)
            )
            watching = asyncio.create_task(turns())
            async for _ in a:
                done += 1
                if done == 1_000:
                    break
            for _ in range(1_000):
                await a.broadcast(b"y")
                done += 1
            watching.cancel()

    run(main())
    assert max(after - before for before, after in pairwise(at_turns)) == most
    assert len(at_turns) >= 2_000 // most


# ---------------------------------------------------------------- life and death of a group


def test_closing_waits_until_the_peers_have_what_was_sent() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            app = Application(b)
            for number in range(3_000):
                await a.broadcast(b"%d" % number)
            await a.close()
            await app.until_delivered(3_000)
            await b.close()
            await app.finished()

    run(main())


def test_a_closed_group_refuses_to_broadcast_and_ends_iteration() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            reading = asyncio.create_task(anext(a, None))
            await asyncio.sleep(0.05)
            await a.close()
            assert await reading is None
            with pytest.raises(GroupClosedError, match="a has closed its group"):
                await a.broadcast(b"x")
            await a.close()
            assert [event async for event in a] == []
            assert b.links()[0].peer == "a"

    run(main())


def test_a_peer_that_has_left_is_not_dialled_and_nothing_is_kept_for_it() -> None:
    async def main() -> None:
        async with members("ab") as (a, b):
            while not a.links()[0].connected:
                await asyncio.sleep(0.01)
            await b.close()
            while a.links()[0].connected:
                await asyncio.sleep(0.01)
            await a.broadcast(b"nobody hears it")
            (state,) = a.links()
            assert (state.unacknowledged, state.reason) == (0, "b closes its group")

    run(main())


def test_an_exception_inside_the_group_closes_it_and_is_the_one_that_is_raised() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with members("ab"):
                raise ZeroDivisionError

    run(main())


def test_a_cancelled_broadcast_that_waited_is_not_sent() -> None:
    async def main() -> None:
        async with members("ab") as groups, applications(groups) as (_, b):
            a = groups[0]
            tasks = [asyncio.create_task(a.broadcast(b"%d" % number)) for number in range(200)]
            await asyncio.sleep(0)
            tasks[150].cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[150], asyncio.CancelledError)
            await b.until_delivered(199)
            assert b.payloads() == [b"%d" % number for number in range(200) if number != 150]

    run(main())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": "a b"}, InvalidNameError),
        ({"peers": {"a": "h:1"}}, InvalidNameError),
        ({"listen": "localhost"}, InvalidAddressError),
        ({"listen": "localhost:99999"}, InvalidAddressError),
        ({"peers": {"b": "::1:80"}}, InvalidAddressError),
        ({"peers": {"b": "two..dots:80"}}, InvalidAddressError),
        ({"listen": "nul\0:80"}, InvalidAddressError),
        ({"name": "\udcff"}, InvalidNameError),
        ({"group": "\udcff"}, InvalidNameError),
        ({"stack": "tcp"}, UnknownStackError),
        ({"frame_limit": 10}, ValueError),
        ({"group": "g" * 200}, InvalidNameError),
    ],
)
def test_what_cannot_be_opened_is_refused_at_once(options: dict[str, object], error: type[Exception]) -> None:
    arguments = {"name": "a", "listen": "127.0.0.1:0", "peers": {}, **options}
    with pytest.raises(error):
        causalcast.open(arguments.pop("name"), **arguments)


def test_an_address_in_use_is_an_os_error_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}) as a:
            with pytest.raises(OSError, match="in use"):
                async with causalcast.open("a", listen=a.address, peers={}):
                    pass

    run(main())


def test_a_broadcast_that_waits_when_its_group_closes_is_told_so_and_what_it_waited_for_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("causalcast.runtime.link.RESEND_FRAMES", 10)
    monkeypatch.setattr("causalcast.runtime.group.STALL_WARNING_S", 0.05)
    monkeypatch.setattr("causalcast.runtime.group.LINGER_S", 0.1)

    async def main() -> None:
        async with causalcast.open("b", listen="127.0.0.1:0", peers={"a": DIALS_US}) as b:
            for _ in range(10):
                await b.broadcast(b"x")
            waiting = [asyncio.create_task(b.broadcast(b"too many")) for _ in range(3)]
            await asyncio.sleep(0.1)
            await b.close()
            for task in waiting:
                with pytest.raises(GroupClosedError):
                    await task

    run(main())
    assert "b: a broadcast has waited 0.05 s for a to acknowledge" in caplog.text
    assert "b: closes although not everything is acknowledged: a (10 frames)" in caplog.text


def test_the_group_runs_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with members("abc") as groups, applications(groups) as apps:
            for group in groups:
                for _ in range(100):
                    await group.broadcast(bytes(1000))
            for app in apps:
                await app.until_stable(300)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 20))


def test_what_is_not_bytes_is_refused() -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}) as a:
            with pytest.raises(TypeError, match="not str"):
                await a.broadcast("text")  # type: ignore[arg-type]

    run(main())


def test_a_group_is_used_inside_its_context() -> None:
    async def main() -> None:
        group = causalcast.open("a", listen="127.0.0.1:0", peers={})
        with pytest.raises(RuntimeError, match="enter the group first"):
            await group.broadcast(b"x")
        async with group:
            pass
        with pytest.raises(RuntimeError, match="entered once"):
            async with group:
                pass

    run(main())


def test_a_group_that_was_never_entered_closes_at_once_and_cannot_be_entered_then() -> None:
    async def main() -> None:
        group = causalcast.open("a", listen="127.0.0.1:0", peers={})
        await group.close()
        await group.close()
        with pytest.raises(GroupClosedError, match="open another"):
            await group.__aenter__()

    run(main(), 5)
