"""Write the table of stacks in docs/protocols.md from the registry; `--check` only says whether it is current."""

from __future__ import annotations

import sys

from causalcast.cli.stacks import stack_rows
from causalcast.protocols import PROPERTIES
from marked import keep_current


def generated() -> str:
    """The tables of stacks and properties as Markdown."""
    rows = stack_rows()
    lines = ["| stack | what it is | promises | members | links | topics |", "|---|---|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.summary} | {' '.join(row.promises)} | {row.members} | {row.links} | "
        f"{'yes' if row.topics else 'no'} |"
        for row in rows
    ]
    lines += ["", "| stack | cost per message | per process | source |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.message_cost} | {row.process_cost} | {row.source} |" for row in rows]
    lines += ["", "| property | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in PROPERTIES.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(keep_current("protocols.md", "the registry", "stacks_table.py", generated()))
