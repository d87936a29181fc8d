"""The fuzzer, for a moment: what it finds in a bounded run, and that it finds what is there to be found."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from causalcast.protocols.stack import StackProcess
from causalcast.runtime.host import Host
from causalcast.runtime.mesh import Mesh
from fuzz import TARGETS
from fuzz.member import FaultError, Target, seeds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
"""It comes with the extra `dev` where there is a wheel of it: Linux on x86-64."""


def frames_among(inputs: Sequence[bytes]) -> bytes:
    """The longest that comes as data frames behind a right hello."""
    return max((data for data in inputs if data[0] == 2), key=len)


@pytest.mark.parametrize("target", TARGETS if HAS_ATHERIS else ())
def test_nothing_is_found_in_a_bounded_run(target: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fuzz", target, "--runs", "1000", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    # It ends a few inputs later if the bound falls into the mutations of one.
    executed = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    assert executed is not None
    assert 1_000 <= int(executed[1]) < 1_100


@pytest.mark.parametrize("target", TARGETS)
def test_what_members_say_to_each_other_is_borne(target: str) -> None:
    hello, inputs = seeds(target)
    assert len(inputs) > 20
    for data in inputs:
        Target(target, hello).run(data)


def test_an_exception_in_a_member_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    hello, inputs = seeds("fixed")

    def received(*_: object) -> None:
        raise KeyError("p9")

    monkeypatch.setattr(Host, "received", received)
    with pytest.raises(KeyError, match="p9"):
        Target("fixed", hello).run(frames_among(inputs))


def test_tables_that_grow_are_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    hello, inputs = seeds("fixed")
    monkeypatch.setattr(StackProcess, "tables", lambda _: {"graph": 100_000})
    with pytest.raises(FaultError, match="100,000 entries"):
        Target("fixed", hello).run(frames_among(inputs))


def test_a_timer_that_fails_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    hello, inputs = seeds("fixed")

    def flush(*_: object) -> None:
        raise RuntimeError("of nobody's making")

    monkeypatch.setattr(Mesh, "_flush", flush)
    with pytest.raises(FaultError, match="was not caught"):
        Target("fixed", hello).run(frames_among(inputs))
