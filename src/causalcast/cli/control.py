"""The control socket of a running node, both sides: a line is asked, a line of JSON is answered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from causalcast.cli.errors import CommandError
from causalcast.model import CausalcastError
from causalcast.protocols import stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from causalcast.runtime import Group

ANSWER_SECONDS: Final = 5.0
"""How long a question may take, and how long the node waits for one."""
QUESTION_BYTES: Final = 512
EVICTION_SECONDS: Final = 4.0
"""How long an answer about an eviction waits for the members to agree."""
LEAVE_SECONDS: Final = 10.0
"""How long `ask_to_leave` waits for the end of the node."""
POLL_SECONDS: Final = 0.02
EXIT_NO_NODE: Final = 2


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes back: one of the four."""

    status: dict[str, Any] | None = None
    evicted: bool | None = None
    """Whether the eviction that was asked for is decided already."""
    leaves: bool | None = None
    """The node leaves its group."""
    error: str | None = None


@contextlib.asynccontextmanager
async def answering(group: Group, path: Path, leave: asyncio.Event) -> AsyncIterator[None]:
    """Answer whoever asks at the Unix socket `path`, which only this user can reach; `leave` is set if somebody says
    so. Raises `CommandError`.
    """
    await asyncio.to_thread(_make_way, path)
    listener = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        listener.close()
        raise CommandError(f"cannot listen at {path}: {error.strerror or error}", 2) from error
    finally:
        os.umask(before)
    server = await asyncio.start_unix_server(_handler(group, leave), sock=listener, limit=QUESTION_BYTES)
    try:
        yield
    finally:
        server.close()
        with contextlib.suppress(OSError):
            path.unlink()


def _make_way(path: Path) -> None:
    """Remove what a node that was killed has left; leave alone what is in use or is something else."""
    try:
        kind = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise CommandError(f"{path} is there already and is no control socket; choose another path", 2)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_SECONDS)
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise CommandError(f"another node answers at {path}", 2)


def _handler(group: Group, leave: asyncio.Event) -> Any:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                question = await reader.readline()
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await _answer(group, leave, question.strip().decode(errors="replace"))
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(ANSWER_SECONDS):
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # who asks nothing, too much, or does not read the answer gets none
        finally:
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            else:
                writer.close()

    return handle


async def _answer(group: Group, leave: asyncio.Event, question: str) -> Answer:
    word, _, name = question.partition(" ")
    if question == "status":
        return Answer(status=msgspec.to_builtins(group.status()))
    if word == "evict" and name:
        try:
            group.evict(name)
        except CausalcastError as error:
            return Answer(error=str(error))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVICTION_SECONDS):
                while name in group.members:
                    await asyncio.sleep(POLL_SECONDS)
        return Answer(evicted=name not in group.members)
    if question == "leave":
        kind = group.status().stack
        if not stack(kind).dynamic:
            return Answer(error=f"the members of {kind!r} are fixed: {group.name} cannot leave")
        leave.set()
        return Answer(leaves=True)
    return Answer(error=f"{question[:80]!r} is no question; ask for status, to evict NAME, or to leave")


def ask_status(path: Path) -> dict[str, Any]:
    """The status of the node whose control socket is `path`. Raises `CommandError`."""
    return _ask(path, "status").status or {}


def ask_to_evict(path: Path, name: str) -> bool:
    """Have the node whose control socket is `path` evict `name`; whether the members have agreed already.

    Raises `CommandError`.
    """
    return bool(_ask(path, f"evict {name}").evicted)


def ask_to_leave(path: Path) -> bool:
    """Have the node whose control socket is `path` leave its group and end; whether it has within `LEAVE_SECONDS`.

    Raises `CommandError`.
    """
    _ask(path, "leave")
    deadline = time.monotonic() + LEAVE_SECONDS
    while path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _ask(path: Path, question: str) -> Answer:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(str(path))
            connection.sendall(question.encode() + b"\n")
            answer = b""
            while chunk := connection.recv(1 << 16):
                answer += chunk
        found = msgspec.json.decode(answer, type=Answer)
    except TimeoutError as error:
        raise CommandError(f"the node at {path} does not answer; is it stopped?", EXIT_NO_NODE) from error
    except OSError as error:
        raise CommandError(f"no node answers at {path}: {error.strerror or error}", EXIT_NO_NODE) from error
    except msgspec.DecodeError as error:
        raise CommandError(f"what answers at {path} is no node of causalcast", EXIT_NO_NODE) from error
    if found.error is not None:
        raise CommandError(f"the node at {path}: {found.error}", EXIT_NO_NODE)
    return found
