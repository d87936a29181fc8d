"""Replays the transcripts beside this file: each shows one figure or example of the documents, step by step.

A transcript holds commands behind `> ` and, below each, what it prints. `REWRITE_TRANSCRIPTS=1 pytest ...` writes
what is printed now; read the difference before you keep it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from causalcast.model import Delivered, Stable, Tag
from causalcast.protocols import stack
from causalcast.simulation.world import Fire, Receive, Take, World

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Replay:
    """The world of one transcript and the commands on it."""

    def __init__(self) -> None:
        self.world: World

    def do(self, line: str) -> list[str]:
        command, *words = line.split()
        result: list[str] = getattr(self, f"do_{command}")(*words)
        return result

    def do_stack(self, name: str, *members: str) -> list[str]:
        self.world = World(stack(name), members)
        return []

    def do_broadcast(self, name: str, *payload: str) -> list[str]:
        """The application at NAME broadcasts; prints the tag and, where there is one, the vector."""
        tag = self.world.broadcast(name, " ".join(payload).encode())
        return [f"{tag} {list(tag.counts)}"]

    def do_receive(self, sender: str, receiver: str, place: str = "0") -> list[str]:
        """A message in flight arrives; prints what that queues for the application."""
        queue = self.world.ports[receiver].queue
        before = len(queue)
        self.world.do(Receive(sender, receiver, int(place)))
        return [f"queued {self.event(event)}" for event in list(queue)[before:]] or ["nothing"]

    def do_take(self, name: str, times: str = "1") -> list[str]:
        """The application at NAME receives its next events, or `all` of them."""
        number = len(self.world.ports[name].queue) if times == "all" else int(times)
        return [self.event(self.world.do(Take(name))) for _ in range(number)]

    def do_fire(self, name: str) -> list[str]:
        """Every timer of NAME comes due."""
        timers = list(self.world.ports[name].timers)
        for timer in timers:
            self.world.do(Fire(name, timer))
        return [f"fired {timer}" for timer in timers]

    def do_graph(self, name: str) -> list[str]:
        """The graph of dots at NAME."""
        lines: list[str] = self.world.processes[name].ordering.describe()  # type: ignore[attr-defined]
        return lines or ["empty"]

    def do_compare(self, name: str, first: str, second: str) -> list[str]:
        """How two tags that NAME has seen relate."""
        a, b = self.tag(name, first), self.tag(name, second)
        if a.concurrent_with(b):
            return ["concurrent"]
        return ["before" if a < b else "after" if a > b else "the same"]

    def do_settle(self) -> list[str]:
        """Everything in flight arrives, everything queued is taken, every timer comes due."""
        self.world.settle()
        return []

    def do_log(self, name: str) -> list[str]:
        """All that the application at NAME has seen."""
        return [f"{e.kind} {e.tag.dot} {e.payload.decode()}".rstrip() for e in self.world.logs[name]]

    def tag(self, name: str, dot: str) -> Tag:
        return next(entry.tag for entry in self.world.logs[name] if str(entry.tag.dot) == dot)

    @staticmethod
    def event(event: object) -> str:
        if isinstance(event, Delivered):
            return f"deliver {event.message.tag} {event.message.payload.decode()}"
        assert isinstance(event, Stable)
        return f"stable {event.tag.dot}"


def replay(text: str) -> str:
    """The transcript with its printed lines made anew."""
    session = Replay()
    lines = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines.extend(session.do(line[2:]))
        elif line.startswith("#") or not line:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    printed = replay(text)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(printed)
    assert printed == text


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6
