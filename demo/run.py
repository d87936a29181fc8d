"""The demonstration from end to end: two runs, two audits in one Spark session, one table."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from causalcast.audit.errors import AuditError
from causalcast.audit.pipeline import run_audit
from causalcast.audit.report import finding_lines, summary_rows, write_report
from causalcast.audit.session import spark_session
from demo.processes import DemoError
from demo.proxy import HIGH_SECONDS, LOW_SECONDS, SLOW, SLOW_FACTOR
from demo.stage import PAUSE_SECONDS, PAUSED, Outcome, Watcher, perform
from demo.workload import MEMBERS, SCRIPT, Plan, Score

if TYPE_CHECKING:
    from collections.abc import Callable

    from causalcast.audit.result import AuditResult

OUTPUT: Final = Path("build/demo")
SUBJECT: Final = "tcb"
CONTROL: Final = "unordered"
READER: Final = "joey"
"""Who only reads in the document's example; another member's view is shown where his made sense."""
PIPE_WIDTH: Final = 110

EXIT_AS_EXPECTED: Final = 0
EXIT_NOT_AS_EXPECTED: Final = 1


def main() -> int:
    """Run it; 0 only if causalcast passes and the control fails."""
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    started = time.monotonic()
    plan = Plan()
    try:
        outcomes = [_perform(stack, plan, console) for stack in (SUBJECT, CONTROL)]
        with console.status("Starting Spark ...") as status, spark_session(None):
            results = [_audit(outcome, console, status.update) for outcome in outcomes]
    except (DemoError, AuditError, OSError) as error:
        console.print(f"demo: {error}", markup=False, highlight=False, style="red")
        return EXIT_NOT_AS_EXPECTED
    except KeyboardInterrupt:
        console.print("demo: interrupted")
        return 130
    _show(outcomes, results, console)
    as_expected = [result.verdict for result in results] == ["pass", "fail"]
    console.print(
        "As it should be: every promised property holds on causalcast, and the audit catches the control."
        if as_expected
        else "Not as it should be: causalcast has to pass and the control to fail.",
        style="green" if as_expected else "red",
    )
    console.print(f"{time.monotonic() - started:.0f} s in all", highlight=False)
    return EXIT_AS_EXPECTED if as_expected else EXIT_NOT_AS_EXPECTED


def _perform(stack: str, plan: Plan, console: Console) -> Outcome:
    kind = "Causalcast" if stack == SUBJECT else "The control"
    delays = f"{LOW_SECONDS * 1e3:.0f} to {HIGH_SECONDS * 1e3:.0f} ms"
    console.print(
        f"{kind} (stack {stack}): {len(MEMBERS)} processes on TCP, {plan.messages:,} messages; links add {delays}, "
        f"{' to '.join(SLOW)} {SLOW_FACTOR:.0f} times as much",
        highlight=False,
    )
    with Progress(
        TextColumn("  {task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("delivered"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bars = {name: progress.add_task(name, total=plan.messages - plan.broadcasts_of(name)) for name in MEMBERS}

        def show(name: str, score: Score) -> None:
            progress.update(bars[name], completed=score.delivered)

        def tell(news: str) -> None:
            console.print(f"  {news}", highlight=False)

        outcome = asyncio.run(perform(stack, OUTPUT / stack, plan, Watcher(show, tell)))
    console.print(f"  all delivered everywhere after {outcome.seconds:.1f} s", highlight=False)
    return outcome


def _audit(outcome: Outcome, console: Console, show: Callable[[str], None]) -> AuditResult:
    folder = OUTPUT / outcome.stack / "audit"
    shutil.rmtree(folder, ignore_errors=True)

    def progress(step: str) -> None:
        if console.is_terminal:
            show(f"Audit of {outcome.stack}: {step} ...")
        else:
            console.print(f"  {step}", highlight=False)

    console.print(f"Audit of {outcome.traces} on Spark", highlight=False)
    result = run_audit([outcome.traces], out=folder, progress=progress)
    write_report(result, folder / "report.html")
    return result


def _noticed(outcome: Outcome) -> list[tuple[str, str]]:
    """What the applications themselves saw, all members together."""
    scores = outcome.scores.values()

    def total(field: str) -> str:
        return f"{sum(getattr(score, field) for score in scores):,}"

    return [
        ("replies seen before what they answer", total("replies_early")),
        ("theoretical prices before their option price", total("prices_early")),
        ("theoretical prices shown", total("prices_shown")),
        ("obsolete ones ignored, by their tags", total("prices_ignored")),
        ("judged wrongly", total("prices_misjudged")),
    ]


def _show(outcomes: list[Outcome], results: list[AuditResult], console: Console) -> None:
    console.print()
    table = Table(title="Five members, the same workload, the same network")
    table.add_column("")
    table.add_column(f"causalcast ({SUBJECT})", justify="right")
    table.add_column(f"control ({CONTROL})", justify="right")
    figures = [summary_rows(result) for result in results]
    for (label, subject), (_, control) in zip(*figures, strict=True):
        if label == "verdict":
            table.add_section()
            for (noticed, mine), (_, theirs) in zip(*map(_noticed, outcomes), strict=True):
                table.add_row(noticed, mine, theirs)
            table.add_section()
        style = "bold" if label == "verdict" else ""
        table.add_row("members" if label == "processes" else label, _coloured(subject), _coloured(control), style=style)
    table.caption = (
        f"with {PAUSED} paused for {PAUSE_SECONDS:.0f} s and a connection reset, which the latencies include"
    )
    console.print(table)
    _show_conversation(outcomes[-1], console)
    roots = [finding for finding in results[-1].findings if finding.root]
    if roots:
        console.print(f"\nThe first of what went wrong without order, on {CONTROL}:\n", highlight=False)
        for line in finding_lines(roots[0], width=console.width):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    for outcome in outcomes:
        report = OUTPUT / outcome.stack / "audit" / "report.html"
        console.print(
            f"report of {outcome.stack:<10} {os.path.relpath(report)}", highlight=False, markup=False, soft_wrap=True
        )


def _show_conversation(outcome: Outcome, console: Console) -> None:
    """What a reader made of it who was told things out of order."""
    reader = next((name for name in (READER, *MEMBERS) if outcome.scores[name].confused), None)
    if reader is not None:
        console.print(f"\nA conversation as {reader} read it on {outcome.stack}:\n", highlight=False)
        for number in outcome.scores[reader].confused:
            speaker, text = SCRIPT[number]
            console.print(f"  {speaker}: {text}", markup=False, highlight=False)


def _coloured(value: str) -> Text:
    return Text(value, style={"pass": "green", "fail": "red"}.get(value, ""))
