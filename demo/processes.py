"""Processes of a demonstration: started with their orders, read line by line, and gone when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT: Final = Path(__file__).resolve().parent.parent
LEAVE_SECONDS: Final = 20.0
LONGEST_LINE: Final = 1 << 20


class DemoError(Exception):
    """The run could not be made or did not end."""


def free_ports(number: int) -> list[int]:
    """So many ports of the loopback interface that nobody listens on now."""
    with contextlib.ExitStack() as sockets:
        found = [sockets.enter_context(socket.socket()) for _ in range(number)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


@contextlib.asynccontextmanager
async def started(
    folder: Path, module: str, orders: msgspec.Struct, name: str | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of the demonstration; nothing of it is left when the block ends."""
    with (folder / f"{name or module}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"demo.{module}",
            msgspec.json.encode(orders).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=ROOT,
            limit=LONGEST_LINE,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            # Not SIGTERM: a paused process would not see it.
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process, name: str, folder: Path) -> bytes:
    """The next line that it prints; raises `DemoError` with its last words if it has ended instead."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        await process.wait()
        said = (folder / f"{name}.log").read_text().strip().splitlines()
        raise DemoError(f"{name} ended with {process.returncode}: {said[-1] if said else 'no word'}")
    return line


async def end(process: asyncio.subprocess.Process, name: str, folder: Path) -> None:
    """End its input, at which it leaves; raises `DemoError` if it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), LEAVE_SECONDS)
    except TimeoutError:
        raise DemoError(f"{name} did not leave within {LEAVE_SECONDS:.0f} s") from None
    if process.returncode:
        await line_of(process, name, folder)
