"""`causalcast stacks`: the registry as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from causalcast.cli.console import stdout_console
from causalcast.protocols import PROPERTIES, STACKS

if TYPE_CHECKING:
    from causalcast.protocols import Stack


class StackRow(msgspec.Struct, frozen=True):
    """What the registry says of one stack, as plain values in the order of the table's columns."""

    name: str
    summary: str
    promises: tuple[str, ...]
    members: str
    links: str
    topics: bool
    recovers: bool
    """Whether a process survives a crash with what it had written down."""
    suspects: bool
    """Whether its members go on without those who are taken for crashed."""
    message_cost: str
    process_cost: str
    source: str


def stack_rows() -> list[StackRow]:
    """The registry, one row a stack, in its order."""
    return [_row(stack) for stack in STACKS.values()]


def _row(stack: Stack) -> StackRow:
    return StackRow(
        name=stack.name,
        summary=stack.summary,
        promises=tuple(sorted(stack.promises)),
        members="dynamic" if stack.dynamic else "static",
        links="sessions" if stack.session_links else "FIFO" if stack.fifo_links else "any order",
        topics=stack.topics,
        recovers=stack.recovers,
        suspects=stack.suspects,
        message_cost=stack.message_cost,
        process_cost=stack.process_cost,
        source=stack.source,
    )


def stacks(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """List the protocol stacks: what each promises and costs.

    A stack is named with `--stack` in the other commands. The properties P1 to P8 are explained below the table.
    """
    rows = stack_rows()
    if json:
        print(msgspec.json.encode({"stacks": rows, "properties": PROPERTIES}).decode())
        return
    table = Table(show_lines=True)
    table.add_column("stack", no_wrap=True)
    for heading in ("what it is", "promises", "members", "links", "topics", "per message", "per process"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row.name,
            row.summary,
            " ".join(row.promises),
            row.members,
            row.links,
            "yes" if row.topics else "no",
            row.message_cost,
            row.process_cost,
        )
    console = stdout_console()
    console.print(table)
    for name, meaning in PROPERTIES.items():
        console.print(f"{name}  {meaning}", highlight=False)
