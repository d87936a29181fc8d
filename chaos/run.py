"""A run: two groups, one after the other; the faults of each, the healing, the audit, and what is printed of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

import msgspec
import typer
from rich.console import Console

from causalcast.audit.errors import AuditError
from causalcast.audit.pipeline import run_audit
from causalcast.audit.report import finding_lines, summary_table, write_report
from chaos.fixed import run_fixed
from chaos.members import ChaosError, Setting, rows
from chaos.moving import run_moving

if TYPE_CHECKING:
    from causalcast.audit.result import AuditResult
    from chaos.members import Report

PIPE_WIDTH: Final = 110
FINDINGS_SHOWN: Final = 3
HEAL_SECONDS: Final = 120.0
"""After the faults: until everything must be delivered and stable everywhere."""

Part: TypeAlias = Literal["fixed", "moving"]
WHAT: Final[dict[Part, str]] = {
    "fixed": "members of tcb with journals",
    "moving": "members of tcb-dynamic with journals that come and go",
}


class Outcome(msgspec.Struct, frozen=True):
    """What is told of a group."""

    group: Part
    verdict: str
    members: int
    """Of all that were there at some time."""
    seconds: float
    faults: dict[str, int]
    """By kind."""
    messages: int
    deliveries: int
    lives: int
    """Of all members together."""
    counts: dict[str, int]
    """Findings of the audit, by kind."""


class Outcomes(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    verdict: str
    seed: int
    groups: list[Outcome]


def run(
    seconds: Annotated[float, typer.Option(min=1, help="How long things go wrong, in all groups together.")] = 600,
    members: Annotated[int, typer.Option(min=5, max=7, help="How many members a group has at first.")] = 5,
    group: Annotated[
        str, typer.Option(help="`fixed`: the same members all the time; `moving`: members that come and go; or `both`.")
    ] = "both",
    seed: Annotated[int, typer.Option(help="Decides the faults; the run itself is real and never the same.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Broadcasts a second, of all members together.")] = 40,
    durability: Annotated[str, typer.Option(help="Of the journals: every-message or interval.")] = "interval",
    out: Annotated[Path, typer.Option(help="Where traces, journals, logs and the report go.")] = Path("build/chaos"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Kill, stop, reset and cut off members that work, have some join, leave and be evicted; then heal everything, and
    let the audit decide.

    Exits with 0 if nothing is lost, repeated, out of order or not stable at last, and with 1 otherwise.
    """
    parts: list[Part] = [part for part in WHAT if group in (part, "both")]
    if not parts:
        raise typer.BadParameter(f"{group!r} is none of fixed, moving and both", param_hint="--group")
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, quiet=json)
    shutil.rmtree(out, ignore_errors=True)
    outcomes = []
    for part in parts:
        setting = Setting(seconds / len(parts), seed, rate, out / part, HEAL_SECONDS, console)
        setting.say(f"{members} {WHAT[part]}, for {setting.seconds:g} s, faults from seed {seed}; then they heal")
        try:
            outcomes.append(_run_part(part, setting, members, durability))
        except (ChaosError, AuditError, OSError) as error:
            print(f"chaos: {error}", file=sys.stderr)
            raise typer.Exit(1) from None
    verdict = "pass" if all(outcome.verdict == "pass" for outcome in outcomes) else "fail"
    if json:
        print(msgspec.json.encode(Outcomes(verdict, seed, outcomes)).decode())
    _conclude(verdict, console)
    if verdict != "pass":
        raise typer.Exit(1)


def main() -> None:
    """The command."""
    typer.run(run)


def _run_part(part: Part, setting: Setting, members: int, durability: str) -> Outcome:
    folder = setting.folder
    (folder / "trace").mkdir(parents=True)
    run_group = run_fixed if part == "fixed" else run_moving
    report = asyncio.run(run_group(setting, members, durability))
    result = run_audit([folder / "trace"], out=folder / "audit", progress=lambda step: setting.say(f"  {step}"))
    write_report(result, folder / "audit" / "report.html")
    outcome = _outcome(part, result, report, setting)
    _show(outcome, result, folder, setting.console)
    return outcome


def _outcome(part: Part, result: AuditResult, report: Report, setting: Setting) -> Outcome:
    found = sum((rows(path) for path in (setting.folder / "trace").glob("*.jsonl")), Counter[str]())
    return Outcome(
        group=part,
        verdict=result.verdict,
        members=report.members,
        seconds=setting.seconds,
        faults=dict(report.faults),
        messages=found["broadcast"],
        deliveries=found["deliver"],
        lives=report.lives,
        counts=dict(result.counts),
    )


def _show(outcome: Outcome, result: AuditResult, folder: Path, console: Console) -> None:
    console.print(summary_table(result, title="The audit"))
    for finding in [finding for finding in result.findings if finding.root][:FINDINGS_SHOWN]:
        for line in finding_lines(finding, width=console.width):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    faults = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items())
    console.print(f"faults: {faults}; {outcome.lives} lives of {outcome.members} members", highlight=False)
    console.print(f"messages checked: {outcome.messages:,}, deliveries {outcome.deliveries:,}", highlight=False)
    console.print(f"report: {os.path.relpath(folder / 'audit' / 'report.html')}", highlight=False, soft_wrap=True)


def _conclude(verdict: str, console: Console) -> None:
    console.print(
        "As it should be: nothing lost, nothing repeated, nothing out of order, all stable."
        if verdict == "pass"
        else "Not as it should be: the audit has to pass.",
        style="green" if verdict == "pass" else "red",
    )
