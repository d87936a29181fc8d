"""`causalcast lab` as a user has it: run, list, compare, and what it says to mistakes."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

import pytest

from causalcast.lab.experiment import names
from causalcast.lab.references import references
from tests.cli.command import assert_one_line, run
from tests.lab.tiny import write_tiny

if TYPE_CHECKING:
    from pathlib import Path


def test_run_repeat_and_compare(tmp_path: Path) -> None:
    path, out, kept = write_tiny(tmp_path), str(tmp_path / "out"), str(tmp_path / "kept")
    options = ("--out", out, "--results", kept, "--json")
    done = run("lab", "run", path, *options, "--save", kept, "--master", "local[1]", timeout=200)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["ran"], said["skipped"], said["failures"]) == (8, 0, [])
    summary = json.loads((tmp_path / "kept" / "tiny.json").read_text())
    assert summary["command"] == f"causalcast lab run {path}"
    assert (summary["seeds"], len(summary["cells"])) == ([1, 2], 4)

    quick = json.loads(run("lab", "run", path, *options, "--quick", timeout=120).stdout)
    assert quick["ran"] + quick["skipped"] == 2
    assert quick["repetition"]["same"] > 0
    assert quick["repetition"]["different"] == []

    (tmp_path / "kept" / "tiny.json").write_text(json.dumps(summary).replace('"max": [3, 3]', '"max": [2, 3]'))
    changed = run("lab", "run", path, *options[:-1], "--quick")
    assert changed.returncode == 1
    assert re.search(r"nodes 3, seed 1: max of entries is 3, was 2", changed.stdout)
    (tmp_path / "kept" / "tiny.json").write_text(json.dumps(summary))

    shown = run("lab", "show", path, "--results", kept)
    assert shown.returncode == 0
    assert re.search(r"entries +│ max +│ entries +│ 4 ", shown.stdout), shown.stdout
    assert "seeds 1, 2;" in shown.stdout
    assert_one_line(run("lab", "show", path, "--results", str(tmp_path)), 2, "has no results of tiny")

    pages = tmp_path / "pages"
    compared = run("lab", "compare", path, "--results", kept, "--out", str(pages), "--json")
    rows = {row["id"]: row for row in json.loads(compared.stdout)["rows"]}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        "TCB-16": "met",
        "TCB-17": "missed",
        "TCB-46": "explained",
    }
    assert rows["TCB-16"]["measured"] == 4
    assert {"id", "expected", "measured", "interval", "verdict", "reason"} <= rows["TCB-16"].keys()
    table = list(csv.DictReader((pages / "compare.csv").read_text().splitlines()))
    assert [row["id"] for row in table] == list(rows)
    page = (pages / "compare.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 1
    assert "not &lt;0.5" in page
    assert not re.search(r'(src|href)="?https?:', page)
    terminal = run("lab", "compare", path, "--results", kept)
    assert terminal.returncode == 0
    assert "1 met, 1 missed, 1 explained, 0 unanswered" in terminal.stdout


def test_all_reference_values_as_one_object(tmp_path: Path) -> None:
    done = run("lab", "compare", "--all", "--results", str(tmp_path), "--json")
    assert done.returncode == 0
    said = json.loads(done.stdout)
    assert [row["id"] for row in said["rows"]] == list(references())
    assert sum(said["summary"].values()) == len(references())
    assert set(said["summary"]) == {"met", "missed", "explained", "unanswered"}


def test_list_names_every_experiment() -> None:
    listed = json.loads(run("lab", "list", "--json").stdout)["experiments"]
    assert [each["name"] for each in listed] == list(names())
    assert all(0 < each["quick"] <= each["runs"] for each in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "004"), ("'004'", "004-formulas")),
        (("run", "nowhere.toml"), ("nowhere.toml", "No such file")),
        (("run", "004-formulas", "--seeds", "many"), ("--seeds", "'many'")),
        (("run", "004-formulas", "--master", "here"), ("--master", "'here'")),
        (("run", "004-formulas", "--quick", "--save", "x"), ("--save", "--quick")),
        (("compare",), ("--all",)),
        (("compare", "004-formulas", "--all"), ("--all",)),
        (("compare", "--all", "--results", "/nowhere"), ("/nowhere", "--results")),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert_one_line(run("lab", *arguments), 2, *words)


def test_a_broken_summary_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "004-formulas.json").write_text('{"experiment": 5}')
    done = run("lab", "compare", "004-formulas", "--results", str(tmp_path))
    assert_one_line(done, 2, "004-formulas.json", "experiment")
