"""OpenTelemetry spans as OTLP JSON: one document, or an object a line as the collector's file exporter writes.

A process is a service instance: the resource's `service.name`, and `service.instance.id` after a slash where it is
given. The only order between processes is what the spans say of each other: a parent began before its child began,
and a linked span began before the one with the link ended. Time stamps of different processes are never compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from causalcast.trace.importers.items import (
    MAX_COUNT,
    MAX_TEXT,
    ClockedEvent,
    ImportUnusable,
    Item,
    Rejected,
    lines_of,
    rejected,
)
from causalcast.trace.schema import TraceEvent

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

MAX_DOCUMENT_BYTES: Final = 1 << 28
"""A larger document, or line of a file of documents, is refused."""
UNKNOWN_SERVICE: Final = "unknown_service"
"""OpenTelemetry's own name for a resource that has none."""


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None


class _Attribute(msgspec.Struct):
    key: str
    value: _Value = msgspec.field(default_factory=_Value)


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ScopeSpans(msgspec.Struct):
    spans: list[msgspec.Raw] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_ScopeSpans] = []


class _Document(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    start_time_unix_nano: str | int
    end_time_unix_nano: str | int
    parent_span_id: str = ""
    name: str = ""
    links: list[_Link] = []


_Moment: TypeAlias = tuple[int, int, int]
"""Time, begin or end, and a number that keeps equal times in the order of the file."""


@dataclass(frozen=True, slots=True)
class _Known:
    process: str
    began: _Moment
    ended: _Moment
    parent: str | None
    links: tuple[str, ...]


def opentelemetry(*paths: str | os.PathLike[str]) -> Iterator[Item]:
    """Yield the spans of OTLP JSON files.

    Each span is a `ClockedEvent` without a clock: it sends its own context, and receives its parent's and its links'.
    Where these come from another process there are `send` and `receive` rows too: the message is the parent (or
    linked) span, numbered per process by its begin; a child receives it at its begin, a link at the end of the span
    that has it. Rows of one process are numbered by that process's own clock. All spans are held in memory.

    Raises:
        ImportUnusable: no OTLP JSON, or larger than `MAX_DOCUMENT_BYTES`.
        OSError: the file cannot be read.
    """
    known: dict[str, _Known] = {}
    for source in map(Path, paths):
        for line, document in _documents(source):
            if isinstance(document, Rejected):
                yield document
                continue
            for part in document.resource_spans:
                yield from _spans(part, known, source, line)
    yield from _messages(known)


def _spans(part: _ResourceSpans, known: dict[str, _Known], path: Path, line: int) -> Iterator[Item]:
    process = _process(part.resource)
    for number, raw in enumerate((raw for scope in part.scope_spans for raw in scope.spans), start=1):
        try:
            yield _add(msgspec.json.decode(raw, type=_Span), process, known, path, line)
        except (ValueError, RecursionError) as error:
            yield rejected(path, line, f"span {number} of {process}: {error}", bytes(raw))


def _documents(path: Path) -> Iterator[tuple[int, _Document | Rejected]]:
    decode = msgspec.json.Decoder(_Document).decode
    with path.open("rb") as file:
        first = file.readline(MAX_DOCUMENT_BYTES + 1)
        try:
            decode(first)
            by_line = True
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            by_line = False
        file.seek(0)
        if not by_line:
            text = file.read(MAX_DOCUMENT_BYTES + 1)
            if len(text) > MAX_DOCUMENT_BYTES:
                raise ImportUnusable(path, f"a document of more than {MAX_DOCUMENT_BYTES:,} bytes; export by line")
            try:
                yield 1, decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise ImportUnusable(path, f"no OTLP JSON with resourceSpans: {error}") from error
            return
        for line in lines_of(path, file, MAX_DOCUMENT_BYTES):
            if isinstance(line, Rejected):
                yield line.line, line
                continue
            number, text = line
            try:
                yield number, decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                yield number, rejected(path, number, f"no OTLP JSON with resourceSpans: {error}", text)


def _process(resource: _Resource) -> str:
    given = {attribute.key: attribute.value.string_value for attribute in resource.attributes}
    name = given.get("service.name") or UNKNOWN_SERVICE
    instance = given.get("service.instance.id")
    return f"{name}/{instance}" if instance else name


def _add(span: _Span, process: str, known: dict[str, _Known], path: Path, line: int) -> ClockedEvent:
    trace, identity = span.trace_id.lower(), _identity(span.trace_id, span.span_id)
    parent = _identity(trace, span.parent_span_id) if span.parent_span_id else None
    links = tuple(_identity(link.trace_id, link.span_id) for link in span.links)
    began, ended = _time(span.start_time_unix_nano), _time(span.end_time_unix_nano)
    order = len(known)
    known.setdefault(identity, _Known(process, (began, 0, order), (max(began, ended), 1, order), parent, links))
    receives = (() if parent is None else (parent,)) + links
    return ClockedEvent(process, str(path), line, None, identity, receives, text=span.name[:MAX_TEXT] or None)


def _identity(trace: str, span: str) -> str:
    if not trace or not span:
        raise ValueError("a span or link without traceId and spanId")
    return f"{trace.lower()}/{span.lower()}"


def _time(value: str | int) -> int:
    time = int(value)
    if not 0 <= time <= MAX_COUNT:
        raise ValueError(f"the time {value} is not in nanoseconds from 1970 to 2262")
    return time


def _messages(known: dict[str, _Known]) -> Iterator[TraceEvent]:
    """Yield what went from one process to another, per process in the order of its own clock."""
    moments: dict[str, list[tuple[_Moment, str, str, str]]] = {}
    sent: dict[str, set[str]] = {}
    for span in known.values():
        causes = [] if span.parent is None else [(span.parent, span.began)]
        causes.extend((link, span.ended) for link in span.links)
        for cause, moment in causes:
            sender = known.get(cause)
            if sender is None or sender.process == span.process:
                continue
            moments.setdefault(span.process, []).append((moment, "receive", cause, sender.process))
            receivers = sent.setdefault(cause, set())
            if span.process not in receivers:
                receivers.add(span.process)
                moments.setdefault(sender.process, []).append((sender.began, "send", cause, span.process))
    counters: dict[str, int] = {}
    for rows in moments.values():
        rows.sort()
        number = 0
        for _, kind, message, _ in rows:
            if kind == "send" and message not in counters:
                number += 1
                counters[message] = number
    for process, rows in moments.items():
        for seq, (moment, kind, message, peer) in enumerate(rows, start=1):
            origin = known[message].process
            yield TraceEvent(process, seq, kind, origin, counters[message], peer=peer, time_ns=moment[0])
