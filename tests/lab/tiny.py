"""An experiment small enough for tests, and changes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

TINY = """
title = "Tiny"
source = "004, section 8.4.2"
shows = "Nothing but that the laboratory works."
repetitions = 2

[parameters]
messages = 3

[grid]
stack = ["tcb", "cbcast"]
nodes = [3, 4]

[quick]
grid = { nodes = [3] }

[run]
stack = "$stack"
nodes = "$nodes"
workload = { workload = "broadcasts", messages = "$messages", interval = "exponential:10" }
network = { delay = "weibull:10" }

[probes]
entries = {}
latency = {}

[[plots]]
figure = "30a"
title = "Entries"
metric = "entries"
statistic = "median"
x = "nodes"
series = ["stack"]
log_x = true

[[answers]]
id = "TCB-16"
checks = [{ metric = "entries", statistic = "max", where = { stack = "cbcast", nodes = 4 }, expected = 4 }]

[[answers]]
id = "TCB-17"
checks = [{ metric = "entries", statistic = "max", where = { stack = "tcb" }, fold = "max", tolerance = "<0.5" }]

[[answers]]
id = "TCB-46"
explained = "says what the document ran on"
"""


def write_tiny(folder: Path, *changes: tuple[str, str], name: str = "tiny.toml") -> str:
    """The file in `folder`, with texts replaced; its path."""
    text = TINY
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)
