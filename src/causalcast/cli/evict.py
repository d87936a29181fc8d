"""`causalcast evict`: tell a running node that another member has crashed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from causalcast.cli.control import ask_to_evict


def evict(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The member that has crashed.")],
    control: Annotated[
        Path, typer.Option(metavar="PATH", help="The control socket of a node that is well; see `causalcast node`.")
    ],
) -> None:
    """Have a group go on without a member that has crashed, on the stack `tcb-dynamic`.

    The other members agree on what it has sent: what any of them has, all get. Then nobody waits for it any more, and
    messages become stable again. One that is alive after all is told, and ends with status 4.

    Exits with 2 if no node answers there, or it knows no such member.

    Examples:

    - `causalcast evict london --control /run/paris.sock`
    """
    if ask_to_evict(control, name):
        print(f"{name} is evicted")
    else:
        print(f"{name} is being evicted: the other members have not all agreed yet")
