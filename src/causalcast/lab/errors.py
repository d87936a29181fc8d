"""What can be wrong with an experiment or its results. Each error is one line that names the file."""

from __future__ import annotations

from causalcast.model import CausalcastError


class ExperimentInvalidError(CausalcastError, ValueError):
    """An experiment file that cannot be used."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = file


class UnknownExperimentError(CausalcastError, KeyError):
    """No experiment of that name, and no such file."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        return f"no experiment is called {self.name!r}, and no such file exists; there are {', '.join(self.known)}"


class ResultsUnusableError(CausalcastError, ValueError):
    """A summary or a file of results that does not say what it should."""


class MeasurementError(CausalcastError, RuntimeError):
    """A run that cannot be measured as its experiment asks."""
