"""Schema 1 itself, JSON lines or Parquet: every row checked, bad ones set aside, the rest in one form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.trace.importers.items import ImportUnusable, Item, Rejected, lines_of, rejected
from causalcast.trace.reader import TraceReadError, read_parquet, refusal_of
from causalcast.trace.schema import EVENTS, MESSAGE_EVENTS, TraceEvent

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

PARQUET_SUFFIXES: Final = (".parquet", ".pq")


def schema1(*paths: str | os.PathLike[str]) -> Iterator[Item]:
    """Yield the events of traces of schema version 1 and their bad rows. `.parquet` and `.pq` are Parquet.

    `causalcast audit` reads both forms itself; an import checks a trace without Spark, or brings it into one form.

    Raises:
        ImportUnusable: not readable as Parquet, or a row of a Parquet file is bad, or one says another schema version.
        OSError: a file cannot be read.
    """
    for source in map(Path, paths):
        if not source.name.endswith(PARQUET_SUFFIXES):
            yield from _lines(source)
            continue
        try:
            yield from read_parquet(source)
        except TraceReadError as error:
            raise ImportUnusable(source, error.reason, error.line or None) from error


def _lines(path: Path) -> Iterator[Item]:
    decode = msgspec.json.Decoder(TraceEvent).decode
    with path.open("rb") as file:
        for line in lines_of(path, file):
            if isinstance(line, Rejected):
                yield line
                continue
            number, text = line
            if reason := refusal_of(text):
                raise ImportUnusable(path, reason, number)
            try:
                event = decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield rejected(path, number, str(error), text)
                continue
            reason = _wrong(event)
            yield event if reason is None else rejected(path, number, reason, text)


def _wrong(event: TraceEvent) -> str | None:
    if not event.process:
        return "no process"
    if event.event not in EVENTS:
        return f"{event.event[:50]!r} is no event; known are {', '.join(sorted(EVENTS))}"
    if event.seq < 1:
        return f"seq is {event.seq}; it counts from 1"
    if event.event in MESSAGE_EVENTS and (not event.origin or event.counter is None or event.counter < 1):
        return f"a {event.event} event needs an origin and a counter from 1"
    return None
