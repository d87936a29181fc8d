"""`causalcast import`: bring traces of other systems into the form that the audit judges."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from causalcast.cli.console import stderr_console, stdout_console
from causalcast.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causalcast.trace.importers import Imported, Item

EXIT_UNUSABLE: Final = 2


class Format(StrEnum):
    """The formats that can be imported."""

    shiviz = "shiviz"
    tla = "tla"
    opentelemetry = "opentelemetry"
    schema1 = "schema1"


def import_(  # noqa: PLR0913, PLR0917 - one argument an option
    source: Annotated[Format, typer.Argument(metavar="FORMAT", help="shiviz, tla, opentelemetry or schema1.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The logs of one run.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new or empty folder for the import.")],
    regex: Annotated[
        str | None, typer.Option(metavar="REGEX", help="shiviz: matches an event; needs `(?<host>)` and `(?<clock>)`.")
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(metavar="REGEX", help="shiviz: stands between executions; `(?<trace>)` names them.")
    ] = None,
    broadcast: Annotated[
        str | None, typer.Option(metavar="REGEX", help="shiviz: events that broadcast the `(?<message>)`.")
    ] = None,
    deliver: Annotated[
        str | None, typer.Option(metavar="REGEX", help="shiviz: events that deliver the `(?<message>)`.")
    ] = None,
    crash: Annotated[
        str | None, typer.Option(metavar="REGEX", help="shiviz: events that say the host crashed.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PLACE", help="tla: where a line has its clock, as clock=pkt.vc. Repeatable."),
    ] = None,
) -> None:
    """Turn logs of other systems into a folder that `causalcast audit` judges.

    Rows that cannot be used are set aside and named; an audit of the folder then fails, since what they held is
    unknown. Exit status: 0 imported, 2 nothing could be imported.

    Examples:

    - `causalcast import shiviz chord.log --out build/chord`

    - `causalcast import shiviz app.log --regex '(?<event>.*)\\n(?<host>\\S*) (?<clock>{.*})' --out build/app`

    - `causalcast import tla trace.ndjson --out build/trace && causalcast audit build/trace`
    """
    given = {"regex": regex, "delimiter": delimiter, "broadcast": broadcast, "deliver": deliver, "crash": crash}
    _refuse_foreign(source, Format.shiviz, [name for name, value in given.items() if value is not None])
    _refuse_foreign(source, Format.tla, ["field"] if field else [])
    read = _importer(source, given, field or [])
    from causalcast.trace.importers import write_import  # noqa: PLC0415 - quick start of the other commands

    imported = write_import(read(*files), out)
    _print(imported, out)


def _importer(source: Format, given: dict[str, str | None], field: list[str]) -> Callable[..., Iterator[Item]]:
    from causalcast.trace import importers  # noqa: PLC0415

    if source is Format.shiviz:
        named = {"event" if name == "regex" else name: value for name, value in given.items() if value is not None}
        patterns = importers.ShivizPatterns(**named)
        return partial(importers.shiviz, patterns=patterns)
    if source is Format.tla:
        fields = importers.TlaFields(**dict(_place(text) for text in field))
        return partial(importers.tla, fields=fields)
    return importers.opentelemetry if source is Format.opentelemetry else importers.schema1


def _place(text: str) -> tuple[str, str]:
    from causalcast.trace.importers import TlaFields  # noqa: PLC0415

    known = tuple(TlaFields.__dataclass_fields__)
    name, _, place = text.partition("=")
    if name not in known or not place:
        raise CommandError(f"--field: {text!r} is not NAME=PLACE; names are {', '.join(known)}", EXIT_UNUSABLE)
    return name, place


def _refuse_foreign(source: Format, owner: Format, options: list[str]) -> None:
    if options and source is not owner:
        named = ", ".join(f"--{option}" for option in options)
        raise CommandError(f"{named}: only for {owner}, not for {source}", EXIT_UNUSABLE)


def _print(imported: Imported, out: Path) -> None:
    console, complaints = stdout_console(), stderr_console()
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(imported.kinds.items()))
    parts = [f"{imported.events} rows of schema 1 ({kinds})"] if imported.events else []
    if imported.clocked:
        parts.append(f"{imported.clocked} events with clocks or causes")
    text = f"{out}: {' and '.join(parts)} of {len(imported.processes)} processes"
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    for row in imported.first_rejected:
        complaints.print(
            f"Set aside: {row.file}:{row.line}: {row.reason}", markup=False, highlight=False, soft_wrap=True
        )
    if imported.rejected > len(imported.first_rejected):
        complaints.print(f"... and {imported.rejected - len(imported.first_rejected)} more", markup=False)
