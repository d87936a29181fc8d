"""Links between members that come and go: who dials, what survives, and what one who is gone is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from causalcast.runtime.address import Address
from causalcast.runtime.dynamic_mesh import DynamicMesh
from causalcast.runtime.frames import EVICTED, LEAVING, LinkError, data_frame
from causalcast.runtime.link import Identity
from tests.runtime.cluster import run
from tests.runtime.test_sessions import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from causalcast.runtime.dynamic_mesh import MemberLink
    from causalcast.runtime.link import Link


class Node:
    """Remembers what comes, and wants nobody."""

    def __init__(self, name: str, incarnation: int = 0) -> None:
        me = Identity("g", name, "", "tcb-dynamic", 65_536, incarnation or ord(name))
        self.mesh = DynamicMesh(self, me, Address("127.0.0.1", 0), None, None)
        self.got: list[bytes] = []
        self.gone: list[str] = []
        self.out: list[str] = []

    def received(self, link: Link, bodies: Sequence[bytes]) -> None:
        self.got += bodies

    def links_changed(self) -> None: ...

    def met(self, link: Link) -> None: ...

    def departed(self, link: Link) -> None:
        self.gone.append(link.peer)

    def expelled(self, link: MemberLink) -> None:
        self.out.append(link.peer)

    def may_write(self) -> bool:
        return True

    def may_read(self, link: Link) -> bool:
        return True

    def is_wanted(self, name: str) -> bool:
        return False

    def send(self, name: str, body: bytes) -> None:
        link = self.mesh.link_to(name)
        assert link is not None
        link.push(data_frame(link.next_number, body))
        self.mesh.flush_soon()

    def knows(self, other: Node) -> None:
        self.mesh.learn(other.mesh._name, f"{other.mesh._me.incarnation:x}@{other.mesh.address}")

    def break_all(self) -> None:
        for connection in list(self.mesh._connections.values()):
            connection.drop(LinkError("reset"))


@asynccontextmanager
async def nodes(names: str) -> AsyncIterator[list[Node]]:
    made = [Node(name) for name in names]
    for node in made:
        await node.mesh.start()
    yield made
    for node in made:
        await node.mesh.close()


def test_both_begin_at_once_and_nothing_is_lost_or_repeated() -> None:
    async def main() -> None:
        for turn in range(20):
            async with nodes("ab") as (a, b):
                a.knows(b)
                b.knows(a)
                for number in range(5):
                    a.send("b", b"%d" % number)
                    b.send("a", b"%d" % number)
                    await asyncio.sleep(0.0005 * turn)
                await until(lambda: len(a.got) == len(b.got) == 5)
                assert a.got == b.got == [b"%d" % number for number in range(5)]
                assert [node.mesh.links[peer].dialling is not None for node, peer in ((a, "b"), (b, "a"))].count(
                    True
                ) == 1

    run(main())


def test_a_link_of_one_who_is_not_known_yet_goes_on_where_it_was() -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            a.knows(b)
            a.send("b", b"first")
            await until(lambda: b.got == [b"first"] and not a.mesh.links["b"].unacknowledged)
            b.break_all()
            a.send("b", b"second")
            await until(lambda: b.got == [b"first", b"second"])

    run(main())


@pytest.mark.parametrize("connected", [True, False])
def test_who_is_let_go_of_is_told_why_now_or_when_it_comes_back(connected: bool) -> None:
    async def main() -> None:
        async with nodes("abc") as (a, b, c):
            for each in (b, c):
                each.knows(a)
                each.send("a", b"hello")
            await until(lambda: len(a.got) == 2)
            if not connected:
                a.break_all()
            a.mesh.let_go("b", EVICTED)
            a.mesh.let_go("c", LEAVING)
            await until(lambda: b.out == ["a"] and c.gone == ["a"])
            assert a.mesh.links == {}

    run(main())


def test_a_name_is_one_life_and_what_makes_no_sense_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with nodes("ab") as (a, b):
            b.knows(a)
            b.send("a", b"hello")
            await until(lambda: a.got == [b"hello"])
            other = Node("b", 99)
            with pytest.raises(LinkError, match="the name 'b' is or was another member's"):
                await other.mesh.introduce(a.mesh.address)
            for address in ("", "x", "zz@127.0.0.1:1", "1@127.0.0.1:0", "1@:7", "62@127.0.0.1:70000"):
                a.mesh.learn("d", address)
            assert a.mesh.link_to("d") is None
            a.mesh.learn("b", "63@127.0.0.1:1")
            assert a.mesh.where("b") == b.mesh.where("b") or a.mesh.where("b").startswith("62@")

    run(main())
    assert "a: nobody has told where d is" in caplog.text
    assert "a: cannot use what was told of b: the name 'b' is or was another member's" in caplog.text
