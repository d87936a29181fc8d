"""A link: one peer, both directions, reliable and in order across any number of connections. No input or output.

Theory of operation. Each direction numbers its data frames 1, 2, 3, ... for as long as both processes live. A frame
stays in the sender's buffer until the receiver has acknowledged it, which says that its host has processed it. When a
connection ends, everything not acknowledged moves back to the front of what is to be sent; the hellos of the next
connection say which number each side expects, and sending goes on from there. So a cut at any byte loses nothing and
repeats nothing, and within a connection the numbers must come without a gap: whatever else comes is a violation and
ends that connection, nothing more.

A connection begins by `dial` (the hello goes out first) or by `accept` (the peer's hello has come), and ends by
`lost`. Between them bytes go in through `receive`, which returns the bodies of data frames for the host to process in
order, and come out of `output`. What cannot be right raises `LinkError`, after which the host sends `farewell` and
calls `lost`. Time is the host's: it calls `keep_alive` when a link has been quiet.

A frame is shared between the links of a host: `push` takes it ready made, numbered `next_number`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from causalcast.runtime.frames import (
    ACK,
    CLOSE,
    DATA,
    HEADER,
    REFUSED,
    Hello,
    LinkError,
    PeerClosedError,
    ack_frame,
    close_frame,
    hello_frame,
    read_close,
    read_hello,
)
from causalcast.runtime.limits import ACK_BYTES, ACK_FRAMES, REASON_LIMIT, RESEND_BYTES, RESEND_FRAMES
from causalcast.runtime.recovery import LinkSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from causalcast.model import ProcessId, Roster

IDLE, GREETING, OPEN = range(3)
_HEADER_SIZE: Final = HEADER.size


def roster_digest(roster: Roster) -> str:
    """Equal for equal rosters only."""
    return hashlib.sha256("\n".join(roster).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a process says of itself in every hello."""

    group: str
    name: ProcessId
    roster: str
    stack: str
    frame_limit: int
    incarnation: int


