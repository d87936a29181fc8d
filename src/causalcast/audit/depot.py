"""Where packed values wait between stages: in Spark's rows, or in files that all workers see.

Spark copies a large binary value a dozen times on its way from one Python worker to the next. Where workers share a
disk, which in local mode they do, a large value is therefore written to the scratch folder and only its name travels.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LARGE: Final = 64 * 2**10
"""Bytes from which on a value goes to a file."""
_INLINE: Final = b"\0"
_FILE: Final = b"\1"


@dataclass(frozen=True, slots=True)
class Depot:
    """Turns values into tokens and back. `folder` is `None` where workers share no disk."""

    folder: str | None

    def put(self, value: bytes) -> bytes:
        """Return a token for `value`."""
        if self.folder is None or len(value) < LARGE:
            return _INLINE + value
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            file.write(value)
        return _FILE + file.name.encode()

    def get(self, token: bytes) -> bytes:
        """Return the value of a token."""
        if token[:1] == _INLINE:
            return token[1:]
        return Path(token[1:].decode()).read_bytes()
