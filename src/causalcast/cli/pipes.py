"""Standard input and output as lines, each on a thread of its own.

Files, pipes and terminals block in different ways, and a reader that stops must not stop the links of a group. So
the event loop never reads or writes them: `LineReader` reads no further than its lines are used, and holds no more of
a line than its limit, however long it is; `LineWriter` makes the loop's task wait once too much is unwritten. The
threads are daemons that hold no lock of the interpreter's streams, so that a blocked one does not keep the process
from ending.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import select
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHUNK_BYTES: Final = 1 << 16
UNWRITTEN_BYTES: Final = 1 << 20
IDLE_SECONDS: Final = 0.5
"""How often an idle writer looks whether anybody still reads."""


class LongLine(NamedTuple):
    """Stands for a line beyond the limit, whose bytes are not kept."""

    size: int


class LineReader:
    """The lines of a file descriptor, without their ends, as an asynchronous iterator."""

    def __init__(self, descriptor: int, limit: int) -> None:
        """A line of more than `limit` bytes comes as a `LongLine`."""
        self._descriptor = descriptor
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[list[bytes | LongLine] | None] = asyncio.Queue(1)
        threading.Thread(target=self._run, name="stdin", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[bytes | LongLine]:
        while (lines := await self._chunks.get()) is not None:
            for line in lines:
                yield line

    def _run(self) -> None:
        rest: list[bytes] = []
        size = 0
        while chunk := self._read():
            *ends, last = chunk.split(b"\n")
            whole: list[bytes | LongLine] = []
            for end in ends:
                rest.append(end)
                whole.append(self._line(rest, size + len(end)))
                rest = []
                size = 0
            size += len(last)
            # One byte beyond the limit may be the "\r" of a line end.
            rest = [*rest, last] if size <= self._limit + 1 else []
            if whole and not self._hand_over(whole):
                return
        if self._hand_over([self._line(rest, size)] if size else []):
            self._hand_over(None)

    def _line(self, parts: list[bytes], size: int) -> bytes | LongLine:
        if size > self._limit + 1:
            return LongLine(size)
        line = b"".join(parts).removesuffix(b"\r")
        return line if len(line) <= self._limit else LongLine(len(line))

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, CHUNK_BYTES)
            except BlockingIOError:  # whoever shares the descriptor has made it so
                select.select([self._descriptor], [], [])
            except OSError:
                return b""

    def _hand_over(self, lines: list[bytes | LongLine] | None) -> bool:
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
        self.error: OSError | None = None
        """Why nothing more can be written, if it is anything else than that nobody reads."""
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
                    left = left[self._write(left) :]
            except BrokenPipeError:
                self._tell(self.broken)
                return
            except OSError as error:
                self.error = error
                self._tell(self.broken)
                return

    def _write(self, data: memoryview) -> int:
        while True:
            try:
                return os.write(self._descriptor, data)
            except BlockingIOError:  # whoever shares the descriptor has made it so
                select.select([], [self._descriptor], [])

    def _tell(self, event: asyncio.Event) -> None:
        try:
            self._loop.call_soon_threadsafe(event.set)
        except RuntimeError:  # the loop has ended, and nobody waits
            return