class Link:
    """The state of the link to one peer."""

    way_back: ClassVar[str] = "a static group cannot take it back"
    """What one who has lost its state is told."""

    __slots__ = (
        "_attempt",
        "_buffer",
        "_control",
        "_expected",
        "_first_number",
        "_frame_limit",
        "_incarnation",
        "_me",
        "_needed",
        "_rest",
        "_sent",
        "_state",
        "_to_acknowledge",
        "_to_acknowledge_bytes",
        "_unsent",
        "_unsent_bytes",
        "departed",
        "ended",
        "next_number",
        "peer",
        "resend_bytes",
    )

    def __init__(self, me: Identity, peer: ProcessId) -> None:
        self.peer = peer
        self.departed = False
        """The peer has closed its group: what is pushed from now on goes nowhere."""
        self.ended: PeerClosedError | None = None
        """What the peer said when it ended the present connection; for the host to act on after `receive`."""
        self.next_number = 1
        """The number that the next frame pushed must carry."""
        self.resend_bytes = 0
        """Bytes that are not acknowledged, sent or not."""
        self._me = me
        self._frame_limit = me.frame_limit
        self._incarnation = 0
        self._attempt = 0
        self._state = IDLE
        # Sending: `_sent` starts at `_first_number`, `_unsent` follows it.
        self._first_number = 1
        self._sent: deque[bytes] = deque()
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._rest: memoryview | None = None
        """What is left of a large frame that is partly written."""
        self._control: list[bytes] = []
        # Receiving.
        self._expected = 1
        self._buffer = bytearray()
        self._needed = _HEADER_SIZE
        self._to_acknowledge = 0
        self._to_acknowledge_bytes = 0

    # ------------------------------------------------------------------ what the host asks

    @property
    def connected(self) -> bool:
        """Both hellos have been exchanged on the present connection."""
        return self._state == OPEN

    @property
    def progress(self) -> int:
        """Grows with every frame received and every acknowledgement."""
        return self._expected + self._first_number

    @property
    def unacknowledged(self) -> int:
        """Frames that the peer has not acknowledged, sent or not."""
        return self.next_number - self._first_number

    @property
    def amid_frame(self) -> bool:
        """A large frame is partly written: nothing else can be."""
        return self._rest is not None

    @property
    def full(self) -> bool:
        """The resend buffer is at its bound."""
        return self.next_number - self._first_number >= RESEND_FRAMES or self.resend_bytes >= RESEND_BYTES

    @property
    def owes_acknowledgement(self) -> bool:
        """Something was received and not acknowledged yet."""
        return self._to_acknowledge > 0

    @property
    def acknowledgement_due(self) -> bool:
        """So much was received that the acknowledgement should not wait."""
        return self._to_acknowledge >= ACK_FRAMES or self._to_acknowledge_bytes >= ACK_BYTES

    # ------------------------------------------------------------------ connections begin and end

    def dial(self) -> None:
        """Begin a connection that this side has opened."""
        self._attempt += 1
        self._state = GREETING
        self._control.append(hello_frame(self._hello()))

    def accept(self, hello: Hello) -> None:
        """Begin a connection that the peer has opened with `hello`; a connection that was there before is over.

        Raises `LinkError`, and leaves everything as it was, if it cannot be.
        """
        self._check(hello)
        if hello.attempt <= self._attempt:
            raise LinkError(f"a later connection of {self.peer} is there already", REFUSED)
        self.lost()
        self._attempt = hello.attempt
        self._open(hello)
        self._control.append(hello_frame(self._hello()))

    @property
    def incarnation(self) -> int:
        """Of the peer; 0 before it was met."""
        return self._incarnation

    def snapshot(self, place: Callable[[bytes], int]) -> LinkSnapshot:
        """What must not be forgotten; `place` tells where each frame is kept."""
        frames = [place(frame) for frame in (*self._sent, *self._unsent)]
        return LinkSnapshot(self._incarnation, self._first_number, frames, self._expected, self.departed)

    def restore(self, state: LinkSnapshot, frames: Sequence[bytes]) -> None:
        """Take up from `state`, before anything else."""
        self._incarnation = state.incarnation
        self._first_number = self.next_number = state.first_number
        self._expected = state.expected
        for place in state.frames:
            self.push(frames[place])
        self.departed = state.departed

    def begin_life(self, number: int) -> None:
        """Dials of this life count as later than those of lives with smaller numbers."""
        self._attempt = number << 32

    def recall(self, frames: int = 0, incarnation: int = 0) -> None:
        """Go again through what a journal says: so many frames were received, or the peer was met."""
        self._expected += frames
        self._incarnation = incarnation or self._incarnation

    def lost(self) -> None:
        """The connection is gone; what was not acknowledged will be sent again."""
        self._state = IDLE
        self.ended = None
        self._unsent.extendleft(reversed(self._sent))
        self._unsent_bytes = self.resend_bytes
        self._sent.clear()
        self._rest = None
        self._control.clear()
        self._buffer.clear()
        self._needed = _HEADER_SIZE
        self._to_acknowledge = self._to_acknowledge_bytes = 0

    def depart(self) -> None:
        """The peer has closed its group for good: forget what it has not acknowledged."""
        self.departed = True
        self.lost()
        self._unsent.clear()
        self._unsent_bytes = self.resend_bytes = 0
        self._first_number = self.next_number

    def farewell(self, code: int, reason: str) -> bytes:
        """The last bytes to write on a connection that this side ends."""
        acknowledgement = ack_frame(self._expected) if self._state == OPEN else b""
        return acknowledgement + close_frame(code, reason)

    def _hello(self) -> Hello:
        me = self._me
        return Hello(
            group=me.group,
            sender=me.name,
            addressee=self.peer,
            roster=me.roster,
            stack=me.stack,
            frame_limit=me.frame_limit,
            incarnation=me.incarnation,
            knows=self._incarnation,
            attempt=self._attempt,
            expects=self._expected,
        )

    def _check(self, hello: Hello) -> None:
        """Raise `LinkError` unless this link can go on with what `hello` says."""
        me = self._me
        peer = hello.sender
        if peer != (self.peer or peer):
            raise LinkError(f"{peer!r} answered where {self.peer!r} was expected", REFUSED)
        if hello.group != me.group:
            raise LinkError(f"{peer} is in group {hello.group!r}, {me.name} in {me.group!r}", REFUSED)
        if hello.stack != me.stack:
            raise LinkError(f"{peer} runs the stack {hello.stack!r}, {me.name} {me.stack!r}", REFUSED)
        if hello.addressee not in ("", me.name):
            raise LinkError(f"{peer} looks for {hello.addressee!r}, but here is {me.name!r}", REFUSED)
        if hello.roster != me.roster:
            raise LinkError(f"{peer} and {me.name} were given different members", REFUSED)
        if hello.frame_limit != me.frame_limit:
            raise LinkError(
                f"the frame limit is {hello.frame_limit} at {peer} and {me.frame_limit} at {me.name}", REFUSED
            )
        if self._incarnation not in (0, hello.incarnation):
            raise LinkError(f"{peer} was started again and has lost its state; {self.way_back}", REFUSED)
        if hello.knows not in (0, me.incarnation) or not self._first_number <= hello.expects <= self.next_number:
            raise LinkError(
                f"{me.name} was started again and has lost the state that {peer} goes on from; {self.way_back}",
                REFUSED,
            )

    def _open(self, hello: Hello) -> None:
        self._incarnation = hello.incarnation
        self._state = OPEN
        while self._first_number < hello.expects:
            size = len(self._unsent.popleft())
            self.resend_bytes -= size
            self._unsent_bytes -= size
            self._first_number += 1

    # ------------------------------------------------------------------ sending

    def push(self, frame: bytes) -> bool:
        """Send a data frame; it carries the number `next_number`. Returns whether the link is full now."""
        if self.departed:
            return False
        size = len(frame)
        self._unsent.append(frame)
        self._unsent_bytes += size
        self.resend_bytes += size
        self.next_number = number = self.next_number + 1
        # `full`, without a call.
        return number - self._first_number >= RESEND_FRAMES or self.resend_bytes >= RESEND_BYTES

    def keep_alive(self) -> None:
        """Say that this side is there."""
        if self._state == OPEN:
            self._acknowledge()

    def output(self, limit: int) -> bytes | memoryview:
        """The next bytes to write, `limit` at most or a control frame more; empty if there are none now."""
        if self._rest is not None:
            return self._output_rest(limit)
        if self._to_acknowledge:
            self._acknowledge()
        if self._state != OPEN:
            return self._output_control()
        unsent = self._unsent
        if not unsent:
            return self._output_control()
        parts = self._control
        if self._unsent_bytes <= limit:
            self._sent.extend(unsent)
            parts.extend(unsent)
            unsent.clear()
            self._unsent_bytes = 0
        elif len(unsent[0]) > limit:
            frame = unsent.popleft()
            self._sent.append(frame)
            self._unsent_bytes -= len(frame)
            self._rest = memoryview(frame)
            return self._output_control() or self._output_rest(limit)
        else:
            room = limit
            while unsent and len(unsent[0]) <= room:
                frame = unsent.popleft()
                room -= len(frame)
                self._sent.append(frame)
                parts.append(frame)
            self._unsent_bytes -= limit - room
        return self._output_control()

    def _output_control(self) -> bytes:
        parts = self._control
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return data

    def _output_rest(self, limit: int) -> memoryview:
        rest = self._rest
        assert rest is not None
        self._rest = rest[limit:] if len(rest) > limit else None
        return rest[:limit]

    def _acknowledge(self) -> None:
        self._control.append(ack_frame(self._expected))
        self._to_acknowledge = self._to_acknowledge_bytes = 0

    # ------------------------------------------------------------------ receiving

    def receive(self, data: bytes) -> list[bytes]:
        """Bytes have come; returns the bodies of the data frames that are complete now, in order.

        They count as processed. After a close frame `ended` is set. Raises `LinkError` on what cannot be right; data
        frames before it, in the same bytes, come again with the next connection.
        """
        if self._buffer or self._state == GREETING:
            data = self._complete(data)
        bodies: list[bytes] = []
        append = bodies.append
        unpack = HEADER.unpack_from
        expected = self._expected
        size = len(data)
        position = 0
        while (start := position + _HEADER_SIZE) <= size:
            length, kind, number = unpack(data, position)
            end = start + length
            if kind == DATA:
                if number != expected:
                    raise LinkError(f"data frame {number} came where {expected} was due")
                if end > size:
                    if length > self._frame_limit:
                        raise LinkError(f"a frame of {length:,} bytes exceeds the limit of {self._frame_limit:,}")
                    break
                append(data[start:end])
                expected += 1
            else:
                if kind not in (ACK, CLOSE) or length > REASON_LIMIT:
                    raise LinkError(f"a frame of kind {kind} and {length:,} bytes cannot come here")
                if end > size:
                    break
                if kind == CLOSE:
                    self.ended = read_close(number, data[start:end])
                    position = size
                    break
                self._acknowledged(number)
            position = end
        if position < size:
            self._buffer += data[position:]
            left = size - position
            self._needed = _HEADER_SIZE if left < _HEADER_SIZE else _HEADER_SIZE + length
        self._to_acknowledge += expected - self._expected
        self._to_acknowledge_bytes += size
        self._expected = expected
        return bodies

    def unprocessed(self, count: int) -> None:
        """The last `count` bodies that `receive` returned were not processed; they come again."""
        self._expected -= count

    def _complete(self, data: bytes) -> bytes:
        """What has come so far, if it is a complete frame at least; else nothing, and it stays in the buffer."""
        buffer = self._buffer
        if self._state == GREETING:
            buffer += data
            return self._greet()
        if len(buffer) + len(data) < self._needed:
            buffer += data
            return b""
        data = b"".join((buffer, data))
        buffer.clear()
        return data

    def _greet(self) -> bytes:
        """The peer's hello, if it is complete; returns what follows it."""
        found = read_hello(self._buffer)
        if found is None:
            return b""
        hello, end = found
        self._check(hello)
        self._open(hello)
        rest = bytes(self._buffer[end:])
        self._buffer.clear()
        return rest

    def _acknowledged(self, expected: int) -> None:
        sent = self._sent
        count = expected - self._first_number
        if not 0 <= count <= len(sent):
            raise LinkError(
                f"frames below {expected} were acknowledged, but {self._first_number} to "
                f"{self._first_number + len(sent) - 1} are out"
            )
        self._first_number = expected
        size = 0
        for _ in range(count):
            size += len(sent.popleft())
        self.resend_bytes -= size
