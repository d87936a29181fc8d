"""How every benchmark reports: a table on the terminal and `build/bench/NAME.json`."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

FOLDER = Path("build/bench")
_WIDE = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One measured case: its name and its figures, each in the unit its name says."""

    name: str
    figures: dict[str, float]


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
    }


def write(name: str, cases: list[Case]) -> None:
    """Print the cases and write them, with the machine, to `build/bench/NAME.json`."""
    table = Table("case", title=f"bench {name}")
    columns = list(dict.fromkeys(column for case in cases for column in case.figures))
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right", overflow="fold")
    for case in cases:
        table.add_row(case.name, *(_shown(case.figures.get(column)) for column in columns))
    console = Console()
    # A file or a pipe has no width that figures would have to be cut to.
    (console if console.is_terminal else Console(width=_WIDE)).print(table)
    FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {"name": name, "machine": machine(), "cases": [{"case": case.name, **case.figures} for case in cases]}, indent=2
    )
    (FOLDER / f"{name}.json").write_text(text + "\n")


def _shown(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,.0f}" if abs(figure) >= 1000 or figure == int(figure) else f"{figure:,.2f}"
