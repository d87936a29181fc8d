"""Members of `tcb-dynamic` on real sockets join, under load and with a state, and leave; the audit agrees."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import causalcast
from causalcast import JoinError, Tls
from causalcast.protocols.ordering.tcb_dynamic_base import DottedOrdering
from tests.runtime.cluster import Proxy, run
from tests.runtime.crowd import audited, crowd, events, port
from tests.runtime.test_sessions import until
from tests.runtime.test_tls import Files

if TYPE_CHECKING:
    from pathlib import Path

    from causalcast import Group
    from causalcast.protocols.ordering.tcb_dynamic_messages import Transfer


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


def test_a_joiner_says_at_once_what_is_wrong_with_the_state_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = DottedOrdering.transfer

    def wrong(self: DottedOrdering, *arguments: Any) -> Transfer:
        state = transfer(self, *arguments)
        return msgspec.structs.replace(state, stable=tuple(count + 1_000 for count in state.taken))

    async def main() -> None:
        async with causalcast.open("ann", listen="127.0.0.1:0", stack="tcb-dynamic") as ann:
            monkeypatch.setattr(DottedOrdering, "transfer", wrong)
            member = causalcast.open("bob", listen="127.0.0.1:0", stack="tcb-dynamic", join=ann.address)
            with pytest.raises(JoinError, match="ann sent what no correct member sends: counts cannot be"):
                async with member:
                    pass
            monkeypatch.undo()
            # The others have it as one that joined and died; it harms nothing else.
            ann.evict("bob")
            async with causalcast.open("cat", listen="127.0.0.1:0", stack="tcb-dynamic", join=ann.address) as cat:
                assert cat.members.names == ("ann", "cat")

    run(main())
