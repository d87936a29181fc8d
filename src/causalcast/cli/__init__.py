"""The command `causalcast`: thin sub-commands over the layers below. See `docs/cli.md`."""

from causalcast.cli.app import main

__all__ = ["main"]
