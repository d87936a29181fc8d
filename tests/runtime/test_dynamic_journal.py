"""Members of `tcb-dynamic` that come back with their journals: nothing is lost, repeated or numbered twice."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import causalcast
from causalcast import JoinError, JournalError, MembershipChanged, NotAMemberError, UnsupportedByStackError
from causalcast.runtime.journal import Journal
from causalcast.runtime.journaled_host import JournaledHost
from tests.runtime.cluster import run
from tests.runtime.crowd import Crowd, Listener, audited, churn, crowd, events, host_of, port
from tests.runtime.test_sessions import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def check_replay(app: Listener, folder: Path) -> None:
    """Who takes up from a copy of the journal as it is now is where the member is now."""
    host, group = host_of(app.group), app.group
    journal = host._journal
    assert journal is not None
    assert journal.commit()
    copy = folder / "copy" / f"{group.name}.journal"
    copy.parent.mkdir(exist_ok=True)
    for end in ("", "-wal", "-tail"):
        shutil.copy(f"{journal.path}{end}", f"{copy}{end}")
    again = Journal(copy, group._owner, "interval")
    twin = JournaledHost(group._identity(again), group._stack, group._listen, (), None, group._dynamics, again)
    try:
        twin.recover()
        assert twin._process.snapshot() == host._process.snapshot()
        assert twin.queue == host.queue
        assert twin._dynamic.gone == host._dynamic.gone
        assert twin._loose.keys() == host._loose.keys()
        assert set(twin._dynamic.book.all()) == set(host._dynamic.book.all())
        for name, link in host._dynamic.links.items():
            if link.used:
                other = twin._dynamic.links[name]
                assert (other.next_number, other._expected, other.pieces, other.incarnation, other.where) == (
                    link.next_number,
                    link._expected,
                    link.pieces,
                    link.incarnation,
                    link.where,
                )
    finally:
        twin._cancel_timers()
        for _, handle in twin._loose.values():
            handle.cancel()
        again.close()
        shutil.rmtree(copy.parent)


def test_one_that_was_killed_comes_back_as_who_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abc", journals=tmp_path, trace=tmp_path / "trace") as members:
            incarnation = host_of(members.apps["c"].group)._dynamic._me.incarnation
            async with members.load("a", "b", "c"):
                await asyncio.sleep(0.1)
            before = members.apps["c"]
            async with members.load("a", "b"):
                await members.kill("c")
                await asyncio.sleep(0.1)
                after = await members.join("c")
                assert host_of(after.group)._dynamic._me.incarnation == incarnation
                async with members.load("c"):
                    await asyncio.sleep(0.1)
            await members.at_rest()
            taken = Counter(event.message.tag.dot for event in (*before.delivered, *after.delivered))
            assert max(taken.values()) == 1
            assert not any(news.joined for news in after.news)

    run(main())
    logs = audited(tmp_path / "trace")
    assert len(events(logs["c"], "join")) == len(events(logs["c"], "recover")) == 1


@pytest.mark.parametrize("seed", [0, 2])
def test_the_journal_says_where_a_member_is_whatever_happens_to_others(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("causalcast.runtime.journal.JOURNAL_INPUTS", 60)  # so that there are snapshots
    monkeypatch.setattr("causalcast.runtime.dynamic_host.LET_GO_S", 0.2)
    draw = random.Random(seed)

    async def check(members: Crowd) -> None:
        while True:
            await asyncio.sleep(0.05)
            check_replay(draw.choice(list(members.apps.values())), tmp_path)

    async def main() -> None:
        options = {"trace": tmp_path / "trace", "give_state": lambda: bytes(100_000), "take_state": lambda _: None}
        async with crowd("abcde", journals=tmp_path, frame_limit=65_536, **options) as members:
            tasks = [asyncio.create_task(members.speak_at_random(draw)), asyncio.create_task(check(members))]
            await churn(members, random.Random(seed), 30, ("join", "leave", "kill", "expel", "reset", "restart"))
            for task in tasks:
                assert not task.done(), task.exception()
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await members.at_rest()
            for app in members.apps.values():
                check_replay(app, tmp_path)

    run(main())
    audited(tmp_path / "trace")


def test_a_snapshot_that_is_due_when_it_comes_back_knows_how_far_the_trace_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with crowd("ab", journals=tmp_path, trace=tmp_path / "trace") as members:
            for _ in range(10):
                await members.apps["a"].group.broadcast(bytes(1_000))
            await members.at_rest()
            monkeypatch.setattr("causalcast.runtime.journal.JOURNAL_INPUTS", 1)
            for _ in range(2):
                await members.restart("b")
                await asyncio.sleep(0.05)

    run(main())
    rows = audited(tmp_path / "trace")["b"]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len(events(rows, "deliver")) == 10
    assert len(events(rows, "recover")) == 2


def test_what_it_took_before_an_error_of_its_own_is_in_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with crowd("ab", journals=tmp_path) as members:
            a, b = (members.apps[name] for name in "ab")
            host = host_of(b.group)
            decode, come = host._decode, 0

            def failing(body: bytes) -> Any:
                nonlocal come
                come += 1
                if come == 3:
                    raise RuntimeError("no memory, say")
                return decode(body)

            monkeypatch.setattr(host, "_decode", failing)
            for number in range(5):
                await a.group.broadcast(b"%d" % number)
            await until(lambda: come > 3)
            check_replay(b, tmp_path)
            await members.at_rest()
            check_replay(b, tmp_path)
            assert [event.message.payload for event in b.delivered] == [b"%d" % number for number in range(5)]

    errors: list[Any] = []
    run(main())
    assert len(errors) == 1


def test_one_that_closed_is_expected_back_and_gets_what_it_missed(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("ab", journals=tmp_path) as members:
            away = members.apps.pop("b")
            await away.group.close()
            group = members.apps["a"].group
            await group.broadcast(b"while b is away")
            await asyncio.sleep(0.1)
            assert group.members.names == ("a", "b")
            assert group.status().unstable == 1
            back = await members.join("b")
            await back.until_delivered(1)
            await members.at_rest()

    run(main())


def test_the_first_of_a_group_comes_back_too_and_lets_others_in(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("a", journals=tmp_path) as members:
            await members.restart("a")
            await members.join("b")
            await members.restart("a", join="127.0.0.1:1")  # which it has no use for
            await members.join("c", through="a")
            await members.apps["b"].group.broadcast(b"hello")
            await members.at_rest()

    run(main())


def test_all_of_a_group_can_be_down_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        ports = {name: await port() for name in "abc"}

        def at(name: str) -> dict[str, str]:
            return {"listen": f"127.0.0.1:{ports[name]}"}

        async with crowd("", journals=tmp_path, trace=tmp_path / "trace") as members:
            for name in "abc":
                await members.join(name, **at(name))
            async with members.load(*"abc"):
                await asyncio.sleep(0.1)
                for name in "abc":
                    await members.kill(name)
            for name in "cab":
                await members.join(name, **at(name))
            await members.apps["b"].group.broadcast(b"all are back")
            await members.at_rest()

    run(main())
    audited(tmp_path / "trace")


def test_one_that_was_evicted_while_it_was_down_learns_it_and_its_journal_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abc", journals=tmp_path, trace=tmp_path / "trace") as members:
            await members.apps["c"].group.broadcast(b"last words")
            await members.kill("c")
            members.apps["a"].group.evict("c")
            for app in members.apps.values():
                await app.until_evicted("c")
            late = await members.join("c")
            await late.finished()
            assert late.group.evicted
            assert late.news[-1] == MembershipChanged(evicted=("c",))
            del members.apps["c"]
            await late.group.close()
            with pytest.raises(JournalError, match="of no use any more: c was evicted from its group, and a name"):
                await members.join("c")
            with pytest.raises(JoinError, match="the name 'c' is or was another member's"):
                await members.join("c", journal=tmp_path / "another.journal")
            await members.join("d")
            await members.at_rest()

    run(main())
    logs = audited(tmp_path / "trace")
    assert (logs["c"][-1]["event"], logs["c"][-1]["peer"]) == ("evict", "c")


def test_one_that_has_left_for_good_cannot_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("ab", journals=tmp_path) as members:
            await members.leave("b")
            await members.apps["a"].until(lambda _: members.apps["a"].news[-1].left == ("b",))
            before = (tmp_path / "b.journal").read_bytes()
            for _ in range(2):
                with pytest.raises(JournalError, match="of no use any more: b has left its group"):
                    await members.join("b")
            assert len((tmp_path / "b.journal").read_bytes()) == len(before)

    run(main())


def test_one_that_was_killed_while_it_left_goes_on_leaving(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("abc", journals=tmp_path, trace=tmp_path / "trace") as members:
            leaver = members.apps["c"]
            host = host_of(leaver.group)
            host._leave()
            host.mesh._flush()
            await members.kill("c")
            again = await members.join("c")
            with pytest.raises(NotAMemberError, match="is leaving"):
                await again.group.broadcast(b"too late")
            await again.finished()
            assert not again.group.evicted
            assert again.news[-1] == MembershipChanged(left=("c",))
            del members.apps["c"]
            await again.group.close()
            await members.at_rest()

    run(main())
    assert audited(tmp_path / "trace")["c"][-1]["event"] == "leave"


def test_fixed_members_cannot_leave() -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0") as group:
            with pytest.raises(UnsupportedByStackError, match="the members of 'tcb' are fixed: a can only close"):
                await group.leave()

    run(main())


class Stubborn:
    """A state that the application has taken over so often."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def take(self, state: bytes) -> None:
        self.taken.append(state)


