"""Members on loopback, the applications that use them, and a proxy that disturbs a link."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import causalcast
from causalcast import Delivered, Stable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from causalcast import Event, Group, Tag

DIALS_US = "127.0.0.1:1"
"""Stands for the address of a peer whose name is smaller: it is not used."""


def run(main: Coroutine[Any, Any, None], seconds: float = 30) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await main
        left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    asyncio.run(bounded())


@asynccontextmanager
async def members(
    names: str, through: Callable[[str, str, str], Coroutine[Any, Any, str]] | None = None, **options: Any
) -> AsyncIterator[list[Group]]:
    """One group a letter, in order of name; `through(dialler, dialled, address)` may give another address to dial."""
    opened: dict[str, Group] = {}
    async with AsyncExitStack() as stack:
        for name in sorted(names, reverse=True):
            peers = {}
            for peer in names:
                if peer > name:
                    address = opened[peer].address
                    peers[peer] = await through(name, peer, address) if through else address
                elif peer < name:
                    peers[peer] = DIALS_US
            group = causalcast.open(name, listen="127.0.0.1:0", peers=peers, **options)
            opened[name] = await stack.enter_async_context(group)
        yield [opened[name] for name in sorted(names)]


class Application:
    """Takes every event as it comes, and remembers it."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.delivered: list[Delivered] = []
        self.stable: list[Tag] = []
        self._news = asyncio.Condition()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for event in self.group:
            async with self._news:
                self._note(event)
                self._news.notify_all()

    def _note(self, event: Event) -> None:
        match event:
            case Delivered():
                self.delivered.append(event)
            case Stable(tag):
                self.stable.append(tag)

    async def until(self, condition: Callable[[Application], bool]) -> None:
        async with self._news:
            await self._news.wait_for(lambda: condition(self))

    async def until_delivered(self, count: int) -> None:
        await self.until(lambda app: len(app.delivered) >= count)

    async def until_stable(self, count: int) -> None:
        await self.until(lambda app: len(app.stable) >= count)

    def payloads(self, origin: str | None = None) -> list[bytes]:
        return [
            event.message.payload for event in self.delivered if origin is None or event.message.tag.origin == origin
        ]

    async def finished(self) -> None:
        await self._task


@asynccontextmanager
async def applications(groups: list[Group]) -> AsyncIterator[list[Application]]:
    """An application for each group, for as long as the groups live; closes the groups."""
    apps = [Application(group) for group in groups]
    yield apps
    await asyncio.gather(*(group.close() for group in groups))
    for app in apps:
        await app.finished()


class Proxy:
    """Between a dialling member and a listening one; can cut connections, and stop carrying."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._pipes: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.connections = 0
        self.cuts_after: int | None = None
        """Cut each connection after so many bytes from the dialler."""

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, sink, counts in ((reader, far_writer, True), (far_reader, writer, False)):
            task = asyncio.create_task(self._pipe(source, sink, counts))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, counts: bool) -> None:
        left = self.cuts_after if counts and self.cuts_after is not None else 1 << 60
        try:
            while data := await source.read(65536):
                await self.open.wait()
                sink.write(data[:left])
                await sink.drain()
                left -= len(data)
                if left <= 0:
                    self.cut()
        except OSError:
            pass
        finally:
            sink.close()

    def cut(self) -> None:
        """Reset every connection now."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)


@asynccontextmanager
async def proxies() -> AsyncIterator[tuple[dict[tuple[str, str], Proxy], Callable[[str, str, str], Any]]]:
    """Proxies by (dialler, dialled), and the `through` for `members`."""
    made: dict[tuple[str, str], Proxy] = {}

    async def through(dialler: str, dialled: str, address: str) -> str:
        proxy = made[dialler, dialled] = Proxy(address)
        return await proxy.start()

    try:
        yield made, through
    finally:
        for proxy in made.values():
            await proxy.stop()
