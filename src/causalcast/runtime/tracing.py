"""Writing down what the application of one process did and saw, in the order in which it did."""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.model import Delivered, MembershipChanged, Stable, Subscribed, Unsubscribed
from causalcast.runtime.recovery import Sent
from causalcast.trace import JsonLinesWriter, TraceEvent

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Tag
    from causalcast.runtime.recovery import Past
    from causalcast.trace import TraceSink


TAIL_BYTES: Final = 4096
"""The end of a trace is read in steps of so many bytes."""

LINES_AT_END: Final = 2
"""The last line is whole between two line ends."""

logger = logging.getLogger("causalcast")


def cut_to_whole_rows(path: Path) -> int:
    """Cut off what follows the last whole line, which a process that was killed may leave; its row's number, or 0."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        rest = b""
        while end and rest.count(b"\n") < LINES_AT_END:
            start = max(0, end - TAIL_BYTES)
            file.seek(start)
            rest = file.read(end - start) + rest
            end = start
        whole, newline, torn = rest.rpartition(b"\n")
        file.truncate(size - len(torn))
    return msgspec.json.decode(whole.rpartition(b"\n")[2], type=TraceEvent).seq if newline else 0


class Tracer:
    """Numbers the rows of one process and hands them to a sink.

    A trace that cannot be written ends there, and `close` raises why: the group itself goes on.
    """

    __slots__ = ("_error", "_known", "_name", "_seq", "_sink", "_time_ns", "_with_context")

    def __init__(self, sink: TraceSink, name: ProcessId, *, with_context: bool) -> None:
        """`with_context`: the stack promises exact tags, so the context of each broadcast is worth checking."""
        self._sink = sink
        self._error: OSError | None = None
        self._name = name
        self._seq = 0
        self._time_ns: int | None = None
        self._known = 0
        """Rows that need not be written again."""
        self._with_context = with_context

    def recover(self, past: Past, known: int) -> None:
        """Go on after `past`, of which the sink has the rows up to number `known`."""
        self._seq = past.rows
        self._known = known
        for time_ns, step in past.steps:
            self._time_ns = time_ns
            if step is None:
                self._news("recover")
            elif isinstance(step, Sent):
                self.broadcast(*step)
            else:
                self.take(step)
        self._time_ns = None
        self._seq = max(self._seq, known)

    def rows(self) -> int:
        """How many rows there are, all of them where they are kept."""
        self.flush()
        return self._seq

    def broadcast(self, tag: Tag, topic: str, payload_bytes: int, overhead_bytes: int) -> None:
        """The application has broadcast; `overhead_bytes` is what one copy takes on the wire beyond the payload."""
        self._write(
            TraceEvent(
                self._name,
                self._seq + 1,
                "broadcast",
                tag.origin,
                tag.counter,
                topic=topic or None,
                time_ns=self._now(),
                payload_bytes=payload_bytes,
                overhead_bytes=overhead_bytes,
                context=tag.context if self._with_context else None,
            )
        )

    def take(self, event: Event) -> None:
        """The application receives `event`."""
        match event:
            case Delivered(message):
                self._message("deliver", message.tag, message.topic, len(message.payload))
            case Stable(tag, topic):
                self._message("stable", tag, topic, None)
            case MembershipChanged(joined, left, evicted):
                if self._name in joined:
                    self._news("join")
                if self._name in left:
                    self._news("leave")
                for peer in evicted:
                    self._news("evict", peer=peer)
            case Subscribed(topic):
                self._news("subscribe", topic=topic)
            case Unsubscribed(topic):
                self._news("unsubscribe", topic=topic)

    def _message(self, kind: str, tag: Tag, topic: str, payload_bytes: int | None) -> None:
        self._write(
            TraceEvent(
                self._name,
                self._seq + 1,
                kind,
                tag.origin,
                tag.counter,
                topic=topic or None,
                time_ns=self._now(),
                payload_bytes=payload_bytes,
            )
        )

    def _news(self, kind: str, *, topic: str | None = None, peer: str | None = None) -> None:
        self._write(TraceEvent(self._name, self._seq + 1, kind, topic=topic, peer=peer, time_ns=self._now()))

    def _now(self) -> int:
        return time.time_ns() if self._time_ns is None else self._time_ns

    def flush(self) -> None:
        """Bring every row to where it is kept."""
        if self._error is None:
            try:
                self._sink.flush()
            except OSError as error:
                self._fail(error)

    def close(self) -> None:
        """Flush and close the sink; raises the `OSError` that ended the trace early, if one did."""
        if self._error is not None:
            raise self._error
        self._sink.close()

    def _write(self, row: TraceEvent) -> None:
        if self._error is None:
            self._seq += 1
            if self._seq <= self._known:
                return
            try:
                self._sink.write(row)
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._error = error
        logger.error("%s: the trace ends here: %s", self._name, error)


def open_sink(trace: str | os.PathLike[str] | TraceSink, name: ProcessId, *, goes_on: bool) -> tuple[TraceSink, int]:
    """Where the trace goes, and the number of the last row there; a sink of the application's own has them all."""
    if not isinstance(trace, str | os.PathLike):
        return trace, sys.maxsize
    folder = Path(trace)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    if not goes_on:
        _set_aside(path)
        return JsonLinesWriter(path), 0
    known = cut_to_whole_rows(path)
    return JsonLinesWriter(path, append=True), known


def _set_aside(path: Path) -> None:
    """Keep the trace of an earlier life of this name: what it says may be all that tells what that one did."""
    if path.is_file() and path.stat().st_size:
        number = 1
        while (kept := path.with_name(f"{path.name}.{number}")).exists():
            number += 1
        path.rename(kept)
        logger.info("%s was there already; it is %s now", path, kept)