async def begin_to_join(members: Crowd, name: str, until: Callable[[JournaledHost], bool], **options: Any) -> None:
    """Have `name` begin to join, and kill it when `until` says so."""
    opened = members.member(name, **options)
    entering = asyncio.create_task(opened.__aenter__())
    async with asyncio.timeout(10):
        while opened._host is None or not until(opened._host):  # type: ignore[arg-type] # so is it made
            await asyncio.sleep(0)
    assert not entering.done()
    members.drop(opened)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)


@pytest.mark.parametrize("when", ["joining", "installed"])
def test_one_that_was_killed_while_it_joined_goes_on_joining(tmp_path: Path, when: str) -> None:
    states = Stubborn()
    gives = {"give_state": lambda: b"x" * 300_000, "take_state": states.take}

    async def main() -> None:
        here = f"127.0.0.1:{await port()}"
        async with crowd("", journals=tmp_path, trace=tmp_path / "trace", frame_limit=65_536, **gives) as members:
            await members.join("a", listen=here)
            await members.join("b")
            await members.kill("a")  # which could welcome it
            through = members.apps["b"].group.address
            states.taken.clear()
            await begin_to_join(
                members,
                "c",
                lambda host: host._membership.state == when and not host._journal._batch,  # type: ignore[union-attr]
                join=through,
            )
            await members.join("a", listen=here)
            late = await members.join("c")
            assert late.group.members.names == ("a", "b", "c")
            assert states.taken[-1] == b"x" * 300_000
            count = len(states.taken)
            await members.restart("c")
            assert len(states.taken) == count
            await members.apps["a"].group.broadcast(b"hello")
            await members.at_rest()

    run(main())
    logs = audited(tmp_path / "trace")
    assert [row["event"] for row in logs["c"]][:2] == ["join", "recover"]


