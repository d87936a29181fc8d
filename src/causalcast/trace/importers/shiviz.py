"""ShiViz and GoVector logs: any regular expression with the groups `host` and `clock`.

The format is ShiViz's own: an expression that is matched over and over through the whole text, in JavaScript's
syntax, with `^` and `$` at line ends; its match may span lines. What it does not match is no event. A second
expression may split the text into executions. Clocks are JSON objects; their zero entries are dropped.
"""

from __future__ import annotations

import mmap
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from causalcast.trace.importers.items import (
    MAX_LINE_BYTES,
    MAX_LOG_BYTES,
    MAX_TEXT,
    ClockedEvent,
    ImportUnusable,
    Item,
    Rejected,
    rejected,
    whole_clock,
)
from causalcast.trace.schema import TraceEvent

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

GOVECTOR: Final = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
"""What GoVector writes, and ShiViz's own default."""
_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z_$])")
_ANYTHING: Final = re.compile(rb"\S[^\r\n]*")
_BACK_REFERENCE: Final = re.compile(r"\\k<(\w+)>")


@dataclass(frozen=True, slots=True)
class ShivizPatterns:
    """The expressions of an import, in JavaScript's or Python's syntax.

    `broadcast`, `deliver` and `crash` say which events mean what; they are searched in the text of the group
    `event`. The first two name the message by the group `message`. Without them an import has clocks only.
    """

    event: str = GOVECTOR
    delimiter: str | None = None
    """Splits executions; its group `trace`, if it has one, names them."""
    broadcast: str | None = None
    deliver: str | None = None
    crash: str | None = None


@dataclass(frozen=True, slots=True)
class _Compiled:
    given: str
    """The expression of events as it was given."""
    event: re.Pattern[bytes]
    delimiter: re.Pattern[bytes] | None
    kinds: tuple[tuple[str, re.Pattern[str]], ...]


@dataclass(frozen=True, slots=True)
class _Told:
    """An event that a pattern gave a meaning: where it stands in its process, by its own clock."""

    own: int
    path: Path
    line: int
    kind: str
    message: str | None


_Meanings: TypeAlias = dict[str | None, dict[str, list[_Told]]]
"""By execution, then by host."""


