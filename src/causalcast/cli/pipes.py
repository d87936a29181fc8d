"""Standard input and output as lines, each on a thread of its own.

Files, pipes and terminals block in different ways, and a reader that stops must not stop the links of a group. So
the event loop never reads or writes them: `LineReader` reads no further than its lines are used, and `LineWriter`
makes the loop's task wait once too much is unwritten. The threads are daemons that hold no lock of the interpreter's
streams, so that a blocked one does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import select
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHUNK_BYTES: Final = 1 << 16
UNWRITTEN_BYTES: Final = 1 << 20
IDLE_SECONDS: Final = 0.5
"""How often an idle writer looks whether anybody still reads."""


class LineReader:
    """The lines of a file descriptor, without their ends, as an asynchronous iterator."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[list[bytes] | None] = asyncio.Queue(1)
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (lines := await self._chunks.get()) is not None:
            for line in lines:
                yield line.removesuffix(b"\r")

    def _run(self) -> None:
        rest: list[bytes] = []
        while chunk := self._read():
            first, *lines = chunk.split(b"\n")
            rest.append(first)
            if lines:
                whole = [b"".join(rest), *lines[:-1]]
                rest = [lines[-1]]
                if not self._hand_over(whole):
                    return
        last = b"".join(rest)
        if self._hand_over([last] if last else []):
            self._hand_over(None)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, CHUNK_BYTES)
        except OSError:
            return b""

    def _hand_over(self, lines: list[bytes] | None) -> bool:
        """Wait until the loop's task wants more; false once the loop has ended."""
        put = self._chunks.put(lines)
        try:
            asyncio.run_coroutine_threadsafe(put, self._loop).result()
        except concurrent.futures.CancelledError:
            return False
        except RuntimeError:
            put.close()
            return False
        return True


class LineWriter:
    """Writes to a file descriptor in the order of the calls; `broken` is set when nobody reads it any more."""

    def __init__(self, descriptor: int) -> None:
        self.broken = asyncio.Event()
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._ended = False
        self._changed = threading.Condition()
        self._room = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="stdout", daemon=True)
        self._thread.start()

    async def write(self, line: bytes) -> None:
        """Add a line; waits while too much is unwritten."""
        with self._changed:
            self._buffer += line
            self._buffer += b"\n"
            full = len(self._buffer) > UNWRITTEN_BYTES
            if full:
                self._room.clear()
            self._changed.notify()
        if full:
            await self._room.wait()

    async def close(self, patience: float) -> None:
        """Write what is left, for at most `patience` seconds."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join, patience)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, 0)  # reports errors only: that the reader is gone
        while True:
            with self._changed:
                while not self._buffer and not self._ended:
                    self._changed.wait(IDLE_SECONDS)
                    if poll.poll(0):
                        self._tell(self.broken)
                        return
                if not self._buffer:
                    return
                left = memoryview(bytes(self._buffer))
                self._buffer.clear()
            self._tell(self._room)
            try:
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._tell(self.broken)
                return

    def _tell(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # the loop has ended, and nobody waits
            return
