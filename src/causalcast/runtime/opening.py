"""How an application opens a group."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from causalcast.protocols import DEFAULT_STACK
from causalcast.runtime.address import Address
from causalcast.runtime.dynamics import Dynamics
from causalcast.runtime.group import Group
from causalcast.runtime.limits import FRAME_LIMIT

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.journal import Durability
    from causalcast.runtime.tls import Tls
    from causalcast.trace import TraceSink

NO_PEERS: Final[Mapping[ProcessId, str]] = MappingProxyType({})


def open(  # noqa: PLR0913 - all but the first by name
    name: ProcessId,
    *,
    listen: str,
    peers: Mapping[ProcessId, str] = NO_PEERS,
    join: str | Sequence[str] = (),
    stack: str = DEFAULT_STACK,
    group: str = "default",
    trace: str | os.PathLike[str] | TraceSink | None = None,
    frame_limit: int = FRAME_LIMIT,
    tls: Tls | None = None,
    journal: str | os.PathLike[str] | None = None,
    durability: Durability = "every-message",
    advertise: str | None = None,
    give_state: Callable[[], bytes] | None = None,
    take_state: Callable[[bytes], None] | None = None,
    evict_after: float | None = None,
) -> Group:
    """The member `name` of a group whose other members are `peers` (name to `host:port`); use it with `async with`.

    All members must be given the same names, `group`, `stack` and `frame_limit`. `listen` is `host:port`; port 0 takes
    any, see `Group.address`.

    On a stack whose members are dynamic (`causalcast stacks` says which) they come and go: instead of `peers` give
    `join`, where a member listens, or several in a list to try; without it this member is the first of its group.
    Entering the context joins the group, closing leaves it. A name is one life: who comes back takes a new one.

    On `tcb-dynamic` the application's own state can go with a join. `give_state` is called at a member through which
    another one joins, while the application waits for its next event: it returns the state after all events taken and
    messages broadcast so far. `take_state` gets it at the joiner, before the context is entered. All members have both,
    or none has. `evict_after` is a failure detector: a member of whom nothing was heard for so many seconds is evicted.
    `advertise` is the `host:port` at which others reach this member, if it is not `listen`.

    `trace` is a folder, where `NAME.jsonl` is written (one that is there already becomes `NAME.jsonl.1`, `.2`, ...), or
    a sink of your own, which is closed with the group.

    With `tls` all members must have it: each shows a certificate of the same authority that names it, and whoever shows
    none, or another's, is turned away.

    `journal` is a file, one for each member, that lets this member come back after a crash or a `close`: it must not
    forget what it has sent and taken. The trace then goes on too. With `durability` "every-message" nothing leaves this
    process before all that led to it is on the disk; with "interval" it comes there from time to time, so that a
    process that is killed comes back and a machine that loses its power may not; with "none" there is no journal.
    Where members come and go, one that comes back does not join again, and `Group.leave` is for good. The state that
    `take_state` got is the application's to keep.

    Raises `InvalidNameError`, `InvalidAddressError`, `UnknownStackError`, `UnsupportedByStackError` for `peers` where
    members come and go, `join` where they are fixed, a journal where the stack keeps nothing, and on other stacks for
    what is only for `tcb-dynamic`, `ValueError` for another durability and too short an `evict_after`; entering the
    context raises `OSError` if the address cannot be had, `TlsError` if the certificates cannot be used, `JournalError`
    if the journal cannot, `JoinError` if no contact lets this member in.
    """
    contacts = (join,) if isinstance(join, str) else tuple(join)
    dynamics = Dynamics(None if advertise is None else Address.parse(advertise), give_state, take_state, evict_after)
    return Group(name, listen, peers, stack, group, trace, frame_limit, tls, journal, durability, contacts, dynamics)
