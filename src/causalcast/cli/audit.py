"""`causalcast audit`: judge traces on Spark."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from causalcast.cli.console import forget_stdout, stderr_console, stdout_console
from causalcast.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from causalcast.audit.result import AuditResult

EXIT_PASS: Final = 0
EXIT_VIOLATED: Final = 1
EXIT_ENVIRONMENT: Final = 3

NEEDED: Final = ("pyspark", "pyarrow", "numpy", "pandas", "jinja2")
"""What the extra `audit` brings."""
MASTER: Final = re.compile(r"local(\[.+\]|-cluster\[.+\])?$|spark://.+|k8s://.+|yarn$")
ROOTS_SHOWN: Final = 3
QUARANTINED_SHOWN: Final = 5


def audit(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="JSON lines or Parquet files, or folders.")],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report.html, audit.json and all findings there.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark master instead of this machine: spark://HOST:7077")
    ] = None,
    crashed: Annotated[
        list[str] | None,
        typer.Option(metavar="PROCESS", help="This process crashed: it owes nothing after its log. Repeatable."),
    ] = None,
) -> None:
    """Check traces against the properties of causal broadcast, and measure them.

    Exit status: 0 every promised property holds, 1 at least one is violated, 2 the input cannot be used,
    3 the environment cannot run Spark (no Java, no PySpark).

    Examples:

    - `causalcast audit build/traces`

    - `causalcast audit paris.jsonl london.jsonl --crashed london --out build/audit`

    - `causalcast audit build/traces --json | jq .counts`
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the audit needs {', '.join(missing)}: run pip install 'causalcast[audit]'", EXIT_ENVIRONMENT
        )

    if master is not None and not MASTER.match(master):
        raise CommandError(f"--master: {master!r} is no Spark master; write local[N], spark://HOST:PORT or yarn", 2)

    from causalcast.audit.errors import AuditError  # noqa: PLC0415 - the other commands work without Spark
    from causalcast.audit.outputs import to_json  # noqa: PLC0415
    from causalcast.audit.pipeline import run_audit  # noqa: PLC0415
    from causalcast.audit.report import write_report  # noqa: PLC0415

    try:
        with showing_progress(stderr_console()) as progress:
            result = run_audit(traces, out=out, master=master, crashed=crashed or (), progress=progress)
        if out is not None:
            write_report(result, out / "report.html")
    except AuditError as error:
        raise CommandError(str(error), error.exit_code) from error
    # Whoever reads the output may stop early (`| head`); the verdict is still the exit status.
    try:
        if json:
            print(msgspec.json.encode(to_json(result)).decode(), flush=True)
        else:
            print_result(result, out, stdout_console())
    except BrokenPipeError:
        forget_stdout()
    raise typer.Exit(EXIT_PASS if result.verdict == "pass" else EXIT_VIOLATED)


@contextlib.contextmanager
def showing_progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done: in place on a terminal, a line each elsewhere."""
    started = time.monotonic()
    if not console.is_terminal:

        def tell(step: str) -> None:
            console.print(f"{time.monotonic() - started:5.1f} s  {step}", markup=False, highlight=False)

        yield tell
        return
    with console.status("Starting") as status:
        yield lambda step: status.update(f"{step} ...")


def print_result(result: AuditResult, out: Path | None, console: Console) -> None:
    """The table a person reads first, then the first root findings, then where the rest is."""
    from causalcast.audit.report import finding_lines, summary_table  # noqa: PLC0415 - see audit

    def line(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    console.print(summary_table(result, title="Audit of " + ", ".join(result.sources)))
    roots = [finding for finding in result.findings if finding.root]
    for finding in roots[:ROOTS_SHOWN]:
        line()
        for text in finding_lines(finding, width=console.width):
            line(text)
    if result.findings:
        line()
        line("Findings: " + ", ".join(f"{number} {kind}" for kind, number in sorted(result.counts.items())))
    for row in result.quarantine[:QUARANTINED_SHOWN]:
        place = row.file if row.line is None else f"{row.file}:{row.line}"
        line(f"Set aside: {place}: {row.reason}")
    for note in result.notes:
        line(f"Note: {note}")
    if out is not None:
        line(f"Report: {out / 'report.html'}")
    elif result.findings:
        line("All findings and a report with pictures: repeat with --out DIR")
