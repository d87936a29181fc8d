"""How a process that knows addresses only becomes a member, whatever its links are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from causalcast.model import CausalcastError
from causalcast.runtime.frames import REFUSED, LinkError, PeerClosedError
from causalcast.runtime.limits import JOIN_S, REDIAL_FIRST_S, REDIAL_MOST_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from causalcast.model import ProcessId
    from causalcast.runtime.address import Address


class JoinError(CausalcastError, ConnectionError):
    """The group could not be joined: says through whom it was tried, and why it failed."""


async def join_through(
    name: ProcessId,
    contacts: Sequence[Address],
    introduce: Callable[[Address], Awaitable[ProcessId]],
    begin: Callable[[ProcessId], asyncio.Future[None]],
    progress: Callable[[], int] = int,
) -> None:
    """Have the process `name` let in through the first of `contacts` that answers; raises `JoinError`.

    `introduce` finds out who listens at an address, `begin` asks that one, and its future is done once it is granted.
    It is waited for as long as `progress` grows within `JOIN_S` seconds. Both raise `LinkError`.
    """
    through = ", ".join(map(str, contacts))
    reasons: dict[Address, LinkError] = {}
    try:
        async with asyncio.timeout(JOIN_S):
            contact = await _first_to_answer(contacts, introduce, reasons)
    except TimeoutError:
        # Nobody refuses, and nobody is there.
        why = next(iter(reasons.values())).reason if reasons else f"nobody answered within {JOIN_S:g} s"
        raise JoinError(f"{name} cannot join the group through {through}: {why}") from None
    except LinkError as error:
        raise JoinError(f"{name} cannot join the group through {through}: {error.reason}") from None
    await let_in(name, through, begin(contact), progress)


async def let_in(name: ProcessId, through: str, joined: asyncio.Future[None], progress: Callable[[], int]) -> None:
    """Wait until the process `name`, which has asked, is let in; see `join_through`."""
    try:
        before = -1
        while not joined.done():
            if progress() <= before:
                raise JoinError(
                    f"{name} cannot join the group through {through}: it was not let in within {JOIN_S:g} s; "
                    "is the contact a member itself?"
                )
            before = progress()
            await asyncio.wait((joined,), timeout=JOIN_S)
        joined.result()
    except LinkError as error:
        raise JoinError(f"{name} cannot join the group through {through}: {error.reason}") from None


async def _first_to_answer(
    contacts: Sequence[Address],
    introduce: Callable[[Address], Awaitable[ProcessId]],
    reasons: dict[Address, LinkError],
) -> ProcessId:
    """The name of the first contact that answers; raises `LinkError` when all of them refuse."""
    wait = REDIAL_FIRST_S
    while True:
        for contact in contacts:
            try:
                return await introduce(contact)
            except LinkError as error:
                reasons[contact] = error
        if all(isinstance(error, PeerClosedError) and error.code == REFUSED for error in reasons.values()):
            raise reasons[contacts[0]]
        await asyncio.sleep(wait)
        wait = min(2 * wait, REDIAL_MOST_S)
