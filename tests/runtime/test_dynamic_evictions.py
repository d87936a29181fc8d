"""Members of `tcb-dynamic` on real sockets are evicted, rightly and wrongly; the audit agrees."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import causalcast
from causalcast import JoinError, MembershipChanged, NotAMemberError, UnsupportedByStackError
from tests.runtime.cluster import Proxy, run
from tests.runtime.crowd import audited, crowd, events, port
from tests.runtime.test_sessions import until

if TYPE_CHECKING:
    from pathlib import Path


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
