"""The mesh of members that come and go: durable links to whomever the process sends to, or who comes to it.

Theory of operation. A link begins when this process first sends to a name whose address it has learnt (a join brings
it, see `Directory`), or when a stranger introduces itself. Who begins it dials, and goes on dialling. If both begin at
once, the one whose name is smaller dials from then on, and the other only listens. Who comes back with a journal dials
everybody: whoever waits between two attempts to reach it takes its connection, and others learn where it is now.

A link ends when its peer says that it has left, or when the host lets go of a peer that is a member no more. The name
is remembered, so that a peer which has not noticed is told what it is: evicted, or gone as it wished. A name is one
life.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import msgspec

from causalcast.model import InvalidNameError, Roster
from causalcast.runtime.address import Address, InvalidAddressError
from causalcast.runtime.book import Book, Entry
from causalcast.runtime.frames import CROSSED, EVICTED, LEAVING, REFUSED, LinkError, PeerClosedError
from causalcast.runtime.limits import BOOK_ENTRIES, REDIAL_FIRST_S, REDIAL_MOST_S, SESSIONS
from causalcast.runtime.link import Link
from causalcast.runtime.mesh import BaseMesh, MeshHost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.connection import Connection
    from causalcast.runtime.frames import Hello
    from causalcast.runtime.link import Identity
    from causalcast.runtime.recovery import LinkSnapshot, MovingState
    from causalcast.runtime.tls import Tls

logger = logging.getLogger("causalcast")

_UNUSED: Final = 2
"""What the next numbers of both directions make together on a link that has carried nothing."""


def farewell(name: ProcessId, code: int) -> LinkError:
    """What `name`, who is no member any more, is told: `LEAVING` or `EVICTED`, and the reason."""
    return LinkError(f"{name} {'was evicted from' if code == EVICTED else 'has left'} this group", code)


class DynamicMeshHost(MeshHost, Protocol):
    """Who takes what the links bring."""

    def expelled(self, link: MemberLink) -> None:
        """The peer says that this process is evicted."""

    def is_wanted(self, name: ProcessId) -> bool:
        """Whether a link to `name` whose connection is gone is kept."""


class MemberLink(Link):
    """A link to a member, the peer of which may be known by its address only until it answers."""

    __slots__ = ("_meet", "dialling", "heard", "hello", "noted", "pieces", "said", "where")

    way_back: ClassVar[str] = "it can join under a name that is new to the group"

    def __init__(self, me: Identity, peer: ProcessId, meet: Callable[[Hello], None]) -> None:
        """`meet` raises `LinkError` for a peer that is not what it says."""
        super().__init__(me, peer)
        self._meet = meet
        self.said = Address("", 0)
        """Where this process is reached, as the peer is told."""
        self.where: Address | None = None
        """Where the peer is."""
        self.dialling: asyncio.Task[None] | None = None
        """If this side dials."""
        self.hello: Hello | None = None
        """Of the peer, the latest."""
        self.noted: Hello | None = None
        """The latest from which was learnt where the peer is."""
        self.heard = 0.0
        """Loop time of the last bytes, on connections that are over."""
        self.pieces: list[bytes] = []
        """What has come of a message that is longer than a frame."""

    @property
    def used(self) -> bool:
        """Whether it has carried anything, or is to."""
        return self._expected + self.next_number > _UNUSED

    def begin_life(self, number: int) -> None:
        """Before this side dials; what has come from the peer stays later than what came before."""
        self._attempt = max(self._attempt, number << 32)

    def is_later(self, hello: Hello) -> bool:
        """Whether the connection that `hello` begins is later than any that this side knows of."""
        return hello.attempt > self._attempt

    def yield_dialling(self) -> None:
        """From now on the peer dials."""
        if self.dialling is not None:
            self.dialling.cancel()
            self.dialling = None
        self._attempt = 0

    def _hello(self) -> Hello:
        host, port = self.said
        return msgspec.structs.replace(super()._hello(), host=host, port=port)

    def _check(self, hello: Hello) -> None:
        self._meet(hello)
        super()._check(hello)
        self.hello = hello
        self.peer = hello.sender


class DynamicMesh(BaseMesh[MemberLink]):
    """Listens, dials, keeps one connection per link, and knows where members are. A `Directory`."""

    def __init__(
        self, host: DynamicMeshHost, me: Identity, listen: Address, tls: Tls | None, advertise: Address | None
    ) -> None:
        """`advertise`: where others reach this process, if that is not where it listens."""
        super().__init__(host, me, listen, tls)
        self.book = Book(me.name)
        self.door: LinkError | None = None
        """Why nobody is let in now."""
        self._dynamic_host = host
        self._advertise = advertise
        self.life = 0
        """1, 2, 3, ... for each start of this process; 0 without a journal."""
        self.gone: dict[ProcessId, int] = {}
        """Who is no member any more, and the code of the close frame that tells it so."""
        self._greetings: dict[MemberLink, asyncio.Future[LinkError | None]] = {}
        """Of attempts to reach one whose name is not known, how they ended: `None` is well."""

    # ------------------------------------------------------------------ what the host does

    async def start(self) -> None:
        """Listen, and dial whomever there is a link to."""
        await super().start()
        for link in self.links.values():
            link.said = self._advertise or self.address
            if link.where is not None:
                self._begin_dialling(link)

    async def introduce(self, address: Address) -> ProcessId:
        """Make a link to who listens there, and find out its name; raises `LinkError`."""
        link = self._new("")
        link.begin_life(self.life)
        greeting: asyncio.Future[LinkError | None] = asyncio.get_running_loop().create_future()
        self._greetings[link] = greeting
        try:
            await self._open_connection(link, address)
            error = await greeting
        except asyncio.CancelledError:
            del self._greetings[link]
            connection = self._connections.pop(link, None)
            if connection is not None:
                connection.drop(LinkError("it is not wanted any more"))
            raise
        if error is not None:
            raise error
        return link.peer

    def link_to(self, name: ProcessId) -> MemberLink | None:
        """The link to `name`, which begins if there is none; `None` if it is gone or nobody has told where it is."""
        link = self.links.get(name)
        if link is None and name not in self.gone:
            where = self.book.address(name)
            if where is None:
                logger.warning("%s: nobody has told where %s is", self._name, name)
                return None
            link = self.links[name] = self._new(name)
            link.where = where
            if self._server is not None:
                self._begin_dialling(link)
        return link

    def let_go(self, name: ProcessId, code: int) -> None:
        """End the link to `name`, who is no member any more; it is told so, now or when it comes back."""
        self._remember(name, code)
        link = self.links.pop(name, None)
        if link is not None:
            link.yield_dialling()
            connection = self._connections.get(link)
            if connection is not None:
                connection.end(farewell(name, code))

    def heard(self, name: ProcessId) -> float:
        """Loop time at which the last bytes of `name` came; 0 if none have."""
        link = self.links.get(name)
        if link is None:
            return 0.0
        connection = self._connections.get(link)
        return max(link.heard, connection.heard) if connection is not None and link.connected else link.heard

    # ------------------------------------------------------------------ recovery, before `start`

    def restore(self, state: MovingState, links: Mapping[ProcessId, LinkSnapshot], frames: Sequence[bytes]) -> None:
        """Take up from there."""
        for entry in state.book:
            self.book.write(entry)
        self.gone = state.gone
        for name, snapshot in links.items():
            link = self.links[name] = self._new(name)
            link.restore(snapshot, frames)
            link.where = self.book.address(name)
            link.pieces = state.pieces.get(name, [])

    def recall(self, name: ProcessId, incarnation: int, address: Address) -> None:
        """`name` said which life it is, and where it is reached."""
        self.book.write(Entry(name, *address, incarnation), first_hand=True)
        link = self.links.get(name)
        if link is None:
            link = self.links[name] = self._new(name)
        link.recall(incarnation=incarnation)
        link.where = address

    def recall_departure(self, name: ProcessId) -> None:
        """`name` said goodbye."""
        self._remember(name, LEAVING)
        link = self.links.pop(name, None)
        if link is not None:
            link.depart()

    def recalled(self) -> None:
        """That was all."""
        for link in list(self.links.values()):
            self._drop_unused(link)

    # ------------------------------------------------------------------ `Directory`

    def where(self, name: ProcessId) -> str:
        """Incarnation and address of `name`, for whoever gets to know of it through this process."""
        return "".join(f"{each.incarnation:x}@{Address(each.host, each.port)}" for each in self.book.entries([name]))

    def learn(self, name: ProcessId, address: str) -> None:
        """What another member's `where` says; what makes no sense is logged and not believed."""
        incarnation, _, place = address.partition("@")
        try:
            entry = Entry(name, *Address.parse(place), int(incarnation, 16))
            entry.check()
            self.book.meet(name, entry.incarnation)
        except (ValueError, InvalidAddressError, LinkError) as error:
            logger.warning("%s: cannot use what was told of %s: %s", self._name, name, error)
            return
        self.book.write(entry)

    # ------------------------------------------------------------------ what connections tell (`Owner`)

    def introduced(self, connection: Connection[MemberLink], hello: Hello) -> MemberLink:
        name = hello.sender
        self._meet(hello)
        if self.door is not None:
            raise self.door
        gone = self.gone.get(name)
        if gone is not None:
            raise farewell(name, gone)
        link = self.links.get(name)
        if link is None:
            if len(self.links) >= SESSIONS:
                raise LinkError(f"{self._name} has {SESSIONS} links and takes no more", REFUSED)
            link = self._new(name)
        elif link.dialling is not None:
            if self._name > name:
                link.yield_dialling()
            elif link in self._connections or not link.is_later(hello):
                if link.incarnation == hello.incarnation:
                    # It may have come back elsewhere.
                    link.where = self.book.hear(hello, connection.remote_host)
                    self._host.met(link)
                raise LinkError(f"{self._name} is dialling {name}", CROSSED)
        self._accept(connection, link, hello)
        self.links[name] = link
        return link

    def received(self, link: MemberLink, bodies: Sequence[bytes]) -> None:
        if link in self._greetings and link.connected:
            self._connections[link].require_name(link.peer)
            greeting = self._greetings.pop(link)
            self.links[link.peer] = link
            self._begin_dialling(link)
            greeting.set_result(None)
        if link.connected and link.hello is not link.noted:
            # What came with the hello comes from who said it.
            self._met(link, self._connections[link])
        super().received(link, bodies)

    def ended(self, connection: Connection[MemberLink], error: LinkError) -> None:
        link = connection.link
        if link is None:
            if error.code == REFUSED:
                self._stranger_ended(connection, error)
            else:
                # Such is life: it left before it was known, or it is told that it is gone.
                self._strangers.pop(connection, None)
        elif self._connections.get(link) is connection:
            del self._connections[link]
            self._over(connection, link, error)

    def _over(self, connection: Connection[MemberLink], link: MemberLink, error: LinkError) -> None:
        """The connection of `link` has ended."""
        code = error.code if isinstance(error, PeerClosedError) else 0
        greeting = self._greetings.pop(link, None)
        if link.connected:
            link.heard = connection.heard
        link.lost()
        if greeting is not None:
            if not greeting.done():
                greeting.set_result(error)
            return
        if self.links.get(link.peer) is not link:
            return
        if code == LEAVING:
            self._remember(link.peer, LEAVING)
            del self.links[link.peer]
            link.yield_dialling()
            self._depart(link, error.reason)
        elif code == EVICTED:
            self._dynamic_host.expelled(link)
        elif code == CROSSED:
            link.yield_dialling()
        else:
            self._report(link, error.reason)
            self._drop_unused(link)
        self._host.links_changed()

    # ------------------------------------------------------------------ inside

    def _new(self, name: ProcessId) -> MemberLink:
        link = MemberLink(self._me, name, self._meet)
        link.said = self._advertise or self.address
        return link

    def _meet(self, hello: Hello) -> None:
        """Raise `LinkError` unless there can be a link to who says `hello`."""
        name = hello.sender
        try:
            Roster((name,))
        except InvalidNameError as error:
            raise LinkError(str(error), REFUSED) from None
        if name == self._name:
            if hello.incarnation == self._me.incarnation:
                raise LinkError(f"{name} listens there itself", REFUSED)
            raise LinkError(f"the name {name!r} is another member's: take one that is new to the group", REFUSED)
        self.book.meet(name, hello.incarnation)

    def _met(self, link: MemberLink, connection: Connection[MemberLink]) -> None:
        assert link.hello is not None
        link.noted = link.hello
        link.where = self.book.hear(link.hello, connection.remote_host)
        super()._met(link, connection)

    def _drop_unused(self, link: MemberLink) -> None:
        """The peer goes on from what it knows of a link that has carried anything; others are kept for members."""
        if not link.used and link.dialling is None and not self._dynamic_host.is_wanted(link.peer):
            del self.links[link.peer]

    def _remember(self, name: ProcessId, code: int) -> None:
        self.gone[name] = code
        if len(self.gone) > BOOK_ENTRIES:
            del self.gone[next(iter(self.gone))]

    def _begin_dialling(self, link: MemberLink) -> None:
        link.begin_life(self.life)
        link.dialling = task = asyncio.create_task(self._dial(link), name=f"causalcast dials {link.peer}")
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)

    async def _dial(self, link: MemberLink) -> None:
        """Keep a connection to the peer of `link`, until it is let go of or dials itself."""
        wait = REDIAL_FIRST_S
        while True:
            progress = link.progress
            # The one over which it was introduced may be there.
            connection = self._connections.get(link)
            if connection is None:
                assert link.where is not None
                connection = await self._open_connection(link, link.where)
            if connection is not None:
                await asyncio.wait([connection.closed])
                if link.progress > progress:
                    wait = REDIAL_FIRST_S
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(2 * wait, REDIAL_MOST_S)