def shiviz(*paths: str | os.PathLike[str], patterns: ShivizPatterns | None = None) -> Iterator[Item]:
    """Yield the events of ShiViz logs: one file, or the files of several hosts of one run.

    Every match is a `ClockedEvent`. A match whose text `broadcast`, `deliver` or `crash` finds something in is a
    `TraceEvent` too: messages are numbered per broadcaster, rows per process, both in the order of the process's own
    clock entry, so lines may stand in any order. In a log of several executions the names of processes begin with
    their execution's. The text is not held in memory; the events with a meaning are, until the end.

    Raises:
        ImportUnusable: an expression is none or lacks a group, nothing matches, the file is larger than
            `MAX_LOG_BYTES` or has a line longer than `MAX_LINE_BYTES`.
        OSError: the file cannot be read.
    """
    told: _Meanings = {}
    for source in map(Path, paths):
        compiled = _compile(source, patterns or ShivizPatterns())
        with source.open("rb") as file:
            size = file.seek(0, 2)
            if size > MAX_LOG_BYTES:
                raise ImportUnusable(source, f"{size:,} bytes; a log of more than {MAX_LOG_BYTES:,} has to be split")
            if size == 0:
                raise ImportUnusable(source, "the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                yield from _Log(source, text, compiled, told).items()
    for execution, events in told.items():
        yield from _schema_rows(events, f"{execution}/" if len(told) > 1 else "")


class _Log:
    """One log while it is read; line numbers are counted on from match to match."""

    def __init__(self, path: Path, text: mmap.mmap, patterns: _Compiled, told: _Meanings) -> None:
        self.told = told
        self.path = path
        self.text = text
        self.patterns = patterns
        self._at = 0
        self._line = 1

    def items(self) -> Iterator[Item]:
        self._refuse_long_lines()
        matched = False
        for name, start, end in self._executions():
            told = self.told.setdefault(name, {})
            done = start
            for match in self.patterns.event.finditer(self.text, start, end):
                if match.end() == match.start():
                    continue
                matched = True
                yield from self._between(done, match.start())
                yield from self._event(match, name, told)
                done = match.end()
            yield from self._between(done, end)
        if not matched:
            raise ImportUnusable(
                self.path, f"no event matches '{self.patterns.given}'; give the log's own expression by --regex"
            )

    def _between(self, start: int, end: int) -> Iterator[Rejected]:
        """Yield what stands between events, where nobody said by an expression that it is none."""
        if self.patterns.given == GOVECTOR and (found := _ANYTHING.search(self.text, start, end)):
            reason = "no event as GoVector writes them; give the log's own expression by --regex"
            yield rejected(self.path, self._line_of(found.start()), reason, found[0])

    def _refuse_long_lines(self) -> None:
        start, line = 0, 1
        while start < len(self.text):
            end = self.text.find(b"\n", start)
            end = len(self.text) if end < 0 else end
            if end - start > MAX_LINE_BYTES:
                raise ImportUnusable(self.path, f"longer than {MAX_LINE_BYTES:,} bytes", line)
            start, line = end + 1, line + 1

    def _executions(self) -> Iterator[tuple[str | None, int, int]]:
        """Yield name, begin and end of each execution; what stands before the first delimiter is one if it matches."""
        delimiter = self.patterns.delimiter
        if delimiter is None:
            yield None, 0, len(self.text)
            return
        start, name = 0, None
        for number, match in enumerate(delimiter.finditer(self.text), start=1):
            if number > 1 or self.patterns.event.search(self.text, start, match.start()):
                yield name or "0", start, match.start()
            given = match.groupdict().get("trace")
            name = given.decode("utf-8", "replace")[:MAX_TEXT] if given else str(number)
            start = match.end()
        yield name, start, len(self.text)

    def _event(self, match: re.Match[bytes], execution: str | None, told: dict[str, list[_Told]]) -> Iterator[Item]:
        line = self._line_of(match.start("clock"))
        groups = match.groupdict()
        try:
            host = (groups["host"] or b"").decode()
            if not host:
                raise ValueError("the group host is empty")
            clock = whole_clock(msgspec.json.decode(groups["clock"] or b""))
            words = (groups.get("event") or b"").decode()
        except (ValueError, RecursionError) as error:
            reason = "the clock is nested" if isinstance(error, RecursionError) else _told(error)
            yield rejected(self.path, line, reason, match[0])
            return
        sends: str | None = None
        receives: tuple[str, ...] | None = None
        for kind, pattern in self.patterns.kinds:
            found = pattern.search(words)
            if found is None:
                continue
            message = found.groupdict().get("message")
            told.setdefault(host, []).append(_Told(clock.get(host, 0), self.path, line, kind, message))
            if kind == "broadcast":
                sends = message
            elif kind == "deliver" and message is not None:
                receives = (message,)
            break
        yield ClockedEvent(
            host, str(self.path), line, clock, sends, receives, execution=execution, text=words[:MAX_TEXT] or None
        )

    def _line_of(self, at: int) -> int:
        if at < self._at:
            self._at, self._line = 0, 1
        self._line += self.text[self._at : at].count(b"\n")
        self._at = at
        return self._line


def _schema_rows(told: dict[str, list[_Told]], prefix: str) -> Iterator[TraceEvent | Rejected]:
    dots: dict[str, tuple[str, int]] = {}
    for host, events in told.items():
        events.sort(key=lambda event: event.own)
        counter = 0
        for event in events:
            if event.kind == "broadcast" and event.message is not None:
                counter += 1
                dots.setdefault(event.message, (host, counter))
    for host, events in told.items():
        seq = counter = 0
        for event in events:
            if event.kind == "crash":
                seq += 1
                yield TraceEvent(prefix + host, seq, "crash")
                continue
            dot = dots.get(event.message or "")
            if event.kind == "broadcast" and event.message is not None:
                counter += 1
                dot = (host, counter)
            if dot is None:
                what = "names no message" if event.message is None else f"no line broadcasts {event.message!r}"
                yield rejected(event.path, event.line, f"a {event.kind} event: {what}", "")
                continue
            seq += 1
            yield TraceEvent(prefix + host, seq, event.kind, prefix + dot[0], dot[1])


def _compile(path: Path, patterns: ShivizPatterns) -> _Compiled:
    event = _expression(path, patterns.event, ("host", "clock"))
    kinds = []
    for kind, text, needed in (
        ("broadcast", patterns.broadcast, ("message",)),
        ("deliver", patterns.deliver, ("message",)),
        ("crash", patterns.crash, ()),
    ):
        if text is not None:
            kinds.append((kind, re.compile(_expression(path, text, needed).pattern.decode())))
    delimiter = None if patterns.delimiter is None else _expression(path, patterns.delimiter, ())
    return _Compiled(patterns.event, event, delimiter, tuple(kinds))


def _expression(path: Path, text: str, needed: tuple[str, ...]) -> re.Pattern[bytes]:
    """Compile an expression in JavaScript's syntax, which names groups `(?<name>` and refers to them by `\\k<name>`."""
    python = _BACK_REFERENCE.sub(r"(?P=\1)", _GROUP.sub("(?P<", text))
    try:
        compiled = re.compile(python.encode(), re.MULTILINE)
        re.compile(python)
    except (re.error, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise ImportUnusable(path, f"'{text}' is no regular expression: {error}") from error
    for group in needed:
        if group not in compiled.groupindex:
            raise ImportUnusable(path, f"the expression '{text}' has no group {group}; write (?<{group}>...)")
    return compiled


def _told(error: ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"the clock is no JSON: {error}" if isinstance(error, msgspec.DecodeError) else str(error)
