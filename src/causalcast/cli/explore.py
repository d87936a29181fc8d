"""`causalcast explore`: every schedule of a small case."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from causalcast.cli.breach import properties_of, save_schedule, show_schedule
from causalcast.cli.console import stderr_console, stdout_console
from causalcast.cli.errors import CommandError
from causalcast.protocols import DEFAULT_STACK, stack

if TYPE_CHECKING:
    from rich.console import Console

    from causalcast.protocols import Stack
    from causalcast.simulation.explorer import Case, Outcome
    from causalcast.simulation.schedule import Schedule

EXIT_VIOLATED: Final = 1
DEFAULT_LIMIT: Final = 2_000_000
FAULTS: Final = ("reorder", "duplicate", "crash", "restart", "break", "suspect")


class ExploreReport(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    verdict: str
    """`violated`, `pass`, or `not exhausted`: nothing found in the part of the case that the limit allowed."""
    stack: str
    nodes: int
    broadcasts: int
    faults: dict[str, int]
    script: dict[str, list[str]]
    """For each process that has one, its steps as in a schedule."""
    timers: int | None
    """How often each timer of a process came due, at most."""
    properties: tuple[str, ...]
    states: int
    steps: int
    schedules: int
    depth: int
    exhausted: bool
    seconds: float
    property: str | None = None
    process: str | None = None
    detail: str | None = None
    schedule: str | None = None


def explore(  # noqa: PLR0913 - one parameter per option
    *,
    stack_name: Annotated[str, typer.Option("--stack", help="One of `causalcast stacks`.")] = DEFAULT_STACK,
    nodes: Annotated[int, typer.Option(min=1, max=8, help="How many processes.")] = 3,
    broadcasts: Annotated[int, typer.Option(min=0, help="How many messages, of all processes together, in turn.")] = 2,
    anyone: Annotated[bool, typer.Option("--anyone", help="Share the broadcasts out in every way instead.")] = False,
    faults: Annotated[
        str,
        typer.Option(
            metavar="FAULT,...",
            help="`reorder` links, `duplicate[:N]` messages, `crash[:N]` or `restart[:N]` processes, `break[:N]` "
            "session links, `suspect[:N]` processes.",
        ),
    ] = "",
    script: Annotated[
        str,
        typer.Option(
            metavar="SCRIPT",
            help="What processes do besides, each step at any time: `p2: join p0, leave; p1: suspect p0`. Steps are "
            "`broadcast [TOPIC]`, `join CONTACT`, `leave`, `crash`, `suspect PEER`, `trust PEER`, `subscribe [TOPIC]`, "
            "`unsubscribe [TOPIC]`.",
        ),
    ] = "",
    properties: Annotated[
        str, typer.Option(metavar="P,...", help="What to check; what the stack promises if not given.")
    ] = "",
    prompt: Annotated[
        str,
        typer.Option(
            metavar="EVENTS",
            help="Let applications take `stable` or `all` events at once: fewer schedules, larger cases.",
        ),
    ] = "none",
    timers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Let each timer of a process come due at most N times: an end for all."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Give up after so many states, and say so.")] = DEFAULT_LIMIT,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the schedule of a violation there.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Try every schedule of a small case: each order of messages, timers, applications and faults.

    Exits with 1 if one of them breaks a property; its schedule, made as small as can be, is shown, and saved for
    `causalcast simulate --replay`. Links keep order and lose nothing unless `--faults` says otherwise. Processes are
    called p0, p1, ...; one whose script begins with `join` is absent until then.

    Examples:

    - `causalcast explore --stack cbcast --nodes 3 --broadcasts 4 --faults reorder,duplicate`

    - `causalcast explore --stack unordered --properties P3 --save build/p3.schedule`
    """
    case = _case(stack_name, nodes, broadcasts, anyone, _faults(faults), script, properties, prompt, timers)
    outcome = _search(case, limit)
    schedule = _smallest(case, outcome)
    if save is not None and schedule is not None:
        save_schedule(save, schedule)
    if json:
        print(msgspec.json.encode(_report(case, outcome, schedule)).decode())
    else:
        _show(stdout_console(), case, outcome, schedule, save)
    if schedule is not None:
        raise typer.Exit(EXIT_VIOLATED)


