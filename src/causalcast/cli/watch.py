"""`causalcast watch`: follow the traces of running members and say what is wrong while it happens."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.live import Live
from rich.table import Table

from causalcast.cli.audit import EXIT_ENVIRONMENT, EXIT_PASS, EXIT_VIOLATED, NEEDED, showing_progress
from causalcast.cli.console import stderr_console, stdout_console
from causalcast.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from causalcast.audit.live import Progress


def watch(
    folder: Annotated[Path, typer.Argument(metavar="TRACE_DIR", help="The folder that the members write to.")],
    until_quiet: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1.0, help="End when no line came for so long. Without: until Ctrl-C."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to keep the state. Default: in the folder itself.")
    ] = None,
    crashed: Annotated[
        list[str] | None, typer.Option(metavar="PROCESS", help="This process crashed: it owes nothing. Repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="At the end print one JSON object and nothing else.")] = False,
) -> None:
    """Judge the traces of running members, line by line as they come.

    Findings are shown within seconds. Ctrl-C ends it, or --until-quiet; then comes the verdict, which is the one that
    `causalcast audit` gives. Started again, it goes on where it was.

    Exit status: as of `causalcast audit`.

    Examples:

    - `causalcast watch build/traces`

    - `causalcast watch build/traces --until-quiet 10 --json`
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"watch needs {', '.join(missing)}: run pip install 'causalcast[audit]'", EXIT_ENVIRONMENT)
    from causalcast.audit.errors import AuditError  # noqa: PLC0415 - the other commands work without Spark
    from causalcast.audit.live import Watcher  # noqa: PLC0415

    screen = _Screen(stderr_console())

    try:
        watcher = Watcher(folder, state, crashed or ())
        with _collecting_interrupts() as stopped, screen:
            progress = watcher.run(
                screen.show, lambda quiet: bool(stopped) or (until_quiet is not None and quiet > until_quiet)
            )
        answer = _verdict(folder, progress, crashed or [])
    except AuditError as error:
        raise CommandError(str(error), error.exit_code) from error
    if json:
        print(msgspec.json.encode(answer | {"findings": watcher.findings()}).decode(), flush=True)
    else:
        counts = ", ".join(f"{number} {kind}" for kind, number in answer["counts"].items())
        text = f"{answer['verdict']}: {answer['events']} events{', findings: ' + counts if counts else ''}"
        stdout_console().print(text, markup=False, highlight=False)
    raise typer.Exit(EXIT_PASS if answer["verdict"] == "pass" else EXIT_VIOLATED)


def _verdict(folder: Path, progress: Progress, crashed: list[str]) -> dict[str, Any]:
    """Return the window's verdict, or the batch audit's where the window has doubts."""
    from causalcast.audit.errors import InputUnusable  # noqa: PLC0415 - see watch
    from causalcast.audit.pipeline import run_audit  # noqa: PLC0415

    if progress.events == 0 and progress.bad == 0 and not progress.unread:
        raise InputUnusable(f"{folder}: no line of a trace came (*.jsonl, *.ndjson)")
    doubts = progress.needs_batch
    if not doubts:
        counts = progress.window.total
        return {"verdict": "fail" if counts else "pass", "events": progress.events, "counts": counts, "doubts": []}
    console = stderr_console()
    console.print(f"Auditing the whole trace, since: {'; '.join(doubts[:3])}", markup=False, highlight=False)
    with showing_progress(console) as say:
        result = run_audit([folder], crashed=crashed, progress=say)
    return {"verdict": result.verdict, "events": result.events, "counts": result.counts, "doubts": doubts}


@contextlib.contextmanager
def _collecting_interrupts() -> Iterator[list[int]]:
    """Collect the signals that ask to end, instead of ending at once; what comes after ends as usual."""
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda received, _: seen.append(received)) for number in numbers]
    try:
        yield seen
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Screen:
    """Rates, lag and findings: in place on a terminal, findings as lines elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._last = (time.monotonic(), 0)

    def __enter__(self) -> _Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        now = time.monotonic()
        for finding in progress.fresh:
            self._console.print(f"{finding.property} {finding.kind}: {finding.detail}", markup=False, highlight=False)
        if self._live is not None:
            self._live.update(self._table(progress, now), refresh=True)
        self._last = now, progress.events

    def _table(self, progress: Progress, now: float) -> Table:
        since, before = self._last
        table = Table.grid(padding=(0, 2))
        found = ", ".join(f"{number} {kind}" for kind, number in progress.window.total.items())
        for name, value in (
            ("events", f"{progress.events:,}"),
            ("rate", f"{(progress.events - before) / max(now - since, 1e-3):,.0f} a second"),
            ("lag", f"{progress.seconds:.1f} s"),
            ("rows held", f"{progress.window.rows:,}"),
            ("open or wrong", found or "nothing"),
        ):
            table.add_row(name, value)
        return table
