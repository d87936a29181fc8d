"""A sweep on a standalone cluster of several processes on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.audit.test_cluster import master
from tests.cli.command import run
from tests.lab.tiny import write_tiny

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["master"]


def test_a_cluster_measures_what_this_machine_measures(master: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path, ("repetitions = 2", "repetitions = 1"))
    summaries = []
    for where in (master, "local[1]"):
        out = tmp_path / where.partition(":")[0]
        done = run("lab", "run", path, "--master", where, "--out", str(out), timeout=200)
        assert done.returncode == 0, done.stderr
        summary = json.loads((out / "tiny.json").read_text())
        summaries.append(summary["cells"])
    assert summaries[0] == summaries[1]
    assert "app-" in " ".join(found.name for found in (tmp_path / "work").iterdir())