def _case(  # noqa: PLR0913, PLR0917 - what the options say, in their order
    name: str,
    nodes: int,
    broadcasts: int,
    anyone: bool,
    faults: dict[str, int],
    script: str,
    properties: str,
    prompt: str,
    timers: int | None,
) -> Case:
    from causalcast.cli.script import scripts_of  # noqa: PLC0415 - the other commands do without it
    from causalcast.simulation import process_names  # noqa: PLC0415
    from causalcast.simulation.explorer import Case  # noqa: PLC0415
    from causalcast.simulation.local import Promptness  # noqa: PLC0415
    from causalcast.simulation.properties import own_tables  # noqa: PLC0415
    from causalcast.simulation.world import tells_its_tables  # noqa: PLC0415

    chosen = stack(name)
    _check_faults(faults, chosen)
    if prompt not in {each.value for each in Promptness}:
        raise CommandError(f"--prompt is none, stable or all, not {prompt!r}", 2)
    if timers is not None and "P7" in properties.replace(" ", "").split(","):
        raise CommandError("--timers: P7 cannot be checked, since time empties tables; leave out one of the two", 2)
    names = tuple(process_names(nodes))
    tables = tells_its_tables(chosen)
    return Case(
        chosen,
        names,
        broadcasts,
        anyone=anyone,
        fifo="reorder" not in faults,
        duplicates=faults.get("duplicate", 0),
        crashes=min(faults.get("crash", 0), nodes),
        restarts=faults.get("restart", 0),
        breaks=faults.get("break", 0),
        suspicions=faults.get("suspect", 0),
        scripts=scripts_of(script, names, chosen),
        prompt=Promptness(prompt),
        timers=timers,
        properties=properties_of(properties, tables=tables),
        sizes=own_tables if tables else None,
    )


def _check_faults(faults: dict[str, int], stack: Stack) -> None:
    name = stack.name
    reasons = {
        "reorder": f"the stack {name} needs links that keep order" if stack.fifo_links or stack.session_links else "",
        "duplicate": f"the stack {name} is made for session links, which repeat nothing" if stack.session_links else "",
        "restart": ""
        if stack.recovers and not stack.session_links
        else f"processes of the stack {name} cannot recover",
        "break": "" if stack.session_links else f"the stack {name} is made for durable links, which do not break",
        "suspect": ""
        if stack.dynamic or stack.suspects
        else f"the members of the stack {name} are fixed, nobody can be put out",
    }
    for fault in faults:
        if reasons.get(fault):
            raise CommandError(f"{reasons[fault]}; leave out {fault!r}", 2)


def _faults(text: str) -> dict[str, int]:
    faults: dict[str, int] = {}
    for word in text.replace(" ", "").split(","):
        name, colon, number = word.partition(":")
        if not word:
            continue
        if name not in FAULTS or (colon and (name == "reorder" or not number.isdecimal())):
            choices = ", ".join(each if each == "reorder" else f"{each}[:N]" for each in FAULTS)
            raise CommandError(f"{word!r} is no fault; choose from {choices}", 2)
        faults[name] = int(number) if colon else 1
    return faults


def _search(case: Case, limit: int) -> Outcome:
    from causalcast.simulation.explorer import explore as run  # noqa: PLC0415 - the other commands do without it

    with stderr_console().status("Exploring") as status:

        def show(outcome: Outcome) -> None:
            status.update(f"Exploring: {outcome.states:,} states, schedules of up to {outcome.depth} steps")

        return run(case, limit=limit, progress=show)


