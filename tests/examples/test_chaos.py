"""Real members under random faults, judged by the audit; and the plan of the faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos.faults import KINDS, LASTING_SECONDS, plan

if TYPE_CHECKING:
    from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("m0", "m1", "m2", "m3", "m4")


def test_a_plan_follows_from_its_seed_and_is_over_in_time() -> None:
    faults = list(plan(NAMES, 300, 7))
    assert faults == list(plan(NAMES, 300, 7)) != list(plan(NAMES, 300, 8))
    assert Counter(fault.kind for fault in faults).keys() == set(KINDS)
    for fault in faults:
        least, most = LASTING_SECONDS[fault.kind]
        assert fault.lasts <= most
        assert fault.begins + fault.lasts <= 300
        assert fault.lasts >= min(least, 300 - fault.begins)
        assert 0 < len(set(fault.members)) < len(NAMES)


@pytest.mark.soak
def test_the_audit_passes_after_faults_of_every_kind(tmp_path: Path) -> None:
    """Fifteen seconds; `CAUSALCAST_CHAOS_SECONDS=600` for a long run."""
    seconds = os.environ.get("CAUSALCAST_CHAOS_SECONDS", "15")
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--seconds", seconds, "--seed", "3", "--out", str(tmp_path), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250 + float(seconds),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["verdict"] == "pass"
    assert outcome["counts"] == {}
    assert all(outcome["faults"].values())
    assert outcome["members"] < outcome["lives"] <= outcome["members"] + outcome["faults"]["kill"]
    assert outcome["deliveries"] == outcome["messages"] * (outcome["members"] - 1) > 0
