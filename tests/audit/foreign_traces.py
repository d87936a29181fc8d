"""Small converters from other systems' traces to ours."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_KINDS = {"S": "broadcast", "D": "deliver", "T": "stable"}


def synthetic(path: Path, *, late: Iterable[int] = ()) -> list[dict[str, Any]]:
    """Convert `proc kind sender counter` lines; processes in `late` are given the `join` row that the format lacks."""
    seqs: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    for process in (f"p{number}" for number in late):
        seqs[process] = 1
        rows.append({"process": process, "seq": 1, "event": "join"})
    for line in path.read_text().splitlines():
        who, kind, sender, counter = line.split()
        process = f"p{who}"
        seqs[process] = seqs.get(process, 0) + 1
        rows.append(
            {
                "process": process,
                "seq": seqs[process],
                "event": _KINDS[kind],
                "origin": f"p{sender}",
                "counter": int(counter),
            }
        )
    return rows


_SHIVIZ = re.compile(
    r"\[\w+\] \[[^\]]+\] [^ ]+ \[akka://Broadcast/user/(?P<host>\w+)\] (?P<clock>\{.*?\}) (?P<event>.*)"
)
_DELIVERED = re.compile(r"RBDeliver of message DataMessage\((\d+),")
_INITIATED = re.compile(r"Initiating RBBroadcast\(DataMessage\((\d+),")


def shiviz_reliable_broadcast(path: Path) -> list[dict[str, Any]]:
    """Convert the Akka log: broadcasts, deliveries (its senders log their own, late) and the crash."""
    events = [match for line in path.read_text().splitlines() if (match := _SHIVIZ.match(line))]
    dots: dict[str, tuple[str, int]] = {}
    sent: dict[str, int] = {}
    for match in events:
        if found := _INITIATED.match(match["event"]):
            host = match["host"]
            sent[host] = sent.get(host, 0) + 1
            dots[found[1]] = (host, sent[host])
    seqs: dict[str, int] = {}
    rows: list[dict[str, Any]] = []
    for match in events:
        host, text = match["host"], match["event"]
        row: dict[str, Any] = {"process": host}
        if found := _INITIATED.match(text):
            row |= {"event": "broadcast", "origin": dots[found[1]][0], "counter": dots[found[1]][1]}
        elif found := _DELIVERED.match(text):
            row |= {"event": "deliver", "origin": dots[found[1]][0], "counter": dots[found[1]][1]}
        elif text == "Crashing":
            row |= {"event": "crash"}
        else:
            continue
        seqs[host] = seqs.get(host, 0) + 1
        rows.append(row | {"seq": seqs[host]})
    return rows


def write_jsonl(rows: Iterable[dict[str, Any]], path: Path) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
