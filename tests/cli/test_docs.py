"""The pages say what the programs do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from causalcast.trace import EVENTS, TraceEvent
from tests.cli.command import run

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("script", ["stacks_table.py", "choosing_table.py"])
def test_the_tables_that_scripts_write_are_current(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["node", "simulate", "audit", "stacks"])
def test_the_page_of_the_command_names_every_option(command: str) -> None:
    _, _, section = page("cli.md").partition(f"## `causalcast {command}`")
    section = section.partition("\n## ")[0]
    options = set(re.findall(r"│ [ *]*(--[a-z]+)", run(command, "--help").stdout)) - {"--help"}
    assert options
    assert not {option for option in options if option not in section}


def test_the_page_of_the_trace_names_every_field_and_event() -> None:
    text = page("trace.md")
    assert not {name for name in (*TraceEvent.__struct_fields__, *EVENTS) if f"`{name}`" not in text}


def test_every_link_between_pages_and_from_the_readme_leads_somewhere() -> None:
    for source in (*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", source.read_text(encoding="utf-8")):
            assert (source.parent / target).exists(), f"{source.name}: {target}"


def test_every_test_named_for_a_situation_is_there() -> None:
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page("scenarios.md"))
    assert len(named) > 30
    assert [name for name in named if f"def {name}(" not in source] == []
