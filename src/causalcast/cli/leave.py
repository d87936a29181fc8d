"""`causalcast leave`: have a running node leave its group for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causalcast.cli.control import ask_to_leave


def leave(
    control: Annotated[
        Path, typer.Option(metavar="PATH", help="The control socket of the node; see `causalcast node`.")
    ],
) -> None:
    """Have a node leave its group for good and end, where members come and go.

    Without a journal any end is that. A node with a journal that is ended by a signal is expected back; this is how it
    leaves. Its journal is of no use after that.

    Exits with 2 if no node answers there, or its members are fixed.

    Examples:

    - `causalcast leave --control /run/paris.sock`
    """
    if ask_to_leave(control):
        print("it has left")
    else:
        print("it is leaving: not all other members have let go of it yet")
