"""A session: one connection, in order, and over with it. No input or output.

Theory of operation. A session begins with the hellos of both sides; data is not numbered, acknowledged or repeated:
what a connection loses the session has lost, and whoever wanted it is told. The side that ends one says so behind all
that it sent (`part`), drops what still comes, and waits until the other side has read that far and closes in turn. So
the end of a session that nobody has broken loses nothing that was sent on it before.

Some sessions are for once: whoever has something to say to a peer and keeps no link to it dials, says it, and parts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from causalcast.protocols.wire import UNDECODABLE
from causalcast.runtime.book import Entry
from causalcast.runtime.frames import (
    ACK,
    BOOK,
    CLOSE,
    DATA,
    HEADER,
    PARTED,
    REFUSED,
    Hello,
    LinkError,
    PeerClosedError,
    ack_frame,
    book_frame,
    close_frame,
    hello_frame,
    read_close,
    read_hello,
)
from causalcast.runtime.limits import BOOK_CHUNK, HELLO_LIMIT, REASON_LIMIT, SESSION_ROOM, TOLD_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.link import Identity

IDLE, GREETING, OPEN, PARTING = range(4)
_HEADER_SIZE: Final = HEADER.size
_LIMITS: Final = {ACK: 0, BOOK: HELLO_LIMIT, CLOSE: REASON_LIMIT}

_decode_entries: Final = msgspec.msgpack.Decoder(list[Entry]).decode


class Session:
    """The state of one session, at one of its two sides."""

    __slots__ = (
        "_buffer",
        "_check",
        "_control",
        "_me",
        "_needed",
        "_relieved",
        "_rest",
        "_state",
        "_told",
        "_unsent",
        "address",
        "attempt",
        "ended",
        "entries",
        "full",
        "held",
        "hello",
        "number",
        "once",
        "parting",
        "peer",
        "unsent_bytes",
    )

    def __init__(
        self,
        me: Identity,
        peer: ProcessId,
        number: int,
        check: Callable[[Hello], None],
        relieved: Callable[[Session], None],
    ) -> None:
        """`check` raises `LinkError` for a hello that does not fit; `relieved` is called when it is `full` no more."""
        self.peer = peer
        self.number = number
        """1, 2, 3, ... of all that this process has begun."""
        self.attempt = 0
        """Connections that this process had opened so far when this one began; the later one counts."""
        self.once = False
        """Whether it is for what its dialler sends now and no more."""
        self.parting = False
        """This side ends it behind what was pushed; nothing that comes from now on counts."""
        self.held = False
        """Nothing is written yet: an earlier session with the same peer is not over."""
        self.hello: Hello | None = None
        """Of the peer, once it has come."""
        self.ended: PeerClosedError | None = None
        self.entries: list[Entry] = []
        """Of the peer's address book, come since this was last emptied."""
        self.address: tuple[str, int] = ("", 0)
        """Where this process listens, as it tells the peer."""
        self.unsent_bytes = 0
        self.full = False
        """So much is unsent that `broadcast` waits."""
        self._me = me
        self._check = check
        self._relieved = relieved
        self._state = IDLE
        self._unsent: deque[bytes] = deque()
        self._rest: memoryview | None = None
        """What is left of a large frame that is partly written."""
        self._control: list[bytes] = []
        self._told: set[ProcessId] = set()
        self._buffer = bytearray()
        self._needed = _HEADER_SIZE

    # ------------------------------------------------------------------ what the host asks

    @property
    def connected(self) -> bool:
        """Both hellos have been exchanged, and it has not ended."""
        return self._state in (OPEN, PARTING)

    @property
    def idle(self) -> bool:
        """Not even the hello of this side is out."""
        return self._state == IDLE

    @property
    def greeting(self) -> bool:
        """The hello of this side is out, that of the other is not here."""
        return self._state == GREETING

    @property
    def said_all(self) -> bool:
        """Its end has been written, or is: nothing can be pushed any more."""
        return self._state == PARTING

    @property
    def unsent(self) -> int:
        """Frames that wait to be written."""
        return len(self._unsent) + (self._rest is not None)

    @property
    def amid_frame(self) -> bool:
        """A large frame is partly written: nothing else can be."""
        return self._rest is not None

    @property
    def acknowledgement_due(self) -> bool:
        """Nothing is acknowledged here."""
        return False

    # ------------------------------------------------------------------ beginning and end

    def dial(self) -> None:
        """Begin on a connection that this side has opened."""
        self._buffer.clear()
        self._control.clear()
        self._needed = _HEADER_SIZE
        self.ended = None
        self._state = GREETING
        self._control.append(hello_frame(self._hello()))

    def accept(self, hello: Hello) -> None:
        """Begin on a connection that the peer has opened with `hello`, which was checked."""
        self.hello = hello
        self.once = hello.once
        self._state = OPEN
        self._control.append(hello_frame(self._hello()))

    def lost(self) -> None:
        """The connection did not come about; another may."""
        self._state = IDLE

    def adopt(self, other: Session) -> None:
        """Send what waits on `other`, which will not come about."""
        for frame in other._unsent:
            self.push(frame)

    def farewell(self, code: int, reason: str) -> bytes:
        """The last bytes to write on a connection that this side ends."""
        return close_frame(code, reason)

    def _hello(self) -> Hello:
        me = self._me
        host, port = self.address
        return Hello(
            group=me.group,
            sender=me.name,
            addressee=self.peer,
            roster=me.roster,
            stack=me.stack,
            frame_limit=me.frame_limit,
            incarnation=me.incarnation,
            knows=0,
            attempt=self.attempt,
            expects=0,
            host=host,
            port=port,
            once=self.once,
        )

    # ------------------------------------------------------------------ sending

    def push(self, frame: bytes) -> None:
        """Send a data frame, whose number is 0."""
        self._unsent.append(frame)
        self.unsent_bytes += len(frame)
        if self.unsent_bytes >= SESSION_ROOM:
            self.full = True

    def untold(self, names: Sequence[ProcessId]) -> list[ProcessId]:
        """Those of `names` of which the peer was told nothing on this session."""
        told = self._told
        return [name for name in names if name not in told and name != self.peer]

    def tell(self, entries: Sequence[Entry]) -> None:
        """Send these of the address book, ahead of what is pushed from now on."""
        if len(self._told) > TOLD_NAMES:
            self._told.clear()
        self._told.update(entry.name for entry in entries)
        for start in range(0, len(entries), BOOK_CHUNK):
            self.push(book_frame(entries[start : start + BOOK_CHUNK]))

    def keep_alive(self) -> None:
        """Say that this side is there."""
        if self._state == OPEN:
            self._control.append(ack_frame(0))

    def output(self, limit: int) -> bytes | memoryview:
        """The next bytes to write, `limit` at most or control frames more; empty if there are none now."""
        if self._rest is not None:
            rest = self._rest
            self._rest = rest[limit:] if len(rest) > limit else None
            return rest[:limit]
        parts, self._control = self._control, []
        if self._state == OPEN and not self.held:
            room = limit
            unsent = self._unsent
            while unsent and len(unsent[0]) <= room:
                frame = unsent.popleft()
                room -= len(frame)
                self.unsent_bytes -= len(frame)
                parts.append(frame)
            if unsent and not parts:
                frame = unsent.popleft()
                self.unsent_bytes -= len(frame)
                self._rest = memoryview(frame)[limit:]
                parts.append(frame[:limit])
            if self.full and self.unsent_bytes < SESSION_ROOM // 2:
                self.full = False
                self._relieved(self)
            if not unsent and self.parting and self._rest is None:
                self._state = PARTING
                parts.append(close_frame(PARTED, f"{self._me.name} ends the session"))
        return b"".join(parts)

    # ------------------------------------------------------------------ receiving

    def receive(self, data: bytes) -> list[bytes]:
        """Bytes have come; returns the bodies of the data frames that are complete now, in order.

        After a close frame `ended` is set. Raises `LinkError` on what cannot be right.
        """
        if self._buffer or self._state == GREETING:
            self._buffer += data
            if self._state == GREETING and not self._greet():
                return []
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        bodies: list[bytes] = []
        position = 0
        size = len(data)
        while (start := position + _HEADER_SIZE) <= size and self.ended is None:
            length, kind, number = HEADER.unpack_from(data, position)
            if length > _LIMITS.get(kind, self._me.frame_limit) or kind not in (DATA, *_LIMITS):
                raise LinkError(f"a frame of kind {kind} and {length:,} bytes cannot come here")
            if kind != CLOSE and number:
                raise LinkError(f"a frame of kind {kind} has no number on a session, and one came with {number}")
            end = start + length
            if end > size:
                break
            if kind == DATA:
                bodies.append(data[start:end])
            elif kind == BOOK:
                self._read_book(data[start:end])
            elif kind == CLOSE:
                self.ended = read_close(number, data[start:end])
            position = end
        left = size - position
        self._needed = _HEADER_SIZE if left < _HEADER_SIZE else _HEADER_SIZE + length
        self._buffer += data[position:]
        return [] if self.parting else bodies

    def _read_book(self, body: bytes) -> None:
        try:
            entries = _decode_entries(body)
        except UNDECODABLE as error:
            raise LinkError(f"a page of an address book cannot be read: {error}") from None
        for entry in entries:
            entry.check()
        self.entries += entries

    def _greet(self) -> bool:
        """Take the peer's hello off the buffer; whether it was complete."""
        found = read_hello(self._buffer)
        if found is None:
            return False
        hello, end = found
        if self.peer not in ("", hello.sender):
            raise LinkError(f"{hello.sender!r} answered where {self.peer!r} was expected", REFUSED)
        self._check(hello)
        self.peer = hello.sender
        self.hello = hello
        self._state = OPEN
        del self._buffer[:end]
        return True
