"""The operations of a Jepsen history one by one: the text and the line of each, however the file holds them.

A file is a sequence of maps, or one vector, list or array of maps; EDN and JSON alike. Brackets are followed without
holding more than one operation, so that a file may be large, and a broken operation spoils only itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

MAX_FORM_BYTES: Final = 1 << 24
"""A larger operation ends the reading."""
_MARK: Final = re.compile(rb'["\[\]{}()]|;[^\n]*|\\\S')
_JSON_MARK: Final = re.compile(rb'["\[\]{}]')
_IN_TEXT: Final = re.compile(rb'["\\]')
_BETWEEN: Final = re.compile(rb"(?:[\s,]|#[A-Za-z][\w.$/-]*(?=\s*\Z)|;[^\n]*)*\Z")


class Broken(ValueError):  # noqa: N818
    """What stands at a line is no operation. Carries the line and what is wrong."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def forms(text: mmap.mmap | bytes, *, edn: bool) -> Iterator[tuple[int, bytes] | Broken]:
    """Yield line and text of each map, or what is broken in between; what is never closed comes last."""
    try:
        yield from _Forms(text, _MARK if edn else _JSON_MARK).all()
    except Broken as broken:
        yield broken


class _Forms:
    """The place in a text. `base` is the depth at which operations stand: 1 inside a vector of them, else 0."""

    def __init__(self, text: mmap.mmap | bytes, marks: re.Pattern[bytes]) -> None:
        self.text = text
        self.marks = marks
        self.depth = self.base = 0
        self.start = self.gap = 0
        self._counted, self._line = 0, 1

    def all(self) -> Iterator[tuple[int, bytes] | Broken]:
        at = 0
        while (mark := self.marks.search(self.text, at)) is not None:
            at = mark.end()
            what = mark[0][:1]
            if what == b'"':
                at = self._end_of_string(at)
            elif what in b"[{(":
                broken = self._open(what, mark.start())
                if broken is not None:
                    yield broken
            elif what in b"]})" and self._close(mark.start()) and what == b"}":
                yield self._line_of(self.start), bytes(self.text[self.start : at])
            if self.depth > self.base and at - self.start > MAX_FORM_BYTES:
                raise Broken(self._line_of(self.start), f"an operation of more than {MAX_FORM_BYTES:,} bytes")
        if self.depth > 0:
            raise Broken(self._line_of(self.start), "the file ends before this is closed")
        self._nothing_until(len(self.text))

    def _open(self, what: bytes, at: int) -> Broken | None:
        broken = None
        if what != b"{" and self.depth == self.base == 0:
            self.base, self.gap = 1, at + 1
        elif self.depth == self.base:
            self.start = at
            try:
                self._nothing_until(at)
            except Broken as error:
                broken = error
            if what != b"{":
                broken = Broken(self._line_of(at), f"no operation: {_shown(self.text[at : at + 40])}")
        self.depth += 1
        return broken

    def _close(self, at: int) -> bool:
        """Go one level up; return whether an operation ends here."""
        self.depth -= 1
        if self.depth < 0:
            raise Broken(self._line_of(at), f"{self.text[at : at + 1].decode()!r} closes nothing")
        ends = self.depth == self.base
        if ends or self.depth < self.base:
            self.gap = at + 1
        if self.depth < self.base:
            self.base = 0
        return ends

    def _nothing_until(self, end: int) -> None:
        """Make sure that nothing but space, commas, comments and tags stands between two operations."""
        between = self.text[self.gap : min(end, self.gap + MAX_FORM_BYTES)]
        if not _BETWEEN.match(between):
            raise Broken(self._line_of(self.gap), f"no operation: {_shown(between)}")

    def _end_of_string(self, at: int) -> int:
        start = at
        while True:
            found = _IN_TEXT.search(self.text, at)
            if found is None:
                raise Broken(self._line_of(start), "a string that never ends")
            if found[0] == b'"':
                return found.end()
            at = found.end() + 1

    def _line_of(self, at: int) -> int:
        if at < self._counted:
            self._counted, self._line = 0, 1
        self._line += self.text[self._counted : at].count(b"\n")
        self._counted = at
        return self._line


def _shown(text: bytes) -> str:
    return repr(text.strip().decode("utf-8", "replace")[:40])
