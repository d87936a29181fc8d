"""Write the table of stacks in docs/protocols.md from the registry; `--check` only says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from causalcast.cli.stacks import stack_rows
from causalcast.protocols import PROPERTIES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "protocols.md"
BEGIN = "<!-- from the registry: scripts/stacks_table.py writes what follows -->\n"
END = "<!-- end of what scripts/stacks_table.py writes -->\n"


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


def updated(page: str) -> str:
    """The page with what is between the marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise SystemExit(f"{PAGE}: the marks around the generated tables are missing")
    return f"{before}{BEGIN}\n{generated()}\n{END}{after}"


def main() -> int:
    """Write, or check."""
    page = PAGE.read_text(encoding="utf-8")
    current = updated(page)
    if "--check" in sys.argv[1:]:
        if page != current:
            print(f"{PAGE} is not current: run python scripts/stacks_table.py", file=sys.stderr)
        return int(page != current)
    PAGE.write_text(current, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
