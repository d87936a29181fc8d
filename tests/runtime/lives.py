"""A member in a process of its own, to be killed: `python -m tests.runtime.lives` with a `Life` as JSON.

Its application broadcasts texts that are never the same twice, takes what comes, and writes both down at once.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import uuid
from pathlib import Path

import msgspec

import causalcast
from causalcast import Delivered
from causalcast.runtime import journal


class Life(msgspec.Struct, frozen=True):
    """What one process is told."""

    name: str
    listen: str
    peers: dict[str, str]
    folder: str
    messages: int
    stack: str = "tcb"
    join: tuple[str, ...] = ()
    durability: journal.Durability = "interval"
    inputs: int = 40
    """After how many a snapshot is due."""


async def main(life: Life) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    folder = Path(life.folder)
    notes = os.open(folder / f"{life.name}.notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    group = causalcast.open(
        life.name,
        listen=life.listen,
        peers=life.peers if life.stack == "tcb" else {},
        join=life.join,
        stack=life.stack,
        trace=folder / "trace",
        journal=folder / f"{life.name}.journal",
        durability=life.durability,
    )
    async with group:

        async def take() -> None:
            async for event in group:
                if isinstance(event, Delivered):
                    tag = event.message.tag
                    os.write(notes, f"D {tag.origin} {tag.counter} {event.message.payload.decode()}\n".encode())

        async def speak() -> None:
            counter = 0
            topics = ("", "", "news") if life.stack == "tcb" else ("",)
            while len(group.members) <= len(life.peers):
                await asyncio.sleep(0.01)
            while counter < life.messages:
                text = uuid.uuid4().hex
                tag = await group.broadcast(text.encode(), random.choice(topics))
                if tag.roster.topic == "":
                    counter = tag.counter
                os.write(notes, f"B {tag.roster.topic or '-'} {tag.counter} {text}\n".encode())
                await asyncio.sleep(random.expovariate(200))

        print("open", flush=True)
        tasks = [asyncio.create_task(take()), asyncio.create_task(speak())]
        await stop.wait()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=Life)
    vars(journal)["JOURNAL_INPUTS"] = given.inputs  # small, so that there are many snapshots
    asyncio.run(main(given))
