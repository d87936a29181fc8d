"""`causalcast status` and `causalcast members`: how a running node is doing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from causalcast.cli.console import stdout_console
from causalcast.cli.control import ask_status
from causalcast.runtime import Status

ControlSocket = Annotated[
    Path, typer.Argument(metavar="PATH", help="The control socket of the node: what it was given with `--control`.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

_FIELDS = ("broadcasts", "deliveries", "stable", "untaken", "pending", "unstable")


def status(path: ControlSocket, *, json: AsJson = False) -> None:
    """Show how a running node is doing: its counts, what waits, its tables and its links.

    Exits with 2 if no node answers there.

    Examples:

    - `causalcast status /run/paris.sock`

    - `causalcast status /run/paris.sock --json | jq .unstable`
    """
    answer = ask_status(path)
    if json:
        print(msgspec.json.encode(answer).decode())
        return
    found = msgspec.convert(answer, Status)
    console = stdout_console()

    def say(label: str, value: object) -> None:
        console.print(f"{label:<11} {value}", markup=False, highlight=False, soft_wrap=True)

    say("member", f"{found.name} of {found.group}, {found.stack}, at {found.address}")
    say("members", f"{len(found.members)}, {found.connected} of {len(found.links)} links up")
    for field in _FIELDS:
        say(field, f"{getattr(found, field):,}")
    if found.obstacle:
        say("waits for", found.obstacle)
    for table, size in found.tables.items():
        say("table", f"{table} {size:,}")
    console.print(_links(found))


def members(path: ControlSocket, *, json: AsJson = False) -> None:
    """List the members that a running node knows, and the state of its links to them.

    Exits with 2 if no node answers there.

    Examples:

    - `causalcast members /run/paris.sock`
    """
    answer = ask_status(path)
    if json:
        print(msgspec.json.encode({"members": answer["members"], "links": answer["links"]}).decode())
        return
    found = msgspec.convert(answer, Status)
    up = {link.peer: link.connected for link in found.links}
    console = stdout_console()
    for name in found.members:
        state = "this node" if name == found.name else "up" if up.get(name) else "down"
        console.print(f"{name}  {state}", markup=False, highlight=False, soft_wrap=True)


def _links(found: Status) -> Table:
    table = Table("link to", "state", "not acknowledged", "bytes", "why it was down last", title=None)
    for link in found.links:
        state = "up" if link.connected else "down"
        table.add_row(link.peer, state, f"{link.unacknowledged:,}", f"{link.resend_bytes:,}", link.reason or "")
    return table
