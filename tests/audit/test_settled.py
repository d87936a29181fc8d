"""What is settled is left out of a later run, and changes nothing of what it says."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from causalcast.audit import pipeline
from causalcast.audit.continued import Continuation
from causalcast.audit.pipeline import run_audit
from tests.audit import unsparked
from tests.audit.steady import grown, steady_trace

if TYPE_CHECKING:
    from pathlib import Path

OUTPUTS = ("findings", "processes", "quarantine", "metrics")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Run the stages in this process, without a JVM; note of each run with a state whether it went on from there."""
    monkeypatch.setattr(pipeline, "spark_session", unsparked.session)
    noted: list[bool] = []
    run = Continuation.run

    def noting(self: Continuation, *arguments: Any) -> Any:
        found = run(self, *arguments)
        noted.append(found is not None)
        return found

    monkeypatch.setattr(Continuation, "run", noting)
    return noted


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def same_outputs(one: Path, other: Path) -> bool:
    names = [*OUTPUTS, *(["timeline"] if (other / "timeline.parquet").exists() else [])]
    tables = all(pq.read_table(one / f"{n}.parquet") == pq.read_table(other / f"{n}.parquet") for n in names)
    return tables and (one / "audit.json").read_bytes() == (other / "audit.json").read_bytes()


@pytest.mark.parametrize("seeds", [range(first, first + 8) for first in (0, 8)])
def test_a_run_that_goes_on_says_what_a_run_from_the_start_says(runs: list[bool], tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        rows, crashed = steady_trace(rng)
        trace, out = tmp_path / f"{seed}", tmp_path / f"{seed}.out"
        trace.mkdir()
        for _ in grown(rng, rows, trace, append):
            found = run_audit([trace], out=out, crashed=crashed)
            assert found == run_audit([trace], crashed=crashed), seed
        assert run_audit([trace], out=out, crashed=crashed) == found, seed
        run_audit([trace], out=tmp_path / f"{seed}.whole", crashed=crashed)
        assert same_outputs(out, tmp_path / f"{seed}.whole"), seed

    assert sum(runs) > 6
