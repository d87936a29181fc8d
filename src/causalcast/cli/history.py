"""`causalcast history`: judge what clients wrote and read."""

from __future__ import annotations

import importlib.util
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from causalcast.cli.console import forget_stdout, stderr_console, stdout_console
from causalcast.cli.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from causalcast.audit.histories.result import HistoryResult

EXIT_VIOLATED: Final = 1
EXIT_UNDECIDED: Final = 2
EXIT_ENVIRONMENT: Final = 3
FINDINGS_SHOWN: Final = 3
NEEDED: Final = ("numpy", "pyarrow")


class HistoryFormat(StrEnum):
    """The formats of histories."""

    jepsen_edn = "jepsen-edn"
    jepsen_json = "jepsen-json"
    awdit = "awdit"


def history(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Histories, each judged by itself.")],
    form: Annotated[
        HistoryFormat | None,
        typer.Option("--format", help="Without it the name decides: .edn, .json (Jepsen), .txt (AWDIT)."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a history and nothing else.")] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark master for large histories, instead of this machine.")
    ] = None,
) -> None:
    """Check client histories for the four session guarantees and causal consistency.

    Exit status: 0 every guarantee holds, 1 at least one is violated, 2 the input cannot be used or leaves the verdict
    undecided (values that are not unique, operations that cannot be read), 3 Spark is needed and cannot run.
    Of several histories the worst counts: 1 before 2 before 0.

    Examples:

    - `causalcast history store/latest/history.edn`

    - `causalcast history run.json --json | jq .guarantees`
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"this needs {', '.join(missing)}: run pip install 'causalcast[audit]'", EXIT_ENVIRONMENT)
    from causalcast.audit.errors import AuditError  # noqa: PLC0415 - the other commands work without NumPy
    from causalcast.audit.histories.judge import check_history  # noqa: PLC0415
    from causalcast.cli.audit import showing_progress  # noqa: PLC0415

    results = []
    try:
        with showing_progress(stderr_console()) as progress:
            for path in files:
                chosen = None if form is None else str(form)
                results.append(check_history(path, form=chosen, master=master, progress=progress))
    except AuditError as error:
        raise CommandError(str(error), error.exit_code) from error
    try:
        for result in results:
            if json:
                print(msgspec.json.encode(to_json(result)).decode(), flush=True)
            else:
                _print(result, stdout_console())
    except BrokenPipeError:
        forget_stdout()
    verdicts = {result.verdict for result in results}
    raise typer.Exit(EXIT_VIOLATED if "fail" in verdicts else EXIT_UNDECIDED if "undecided" in verdicts else 0)


def to_json(result: HistoryResult) -> dict[str, Any]:
    """Return the object that `--json` prints; its fields are in `docs/histories.md`."""
    value: dict[str, Any] = msgspec.to_builtins(result)
    return value


def _print(result: HistoryResult, console: Console) -> None:
    from rich.table import Table  # noqa: PLC0415 - only for people
    from rich.text import Text  # noqa: PLC0415

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    said = {"pass": "every guarantee holds", "fail": "violated", "undecided": "undecided"}[result.verdict]
    line(f"{result.source} ({result.model}): {said}")
    counted = f"{result.writes} writes, {result.reads} reads"
    line(f"{result.transactions} transactions of {result.sessions} sessions, {counted}")
    table = Table()
    for heading in ("guarantee", "judgement", "violations"):
        table.add_column(heading)
    for name, judgement in result.guarantees.items():
        table.add_row(name, Text(judgement), str(result.counts.get(name, 0) or ""))
    console.print(table)
    for finding in result.findings[:FINDINGS_SHOWN]:
        line(f"{finding.kind} ({finding.property}): {finding.detail}")
        for step in finding.witness:
            line(f"    {step}")
    if len(result.findings) > FINDINGS_SHOWN:
        line(f"{len(result.findings) - FINDINGS_SHOWN} more findings: repeat with --json")
    for item in result.unjudged:
        line(f"Not judged: {item.number} {item.kind}: {item.detail}")
    for note in result.notes:
        line(f"Note: {note}")
