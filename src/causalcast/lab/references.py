"""The reference values: what the five documents report, one row for each, with where it stands.

The file is kept as it was gathered, with its source columns. Code and experiments know its rows by `id` only.
"""

from __future__ import annotations

import csv
import functools
from importlib.resources import files
from typing import NamedTuple


class Reference(NamedTuple):
    """One value, ordering or statement of a document."""

    id: str
    document: str
    """000 to 004."""
    where: str
    """Section, table or figure."""
    system: str
    parameters: str
    metric: str
    expected: str
    tolerance: str
    notes: str


@functools.cache
def references() -> dict[str, Reference]:
    """All rows by `id`, in the order of the file."""
    text = files("causalcast.lab").joinpath("data/reference_values.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {
        row["id"]: Reference(
            row["id"],
            row["seed_file"].partition("_")[0],
            row["where"],
            row["system"],
            row["parameters"],
            row["metric"],
            row["expected"],
            row["tolerance_suggestion"],
            row["notes"],
        )
        for row in rows
    }
