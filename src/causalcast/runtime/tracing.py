"""Writing down what the application of one process did and saw, in the order in which it did."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from causalcast.model import Delivered, MembershipChanged, Stable, Subscribed, Unsubscribed
from causalcast.trace import TraceEvent

if TYPE_CHECKING:
    from causalcast.model import Event, ProcessId, Tag
    from causalcast.trace import TraceSink


logger = logging.getLogger("causalcast")


class Tracer:
    """Numbers the rows of one process and hands them to a sink.

    A trace that cannot be written ends there, and `close` raises why: the group itself goes on.
    """

    __slots__ = ("_error", "_name", "_seq", "_sink", "_with_context")

    def __init__(self, sink: TraceSink, name: ProcessId, *, with_context: bool) -> None:
        """`with_context`: the stack promises exact tags, so the context of each broadcast is worth checking."""
        self._sink = sink
        self._error: OSError | None = None
        self._name = name
        self._seq = 0
        self._with_context = with_context

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
                time_ns=time.time_ns(),
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
                time_ns=time.time_ns(),
                payload_bytes=payload_bytes,
            )
        )

    def _news(self, kind: str, *, topic: str | None = None, peer: str | None = None) -> None:
        self._write(TraceEvent(self._name, self._seq + 1, kind, topic=topic, peer=peer, time_ns=time.time_ns()))

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
            try:
                self._sink.write(row)
            except OSError as error:
                self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._error = error
        logger.error("%s: the trace ends here: %s", self._name, error)
