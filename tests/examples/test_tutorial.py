"""The tutorial's code does what its page says, and prints what its page shows."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from causalcast.audit.pipeline import run_audit
from causalcast.audit.session import spark_session
from causalcast.cli.audit import print_result

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "examples" / "tutorial"
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SHOWN = [
    (command, output)
    for command, output in re.findall(r"```console\n\$ (.*)\n((?:.*\n)*?)```", PAGE)
    if command.startswith("python ")
]
"""Each command on the page that runs a script, and what the page says that it prints."""
EXCERPTS = re.findall(r"```text\n((?:.*\n)*?)```", PAGE)
"""What the page shows of the two audits."""
RIGHT = "        return message.counter == self._delivered[message.origin] + 1\n"
MISTAKE = "        return message.counter > self._delivered[message.origin]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that the reader may work in."""
    shutil.copytree(CODE, tmp_path / "examples" / "tutorial", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(folder: Path, command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=folder,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_page_includes_all_of_the_code_and_nothing_else() -> None:
    included = re.findall(r'```python\n--8<-- "(.*)"\n```', PAGE)
    assert sorted(included) == sorted(str(path.relative_to(ROOT)) for path in CODE.glob("*.py"))
    assert PAGE.count("--8<--") == len(included)


def test_the_page_shows_every_step() -> None:
    assert [command.split()[1:3] for command, _ in SHOWN] == [
        ["examples/tutorial/simulate.py", "fifo"],
        ["examples/tutorial/explore.py", "fifo"],
        ["examples/tutorial/explore.py", "fifo"],
        ["examples/tutorial/explore.py", "fifo"],
        ["examples/tutorial/explore.py", "causal"],
        ["examples/tutorial/simulate.py", "causal"],
    ]
    assert len(EXCERPTS) == 2


@pytest.mark.parametrize("step", range(len(SHOWN)))
def test_each_script_prints_what_the_page_shows(folder: Path, step: int) -> None:
    command, output = SHOWN[step]
    if step == 2:
        module = folder / "examples" / "tutorial" / "fifo.py"
        right = module.read_text(encoding="utf-8")
        assert right.count(RIGHT) == 1
        assert f"```python\n{MISTAKE}```" in PAGE
        module.write_text(right.replace(RIGHT, MISTAKE), encoding="utf-8")
    assert run(folder, command) == (int("\nbreaks " in output), output)


def test_the_audit_fails_the_first_and_passes_the_mended_one_as_the_page_shows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Spark session for both; `causalcast audit` exits with 1 for the verdict `fail`, with 0 for `pass`."""
    monkeypatch.chdir(folder)
    assert run(folder, SHOWN[0][0])[0] == run(folder, SHOWN[-1][0])[0] == 0
    with spark_session("local[1]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "1")
        session.conf.set("spark.sql.adaptive.enabled", "false")
        first, mended = (run_audit([f"build/tutorial/{name}"]) for name in ("fifo", "causal"))
    assert (first.verdict, first.counts) == ("fail", {"causal-order": 6})
    assert (mended.verdict, mended.counts) == ("pass", {})
    for result, excerpt in zip((first, mended), EXCERPTS, strict=True):
        printed = io.StringIO()
        print_result(result, None, Console(file=printed, width=120))
        assert excerpt in printed.getvalue()
