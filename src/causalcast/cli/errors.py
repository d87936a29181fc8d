"""How a sub-command ends with a line and an exit status of its choice."""

from __future__ import annotations

from causalcast.model import CausalcastError


class CommandError(CausalcastError):
    """Ends the command with this line on stderr and this exit status."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
