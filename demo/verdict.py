"""The audit of a demonstration that is expected to pass, and what is printed of it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Final, TypeVar

from rich.console import Console

from causalcast.audit.errors import AuditError
from causalcast.audit.pipeline import run_audit
from causalcast.audit.report import finding_lines, summary_table, write_report
from demo.processes import DemoError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

PIPE_WIDTH: Final = 110
FINDINGS_SHOWN: Final = 3

Outcome = TypeVar("Outcome")


def console() -> Console:
    """Where a demonstration prints."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def judge(
    run: Callable[[], Outcome],
    traces_of: Callable[[Outcome], tuple[Path, Sequence[str]]],
    meaning: str,
    screen: Console,
) -> int:
    """Run, audit the traces (`traces_of` says where they are, and who crashed), and tell; 0 only if it passes."""
    began = time.monotonic()
    try:
        traces, crashed = traces_of(run())
        screen.print(f"Audit of {os.path.relpath(traces)} on Spark", highlight=False)
        out = traces.parent / "audit"
        shutil.rmtree(out, ignore_errors=True)
        result = run_audit(
            [traces], out=out, crashed=crashed, progress=lambda step: screen.print(f"  {step}", highlight=False)
        )
        write_report(result, out / "report.html")
    except (DemoError, AuditError, OSError) as error:
        screen.print(f"demo: {error}", markup=False, highlight=False, style="red")
        return 1
    except KeyboardInterrupt:
        screen.print("demo: interrupted")
        return 130
    passes = result.verdict == "pass"
    screen.print(summary_table(result, title="The audit"))
    for finding in [finding for finding in result.findings if finding.root][:FINDINGS_SHOWN]:
        for line in finding_lines(finding, width=screen.width):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    screen.print(f"report: {os.path.relpath(out / 'report.html')}", highlight=False, soft_wrap=True)
    screen.print(
        f"As it should be: {meaning}." if passes else "Not as it should be: the audit has to pass.",
        style="green" if passes else "red",
    )
    screen.print(f"{time.monotonic() - began:.0f} s in all", highlight=False)
    return 0 if passes else 1
