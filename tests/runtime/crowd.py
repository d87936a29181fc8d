"""Members of `tcb-dynamic` on loopback that come and go, all in this process."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import causalcast
from causalcast import GroupClosedError, JoinError, MembershipChanged, NotAMemberError
from causalcast.runtime.dynamic_host import DynamicHost
from causalcast.runtime.frames import LinkError
from tests.audit.local import judge
from tests.runtime.cluster import Application
from tests.runtime.test_sessions import until

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Iterable, Sequence
    from pathlib import Path

    from causalcast import Event, Group


class Listener(Application):
    """Remembers who came and went, too."""

    def __init__(self, group: Group) -> None:
        self.news: list[MembershipChanged] = []
        super().__init__(group)

    def _note(self, event: Event) -> None:
        if isinstance(event, MembershipChanged):
            self.news.append(event)
        super()._note(event)

    async def until_evicted(self, name: str) -> None:
        await self.until(lambda _: any(name in each.evicted for each in self.news))


class Crowd:
    """Members of one group, all in this process, that come and go."""

    def __init__(self, stack: AsyncExitStack, options: dict[str, Any], journals: Path | None) -> None:
        self._stack = stack
        self._options = options
        self._journals = journals
        self.apps: dict[str, Listener] = {}
        self.killed: list[Listener] = []

    async def join(self, name: str, through: str | None = None, **options: Any) -> Listener:
        contact = through or next(iter(self.apps), None)
        join = () if contact is None else self.apps[contact].group.address
        app = Listener(await self._stack.enter_async_context(self.member(name, **{"join": join, **options})))
        self.apps[name] = app
        return app

    def member(self, name: str, **options: Any) -> Group:
        """One that is not open yet."""
        journal = None if self._journals is None else self._journals / f"{name}.journal"
        options = {"listen": "127.0.0.1:0", "stack": "tcb-dynamic", "journal": journal, **self._options, **options}
        return causalcast.open(name, **options)

    async def leave(self, name: str) -> None:
        app = self.apps.pop(name)
        await app.group.leave()
        await app.finished()

    async def restart(self, name: str, **options: Any) -> Listener:
        """The same member again, which comes back with its journal."""
        await self.kill(name)
        return await self.join(name, **options)

    async def kill(self, name: str) -> None:
        """As `kill -9` looks to the others: the sockets are gone, and nobody says a word."""
        app = self.apps.pop(name)
        self.killed.append(app)
        self.drop(app.group)
        await asyncio.sleep(0)

    def drop(self, group: Group) -> None:
        """End a member as `kill -9` does."""
        host = host_of(group)
        host.retire()
        mesh = host.mesh
        for task in mesh._dialling:
            task.cancel()
        assert mesh._server is not None
        mesh._server.close()
        for connection in [*mesh._connections.values(), *mesh._strangers]:
            connection.drop(LinkError("killed"))
        if host._journal is not None:
            forget(group)

    async def at_rest(self) -> None:
        """All that was sent is stable, nobody keeps anything, and all agree on who is there.

        Whoever is gone and is not evicted is evicted now: who was told to do that may have gone itself.
        """
        names = tuple(sorted(self.apps))
        groups = [app.group for app in self.apps.values()]

        def agreed() -> bool:
            for group in groups:
                for gone in set(group.members).difference(names):
                    group.evict(gone)
            return all(group.status().members == names for group in groups)

        await until(agreed, 15)
        await until(lambda: not any(group.status().unstable + group.untaken for group in groups), 15)
        await until(lambda: not any(sum(group.status().tables.values()) for group in groups), 15)

    async def speak_at_random(self, draw: random.Random) -> None:
        """Anybody who is a member broadcasts now and then."""
        while True:
            with suppress(GroupClosedError, NotAMemberError):
                await draw.choice(list(self.apps.values())).group.broadcast(b"x")
            await asyncio.sleep(0.003)

    @asynccontextmanager
    async def load(self, *names: str) -> AsyncIterator[None]:
        """These broadcast all the while, as long as they are members."""

        async def speak(group: Group) -> None:
            with suppress(GroupClosedError, NotAMemberError):
                number = 0
                while True:
                    number += 1
                    await group.broadcast(b"%d" % number)
                    await asyncio.sleep(0.005)

        tasks = [asyncio.create_task(speak(self.apps[name].group)) for name in names]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def crowd(names: Iterable[str], journals: Path | None = None, **options: Any) -> AsyncIterator[Crowd]:
    """The first is the contact of the others. Those that are left at the end leave. `journals`: all have one, there."""
    async with AsyncExitStack() as stack:
        made = Crowd(stack, options, journals)
        for name in names:
            await made.join(name)
        yield made
        await asyncio.gather(*map(made.leave, list(made.apps)))
    await asyncio.gather(*(app.finished() for app in made.killed))


def host_of(group: Group) -> DynamicHost:
    host = group._running
    assert isinstance(host, DynamicHost)
    return host


def forget(group: Group) -> None:
    """What a process that is killed forgets: what is not in its journal, nor in its trace."""
    host = host_of(group)
    assert host._journal is not None
    host._journal._batch.clear()
    host._journal.close()
    for _, handle in host._loose.values():
        handle.cancel()
    if group._flushing is not None:
        group._flushing.cancel()
    group._closing = True
    group._end()
    host.arrived.set()


def audited(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each process; the audit finds nothing in them."""
    logs = {path.stem: [json.loads(line) for line in path.open()] for path in folder.glob("*.jsonl")}
    findings = [case.finding() for case in judge([row for rows in logs.values() for row in rows])]
    assert findings == []
    return logs


def events(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["event"] == kind]


async def port() -> int:
    """One that nobody listens on."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    number: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return number


KINDS = ("join", "join", "leave", "kill", "expel", "reset", "reset")


async def churn(members: Crowd, draw: random.Random, steps: int, kinds: Sequence[str] = KINDS) -> None:
    """Whatever can happen to members, several things at a time."""
    numbers = itertools.count()
    under_way: set[asyncio.Task[object]] = set()

    async def joins(name: str, through: str) -> None:
        with suppress(JoinError):  # its contact is killed, evicted or leaves just then
            await members.join(name, through=through)

    async def killed(name: str) -> None:
        await members.kill(name)
        await asyncio.sleep(draw.uniform(0, 0.1))
        for app in list(members.apps.values()):
            with suppress(NotAMemberError, GroupClosedError):  # who has heard of it need not be told
                app.group.evict(name)
                return

    async def expelled(name: str) -> None:
        app = members.apps.pop(name)
        members.killed.append(app)
        next(iter(members.apps.values())).group.evict(name)
        await app.finished()
        assert app.group.evicted
        await app.group.close()

    def reset() -> None:
        mesh = host_of(draw.choice(list(members.apps.values())).group).mesh
        for connection in draw.sample(list(mesh._connections.values()), min(2, len(mesh._connections))):
            connection.drop(LinkError("reset"))

    for _ in range(steps):
        names = list(members.apps)
        kind = draw.choice(kinds)
        if kind == "join" and len(names) < 8:
            under_way.add(asyncio.create_task(joins(f"n{next(numbers)}", draw.choice(names))))
        elif kind == "reset":
            reset()
        elif kind == "restart":
            await members.restart(draw.choice(names))
        elif len(names) > 3:
            end = {"leave": members.leave, "kill": killed}.get(kind, expelled)
            under_way.add(asyncio.create_task(end(draw.choice(names))))
        await asyncio.sleep(draw.uniform(0, 0.1))
    await asyncio.gather(*under_way)