def _smallest(case: Case, outcome: Outcome) -> Schedule | None:
    from causalcast.simulation.schedule import Schedule  # noqa: PLC0415 - only a breach needs them
    from causalcast.simulation.shrink import shrink  # noqa: PLC0415

    if outcome.found is None:
        return None
    violation, steps = outcome.found
    found = Schedule(case.stack.name, case.members, steps, violation.property, str(violation), case.joiners)
    return shrink(found, violation.property, stack=case.stack, sizes=case.sizes)


def _total(number: int | tuple[int, ...]) -> int:
    return number if isinstance(number, int) else sum(number)


def _faults_of(case: Case) -> dict[str, int]:
    counts = {
        "reorder": int(not case.fifo),
        "duplicate": _total(case.duplicates),
        "crash": _total(case.crashes),
        "restart": _total(case.restarts),
        "break": _total(case.breaks),
        "suspect": _total(case.suspicions),
    }
    return {name: count for name, count in counts.items() if count}


def _report(case: Case, outcome: Outcome, schedule: Schedule | None) -> ExploreReport:
    from causalcast.simulation.schedule import step_text  # noqa: PLC0415 - the other commands do without it

    violation = outcome.found.violation if outcome.found is not None else None
    return ExploreReport(
        verdict="violated" if violation is not None else "pass" if outcome.exhausted else "not exhausted",
        stack=case.stack.name,
        nodes=len(case.names),
        broadcasts=_total(case.broadcasts),
        faults=_faults_of(case),
        script={name: list(map(step_text, steps)) for name, steps in case.scripts.items()},
        timers=case.timers,
        properties=tuple(sorted(case.checked)),
        states=outcome.states,
        steps=outcome.steps,
        schedules=outcome.schedules,
        depth=outcome.depth,
        exhausted=outcome.exhausted,
        seconds=round(outcome.seconds, 3),
        property=violation.property if violation is not None else None,
        process=violation.process if violation is not None else None,
        detail=violation.detail if violation is not None else None,
        schedule=schedule.dump() if schedule is not None else None,
    )


def _script_text(case: Case) -> str:
    from causalcast.simulation.schedule import step_text  # noqa: PLC0415 - the other commands do without it

    return "; ".join(", ".join(map(step_text, steps)) for steps in case.scripts.values())


def _show(console: Console, case: Case, outcome: Outcome, schedule: Schedule | None, save: Path | None) -> None:
    faults = ", ".join(f"{name} {count}" if name != "reorder" else name for name, count in _faults_of(case).items())
    rows = [
        ("stack", case.stack.name),
        (
            "case",
            f"{len(case.names)} processes, {_total(case.broadcasts)} broadcasts"
            + (", by anyone" if case.anyone else ""),
        ),
        ("faults", faults or "none; links keep order"),
        ("checked", " ".join(sorted(case.checked))),
        ("states", f"{outcome.states:,}"),
        ("schedules", f"{outcome.schedules:,} complete ones followed, of up to {outcome.depth} steps"),
        ("time", f"{outcome.seconds:.3f} s"),
    ]
    if case.scripts:
        rows.insert(2, ("script", _script_text(case)))
    if case.prompt.value != "none":
        rows.insert(-3, ("restricted", f"applications take {case.prompt.value} events at once"))
    if case.timers is not None:
        rows.insert(-3, ("restricted", f"each timer of a process comes due at most {case.timers} times"))
    for label, value in rows:
        console.print(f"{label:<11} {value}", markup=False, highlight=False, soft_wrap=True)

    def say(text: str = "") -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    if schedule is None:
        say(
            "\nEvery schedule of this case keeps what was checked."
            if outcome.exhausted
            else f"\nNot exhausted: nothing was violated within {outcome.states:,} states; --limit raises the bound."
        )
        return
    show_schedule(console, schedule, case.stack, case.checked, case.sizes)
    say(f"\nSchedule in {save}; replay it with: causalcast simulate --replay {save}" if save else "\n--save keeps it.")
