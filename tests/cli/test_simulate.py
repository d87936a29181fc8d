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


UNEVEN = ("--messages", "5", "--delay", "uniform:1:100")


def test_a_check_that_finds_nothing(tmp_path: Path) -> None:
    done = run("simulate", "--stack", "tcb", *UNEVEN, "--check", str(tmp_path / "file"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "checked       P1 P2 P3 P4 P5 P6 error" in done.stdout
    assert "Nothing that was checked is broken." in done.stdout
    assert not (tmp_path / "file").exists()


def test_a_check_that_finds_something_saves_what_replays(tmp_path: Path) -> None:
    file = tmp_path / "new" / "p3.schedule"
    check = ("simulate", "--stack", "unordered", *UNEVEN, "--properties", "P3", "--check", str(file))
    done = run(*check, "--trace", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    for words in ("violated      P3 ", "before its cause", "Made small:", "◆ offending message", str(file)):
        assert words in done.stdout
    assert (tmp_path / "trace.jsonl").stat().st_size
    text = file.read_text()
    again = run("simulate", "--replay", str(file))
    assert (again.returncode, again.stderr) == (1, "")
    assert f"{text.splitlines()[1].removeprefix('# ')} (not promised)" in again.stdout
    as_json = run(*check, "--json")
    assert (as_json.returncode, as_json.stderr) == (1, "")
    result = json.loads(as_json.stdout)
    assert (result["verdict"], result["property"], result["properties"]) == ("violated", "P3", ["P3", "error"])
    assert (result["schedule"], result["left_open"]) == (text, [])


def test_a_check_says_what_it_leaves_open(tmp_path: Path) -> None:
    (tmp_path / "network").write_text('{"loss": 0.3}')
    options = ("--network", str(tmp_path / "network"), "--check", str(tmp_path / "file"), "--stack", "unordered")
    done = run("simulate", "--messages", "5", *options)
    assert done.returncode == 0
    assert "left open     P2: not all that was sent arrived" in done.stdout
    result = json.loads(run("simulate", "--messages", "5", *options, "--json").stdout)
    assert (result["verdict"], result["left_open"], result["schedule"]) == ("pass", ["P2"], None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--check build/x", ["more than 2,000 steps", "audit"]),
        ("--check build/x --properties P7", ["'P7'"]),
        ("--properties P3", ["--check FILE"]),
        ("--check build/x --replay build/y", ["leave out --check"]),
        ("--messages 5 --stack unordered --delay uniform:1:100 --properties P3 --check /proc/none/x", ["/proc/none"]),
    ],
)
def test_checks_that_cannot_be_made(options: str, words: list[str]) -> None:
    assert_one_line(run("simulate", *options.split()), 2, *words)
