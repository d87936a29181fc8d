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


def open_standard_streams() -> None:
    """Stand in for streams the caller has closed (`>&-`), before a socket or a trace gets one of their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def forget_stdout() -> None:
    """Nobody reads standard output any more: keep the interpreter from complaining about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
