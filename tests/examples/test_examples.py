"""Every example runs as it stands, and the README shows the first one as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SAID = {
    "hello.py": [
        "london hears 'Shall we meet?'",
        "paris hears 'Yes, at noon.'",
        "paris hears 'Good morning!'\n  which was said while paris spoke",
        "tokyo knows that everyone has all",
    ],
    "simulated.py": [
        "tcb: {'broadcast': 200, 'deliver': 600, 'stable': 800}",
        "unordered: {'broadcast': 200, 'deliver': 600}",
    ],
}


def test_every_example_is_tested() -> None:
    assert sorted(path.name for path in (ROOT / "examples").glob("*.py")) == sorted(SAID)


@pytest.mark.parametrize("name", sorted(SAID))
def test_the_example_runs_as_it_stands(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line in SAID[name]:
        assert line in done.stdout


def test_the_readme_shows_the_first_example_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"```python\n{(ROOT / 'examples' / 'hello.py').read_text(encoding='utf-8')}```" in readme
