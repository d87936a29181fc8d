"""`causalcast simulate`, `stacks` and `audit`: results on stdout, exit statuses as documented."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from causalcast.cli import app
from causalcast.protocols import PROPERTIES, STACKS
from tests.cli.command import COMMAND, assert_one_line, run

if TYPE_CHECKING:
    from pathlib import Path


def main_in_process(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["causalcast", *arguments])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("command", [[], ["node"], ["simulate"], ["audit"], ["stacks"]])
def test_help_teaches_with_examples(command: list[str]) -> None:
    done = run(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: causalcast" in done.stdout
    if command and command != ["stacks"]:
        assert "Examples" in done.stdout


def test_no_arguments_show_the_help() -> None:
    assert run().stdout == run("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["No such command 'frobnicate'"]),
        (["simulate", "--nodes", "0"], ["'--nodes'"]),
        (["simulate", "--nodes", "many"], ["'--nodes'", "integer"]),
        (["simulate", "--stack", "tbc"], ["no stack is called 'tbc'"]),
        (["simulate", "--trace", "/proc/nowhere"], ["/proc/nowhere"]),
        (["simulate", "--colour"], ["No such option", "--colour"]),
        (["audit"], ["Missing argument 'TRACE...'"]),
        (["audit", "/nowhere/at/all"], ["/nowhere/at/all"]),
        (["audit", ".", "--master", "bogus://x"], ["--master: 'bogus://x'", "spark://HOST:PORT"]),
        (["audit", __file__, "--out", "/proc/nowhere"], ["/proc/nowhere: No such file or directory"]),
    ],
)
def test_what_cannot_work_is_one_line_and_status_2(arguments: list[str], words: list[str]) -> None:
    assert_one_line(run(*arguments), 2, *words)


def test_stacks_as_a_table_names_every_stack_and_property() -> None:
    done = run("stacks")
    assert (done.returncode, done.stderr) == (0, "")
    for name in (*STACKS, *PROPERTIES):
        assert name in done.stdout


def test_stacks_as_json() -> None:
    listing = json.loads(run("stacks", "--json").stdout)
    assert [entry["name"] for entry in listing["stacks"]] == list(STACKS)
    assert listing["stacks"][0]["promises"] == ["P1", "P2", "P3", "P4", "P5", "P6"]
    assert listing["properties"] == PROPERTIES


def test_the_same_seed_gives_the_same_trace_and_another_one_another(tmp_path: Path) -> None:
    traces = []
    for folder, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        done = run("simulate", "--nodes", "4", "--messages", "20", "--seed", seed, "--trace", str(tmp_path / folder))
        assert done.returncode == 0
        assert "broadcasts    80" in done.stdout
        assert "deliveries    240" in done.stdout
        traces.append((tmp_path / folder / "trace.jsonl").read_bytes())
    assert traces[0] == traces[1] != traces[2]


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").symlink_to("/dev/full")
    done = run("simulate", "--nodes", "4", "--messages", "2000", "--trace", str(tmp_path))
    assert_one_line(done, 2, "cannot write the trace", "No space left on device")


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen([COMMAND, "stacks"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_without_pyspark_the_audit_says_what_to_install_with_status_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("causalcast.cli.audit.NEEDED", ("no_such_spark", "json"))
    assert main_in_process(monkeypatch, "audit", str(tmp_path)) == 3
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "causalcast: the audit needs no_such_spark: run pip install 'causalcast[audit]'\n"


def test_a_defect_is_one_line_with_a_status_that_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("causalcast.simulation.Simulator.run", broken)
    assert main_in_process(monkeypatch, "simulate") == 70
    assert "internal error: ZeroDivisionError: of nothing" in capsys.readouterr().err


def test_a_defect_that_cannot_be_told_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 1 would be one; errors of Spark have no text once it has ended."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise AssertionError

    def broken(*_: object, **__: object) -> None:
        raise MuteError

    monkeypatch.setattr("causalcast.simulation.Simulator.run", broken)
    assert main_in_process(monkeypatch, "simulate") == 70
    assert "internal error: MuteError (this is a defect" in capsys.readouterr().err


def test_a_sound_trace_passes_with_status_0_and_one_json_object(tmp_path: Path) -> None:
    run("simulate", "--nodes", "4", "--messages", "20", "--trace", str(tmp_path))
    done = run("audit", "--json", str(tmp_path), timeout=240)
    assert done.returncode == 0
    verdict = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert (verdict["verdict"], verdict["processes"], verdict["messages"]) == ("pass", 4, 80)
    assert (verdict["findings"], verdict["counts"], verdict["quarantined"]) == ([], {}, 0)
    assert "Starting Spark" in done.stderr


def test_a_violation_is_shown_with_status_1_and_a_report(tmp_path: Path) -> None:
    run("simulate", "--stack", "unordered", "--nodes", "6", "--messages", "60", "--trace", str(tmp_path))
    done = run("audit", str(tmp_path), "--out", str(tmp_path / "out"), timeout=240)
    assert done.returncode == 1
    assert "fail" in done.stdout
    assert "causal-order (P3): " in done.stdout
    assert "its cause" in done.stdout
    assert "<html" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["verdict"] == "fail"
