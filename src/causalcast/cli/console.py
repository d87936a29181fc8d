"""Consoles: a terminal's own width, and room enough where the output is a file or a pipe."""

from __future__ import annotations

import os
import sys
from typing import Final

from rich.console import Console

PIPE_WIDTH: Final = 120


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command: rich would end the process with the exit status of a failed audit."""
        raise BrokenPipeError


def stdout_console() -> Console:
    """Where results go."""
    return _Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def stderr_console() -> Console:
    """Where progress goes."""
    return _Console(stderr=True, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def forget_stdout() -> None:
    """Nobody reads standard output any more: keep the interpreter from complaining about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
