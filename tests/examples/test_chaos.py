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

from chaos.faults import FIXED, LASTING_SECONDS, MOVING, open_plan, plan

if TYPE_CHECKING:
    from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("m0", "m1", "m2", "m3", "m4")


def test_a_plan_follows_from_its_seed_and_is_over_in_time() -> None:
    faults = list(plan(NAMES, 300, 7))
    assert faults == list(plan(NAMES, 300, 7)) != list(plan(NAMES, 300, 8))
    assert Counter(fault.kind for fault in faults).keys() == set(FIXED)
    for fault in faults:
        least, most = LASTING_SECONDS.get(fault.kind, (0.0, 0.0))
        assert fault.lasts <= most
        assert fault.begins + fault.lasts <= 300
        assert fault.lasts >= min(least, 300 - fault.begins)
        assert 0 < len(set(fault.members)) < len(NAMES)


def test_a_plan_for_members_that_come_and_go_has_faults_of_all_kinds() -> None:
    faults = list(open_plan(300, 7))
    assert Counter(fault.kind for fault in faults).keys() == set(MOVING)
    assert all(fault.begins + fault.lasts <= 300 and not fault.members for fault in faults)


def outcome_of(group: str, tmp_path: Path, least: int) -> dict[str, Any]:
    """Some seconds; `CAUSALCAST_CHAOS_SECONDS=600` for a long run."""
    seconds = os.environ.get("CAUSALCAST_CHAOS_SECONDS", str(least))
    done = subprocess.run(
        [sys.executable, *f"-m chaos --group {group} --seconds {seconds} --seed 3 --json --out {tmp_path}".split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250 + float(seconds),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    outcome: dict[str, Any] = found["groups"][0]
    assert found["verdict"] == outcome["verdict"] == "pass"
    assert outcome["counts"] == {}
    return outcome


@pytest.mark.soak
def test_the_audit_passes_after_faults_of_every_kind(tmp_path: Path) -> None:
    outcome = outcome_of("fixed", tmp_path, 15)
    assert all(outcome["faults"].values())
    assert outcome["members"] < outcome["lives"] <= outcome["members"] + outcome["faults"]["kill"]
    assert outcome["deliveries"] == outcome["messages"] * (outcome["members"] - 1) > 0


@pytest.mark.soak
def test_the_audit_passes_when_members_join_leave_and_are_evicted_too(tmp_path: Path) -> None:
    outcome = outcome_of("moving", tmp_path, 8)
    assert outcome["faults"].keys() == set(MOVING)
    assert outcome["members"] > 5
    assert outcome["deliveries"] > outcome["messages"] > 0
