"""The options of `causalcast simulate`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import assert_one_line, run

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = {"delay": {"model": "weibull", "baseline_ns": 10_000_000}, "bits_per_second": 10_000_000}
WORKLOAD = {"workload": "replies", "first": 2}
FAULTS = [{"fault": "pause", "process": "p1", "at_ns": 20_000_000, "for_ns": 5_000_000}]


def test_a_run_as_json_from_files(tmp_path: Path) -> None:
    arguments = []
    for name, content in (("network", NETWORK), ("workload", WORKLOAD), ("faults", FAULTS)):
        (tmp_path / name).write_text(json.dumps(content))
        arguments += [f"--{name}", str(tmp_path / name)]
    (tmp_path / "matrix").write_text("0,1000,2000\n3000,0,4000\n5000,6000,0\n")
    done = run("simulate", "--nodes", "3", "--json", "--matrix", str(tmp_path / "matrix"), *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    result = json.loads(done.stdout)
    assert (result["processes"], result["broadcasts"], result["deliveries"], result["stables"]) == (3, 3, 6, 9)


def test_a_run_by_options() -> None:
    options = "--delay normal:10:2 --interval exponential:5 --senders 2 --messages 9 --reorder --faults random:6:50"
    done = run("simulate", "--nodes", "4", *options.split())
    assert done.returncode == 0
    assert "broadcasts    18" in done.stdout
    assert "held" in done.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--delay uniform:5", ["uniform:LOW:HIGH"]),
        ("--interval never", ["'never'", "constant:MS"]),
        ("--faults random:x", ["random:N:MS"]),
        ("--faults random:1:5 --nodes 1", ["at least two processes"]),
        ("--network /nowhere/network.json", ["/nowhere/network.json"]),
        ("--matrix /nowhere/matrix", ["/nowhere/matrix"]),
    ],
)
def test_options_that_mean_nothing(options: str, words: list[str]) -> None:
    assert_one_line(run("simulate", *options.split()), 2, *words)


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--network", '{"loss": 3}', ["no probability"]),
        ("--network", '{"speed": 3}', ["speed"]),
        ("--network", "{", ["truncated"]),
        ("--workload", '{"workload": "idle"}', ["idle"]),
        ("--faults", '[{"fault": "churn", "mean_session_ns": 1, "at_ns": 0, "for_ns": 1}]', ["neither join nor leave"]),
        ("--faults", '[{"fault": "crash", "process": "p9", "at_ns": 0}]', ["'p9'"]),
    ],
)
def test_files_that_mean_nothing(tmp_path: Path, option: str, text: str, words: list[str]) -> None:
    (tmp_path / "file").write_text(text)
    assert_one_line(run("simulate", option, str(tmp_path / "file")), 2, *words)


def test_a_workload_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps(WORKLOAD))
    assert_one_line(run("simulate", "--workload", str(tmp_path / "file"), "--senders", "1"), 2, "leave out --senders")
