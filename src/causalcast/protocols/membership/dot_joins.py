"""Joins: what a joiner does, what its contact does for it, and how two members come to know that they know each other.

See `docs/membership.md`; document 004, section 6.2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from causalcast.model import ProtocolViolationError, StateTransferError
from causalcast.protocols.membership.dot_records import INSTALLED, PRESENT, Other
from causalcast.protocols.membership.dot_snapshot import JoinsState
from causalcast.protocols.membership.dot_transfers import check_transfer
from causalcast.protocols.ordering.tcb_dynamic_messages import (
    Carried,
    JoinDot,
    JoinRequest,
    Refusal,
    TransferredMember,
    Welcome,
    is_process_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.membership.dot_records import Directory
    from causalcast.protocols.membership.dot_snapshot import AnyMessage
    from causalcast.protocols.membership.dots import DotMembership
    from causalcast.protocols.ordering.tcb_dynamic_messages import DotNode, Transfer
    from causalcast.protocols.port import WireMessage


class Joins:
    """Both sides of joins at one process."""

    __slots__ = (
        "_dot",
        "_early",
        "_membership",
        "awaited",
        "busy",
        "contact",
        "directory",
        "give_state",
        "requests",
        "take_state",
    )

    def __init__(self, membership: DotMembership) -> None:
        self._membership = membership
        self.give_state: Callable[[], bytes | None] | None = None
        """The application's: its state after all that it has taken, for one who joins through this process; `None` is
        as if there were none. Whatever it raises is a `StateTransferError`.
        """
        self.take_state: Callable[[bytes], None] | None = None
        """The application's: begin with what another one gave. Called before its first event."""
        self.busy = False
        """The application has not done with what it has taken last: its state is not that yet."""
        self.directory: Directory | None = None
        """The host's."""
        self.contact: ProcessId = ""
        """Through whom this process joins; empty: it was there from the start."""
        self._dot: RawDot | None = None
        """The dot with which it has joined."""
        self._early: list[tuple[ProcessId, WireMessage]] = []
        """What arrived before the state."""
        self.awaited: set[ProcessId] = set()
        """Whose welcome is missing until this process is a member."""
        self.requests: dict[ProcessId, str] = {}
        """Who waits to be let in, and where each is reached if another member says so."""

    @property
    def waiting(self) -> int:
        """How much of what came waits here."""
        return len(self._early) + len(self.requests)

    # ------------------------------------------------------------------ the joiner

    def ask(self, contact: ProcessId) -> None:
        """Ask to be let in."""
        self.contact = contact
        self._membership.port.send([contact], JoinRequest(self._membership.name))

    def keep(self, sender: ProcessId, message: WireMessage) -> None:
        """It came before the state."""
        self._early.append((sender, message))

    def drop(self) -> None:
        """Give up."""
        self._early.clear()

    def install(self, contact: ProcessId, state: Transfer) -> None:
        """Take over what `contact` has. Raises `ProtocolViolationError`, and takes nothing, if that cannot be."""
        membership = self._membership
        check_transfer(state, contact, membership.name)
        self.contact = contact
        self._dot = state.join
        membership.others = {
            each.name: Other(each.status, each.by, left_taken=each.left_taken, forgetting=each.forgetting)
            for each in state.members
        }
        membership.others[contact] = Other(open=True)
        heard = {each.name: each.heard for each in state.members if each.heard}
        heard[contact] = state.taken
        membership.gone = {each.name for each in state.members if each.status != PRESENT}
        membership.forgettable = {each.name for each in state.members if each.forgettable}
        membership.evictions.install(state)
        membership.state = INSTALLED
        membership.is_calm = False
        membership.news.hold()
        self.awaited = {
            name for name in membership.present() if name != contact and not membership.evictions.closed_to(name)
        }
        membership.route()
        has_state = state.state is not None and self.take_state is not None
        if state.state is not None and self.take_state is not None:
            self.take_state(state.state)
        membership.ordering.install(state, heard, has_state=has_state)
        for each in state.members:
            self.note(each.name, each.address)
        for dot in state.waiting:
            membership.ordering.accept(dot)
        early, self._early = self._early, []
        for sender, message in early:
            if type(message) in membership.wire_types:
                membership.receive(sender, message)
            else:
                membership.ordering.receive(message)  # type: ignore[arg-type] # it came from there
        membership.ordering.settle()

    def plead(self) -> None:
        """The contact seems to have crashed, and may have told nobody of the join: then it is time to know."""
        membership = self._membership
        join = None if self._dot is None else membership.ordering.graph.nodes.get(self._dot)
        if join is not None and join.message is not None:
            membership.port.send(sorted(self.awaited), Carried((join.message,)))

    # ------------------------------------------------------------------ its contact

    def request(self, member: ProcessId, address: str = "") -> None:
        """`member` asks to be let in. Raises `ProtocolViolationError`."""
        membership = self._membership
        if member == membership.name or not is_process_name(member):
            raise ProtocolViolationError(f"{member!r} cannot join through {membership.name!r}")
        known = membership.others.get(member)
        if known is not None or membership.evictions.closed_to(member):
            if known is None or known.by != membership.name:
                membership.port.send([member], Refusal())
        elif membership.leaving:
            heirs = [name for name in membership.present() if membership.others[name].open]
            if heirs:
                membership.port.send([min(heirs)], JoinRequest(member, address or self._address(member)))
            else:
                membership.port.send([member], Refusal())
        else:
            self.requests.setdefault(member, address)
            membership.is_calm = False

    def waits(self, member: ProcessId) -> bool:
        """Whether `member` waits to be let in."""
        return member in self.requests

    def withdraw(self, member: ProcessId) -> None:
        """`member` is gone before it was let in."""
        self.requests.pop(member, None)

    def pass_on(self) -> None:
        """This process leaves: others serve who waits here."""
        requests, self.requests = self.requests, {}
        for member, address in requests.items():
            self.request(member, address)

    def admit(self) -> None:
        """Let those in who wait, if the application has taken all that it could: its state is theirs."""
        while self.requests and not self.busy and self._membership.ordering.is_level:
            member = next(iter(self.requests))
            self._admit(member, self.requests.pop(member))

    def _admit(self, member: ProcessId, address: str) -> None:
        membership, ordering = self._membership, self._membership.ordering
        try:
            state = None if self.give_state is None else self.give_state()
        except StateTransferError:
            membership.port.send([member], Refusal())
            return
        self.note(member, address)
        where = self._address(member)
        node = ordering.emit(lambda counter, context: JoinDot(membership.name, counter, context, member, where))
        membership.others[member].open = True
        membership.route()
        members = tuple(
            TransferredMember(
                name,
                other.status,
                other.by,
                other.left_taken,
                other.forgetting,
                name in membership.forgettable,
                ordering.heard(name),
                ordering.phantoms.spoken.get(name, 0),
                self._address(name),
            )
            for name, other in sorted(membership.others.items())
            if name != member
        )
        transfer = ordering.transfer(node, members, *membership.evictions.transfer(), state)
        membership.port.send([member], transfer)

    # ------------------------------------------------------------------ recovery

    def snapshot(self) -> JoinsState:
        """To be written down; not what the host has set, and whether its application is busy, which ends with it."""
        early = cast("tuple[tuple[ProcessId, AnyMessage], ...]", tuple(self._early))
        return JoinsState(self.contact, self._dot, early, tuple(sorted(self.awaited)), self.requests)

    def restore(self, state: JoinsState) -> None:
        """Take up from there."""
        self.contact, self._dot = state.contact, state.dot
        self._early = list(state.early)
        self.awaited = set(state.awaited)
        self.requests = state.requests

    # ------------------------------------------------------------------ everybody

    def note(self, name: ProcessId, address: str) -> None:
        """`name` is reached there, if anything is said of it."""
        if address and self.directory is not None:
            self.directory.learn(name, address)

    def _address(self, name: ProcessId) -> str:
        return "" if self.directory is None else self.directory.where(name)

    def welcome(self, name: ProcessId, join: DotNode) -> None:
        """`name`, whom another let in with the dot `join`, is a member; send it what it lacks if it knows this one."""
        membership, ordering = self._membership, self._membership.ordering
        if self._dot is None or ordering.is_in(join.past, self._dot):
            membership.others[name].open = True
            membership.route()
            membership.port.send([name], Welcome(ordering.own_since(name)))
            if membership.leaving:
                membership.evictions.carry([name])
        else:
            # If its own welcome came before its join, it comes again when it has this one.
            membership.port.send([name], Welcome())

    def welcomed(self, sender: ProcessId, welcome: Welcome) -> None:
        """`sender` counts this process among the members: send it what it lacks, and from now on all."""
        membership, ordering = self._membership, self._membership.ordering
        if not membership.accepts(sender):
            return
        other = membership.others[sender]
        if not other.open and not other.left_taken:
            other.open = True
            membership.route()
            membership.port.send([sender], Welcome(ordering.own_since(sender)))
            if membership.speaks:
                # It has missed the phantoms so far.
                ordering.may_speak()
        for dot in welcome.dots:
            if dot.origin != sender:
                raise ProtocolViolationError(f"{sender!r} welcomes with a dot of {dot.origin!r}")
            ordering.accept(dot)
        self.awaited.discard(sender)
