"""The sub-commands put together, and what happens when one fails: one line on stderr and a documented exit code."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Final

import typer

from causalcast.cli.audit import audit
from causalcast.cli.console import forget_stdout, open_standard_streams
from causalcast.cli.errors import CommandError
from causalcast.cli.evict import evict
from causalcast.cli.explore import explore
from causalcast.cli.history import history
from causalcast.cli.importing import import_
from causalcast.cli.lab import lab
from causalcast.cli.leave import leave
from causalcast.cli.node import node
from causalcast.cli.simulate import simulate
from causalcast.cli.stacks import stacks
from causalcast.cli.status import members, status
from causalcast.cli.watch import watch
from causalcast.model import CausalcastError

EXIT_UNUSABLE: Final = 2
EXIT_DEFECT: Final = 70
"""A defect of causalcast itself. Never 1, which is an audit's verdict."""
EXIT_INTERRUPTED: Final = 130

TRACEBACK_VARIABLE: Final = "CAUSALCAST_TRACEBACK"

app = typer.Typer(
    name="causalcast",
    help="""Causal broadcast: run it, try it, prove it.

    Start with `causalcast simulate --nodes 5 --messages 100 --trace build/first`, then
    `causalcast audit build/first`.""",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(node)
app.command()(status)
app.command()(members)
app.command()(evict)
app.command()(leave)
app.command()(simulate)
app.command()(explore)
app.command()(audit)
app.command("import")(import_)
app.command()(history)
app.add_typer(lab, name="lab")
app.command()(watch)
app.command()(stacks)


def main() -> None:
    """The entry point; ends the process."""
    open_standard_streams()
    code = _run(sys.argv[1:] or ["--help"])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        return app(arguments, prog_name="causalcast", standalone_mode=False) or 0
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "causalcast"
        return _complain(f"{error.format_message().rstrip('.')}; see '{command} --help'", EXIT_UNUSABLE)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        forget_stdout()
        return 0
    except CommandError as error:
        return _complain(str(error), error.exit_code)
    except CausalcastError as error:
        return _complain(str(error), EXIT_UNUSABLE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", EXIT_UNUSABLE)
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        return _complain(
            f"internal error: {_named(error)} (this is a defect; {TRACEBACK_VARIABLE}=1 shows where)",
            EXIT_DEFECT,
        )


def _named(error: Exception) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # errors of Spark are mute once it has ended
        return type(error).__name__


def _complain(text: str, code: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(f"causalcast: {' '.join(text.split())}", file=sys.stderr)
    return code
