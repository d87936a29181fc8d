"""`causalcast simulate`: a stack in virtual time."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from causalcast.cli.breach import properties_of, save_schedule, show_schedule
from causalcast.cli.console import stderr_console, stdout_console
from causalcast.cli.errors import CommandError
from causalcast.cli.replay import replay_file
from causalcast.protocols import DEFAULT_STACK, stack
from causalcast.trace import JsonLinesWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causalcast.simulation import Simulator
    from causalcast.simulation.check import Verdict

EXIT_VIOLATED = 1
TRACE_FILE = "trace.jsonl"


def simulate(  # noqa: PLR0913, PLR0917 - the options of the command
    stack_name: Annotated[str, typer.Option("--stack", help="One of `causalcast stacks`.")] = DEFAULT_STACK,
    nodes: Annotated[int, typer.Option(min=1, help="How many processes.")] = 5,
    messages: Annotated[int, typer.Option(min=0, help="How many messages each sender broadcasts.")] = 100,
    senders: Annotated[
        int | None, typer.Option(min=0, help="How many of the processes broadcast.", show_default="all")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Between two broadcasts.", show_default="uniform:5:15")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="From sender to receiver.", show_default="uniform:5:15")
    ] = None,
    reorder: Annotated[bool, typer.Option("--reorder", help="Messages may overtake others of their link.")] = False,
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A network as JSON; --delay and --reorder change it.")
    ] = None,
    matrix: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A row of latencies for each sender: microseconds and commas.")
    ] = None,
    workload: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A workload as JSON, in place of --messages and the like.")
    ] = None,
    faults: Annotated[
        str | None,
        typer.Option(metavar="FILE|random:N:MS", help="Faults as JSON, or N drawn from the seed in the first MS ms."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run and the same trace, to the byte.")] = 0,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help=f"Write {TRACE_FILE} there.")] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Judge the small run; if it breaks a property, write a schedule there."),
    ] = None,
    properties: Annotated[
        str, typer.Option(metavar="P,...", help="What --check checks; what the stack promises if not given.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Replay a schedule that --check or `causalcast explore` wrote, instead."),
    ] = None,
) -> None:
    """Run a stack in virtual time: the same protocol code as `causalcast node`, without sockets.

    Runs to quiescence. A TIME is drawn anew each time, in milliseconds: `constant:10`, `uniform:5:15`, `normal:100:25`,
    `weibull:BASELINE`, `exponential:MEAN` (a Poisson process). The page "Simulation" shows the files.

    Examples:

    - `causalcast simulate --stack tcb --nodes 32 --messages 100 --seed 7`

    - `causalcast simulate --stack unordered --trace build/control && causalcast audit build/control`

    - `causalcast simulate --delay weibull:10 --interval exponential:10 --faults random:5:1000`

    - `causalcast simulate --stack unordered --messages 5 --delay uniform:1:99 --properties P3 --check p3.schedule`

    - `causalcast simulate --replay build/p3.schedule`
    """
    if check is not None and replay is not None:
        raise CommandError("--replay judges its schedule as it is: leave out --check", 2)
    if properties and check is None:
        raise CommandError("--properties says what --check checks: give --check FILE too", 2)
    if replay is not None:
        with _sink(trace) as sink:
            code = replay_file(replay, sink)
        raise typer.Exit(code)
    from causalcast.cli import scenario  # noqa: PLC0415 - the other commands do without the simulator
    from causalcast.simulation import Simulator, process_names  # noqa: PLC0415

    chosen = stack(stack_name)
    checked = properties_of(properties)
    prepare = functools.partial(
        Simulator,
        chosen,
        process_names(nodes),
        scenario.workload_of(workload, messages, senders, interval),
        network=scenario.network_of(network, delay, matrix, reorder),
        seed=seed,
        faults=scenario.faults_of(faults, nodes, seed),
    )
    started = time.perf_counter()
    with _sink(trace) as sink, stderr_console().status("Simulating") as status:

        def show(simulator: Simulator) -> None:
            done = simulator.counters
            status.update(f"Simulating: {done.events:,} events, {done.deliveries:,} deliveries")

        verdict: Verdict | None = None
        if check is None:
            simulator = prepare(trace=sink)
            simulator.run(progress=show)
        else:
            verdict = _judge(functools.partial(prepare, trace=sink), checked, show)
            simulator = verdict.simulator
    wall = time.perf_counter() - started
    broken = verdict.schedule if verdict is not None else None
    if check is not None and broken is not None:
        save_schedule(check, broken)
    counters = simulator.counters
    if json:
        result = {
            "stack": stack_name,
            "processes": nodes,
            "seed": seed,
            **dataclasses.asdict(counters),
            "virtual_seconds": simulator.queue.now / 1e9,
            "wall_seconds": wall,
            "trace": str(trace / TRACE_FILE) if trace is not None else None,
            **(_report(verdict) if verdict is not None else {}),
        }
        print(msgspec.json.encode(result).decode())
    else:
        _show(simulator, wall, trace, verdict, check)
    if broken is not None:
        raise typer.Exit(EXIT_VIOLATED)


def _judge(
    prepare: Callable[..., Simulator], properties: frozenset[str] | None, show: Callable[[Simulator], None]
) -> Verdict:
    from causalcast.simulation.check import check  # noqa: PLC0415 - most runs are not judged

    return check(lambda record: prepare(record=record), properties, progress=show)


def _report(verdict: Verdict) -> dict[str, Any]:
    violation, schedule = verdict.violation, verdict.schedule
    return {
        "verdict": "pass" if violation is None else "violated",
        "properties": sorted(verdict.checked),
        "left_open": sorted(verdict.left_open),
        "property": violation.property if violation is not None else None,
        "process": violation.process if violation is not None else None,
        "detail": violation.detail if violation is not None else None,
        "schedule": schedule.dump() if schedule is not None else None,
    }


def _show(simulator: Simulator, wall: float, trace: Path | None, verdict: Verdict | None, file: Path | None) -> None:
    console = stdout_console()
    counters = simulator.counters
    disturbed = (("held", counters.held), ("lost", counters.lost), ("duplicated", counters.duplicated))
    rows = [
        ("stack", simulator.stack.name),
        ("processes", f"{len(simulator.roster):,}"),
        ("broadcasts", f"{counters.broadcasts:,}"),
        ("deliveries", f"{counters.deliveries:,}"),
        ("stable", f"{counters.stables:,}"),
        ("sends", f"{counters.sends:,}"),
        *((label, f"{number:,}") for label, number in disturbed if number),
        ("virtual time", f"{simulator.queue.now / 1e9:.3f} s"),
        ("wall time", f"{wall:.3f} s"),
        ("trace", str(trace / TRACE_FILE) if trace is not None else "none (--trace DIR)"),
    ]
    if verdict is not None:
        rows.append(("checked", " ".join(sorted(verdict.checked))))
        if verdict.left_open:
            rows.append(("left open", f"{' '.join(sorted(verdict.left_open))}: not all that was sent arrived"))
        if verdict.violation is not None:
            rows.append(("violated", str(verdict.violation)))
    for label, value in rows:
        console.print(f"{label:<13} {value}", markup=False, highlight=False, soft_wrap=True)
    if verdict is None:
        return
    last = "Nothing that was checked is broken."
    if verdict.schedule is not None:
        console.print("\nMade small:")
        show_schedule(console, verdict.schedule, simulator.stack, verdict.checked)
        last = f"Schedule in {file}; replay it with: causalcast simulate --replay {file}"
    console.print(f"\n{last}", markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _sink(folder: Path | None) -> Iterator[JsonLinesWriter | None]:
    if folder is None:
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {folder}: {error.strerror}", 2) from error
    with JsonLinesWriter(folder / TRACE_FILE) as writer:
        yield writer
