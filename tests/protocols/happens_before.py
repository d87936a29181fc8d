"""The properties, checked by brute force on small logs, straight from their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from causalcast.model import Dot
    from causalcast.simulation.world import LogEntry


def pasts(logs: Mapping[str, Sequence[LogEntry]]) -> dict[Dot, set[Dot]]:
    """For each message, every message that happened before it: program order, and delivery before broadcast."""
    direct: dict[Dot, set[Dot]] = {}
    for entries in logs.values():
        seen: set[Dot] = set()
        for entry in entries:
            if entry.kind == "broadcast":
                direct[entry.tag.dot] = set(seen)
            if entry.kind in {"broadcast", "deliver"}:
                seen.add(entry.tag.dot)
    closed: dict[Dot, set[Dot]] = {}
    for dot, before_it in direct.items():
        past: set[Dot] = set()
        todo = list(before_it)
        while todo:
            before = todo.pop()
            if before not in past:
                past.add(before)
                todo.extend(direct.get(before, ()))
        closed[dot] = past
    return closed


def violations(logs: Mapping[str, Sequence[LogEntry]], promises: frozenset[str]) -> list[str]:
    """What of `promises` (of P1 to P6, P2 and P6 at the end of a run) these logs break; all are members throughout."""
    found: list[str] = []
    past = pasts(logs)
    payloads = {
        entry.tag.dot: entry.payload for entries in logs.values() for entry in entries if entry.kind == "broadcast"
    }
    for name, entries in logs.items():
        delivered: list[Dot] = []
        stable: list[Dot] = []
        for entry in entries:
            dot = entry.tag.dot
            if entry.kind == "stable":
                found.extend(f"P5 {name}: {dot} stable twice" for _ in range(stable.count(dot)))
                if dot not in delivered:
                    found.append(f"P5 {name}: {dot} stable before it was delivered")
                found.extend(f"P5 {name}: {dot} stable before {b}" for b in past.get(dot, ()) if b not in stable)
                stable.append(dot)
                continue
            if dot in delivered:
                found.append(f"P1 {name}: {dot} twice")
            if dot not in payloads or payloads[dot] != entry.payload:
                found.append(f"P1 {name}: {dot} is not what was broadcast")
            found.extend(f"P3 {name}: {dot} before its cause {b}" for b in past.get(dot, ()) if b not in delivered)
            found.extend(f"P5 {name}: {dot} concurrent with stable {s}" for s in stable if s not in past.get(dot, ()))
            delivered.append(dot)
        found.extend(f"P2 {name}: {dot} never delivered" for dot in payloads if dot not in delivered)
        found.extend(f"P6 {name}: {dot} never stable" for dot in payloads if dot not in stable)
        found.extend(_wrong_tags(name, entries, past))
    return [line for line in found if line[:2] in promises]


def _wrong_tags(name: str, entries: Sequence[LogEntry], past: dict[Dot, set[Dot]]) -> list[str]:
    tags = [entry.tag for entry in entries]
    found = []
    for a in tags:
        for b in tags:
            same, before, after = a.dot == b.dot, a.dot in past.get(b.dot, ()), b.dot in past.get(a.dot, ())
            if (a == b, a < b, a > b) != (same, before, after) or (a <= b) != (same or before):
                found.append(f"P4 {name}: {a} and {b}")
            if a.concurrent_with(b) != (not same and not before and not after):
                found.append(f"P4 {name}: {a} concurrent with {b}")
            if a == b and hash(a) != hash(b):
                found.append(f"P4 {name}: {a} hashes two ways")
    return found
