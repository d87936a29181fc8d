"""A run: the workload and the faults, the healing, the audit, and what is printed of them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.console import Console

from causalcast.audit.errors import AuditError
from causalcast.audit.pipeline import run_audit
from causalcast.audit.report import finding_lines, summary_table, write_report
from chaos.faults import KINDS, Fault, plan
from chaos.members import ChaosError, Member, workload
from chaos.proxy import Network
from demo.processes import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.audit.result import AuditResult

PIPE_WIDTH: Final = 110
FINDINGS_SHOWN: Final = 3
POLL_SECONDS: Final = 0.5
OPEN_SECONDS: Final = 60.0
HEAL_SECONDS: Final = 120.0
"""After the faults: until everything must be delivered and stable everywhere."""


class Outcome(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    verdict: str
    seed: int
    members: int
    seconds: float
    faults: dict[str, int]
    """Injected, by kind."""
    messages: int
    deliveries: int
    lives: int
    """Of all members together."""
    counts: dict[str, int]
    """Findings of the audit, by kind."""


def run(
    seconds: Annotated[float, typer.Option(min=1, help="How long things go wrong.")] = 600,
    members: Annotated[int, typer.Option(min=3, max=7, help="How many members.")] = 5,
    seed: Annotated[int, typer.Option(help="Decides the faults; the run itself is real and never the same.")] = 1,
    rate: Annotated[float, typer.Option(min=0.1, help="Broadcasts a second, of all members together.")] = 40,
    durability: Annotated[str, typer.Option(help="Of the journals: every-message or interval.")] = "interval",
    out: Annotated[Path, typer.Option(help="Where traces, journals, logs and the report go.")] = Path("build/chaos"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Kill, stop, reset and cut off members that work, heal everything, and let the audit decide.

    Exits with 0 if nothing is lost, repeated, out of order or not stable at last, and with 1 otherwise.
    """
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, quiet=json)
    names = [f"m{number}" for number in range(members)]
    faults = list(plan(names, seconds, seed))
    shutil.rmtree(out, ignore_errors=True)
    (out / "trace").mkdir(parents=True)
    console.print(
        f"{members} members for {seconds:g} s, {len(faults)} faults from seed {seed}; then they heal, and the audit "
        "decides",
        highlight=False,
    )
    try:
        lives = asyncio.run(_perform(names, faults, seconds, seed, rate, durability, out, console))
        result = run_audit(
            [out / "trace"], out=out / "audit", progress=lambda step: console.print(f"  {step}", highlight=False)
        )
        write_report(result, out / "audit" / "report.html")
    except (ChaosError, AuditError, OSError) as error:
        print(f"chaos: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    outcome = _outcome(result, faults, seed, members, seconds, lives, out)
    if json:
        print(msgspec.json.encode(outcome).decode())
    else:
        _show(outcome, result, out, console)
    if outcome.verdict != "pass":
        raise typer.Exit(1)


def main() -> None:
    """The command."""
    typer.run(run)


async def _perform(
    names: Sequence[str],
    faults: Sequence[Fault],
    seconds: float,
    seed: int,
    rate: float,
    durability: str,
    out: Path,
    console: Console,
) -> int:
    """Everything but the audit; returns how many lives the members had."""
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    async with Network(ports) as network:
        members = [Member(name, ports[name], network, out, durability) for name in names]
        by_name = {member.name: member for member in members}
        try:
            for member in members:
                await member.start()
            await _opened(members, out / "trace")
            speaking = asyncio.create_task(workload(members, rate, seed))
            striking = [asyncio.create_task(_strike(fault, by_name, network)) for fault in faults]
            await _watched(speaking, seconds, console)
            await asyncio.gather(*striking)
            speaking.cancel()
            await asyncio.gather(speaking, return_exceptions=True)
            console.print("  everything heals", highlight=False)
            await _complete(members, out / "trace")
            for member in members:
                await member.end()
        finally:
            for member in members:
                member.destroy()
    return sum(member.lives for member in members)


async def _opened(members: Sequence[Member], traces: Path) -> None:
    """Wait until all are there: faults are for members that work."""
    deadline = time.monotonic() + OPEN_SECONDS
    while not all((traces / f"{member.name}.jsonl").exists() for member in members):
        if time.monotonic() > deadline:
            raise ChaosError(f"not all members have opened within {OPEN_SECONDS:.0f} s")
        for member in members:
            member.check()
        await asyncio.sleep(POLL_SECONDS)


async def _watched(speaking: asyncio.Task[None], seconds: float, console: Console) -> None:
    """Wait for the end of the faults, or for what the workload raises."""
    with console.status("Things go wrong"):
        await asyncio.wait([speaking], timeout=seconds)
    if speaking.done():
        await speaking


async def _strike(fault: Fault, members: dict[str, Member], network: Network) -> None:
    await asyncio.sleep(fault.begins)
    match fault.kind:
        case "kill":
            await members[fault.members[0]].kill(fault.lasts)
        case "stop":
            await members[fault.members[0]].stop(fault.lasts)
        case "reset":
            network.reset(frozenset(fault.members))
        case "partition":
            await _partition(fault, members, network)


async def _partition(fault: Fault, members: dict[str, Member], network: Network) -> None:
    pairs = [frozenset(pair) for pair in combinations(members, 2) if len(set(pair) & set(fault.members)) == 1]
    for pair in pairs:
        network.cut(pair)
    await asyncio.sleep(fault.lasts)
    for pair in pairs:
        network.heal(pair)


async def _complete(members: Sequence[Member], traces: Path) -> None:
    """Wait until every message is delivered and stable everywhere, or for `HEAL_SECONDS`: the audit tells which."""
    deadline = time.monotonic() + HEAL_SECONDS
    while time.monotonic() < deadline:
        for member in members:
            member.check()
        rows = [_rows(traces / f"{member.name}.jsonl") for member in members]
        sent = sum(each["broadcast"] for each in rows)
        if all(each["broadcast"] + each["deliver"] == sent == each["stable"] for each in rows):
            return
        await asyncio.sleep(POLL_SECONDS)


def _rows(path: Path) -> Counter[str]:
    """Rows of a trace by kind of event; the last line may be under way."""
    found: Counter[str] = Counter()
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                found[msgspec.json.decode(line)["event"]] += 1
    return found


def _outcome(
    result: AuditResult, faults: Sequence[Fault], seed: int, members: int, seconds: float, lives: int, out: Path
) -> Outcome:
    counted = Counter(fault.kind for fault in faults)
    rows = sum((_rows(path) for path in (out / "trace").glob("*.jsonl")), Counter[str]())
    return Outcome(
        verdict=result.verdict,
        seed=seed,
        members=members,
        seconds=seconds,
        faults={kind: counted[kind] for kind in KINDS},
        messages=rows["broadcast"],
        deliveries=rows["deliver"],
        lives=lives,
        counts=dict(result.counts),
    )


def _show(outcome: Outcome, result: AuditResult, out: Path, console: Console) -> None:
    console.print(summary_table(result, title="The audit"))
    for finding in [finding for finding in result.findings if finding.root][:FINDINGS_SHOWN]:
        for line in finding_lines(finding, width=console.width):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    faults = ", ".join(f"{kind} {count}" for kind, count in outcome.faults.items())
    console.print(f"faults: {faults}; {outcome.lives} lives of {outcome.members} members", highlight=False)
    console.print(f"messages checked: {outcome.messages:,}, deliveries {outcome.deliveries:,}", highlight=False)
    console.print(f"report: {os.path.relpath(out / 'audit' / 'report.html')}", highlight=False, soft_wrap=True)
    console.print(
        "As it should be: nothing lost, nothing repeated, nothing out of order, all stable."
        if outcome.verdict == "pass"
        else "Not as it should be: the audit has to pass.",
        style="green" if outcome.verdict == "pass" else "red",
    )
