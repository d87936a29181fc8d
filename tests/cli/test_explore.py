"""`causalcast explore` and `simulate --replay`: verdicts, files, and what cannot be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import assert_one_line, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_stack_that_keeps_its_promises() -> None:
    done = run("explore", "--stack", "cbcast", "--broadcasts", "3", "--faults", "reorder,duplicate")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every schedule of this case keeps what was checked." in done.stdout
    assert "P1 P2 P3 P4" in done.stdout


def test_a_script_publishes_to_topics() -> None:
    script = "p1: broadcast a, subscribe a; p0: broadcast b"
    done = run("explore", "--stack", "cbcast", "--nodes", "2", "--broadcasts", "0", "--script", script, "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"]) == (0, "pass")
    assert report["script"] == {"p1": ["broadcast p1 % a", "subscribe p1 a"], "p0": ["broadcast p0 % b"]}


def test_p7_is_checked_where_a_stack_tells_its_tables() -> None:
    done = run("explore", "--stack", "causal-aggregation", "--broadcasts", "1", "--properties", "P7", "--json")
    assert (done.returncode, json.loads(done.stdout)["properties"]) == (0, ["P7", "error"])


def test_a_violation_is_shown_saved_and_replayed(tmp_path: Path) -> None:
    file = tmp_path / "new" / "p3.schedule"
    done = run("explore", "--stack", "unordered", "--properties", "P3", "--save", str(file))
    assert (done.returncode, done.stderr) == (1, "")
    for words in ("P3 p2: p1:1 before its cause p0:1", "6  take p2", "◆ offending message p1:1", str(file)):
        assert words in done.stdout
    again = run("simulate", "--replay", str(file), "--trace", str(tmp_path / "trace"))
    assert (again.returncode, again.stderr) == (1, "")
    assert "P3 p2: p1:1 before its cause p0:1 (not promised)" in again.stdout
    events = [json.loads(line)["event"] for line in (tmp_path / "trace" / "trace.jsonl").read_text().splitlines()]
    assert events == ["broadcast", "deliver", "broadcast", "deliver"]


def test_json_is_one_object() -> None:
    done = run("explore", "--stack", "unordered", "--properties", "P3,P4", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["verdict"], report["property"], report["exhausted"]) == ("violated", "P4", False)
    assert report["schedule"].startswith("causalcast schedule 1\n")


def test_a_limit_is_admitted() -> None:
    done = run("explore", "--stack", "tcb", "--limit", "100", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["verdict"], report["exhausted"]) == (0, "not exhausted", False)
    assert "Not exhausted" in run("explore", "--stack", "tcb", "--limit", "100").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stack", "tbc"], ["no stack is called 'tbc'"]),
        (["--faults", "lose"], ["'lose' is no fault"]),
        (["--faults", "duplicate:many"], ["'duplicate:many'"]),
        (["--properties", "P99"], ["'P99'", "P3"]),
        (["--stack", "unordered", "--properties", "P7"], ["'P7'", "tables"]),
        (["--stack", "cbcast", "--faults", "break"], ["durable links", "'break'"]),
        (["--stack", "tcb-plumtree", "--faults", "restart:2"], ["cannot recover"]),
        (["--stack", "cbcast", "--faults", "suspect"], ["are fixed"]),
        (["--stack", "cbcast", "--script", "p2: join p0"], ["are fixed", "join p0"]),
        (["--stack", "cbcast", "--script", "p9: broadcast"], ["no 'p9'"]),
        (["--stack", "cbcast", "--script", "p1: jump"], ["'jump' is no step"]),
        (["--stack", "cbcast", "--script", "p1 broadcast"], ["PROCESS: STEP"]),
        (["--stack", "vcube-ps", "--script", "p1: crash, broadcast"], ["p1 does nothing after it has crashed"]),
        (["--stack", "tcb", "--script", "p1: trust p0"], ["take no suspicion back"]),
        (["--stack", "cbcast", "--script", "p1: unsubscribe a"], ["subscribed to every topic", "'a'"]),
        (["--prompt", "never"], ["--prompt"]),
        (["--stack", "flood", "--properties", "P1,P7", "--timers", "1"], ["--timers", "P7"]),
        (["--nodes", "0"], ["'--nodes'"]),
        (["--stack", "unordered", "--properties", "P3", "--save", "/proc/none/x"], ["/proc/none"]),
    ],
)
def test_what_cannot_work_is_one_line_and_status_2(arguments: list[str], words: list[str]) -> None:
    assert_one_line(run("explore", *arguments), 2, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hello\n", ["no schedule", "line 1"]),
        ("causalcast schedule 1\nstack tcb\nmembers a b\ntake a\n", ["step 1", "no event is queued"]),
        ("causalcast schedule 1\nstack tbc\nmembers a b\n", ["no stack is called 'tbc'"]),
    ],
)
def test_a_file_that_cannot_be_replayed_is_status_2(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "a.schedule"
    file.write_text(text)
    assert_one_line(run("simulate", "--replay", str(file)), 2, *words)


def test_a_missing_file_is_status_2() -> None:
    assert_one_line(run("simulate", "--replay", "/nowhere/a.schedule"), 2, "/nowhere/a.schedule")


def test_a_schedule_that_breaks_nothing_is_status_0(tmp_path: Path) -> None:
    file = tmp_path / "a.schedule"
    file.write_text("causalcast schedule 1\nstack tcb\nmembers a b\nbroadcast a hello\nreceive a b\ntake b\n")
    done = run("simulate", "--replay", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert "Nothing of" in done.stdout
