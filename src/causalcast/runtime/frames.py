"""Frames: what travels on a connection.

A frame is a header of `FRAME_HEADER_BYTES` (body length, kind, number) and a body:

| kind | number | body |
|---|---|---|
| HELLO | the word `causal` and the protocol version | a `Hello`, MessagePack |
| DATA | 1, 2, 3, ... per direction of a link, over all its connections | an encoded wire message |
| ACK | the next DATA number that is expected | empty |
| CLOSE | why: `LEAVING`, `REFUSED`, `VIOLATION`, or `AWAY`: to come back with a journal | the reason as text, UTF-8 |
| BOOK | 0 | entries of an address book, MessagePack; on sessions only |

On a session, which is one connection, DATA and ACK have the number 0 (an ACK is the heartbeat), and there are more
reasons to CLOSE: `PARTED`, its end behind all that was sent, `CROSSED`, for one in the other direction goes on, and
`EARLY`, for one who is not a member yet. The latter two, and `EVICTED`, for one who is no member any more, also end
connections of links between members that come and go.

The first frame each way is a HELLO, or a CLOSE that refuses. HELLO and CLOSE keep this form in every version, so that
versions can tell each other that they differ.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from causalcast.model import CausalcastError
from causalcast.protocols.wire import UNDECODABLE
from causalcast.runtime.limits import HELLO_LIMIT, REASON_LIMIT

VERSION: Final = 1
MAGIC: Final = int.from_bytes(b"causal", "big")

HELLO, DATA, ACK, CLOSE, BOOK = 1, 2, 3, 4, 5
KINDS: Final = frozenset({HELLO, DATA, ACK, CLOSE})

LEAVING, REFUSED, VIOLATION, AWAY, PARTED, CROSSED, EARLY, EVICTED = 1, 2, 3, 4, 5, 6, 7, 8

HEADER: Final = struct.Struct("!IBQ")


class LinkError(CausalcastError):
    """Why a connection ends: `code` is the number of the close frame that says so to the peer."""

    def __init__(self, reason: str, code: int = VIOLATION) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class PeerClosedError(LinkError):
    """The peer ended the connection, with this reason and code."""


class Hello(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who speaks, to whom, about what, and where the link goes on."""

    group: str
    sender: str
    addressee: str
    roster: str
    """Digest of the names of all members."""
    stack: str
    frame_limit: int
    incarnation: int
    """Drawn at random at each start of a process: another value means that what it knew is lost."""
    knows: int
    """The incarnation of the addressee that the sender has met, or 0."""
    attempt: int
    """1, 2, 3, ... for each connection that the dialler of this link has opened; the later one counts. Of a
    session: for each that the sender has opened so far, whoever to.
    """
    expects: int
    """The DATA number that the sender expects next; 0 on a session."""
    host: str = ""
    """Where the sender, if members come and go, is reached; empty: on every address, so on the one it connects from."""
    port: int = 0
    once: bool = False
    """Whether the session is for what its dialler sends now and no more."""


_encode_hello: Final = msgspec.msgpack.Encoder().encode
_encode_book: Final = msgspec.msgpack.Encoder().encode
_decode_hello: Final = msgspec.msgpack.Decoder(Hello).decode


def hello_frame(hello: Hello) -> bytes:
    """The first frame of a connection."""
    body = _encode_hello(hello)
    return HEADER.pack(len(body), HELLO, MAGIC << 16 | VERSION) + body


def data_frame(number: int, body: bytes) -> bytes:
    """A numbered frame with an encoded wire message."""
    return HEADER.pack(len(body), DATA, number) + body


def ack_frame(expected: int) -> bytes:
    """Acknowledges every DATA frame below `expected`; also the heartbeat."""
    return HEADER.pack(0, ACK, expected)


def book_frame(entries: object) -> bytes:
    """Entries of an address book."""
    body = _encode_book(entries)
    return HEADER.pack(len(body), BOOK, 0) + body


def close_frame(code: int, reason: str) -> bytes:
    """The last frame of a connection."""
    body = reason.encode()[:REASON_LIMIT]
    return HEADER.pack(len(body), CLOSE, code) + body


def read_hello(buffer: bytes | bytearray) -> tuple[Hello, int] | None:
    """The `Hello` at the start of `buffer` and where it ends; `None` if more bytes are needed.

    Raises `LinkError` as soon as it can be no hello of this version, `PeerClosedError` if it refuses.
    """
    if len(buffer) < HEADER.size:
        return None
    length, kind, number = HEADER.unpack_from(buffer)
    if kind not in (HELLO, CLOSE) or length > HELLO_LIMIT or (kind == HELLO and number >> 16 != MAGIC):
        raise LinkError("what came first is no hello of causalcast", REFUSED)
    if kind == HELLO and number & 0xFFFF != VERSION:
        raise LinkError(f"the peer speaks version {number & 0xFFFF} of the protocol, not {VERSION}", REFUSED)
    end = HEADER.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[HEADER.size : end])
    if kind == CLOSE:
        raise read_close(number, body)
    try:
        return _decode_hello(body), end
    except UNDECODABLE as error:
        raise LinkError(f"the hello cannot be read: {error}", REFUSED) from None


def read_close(code: int, body: bytes) -> PeerClosedError:
    """What a close frame says."""
    return PeerClosedError(body[:REASON_LIMIT].decode(errors="replace"), code)
