"""Write the tables of docs/choosing.md from results/choosing.json; `--check` only says whether they are current."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from marked import keep_current

RESULTS = Path(__file__).resolve().parent.parent / "results" / "choosing.json"

SHOWN = {100: "100 B", 100_000: "100 kB"}


def table(cells: list[dict[str, Any]], payload_bytes: int, senders: int) -> list[str]:
    """One table of Markdown: a row for each stack, and for each size of the group latency, bytes and the busiest."""
    here = [
        (cell["parameters"], cell["measured"])
        for cell in cells
        if (cell["parameters"]["payload_bytes"], cell["parameters"]["senders"]) == (payload_bytes, senders)
    ]
    sizes = sorted({parameters["nodes"] for parameters, _ in here})
    found = {(parameters["stack"], parameters["nodes"]): measured for parameters, measured in here}
    lines = [
        f"**{SHOWN[payload_bytes]}, {senders} {'sender' if senders == 1 else 'senders'}**",
        "",
        "| stack | " + " | ".join(f"{size:,}" for size in sizes) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    for stack in dict.fromkeys(parameters["stack"] for parameters, _ in here):
        row = [_cell(found[stack, size], payload_bytes) if (stack, size) in found else "" for size in sizes]
        lines.append(f"| `{stack}` | " + " | ".join(row) + " |")
    return [*lines, ""]


def _cell(measured: dict[str, Any], payload_bytes: int) -> str:
    latency_ms = measured["latency_ns"]["mean"][0] / 1e6
    copies = measured["delivery_bytes"]["value"][0] / payload_bytes
    busiest = measured["busiest_bytes"]["value"][0] / payload_bytes
    return f"{latency_ms:,.0f} ms, {copies:,.2f}, {busiest:,.1f}"


def generated() -> str:
    """The tables."""
    cells = json.loads(RESULTS.read_text(encoding="utf-8"))["cells"]
    payloads = sorted({cell["parameters"]["payload_bytes"] for cell in cells})
    senders = sorted({cell["parameters"]["senders"] for cell in cells})
    return "\n".join(line for payload in payloads for number in senders for line in table(cells, payload, number))


if __name__ == "__main__":
    sys.exit(keep_current("choosing.md", "`causalcast lab run choosing`", "choosing_table.py", generated()))
