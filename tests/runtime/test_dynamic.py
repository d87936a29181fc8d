"""`tcb-dynamic` on real sockets: members join under load, with state, leave, are evicted, and the audit agrees."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import causalcast
from causalcast import GroupClosedError, JoinError, MembershipChanged, NotAMemberError, Tls, UnsupportedByStackError
from tests.runtime.cluster import Proxy, run
from tests.runtime.crowd import audited, churn, crowd, events, port
from tests.runtime.test_sessions import until
from tests.runtime.test_tls import Files

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast import Group


# ---------------------------------------------------------------------- joins and leaves


def test_one_joins_under_load_and_one_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abc", trace=tmp_path) as members:
            async with members.load("a", "b", "c"):
                await asyncio.sleep(0.1)
                late = await members.join("d", through="b")
                assert late.group.members.names == ("a", "b", "c", "d")
                async with members.load("d"):
                    await asyncio.sleep(0.1)
                    await members.leave("a")
                    await asyncio.sleep(0.1)
            await members.at_rest()
            assert late.group.members.names == ("b", "c", "d")
            assert {link.peer for link in late.group.links()} == {"b", "c"}

    run(main())
    logs = audited(tmp_path)
    assert [logs["d"][0]["event"], *(log[-1]["event"] for log in logs.values())] == ["join", *["leave"] * 4]
    for origin in "abc":
        assert any(row["origin"] == origin for row in events(logs["d"], "deliver"))


def test_two_join_at_once_through_different_members_and_know_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("ab", trace=tmp_path) as members, members.load("a", "b"):
            await asyncio.gather(*(members.join(name, through=contact) for name, contact in ("ya", "xb", "za", "wb")))
            names = tuple("abwxyz")
            await until(lambda: all(app.group.members.names == names for app in members.apps.values()))
            async with members.load(*"wxyz"):
                await asyncio.sleep(0.1)
        for log in audited(tmp_path).values():
            assert {row["origin"] for row in events(log, "deliver")} >= set("abwxyz") - {log[0]["process"]}

    run(main())


def test_connections_that_break_lose_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        proxies: dict[str, Proxy] = {}
        through: list[str] = []
        async with crowd("", trace=tmp_path) as members:
            for name in "abc":
                listen = f"127.0.0.1:{await port()}"
                proxies[name] = Proxy(listen)
                address = await proxies[name].start()
                await members.join(name, listen=listen, advertise=address, join=through[:1])
                through.append(address)
            async with members.load("a", "b", "c"):
                for number in range(12):
                    await asyncio.sleep(0.05)
                    proxies["abc"[number % 3]].cut()
                    if number == 5:
                        await members.join("d", join=through[1])
            await members.at_rest()
            assert sum(proxy.connections for proxy in proxies.values()) > 6
        for proxy in proxies.values():
            await proxy.stop()

    run(main())
    audited(tmp_path)


def test_members_show_certificates(tmp_path: Path) -> None:
    files = Files(tmp_path)

    def of(name: str) -> Tls:
        return files.tls(name)

    async def main() -> None:
        async with crowd("") as members:
            await members.join("a", tls=of("a"))
            await members.join("b", tls=of("b"))
            await members.join("c", through="b", tls=of("c"))
            with pytest.raises(JoinError, match="shows a certificate of"):
                await members.join("x", tls=of("c"))
            await members.apps["c"].group.broadcast(b"hello")
            await members.at_rest()

    run(main())


# ---------------------------------------------------------------------- state


class Sum:
    """An application that adds numbers, whoever sends them."""

    def __init__(self) -> None:
        self.total = 0
        self.given: list[int] = []

    def give(self) -> bytes:
        self.given.append(self.total)
        return b"%d" % self.total

    def take(self, state: bytes) -> None:
        self.total = int(state)

    async def run(self, group: Group) -> None:
        async for event in group:
            match event:
                case causalcast.Delivered(message):
                    await asyncio.sleep(0)  # whoever joins meanwhile must not miss this one
                    self.total += int(message.payload)


def test_a_joiner_takes_over_what_the_application_has_made_of_all_before(tmp_path: Path) -> None:
    async def main() -> None:
        sums = {name: Sum() for name in "abcd"}
        async with AsyncExitStack() as stack:
            groups: dict[str, Group] = {}
            tasks: list[asyncio.Task[None]] = []

            async def enter(name: str, contact: str = "") -> None:
                own = sums[name]
                group = causalcast.open(
                    name,
                    listen="127.0.0.1:0",
                    stack="tcb-dynamic",
                    join=groups[contact].address if contact else (),
                    give_state=own.give,
                    take_state=own.take,
                    trace=tmp_path,
                )
                groups[name] = await stack.enter_async_context(group)
                tasks.append(asyncio.create_task(own.run(group)))

            async def speak(name: str) -> None:
                for number in range(100):
                    await groups[name].broadcast(b"%d" % number)
                    sums[name].total += number
                    await asyncio.sleep(0.003)

            await enter("a")
            await enter("b", "a")
            speaking = [asyncio.create_task(speak(name)) for name in "ab"]
            await asyncio.sleep(0.1)
            await enter("c", "b")
            await asyncio.sleep(0.05)
            await enter("d", "a")
            await asyncio.gather(*speaking)
            await until(lambda: {own.total for own in sums.values()} == {2 * sum(range(100))})
            assert sums["b"].given[0] > 0
            await until(lambda: not any(sum(group.status().tables.values()) for group in groups.values()))
            await asyncio.gather(*(group.close() for group in groups.values()))
            await asyncio.gather(*tasks)

    run(main())
    logs = audited(tmp_path)
    # What came with the state becomes stable at the joiner too, though it was never delivered there.
    assert 0 < len(events(logs["c"], "deliver")) < 200


def test_a_state_of_many_frames_arrives_whole() -> None:
    taken: list[bytes] = []
    state = bytes(range(256)) * 4096

    async def main() -> None:
        async with crowd("a", frame_limit=65_536, give_state=lambda: state, take_state=taken.append) as members:
            await members.join("b")
            await members.apps["a"].group.broadcast(bytes(members.apps["a"].group.payload_limit))
            await members.apps["b"].until_delivered(1)

    run(main())
    assert taken == [state]


def test_who_cannot_give_or_take_a_state_is_said_so_and_the_group_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: object) -> Any:
        raise ValueError("no such thing")

    async def main() -> None:
        async with crowd("ab", give_state=lambda: b"x", take_state=lambda _: None) as members:
            with pytest.raises(JoinError, match="it cannot take the state that it was given: no such thing"):
                await members.join("c", take_state=fails)
            await members.apps["a"].until_evicted("c")
            await members.join("d", give_state=fails)
            with pytest.raises(JoinError, match="the group does not let it in"):
                await members.join("e", through="d")
            with pytest.raises(JoinError, match="the group does not let it in"):
                await members.join("f", through="d")
            await members.apps["b"].group.broadcast(b"on")
            await members.at_rest()

    run(main())
    assert "d: cannot give its state to a new member, which is refused" in caplog.text


# ---------------------------------------------------------------------- evictions


def test_a_member_that_crashed_is_evicted_and_the_others_become_stable(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abcd", trace=tmp_path) as members:
            async with members.load(*"abcd"):
                await asyncio.sleep(0.1)
                await members.kill("d")
                await asyncio.sleep(0.1)
            unstable = members.apps["a"].group.status().unstable
            assert unstable > 0
            members.apps["a"].group.evict("d")
            for app in members.apps.values():
                await app.until_evicted("d")
            await members.at_rest()
            late = await members.join("e", through="c")
            await late.group.broadcast(b"hello")
            await members.at_rest()

    run(main())
    logs = audited(tmp_path)
    assert all([row["peer"] for row in events(logs[name], "evict")] == ["d"] for name in "abc")


def test_one_that_is_evicted_and_alive_learns_it_and_is_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abc", trace=tmp_path) as members:
            wrong = members.apps.pop("c")
            async with members.load("a", "b"):
                await wrong.group.broadcast(b"last words")
                members.apps["a"].group.evict("c")
                await wrong.finished()
            assert wrong.group.evicted
            assert wrong.news[-1] == MembershipChanged(evicted=("c",))
            with pytest.raises(NotAMemberError, match="'c' is out"):
                await wrong.group.broadcast(b"too late")
            await wrong.group.close()
            await members.at_rest()
            with pytest.raises(JoinError, match="the name 'c' is or was another member's"):
                await members.join("c")
            await members.join("c2")

    run(main())
    logs = audited(tmp_path)
    assert (logs["c"][-1]["event"], logs["c"][-1]["peer"]) == ("evict", "c")


def test_one_that_was_away_when_it_was_evicted_learns_it_when_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.dynamic_host.LET_GO_S", 0.1)

    async def main() -> None:
        async with crowd("ab") as members:
            proxy = Proxy(members.apps["a"].group.address)
            gate = Proxy(f"127.0.0.1:{await port()}")
            away = await members.join(
                "c", join=await proxy.start(), listen=":".join(map(str, gate._target)), advertise=await gate.start()
            )
            await until(lambda: len(away.group.links()) == 2)
            for each in (proxy, gate):
                each.open.clear()
            members.apps["a"].group.evict("c")
            del members.apps["c"]
            for app in members.apps.values():
                await app.until_evicted("c")
            await until(
                lambda: not any(link.peer == "c" for app in members.apps.values() for link in app.group.links())
            )
            for each in (proxy, gate):
                each.cut()
                each.open.set()
            await away.finished()
            assert away.group.evicted
            await away.group.close()
            for each in (proxy, gate):
                await each.stop()

    run(main())


def test_a_failure_detector_evicts_who_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.endpoint.HEARTBEAT_S", 0.1)
    monkeypatch.setattr("causalcast.runtime.dynamics.EVICT_AFTER_LEAST_S", 0.2)

    async def main() -> None:
        async with crowd("abcd", evict_after=0.8) as members:
            await asyncio.sleep(1.2)
            assert members.apps["a"].group.members.names == tuple("abcd")
            await members.kill("b")
            for app in members.apps.values():
                await app.until_evicted("b")
            await members.apps["c"].group.broadcast(b"on")
            await members.at_rest()

    run(main())


def test_who_leaves_does_not_wait_for_ever_for_one_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.group.LINGER_S", 0.2)

    async def main() -> None:
        async with crowd("ab") as members:
            slow = await members.join("c")
            slow._task.cancel()  # its application takes nothing any more
            await members.apps["a"].group.broadcast(b"not taken by c")
            await until(lambda: slow.group.untaken == 1)
            await members.leave("b")
            await members.apps["a"].until(lambda _: members.apps["a"].news[-1].left == ("b",))
            members.apps.pop("c")
            await slow.group.close()
            await members.at_rest()

    run(main())


# ---------------------------------------------------------------------- k-stability


def test_a_message_is_replicated_at_as_many_members_as_have_taken_it() -> None:
    async def main() -> None:
        async with crowd("ab") as members:
            group = members.apps["a"].group
            silent = await members.join("c")
            silent._task.cancel()  # its application takes nothing any more
            tag = await group.broadcast(b"x")
            await group.replicated(tag, 1)
            await group.replicated(tag, 2)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(group.replicated(tag, 3), 0.3)
            assert members.apps["a"].stable == []
            with pytest.raises(ValueError, match="at 1 member or more"):
                await group.replicated(tag, 0)
            waiting = asyncio.create_task(group.replicated(tag, 4))
            silent._task = asyncio.create_task(silent._run())
            await group.replicated(tag, 3)
            await members.join("d")
            await waiting
            never = asyncio.create_task(members.apps["b"].group.replicated(tag, 9))
            await asyncio.sleep(0.01)
            await members.leave("b")
            with pytest.raises(GroupClosedError, match="before 9 members had"):
                await never
        async with causalcast.open("a", listen="127.0.0.1:0") as fixed:
            with pytest.raises(UnsupportedByStackError, match="wait for `Stable`"):
                await fixed.replicated(await fixed.broadcast(b"x"), 1)

    run(main())


# ---------------------------------------------------------------------- what cannot be


def test_what_cannot_be_evicted() -> None:
    async def main() -> None:
        async with crowd("ab") as members:
            group = members.apps["a"].group
            with pytest.raises(NotAMemberError, match="'x' is no member; a knows a, b"):
                group.evict("x")
            with pytest.raises(NotAMemberError, match="a cannot evict itself"):
                group.evict("a")
        async with causalcast.open("a", listen="127.0.0.1:0") as fixed:
            with pytest.raises(UnsupportedByStackError, match="'b' cannot be evicted"):
                fixed.evict("b")

    run(main())


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"peers": {"b": "127.0.0.1:1"}}, "come and go and are not listed"),
        ({"stack": "tcb", "evict_after": 9.0}, "evict_after is for `tcb-dynamic`: 'tcb' has no use for it"),
        ({"stack": "plumtree", "give_state": bytes}, "give_state is for `tcb-dynamic`"),
        ({"evict_after": 0.5}, "evict_after is 4 seconds at least"),
        ({"stack": "plumtree", "journal": "x.journal"}, "cannot recover"),
        ({"frame_limit": 1_000}, "need a frame limit"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises((UnsupportedByStackError, ValueError), match=complaint):
        causalcast.open("a", **{"listen": "127.0.0.1:0", "stack": "tcb-dynamic", **options})


def test_who_cannot_be_let_in(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 0.4)
    caplog.set_level(logging.ERROR)

    async def main() -> None:
        async with crowd("ab") as members:
            for changes, complaint in (
                ({"group": "other"}, "is in group 'default', x in 'other'|is in group 'other'"),
                ({"frame_limit": 100_000}, "the frame limit is"),
                ({"join": f"127.0.0.1:{await port()}"}, "Connection refused"),
            ):
                with pytest.raises(JoinError, match=complaint):
                    await members.join("x", **changes)
            with pytest.raises(JoinError, match="the name 'a' is another member's"):
                await members.join("a")
            with pytest.raises(JoinError, match="the name 'b' is or was another member's"):
                await members.join("b", through="a")
            await members.at_rest()

    run(main())


# ---------------------------------------------------------------------- all at once


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_to_members_the_audit_finds_nothing(tmp_path: Path, seed: int) -> None:
    async def main() -> None:
        async with crowd("abcde", trace=tmp_path) as members:
            speaking = asyncio.create_task(members.speak_at_random(random.Random(seed)))
            await churn(members, random.Random(seed), 30)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            await members.at_rest()

    run(main())
    audited(tmp_path)
