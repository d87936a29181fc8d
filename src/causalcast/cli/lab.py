"""`causalcast lab`: experiments as data, swept on Spark, compared with what the documents report."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from causalcast.cli.console import forget_stdout, stderr_console, stdout_console
from causalcast.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from causalcast.lab.compare import Comparison
    from causalcast.lab.experiment import Experiment
    from causalcast.lab.summary import Repetition, Summary
    from causalcast.lab.sweep import Progress, Swept

EXIT_FAILED: Final = 1
EXIT_ENVIRONMENT: Final = 3
OUT: Final = Path("build/lab")
RESULTS: Final = Path("results")
NEEDED: Final = ("pyspark", "pyarrow", "numpy", "pandas")
"""What a sweep takes of the extra `lab`."""
NEEDED_FOR_PAGES: Final = ("jinja2", "matplotlib")
LISTED: Final = 5
"""Failures, and differences, that are shown."""
MOST_SEEDS: Final = 10_000

lab = typer.Typer(
    help="""Experiments as data: run them on Spark, and see their results beside what the documents report.

    Start with `causalcast lab list`, then `causalcast lab run NAME --quick`.""",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Results = Annotated[Path, typer.Option(metavar="DIR", help="Where the summaries of full runs are.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@lab.command("list")
def list_(results: Results = RESULTS, json: Json = False) -> None:
    """The experiments that come with causalcast, and what there is of their results.

    Example:

    - `causalcast lab list`
    """
    from causalcast.lab import summary  # noqa: PLC0415 - the other commands do without the laboratory
    from causalcast.lab.experiment import load, names  # noqa: PLC0415
    from causalcast.lab.grid import cells  # noqa: PLC0415

    found: list[dict[str, Any]] = []
    for name in names():
        experiment, kept = load(name), summary.read(results, name)
        found.append(
            {
                "name": name,
                "title": experiment.title,
                "source": experiment.source,
                "runs": len(cells(experiment)) * experiment.repetitions,
                "quick": len(cells(experiment, quick=True)) * experiment.quick.repetitions,
                "answers": len(experiment.answers),
                "results": kept.version if kept is not None else None,
            }
        )
    if json:
        print(msgspec.json.encode({"experiments": found}).decode())
        return
    table = Table("name", "title", "source", "runs", "--quick", "answers", "results")
    for row in found:
        table.add_row(*(Text("-" if value is None else str(value)) for value in row.values()))
    stdout_console().print(table)


@lab.command("run")
def run(  # noqa: PLR0913, PLR0917 - the options of the command
    experiment: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Of `lab list`, or a file (.toml).")],
    quick: Annotated[bool, typer.Option("--quick", help="The reduced grid; its figures must repeat.")] = False,
    seeds: Annotated[
        str | None, typer.Option(metavar="LIST", help="1-5 or 1,2,7, in place of the file's repetitions.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="A Spark master instead of this machine: spark://HOST:7077")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where finished runs are kept, and found again.")] = OUT,
    traces: Annotated[bool, typer.Option("--traces", help="Keep the trace of each run, and audit it.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the summary there too: results")] = None,
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """Run an experiment: one Spark task for each combination of its grid and seed.

    A sweep that was stopped goes on where it was. Exit status: 0 done, 1 a run failed, the audit found a violation, or
    a figure of `--quick` does not repeat, 2 the experiment cannot be used, 3 Spark cannot run here.

    Examples:

    - `causalcast lab run 004-formulas`

    - `causalcast lab run 004-experiment-3 --quick --traces`

    - `causalcast lab run mine.toml --seeds 1-30 --master spark://host:7077 --out /shared/lab`
    """
    _require(NEEDED)
    from causalcast.audit.errors import AuditError  # noqa: PLC0415 - see `list_`
    from causalcast.cli.audit import MASTER  # noqa: PLC0415
    from causalcast.lab import grid, records, summary, sweep  # noqa: PLC0415
    from causalcast.lab.experiment import load, name_of  # noqa: PLC0415

    if master is not None and not MASTER.match(master):
        raise CommandError(f"--master: {master!r} is no Spark master; write local[N], spark://HOST:PORT or yarn", 2)
    if save is not None and quick:
        raise CommandError("--save keeps the summary of a full run: leave out --quick", 2)
    chosen, name = load(experiment), name_of(experiment)
    numbers = _seeds(seeds) if seeds is not None else grid.seeds_of(chosen, quick=quick)
    tasks = grid.runs(chosen, experiment, quick=quick, seeds=numbers)
    folders = sweep.Folders.under(out, name)
    wants_traces = traces or chosen.traces
    console = stderr_console()
    try:
        with console.status(Text(f"{name}: {len(tasks)} runs")) as status:

            def tell(step: Progress) -> None:
                status.update(Text(f"{name}: {step.what.lower()} {step.done} of {step.of}"))

            swept = sweep.sweep(tasks, folders, master=master, traces=wants_traces, progress=tell)
    except AuditError as error:
        raise CommandError(str(error), error.exit_code) from error
    failed = {failure.run.key for failure in swept.failures}
    kept = [records.read(folders.runs, task.key) for task in tasks if task.key not in failed]
    found = summary.summarize(
        chosen,
        sweep.with_audits(kept, swept.audits),
        numbers,
        name=name,
        command=_command(experiment, quick, seeds, traces),
        version=grid.code_version(),
    )
    files = [summary.write(found, out / "quick" if quick else out)]
    if save is not None and not failed:
        files.append(summary.write(found, save))
    before = summary.read(results, name) if quick else None
    repetition = summary.repeat(chosen, before, found) if before is not None else None
    if json:
        print(msgspec.json.encode(_run_report(name, swept, repetition, files)).decode())
    else:
        _show_run(name, swept, repetition, files, quick)
    violated = any(each.verdict != "pass" for each in swept.audits)
    if swept.failures or violated or (repetition is not None and repetition.different):
        raise typer.Exit(EXIT_FAILED)


@lab.command("show")
def show(
    experiment: Annotated[str, typer.Argument(metavar="NAME|FILE", help="Of `lab list`, or a file (.toml).")],
    results: Results = RESULTS,
    json: Json = False,
) -> None:
    """The figures of one experiment: of each cell of its grid, what was measured, a mean over the seeds.

    Examples:

    - `causalcast lab show overlay-churn`

    - `causalcast lab show mine.toml --results build/lab`
    """
    from causalcast.lab import summary  # noqa: PLC0415 - see `list_`
    from causalcast.lab.experiment import load, name_of  # noqa: PLC0415

    chosen, name = load(experiment), name_of(experiment)
    found = summary.read(results, name)
    if found is None:
        raise CommandError(f"{results} has no results of {name}: causalcast lab run {experiment} --save {results}", 2)
    try:
        if json:
            print(msgspec.json.encode(found).decode(), flush=True)
        else:
            _show_figures(chosen, found)
    except BrokenPipeError:
        forget_stdout()


@lab.command("compare")
def compare(
    experiments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME|FILE]...", help="Which experiments' reference values.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All reference values, answered or not.")] = False,
    results: Results = RESULTS,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write compare.html and compare.csv there.")] = None,
    json: Json = False,
) -> None:
    """Reference values of the documents beside ours: expected, measured with its interval, tolerance, verdict.

    Exit status 0, whatever the verdicts; 2 if an experiment or a summary cannot be used.

    Examples:

    - `causalcast lab compare 004-experiment-3`

    - `causalcast lab compare --all --out build/compare`

    - `causalcast lab compare --all --json | jq .summary`
    """
    from causalcast.lab import compare as comparing  # noqa: PLC0415 - see `list_`
    from causalcast.lab import page, summary  # noqa: PLC0415
    from causalcast.lab.experiment import load, name_of, names  # noqa: PLC0415

    if bool(experiments) == everything:
        raise CommandError("name experiments (`causalcast lab list`), or give --all, not both", 2)
    if not results.is_dir():
        raise CommandError(f"there is no folder {results}: give --results DIR, where the summaries are", 2)
    if out is not None:
        _require(NEEDED_FOR_PAGES)
    chosen = {name_of(each): load(each) for each in experiments or names()}
    summaries = {name: found for name in chosen if (found := summary.read(results, name)) is not None}
    comparison = comparing.compare(chosen, summaries, everything=everything)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "compare.csv").write_text(page.to_csv(comparison), encoding="utf-8")
        (out / "compare.html").write_text(page.to_html(comparison, chosen, summaries), encoding="utf-8")
    try:
        if json:
            print(msgspec.json.encode(comparison).decode(), flush=True)
        else:
            _show_comparison(comparison, out)
    except BrokenPipeError:
        forget_stdout()


def _require(modules: Sequence[str]) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise CommandError(f"this needs {', '.join(missing)}: run pip install 'causalcast[lab]'", EXIT_ENVIRONMENT)


def _seeds(text: str) -> tuple[int, ...]:
    """Of `1-5` or `1,2,7`."""
    if span := re.fullmatch(r"(\d{1,9})-(\d{1,9})", text):
        found = tuple(range(int(span[1]), min(int(span[2]), int(span[1]) + MOST_SEEDS) + 1))
    elif re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        found = tuple(dict.fromkeys(map(int, text.split(","))))
    else:
        found = ()
    if not found:
        raise CommandError(f"--seeds: {text!r} is no list of seeds such as 1-5 or 1,2,7", 2)
    if len(found) > MOST_SEEDS:
        raise CommandError(f"--seeds: {text!r} are more than {MOST_SEEDS:,} seeds", 2)
    return found


def _command(experiment: str, quick: bool, seeds: str | None, traces: bool) -> str:
    options = [("--quick", quick), (f"--seeds {seeds}", seeds is not None), ("--traces", traces)]
    return " ".join(["causalcast lab run", experiment, *(text for text, given in options if given)])


def _run_report(name: str, swept: Swept, repetition: Repetition | None, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "experiment": name,
        "ran": swept.ran,
        "skipped": swept.skipped,
        "failures": [
            {"parameters": each.run.parameters, "seed": each.run.seed, "reason": each.reason} for each in swept.failures
        ],
        "audited": len(swept.audits),
        "violated": [each for each in swept.audits if each.verdict != "pass"],
        "repetition": repetition,
        "summary": str(files[-1]),
    }


def _show_run(name: str, swept: Swept, repetition: Repetition | None, files: Sequence[Path], quick: bool) -> None:
    line = functools.partial(stdout_console().print, markup=False, highlight=False, soft_wrap=True)
    line(f"{name}: {swept.ran} runs done, {swept.skipped} were done before, {len(swept.failures)} failed")
    for failure in swept.failures[:LISTED]:
        line(f"  {_cell(failure.run.parameters)}, seed {failure.run.seed}: {failure.reason}")
    if swept.audits:
        bad = [each for each in swept.audits if each.verdict != "pass"]
        line(f"Audit: {len(swept.audits) - len(bad)} of {len(swept.audits)} traces pass")
        for each in bad[:LISTED]:
            line(f"  run {each.key}: {', '.join(f'{number} {kind}' for kind, number in sorted(each.counts.items()))}")
    if repetition is not None:
        line(f"Repeated: {repetition.same} figures are as in the kept summary, {len(repetition.different)} are not")
        for one in repetition.different[:LISTED]:
            what = f"{one.statistic} of {one.metric}"
            line(f"  {_cell(one.parameters)}, seed {one.seed}: {what} is {one.found}, was {one.was}")
    elif quick:
        line("There is no kept summary to repeat.")
    line("Summary: " + ", ".join(map(str, files)))


def _cell(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _show_figures(experiment: Experiment, found: Summary) -> None:
    from causalcast.lab.estimate import interval  # noqa: PLC0415 - see `list_`
    from causalcast.lab.metrics import metrics_of  # noqa: PLC0415
    from causalcast.lab.page import number, span  # noqa: PLC0415

    values: dict[str, set[Any]] = {}
    for cell in found.cells:
        for name, value in cell.parameters.items():
            values.setdefault(name, set()).add(value)
    telling = [name for name, different in values.items() if len(different) > 1]
    metrics = metrics_of(experiment.probes, experiment.calculate)
    table = Table(*telling, "metric", "of", "unit", "mean", "95 % interval", title=Text(experiment.title))
    for cell in found.cells:
        for place, (metric, statistic) in enumerate((m, s) for m, each in cell.measured.items() for s in each):
            measured = cell.measured[metric][statistic]
            numbers = [float(value) for value in measured if isinstance(value, int | float)]
            texts = sorted({value for value in measured if isinstance(value, str)})
            mean: float | str | None = fmean(numbers) if numbers else " or ".join(texts) or None
            told = [str(cell.parameters[name]) if not place else "" for name in telling]
            known = metrics.find(metric)
            row = (*told, metric, statistic, known.unit if known else "", number(mean), span(interval(numbers)))
            table.add_row(*map(Text, row))
        table.add_section()
    stdout_console().print(table)
    line = functools.partial(stdout_console().print, markup=False, highlight=False, soft_wrap=True)
    seeds = ", ".join(map(str, found.seeds))
    line(f"By {found.command}; seeds {seeds}; {found.cpu_seconds:,.0f} CPU s; version {found.version}")


_STYLES: Final = {"met": "green", "missed": "bold red", "explained": "yellow", "unanswered": "dim"}


def _show_comparison(comparison: Comparison, out: Path | None) -> None:
    from causalcast.lab.page import number, span  # noqa: PLC0415 - see `list_`

    console = stdout_console()
    table = Table("id", "where", "expected", "measured", "95 % interval", "tolerance", "verdict")
    for row in comparison.rows:
        table.add_row(
            *map(Text, (row.id, row.where, row.expected, number(row.measured), span(row.interval), row.tolerance)),
            Text(row.verdict, style=_STYLES[row.verdict]),
        )
    console.print(table)
    line = functools.partial(console.print, markup=False, highlight=False, soft_wrap=True)
    for row in comparison.rows:
        if row.verdict in {"missed", "explained"}:
            line(f"{row.id} {row.verdict}: {row.reason}")
    line(", ".join(f"{number} {verdict}" for verdict, number in comparison.summary.items()))
    if out is not None:
        line(f"Page: {out / 'compare.html'}, table: {out / 'compare.csv'}")
