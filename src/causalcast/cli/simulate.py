"""`causalcast simulate`: a stack in virtual time."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


def simulate(
    stack_name: Annotated[str, typer.Option("--stack", help="One of `causalcast stacks`.")] = DEFAULT_STACK,
    nodes: Annotated[int, typer.Option(min=1, help="How many processes.")] = 5,
    messages: Annotated[int, typer.Option(min=0, help="How many messages each process broadcasts.")] = 100,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run and the same trace, to the byte.")] = 0,
    trace: Annotated[Path | None, typer.Option(metavar="DIR", help=f"Write {TRACE_FILE} there.")] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Replay a schedule that `causalcast explore --save` wrote, instead."),
    ] = None,
) -> None:
    """Run a stack in virtual time: the same protocol code as `causalcast node`, without sockets.

    Links are FIFO and take 5 to 15 ms; every process broadcasts each 5 to 15 ms, then all runs to quiescence.

    Examples:

    - `causalcast simulate --stack tcb --nodes 32 --messages 100 --seed 7`

    - `causalcast simulate --stack unordered --trace build/control && causalcast audit build/control`

    - `causalcast simulate --replay build/p3.schedule`
    """
    if replay is not None:
        with _sink(trace) as sink:
            code = replay_file(replay, sink)
        raise typer.Exit(code)
    from causalcast.simulation import simulate as run  # noqa: PLC0415 - the other commands do without it

    stack(stack_name)
    started = time.perf_counter()
    with _sink(trace) as sink, stderr_console().status("Simulating") as status:

        def show(simulator: Simulator) -> None:
            done = simulator.counters
            status.update(f"Simulating: {done.events:,} events, {done.deliveries:,} deliveries")

        simulator = run(stack_name, nodes=nodes, messages=messages, seed=seed, trace=sink, progress=show)
    wall = time.perf_counter() - started
    counters = simulator.counters
    console = stdout_console()
    for label, value in (
        ("stack", stack_name),
        ("processes", f"{nodes:,}"),
        ("broadcasts", f"{counters.broadcasts:,}"),
        ("deliveries", f"{counters.deliveries:,}"),
        ("stable", f"{counters.stables:,}"),
        ("sends", f"{counters.sends:,}"),
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
