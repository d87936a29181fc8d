"""One TCP connection: the thin asyncio side of a link or a session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from causalcast.runtime.frames import LinkError, close_frame, read_hello
from causalcast.runtime.limits import HANDSHAKE_S, WRITE_CHUNK
from causalcast.runtime.tls import require_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.frames import Hello, PeerClosedError


class Line(Protocol):
    """What uses a connection: a state machine that takes bytes and gives bytes. A `Link` or a `Session`."""

    peer: ProcessId
    """Empty: the one who dials learns it from the hello."""
    ended: PeerClosedError | None

    @property
    def connected(self) -> bool: ...

    @property
    def amid_frame(self) -> bool: ...

    @property
    def acknowledgement_due(self) -> bool: ...

    def dial(self) -> None: ...

    def keep_alive(self) -> None: ...

    def receive(self, data: bytes) -> list[bytes]: ...

    def output(self, limit: int) -> bytes | memoryview: ...

    def farewell(self, code: int, reason: str) -> bytes: ...


L = TypeVar("L", bound=Line)


class Owner(Protocol[L]):
    """Who owns connections, and is told what happens on them."""

    incoming: memoryview
    """Where what a connection reads is put first. They share it: the event loop gives each its bytes at once."""

    def arrived(self, connection: Connection[L]) -> None:
        """A stranger has connected."""

    def introduced(self, connection: Connection[L], hello: Hello) -> L:
        """A stranger has said who it is; raises `LinkError` to refuse it."""

    def opened(self, link: L) -> None:
        """Both hellos of a link have been exchanged; raises `LinkError` to end the connection."""

    def received(self, link: L, bodies: Sequence[bytes]) -> None:
        """Data, and perhaps acknowledgements, have come; raises `LinkError` to end the connection."""

    def may_write(self) -> bool:
        """Whether anything may leave now: what led to it is written down."""

    def ended(self, connection: Connection[L], error: LinkError) -> None:
        """The connection is of no use any more, for this reason; called once."""


class Connection(asyncio.BufferedProtocol, Generic[L]):
    """A transport, and the link that uses it as soon as it is known."""

    def __init__(self, owner: Owner[L], link: L | None = None) -> None:
        """With a `link`, this side has dialled; without, the first bytes tell which link it is."""
        self.link = link
        self.heard = asyncio.get_running_loop().time()
        """Loop time of the last bytes received, or of the last moment at which none were wanted."""
        self.wrote = False
        """Something was written since the owner last reset this."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._over = False
        self._writable = True
        self._reading = True
        self._greeting = bytearray()
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def reading(self) -> bool:
        """Whether this side reads."""
        return self._reading

    @property
    def remote_host(self) -> str:
        """The address from which the other side is connected."""
        assert self._transport is not None
        return str(self._transport.get_extra_info("peername")[0])

    def require_name(self, peer: ProcessId) -> None:
        """Raises `LinkError` unless the certificate of the other side, if there is TLS, names `peer`."""
        assert self._transport is not None
        require_name(self._transport, peer)

    # ------------------------------------------------------------------ asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_CHUNK)
        self.heard = self._loop.time()
        self._deadline = self._loop.call_later(HANDSHAKE_S, self._too_late)
        if self.link is None:
            self._owner.arrived(self)
            return
        try:
            if self.link.peer:
                require_name(transport, self.link.peer)
        except LinkError as error:
            self.end(error)
        else:
            self.link.dial()
            self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._owner.incoming

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return
        data = bytes(self._owner.incoming[:nbytes])
        self.heard = self._loop.time()
        try:
            link = self.link
            if link is None:
                link = self._introduce(data)
                if link is None:
                    return
                data = bytes(self._greeting)
                self._greeting.clear()
            opens = False
            if self._deadline is None:
                bodies = link.receive(data)
            else:
                bodies = link.receive(data)
                opens = link.connected
            self._owner.received(link, bodies)
            if opens:
                self._greeted()
                self._owner.opened(link)
            if link.ended is not None:
                raise link.ended
            if link.acknowledgement_due:
                self.flush()
        except LinkError as error:
            self.end(error)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self.flush()

    def eof_received(self) -> None:
        self._finish(LinkError("the peer closed the connection without a word"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(LinkError(f"the connection broke: {exc}" if exc else "the connection was closed"))
        if not self.closed.done():
            self.closed.set_result(None)

    # ------------------------------------------------------------------ what the owner does

    def flush(self) -> None:
        """Write what the link has, as far as the transport takes it."""
        transport = self._transport
        link = self.link
        if self._over or transport is None or link is None or not self._owner.may_write():
            return
        while self._writable and (data := link.output(WRITE_CHUNK)):
            transport.write(data)
            self.wrote = True

    def pause_reading(self) -> None:
        """Take nothing from the network until `resume_reading`."""
        if self._reading and self._transport is not None and not self._over:
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if not self._reading and self._transport is not None and not self._over:
            self._reading = True
            self.heard = self._loop.time()
            self._transport.resume_reading()

    def end(self, error: LinkError) -> None:
        """Say why and close; what is written already still goes out, but nothing waits for it beyond a bound."""
        transport = self._transport
        if not self._over and transport is not None:
            link = self.link
            if link is None or (not link.amid_frame and self._owner.may_write()):
                farewell = close_frame if link is None else link.farewell
                transport.write(farewell(error.code, error.reason))
            # Before it is closed: TLS tells of that while it happens.
            self._finish(error)
            transport.close()
            self._loop.call_later(HANDSHAKE_S, transport.abort)
        self._finish(error)

    def drop(self, error: LinkError) -> None:
        """Close at once, without a word."""
        if self._transport is not None:
            self._transport.abort()
        self._finish(error)

    # ------------------------------------------------------------------ inside

    def _introduce(self, data: bytes) -> L | None:
        """Find the link of a stranger, once its hello is complete; what follows the hello stays in `_greeting`."""
        self._greeting += data
        found = read_hello(self._greeting)
        if found is None:
            return None
        hello, end = found
        self.require_name(hello.sender)
        link = self._owner.introduced(self, hello)
        del self._greeting[:end]
        self.link = link
        return link

    def _greeted(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self.end(LinkError(f"no hello came within {HANDSHAKE_S:g} s"))

    def _finish(self, error: LinkError) -> None:
        if self._over:
            return
        self._over = True
        self._greeted()
        self._owner.ended(self, error)