def test_one_that_was_met_before_a_snapshot_and_forgotten_is_met_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("a", journals=tmp_path) as members:
            here = f"127.0.0.1:{await port()}"
            a = members.apps["a"].group
            await begin_to_join(
                members, "b", lambda host: host._membership.state == "joining", join=a.address, listen=here
            )
            await until(lambda: not a.links())
            host_of(a)._checkpoint()
            await members.join("b", listen=here)
            await members.at_rest()
            check_replay(members.apps["a"], tmp_path)
            await members.restart("a")

    run(main())


def test_one_that_let_another_in_when_its_application_was_done_comes_back_and_waits_for_events(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowd("ab", journals=tmp_path) as members:
            app = members.apps["a"]
            await app.until(lambda _: bool(app.news))
            app._task.cancel()
            await asyncio.wait([app._task])
            await members.apps["b"].group.broadcast(b"x")
            await until(lambda: app.group.untaken == 2)
            await anext(app.group)  # with which it is busy now
            joining = asyncio.create_task(members.join("c", through="a"))
            await until(lambda: bool(host_of(app.group)._membership.joins.requests))
            app._task = asyncio.create_task(app._run())
            await joining
            await app.until(lambda _: app.news[-1].joined == ("c",))
            again = await members.restart("a")
            assert not again.group.untaken
            await members.at_rest()

    run(main())


def test_a_join_that_failed_has_used_up_its_name_unless_nobody_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: bytes) -> None:
        raise ValueError("no such thing")

    async def main() -> None:
        async with crowd("ab", journals=tmp_path, give_state=lambda: b"x", take_state=lambda _: None) as members:
            monkeypatch.setattr("causalcast.runtime.joining.JOIN_S", 0.3)
            with pytest.raises(JoinError, match="Connection refused"):
                await members.join("c", join=f"127.0.0.1:{await port()}")
            await members.join("c")
            with pytest.raises(JoinError, match="it cannot take the state that it was given"):
                await members.join("d", take_state=fails)
            await members.apps["a"].until_evicted("d")
            with pytest.raises(JournalError, match="d has given up joining its group"):
                await members.join("d")

    run(main())
