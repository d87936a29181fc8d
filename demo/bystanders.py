"""What the members of `demo.gossip` and `demo.pubsub` have in common: they are told by lines, and may be killed."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from causalcast.trace import JsonLinesWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from causalcast.trace import TraceEvent


class PromptTrace(JsonLinesWriter):
    """Every row is where it is kept before anything that follows from it leaves the process: it may be killed."""

    def write(self, event: TraceEvent) -> None:
        super().write(event)
        self.flush()


async def commands() -> AsyncIterator[list[str]]:
    """The words of each line of standard input, until it ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().split()
