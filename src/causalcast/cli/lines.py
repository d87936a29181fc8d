"""What a line of standard input asks of `causalcast node`: a broadcast, or what is to happen with a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.model import CausalcastError, PayloadTooLargeError
from causalcast.protocols.topics import MAX_TOPIC_BYTES

if TYPE_CHECKING:
    from causalcast.cli.pipes import LongLine

WORDS: Final = "sub TOPIC, unsub TOPIC, pub TOPIC TEXT"
LONGEST_WORD: Final = 40


class LineError(CausalcastError, ValueError):
    """A line that asks for nothing that there is."""


class Publish(NamedTuple):
    """Send a payload, to the group where no topic is named."""

    payload: bytes
    topic: str = ""


class Subscribe(NamedTuple):
    """Ask for a topic."""

    topic: str


class Unsubscribe(NamedTuple):
    """Ask for no more of it."""

    topic: str


def parse_line(line: bytes | LongLine, limit: int, *, topics: bool) -> Publish | Subscribe | Unsubscribe:
    """What the line asks for; `limit` is the largest payload. Raises `LineError`, `PayloadTooLargeError`."""
    if not isinstance(line, bytes):
        raise PayloadTooLargeError(line.size, limit)
    if not topics:
        return Publish(line)
    word, _, rest = line.partition(b" ")
    if word == b"pub":
        name, space, text = rest.partition(b" ")
        if not space:
            raise LineError(f"{_shown(line)} names no topic and text: write pub TOPIC TEXT")
        return Publish(text, _topic(name, line))
    if word in (b"sub", b"unsub"):
        return Subscribe(_topic(rest, line)) if word == b"sub" else Unsubscribe(_topic(rest, line))
    raise LineError(f"{_shown(line)} is none of {WORDS}")


def _topic(name: bytes, line: bytes) -> str:
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        raise LineError(f"the topic of {_shown(line)} is no UTF-8") from None
    if not topic or len(name) > MAX_TOPIC_BYTES or any(character.isspace() for character in topic):
        raise LineError(f"{_shown(line)} names no topic: one is 1 to {MAX_TOPIC_BYTES} bytes without spaces")
    return topic


def _shown(line: bytes) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= LONGEST_WORD else f"{text[:LONGEST_WORD]}...")
