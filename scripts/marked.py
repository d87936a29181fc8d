"""The part of a page of the documentation that a script writes, between two marks."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def keep_current(name: str, source: str, script: str, text: str) -> int:
    """Write `text` between the marks of the page `name`; with `--check` only say whether it is there already.

    The marks are `<!-- from SOURCE: scripts/SCRIPT writes what follows -->` and one for the end.
    Returns the exit status.
    """
    path = DOCS / name
    begin = f"<!-- from {source}: scripts/{script} writes what follows -->\n"
    end = f"<!-- end of what scripts/{script} writes -->\n"
    page = path.read_text(encoding="utf-8")
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not (first and last):
        raise SystemExit(f"{path}: the marks around what scripts/{script} writes are missing")
    current = f"{before}{begin}\n{text}\n{end}{after}"
    if "--check" in sys.argv[1:]:
        if page != current:
            print(f"{path} is not current: run python scripts/{script}", file=sys.stderr)
        return int(page != current)
    path.write_text(current, encoding="utf-8")
    return 0
