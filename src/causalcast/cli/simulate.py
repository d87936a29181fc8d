"""`causalcast simulate`: a stack in virtual time."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from causalcast.cli.console import stderr_console, stdout_console
from causalcast.cli.errors import CommandError
from causalcast.cli.replay import replay_file
from causalcast.protocols import DEFAULT_STACK, stack
from causalcast.trace import JsonLinesWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from causalcast.simulation import Simulator

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
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Replay a schedule that `causalcast explore --save` wrote, instead."),
    ] = None,
) -> None:
    """Run a stack in virtual time: the same protocol code as `causalcast node`, without sockets.

    Runs to quiescence. A TIME is drawn anew each time, in milliseconds: `constant:10`, `uniform:5:15`, `normal:100:25`,
    `weibull:BASELINE`, `exponential:MEAN` (a Poisson process). The page "Simulation" shows the files.

    Examples:

    - `causalcast simulate --stack tcb --nodes 32 --messages 100 --seed 7`

    - `causalcast simulate --stack unordered --trace build/control && causalcast audit build/control`

    - `causalcast simulate --delay weibull:10 --interval exponential:10 --faults random:5:1000`

    - `causalcast simulate --replay build/p3.schedule`
    """
    if replay is not None:
        with _sink(trace) as sink:
            code = replay_file(replay, sink)
        raise typer.Exit(code)
    from causalcast.cli import scenario  # noqa: PLC0415 - the other commands do without the simulator
    from causalcast.simulation import simulate as run  # noqa: PLC0415

    stack(stack_name)
    setting: dict[str, Any] = {
        "workload": scenario.workload_of(workload, messages, senders, interval),
        "network": scenario.network_of(network, delay, matrix, reorder),
        "faults": scenario.faults_of(faults, nodes, seed),
    }
    started = time.perf_counter()
    with _sink(trace) as sink, stderr_console().status("Simulating") as status:

        def show(simulator: Simulator) -> None:
            done = simulator.counters
            status.update(f"Simulating: {done.events:,} events, {done.deliveries:,} deliveries")

        simulator = run(stack_name, nodes=nodes, seed=seed, trace=sink, progress=show, **setting)
    wall = time.perf_counter() - started
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
        }
        print(msgspec.json.encode(result).decode())
        return
    console = stdout_console()
    disturbed = (("held", counters.held), ("lost", counters.lost), ("duplicated", counters.duplicated))
    for label, value in (
        ("stack", stack_name),
        ("processes", f"{nodes:,}"),
        ("broadcasts", f"{counters.broadcasts:,}"),
        ("deliveries", f"{counters.deliveries:,}"),
        ("stable", f"{counters.stables:,}"),
        ("sends", f"{counters.sends:,}"),
        *((label, f"{number:,}") for label, number in disturbed if number),
        ("virtual time", f"{simulator.queue.now / 1e9:.3f} s"),
        ("wall time", f"{wall:.3f} s"),
        ("trace", str(trace / TRACE_FILE) if trace is not None else "none (--trace DIR)"),
    ):
        console.print(f"{label:<13} {value}", markup=False, highlight=False, soft_wrap=True)


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
