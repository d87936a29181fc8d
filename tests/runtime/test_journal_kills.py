"""Members that are killed at any moment and started again: nothing is lost, repeated or numbered twice."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from causalcast.trace.reader import read_jsonl
from tests.runtime.lives import Life

if TYPE_CHECKING:
    from causalcast.trace import TraceEvent

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("ann", "bob", "cat")


def free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Members:
    """Three processes that are killed and started again."""

    def __init__(self, folder: Path, messages: int, stack: str) -> None:
        self.folder = folder
        self.topics = (None, "news") if stack == "tcb" else (None,)
        addresses = dict(zip(NAMES, (f"127.0.0.1:{port}" for port in free_ports(3)), strict=True))
        self.lives = {
            name: Life(
                name,
                addresses[name],
                {peer: address for peer, address in addresses.items() if peer != name},
                str(folder),
                messages,
                stack,
                () if name == NAMES[0] or stack == "tcb" else (addresses[NAMES[0]],),
            )
            for name in NAMES
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.opened: set[subprocess.Popen[bytes]] = set()

    def start(self, name: str) -> None:
        life = msgspec.json.encode(self.lives[name]).decode()
        self.processes[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.runtime.lives", life],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait(self, name: str) -> None:
        """Until it is open, or has failed."""
        process = self.processes[name]
        assert process.stdout is not None
        if process not in self.opened:
            process.stdout.readline()
            self.opened.add(process)

    def kill(self, name: str) -> None:
        process = self.processes[name]
        assert process.poll() is None, process.communicate()[1].decode()
        process.kill()
        process.communicate()

    def end(self) -> None:
        for name in NAMES:
            self.wait(name)
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            _, errors = process.communicate(timeout=20)
            assert process.returncode == 0, errors.decode()

    def trace(self, name: str) -> list[TraceEvent]:
        path = self.folder / "trace" / f"{name}.jsonl"
        whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
        copy = self.folder / "copy.jsonl"
        copy.write_bytes(whole)
        return list(read_jsonl(copy))

    def complete(self, messages: int) -> bool:
        """Whether everyone has broadcast all, and all of that is delivered and stable everywhere."""
        rows = {name: self.trace(name) for name in NAMES}
        sent = {name: Counter(row.topic for row in rows[name] if row.event == "broadcast") for name in NAMES}
        total = sum(sum(each.values()) for each in sent.values())
        return all(sent[name][None] >= messages for name in NAMES) and all(
            sum(row.event in {"broadcast", "deliver"} for row in rows[name]) == total
            and sum(row.event == "stable" for row in rows[name]) == total
            for name in NAMES
        )


def judge(members: Members, kills: Counter[str]) -> None:
    rows = {name: members.trace(name) for name in NAMES}
    contexts: dict[tuple[str | None, str | None, int | None], tuple[tuple[str, int], ...]] = {}
    for name in NAMES:
        assert [row.seq for row in rows[name]] == list(range(1, len(rows[name]) + 1)), name
        assert sum(row.event == "recover" for row in rows[name]) <= kills[name]
        seen = Counter((row.event, row.topic, row.origin, row.counter) for row in rows[name] if row.origin)
        assert max(seen.values()) == 1, f"twice at {name}: {seen.most_common(1)}"
        for topic in members.topics:
            own = [row for row in rows[name] if row.event == "broadcast" and row.topic == topic]
            assert [row.counter for row in own] == list(range(1, len(own) + 1))
            contexts.update({(topic, name, row.counter): row.context or () for row in own})
    for name in NAMES:
        known: set[tuple[str | None, str | None, int | None]] = set()
        for row in rows[name]:
            if row.event in {"broadcast", "deliver"}:
                dot = (row.topic, row.origin, row.counter)
                assert {(row.topic, *before) for before in contexts[dot]} <= known, f"{dot} at {name} before its cause"
                known.add(dot)
        assert known == contexts.keys()
    judge_notes(members, kills)


def judge_notes(members: Members, kills: Counter[str]) -> None:
    """What the applications wrote: one text a dot; at most what a kill came between is missing, nothing comes twice."""
    texts: dict[str, set[str]] = {}
    for name in NAMES:
        notes = [line.split() for line in (members.folder / f"{name}.notes").read_text().splitlines()]
        taken = Counter(text for kind, _, _, text in notes if kind == "D")
        assert max(taken.values()) == 1
        for kind, *dot, text in notes:
            texts.setdefault(text, set()).add(" ".join([name, *dot[1:]] if kind == "B" else dot))
        for topic in ("-", "news"):
            counters = [int(counter) for kind, told, counter, _ in notes if kind == "B" and told == topic]
            assert all(one < other for one, other in pairwise(counters))
        expected = sum(row.event == "deliver" for row in members.trace(name))
        assert expected - kills[name] <= sum(taken.values()) <= expected
    assert all(len(dots) == 1 for dots in texts.values())


def kill_often(folder: Path, number: int, messages: int, stack: str) -> None:
    draw = random.Random(number)
    members = Members(folder, messages, stack)
    kills: Counter[str] = Counter()
    try:
        kill_in_turn(members, number, kills, draw)
        deadline = time.monotonic() + 90
        while not members.complete(messages):
            assert time.monotonic() < deadline, "not everything has arrived"
            time.sleep(0.3)
        members.end()
    finally:
        for process in members.processes.values():
            process.kill()
    judge(members, kills)
    assert any(row.event == "recover" for name in NAMES for row in members.trace(name))


def kill_in_turn(members: Members, number: int, kills: Counter[str], draw: random.Random) -> None:
    for name in NAMES:
        members.start(name)
    for name in NAMES:
        members.wait(name)
    for turn in range(number):
        name = draw.choice(NAMES)
        if turn % 4 == 0:  # sometimes while it starts
            time.sleep(draw.uniform(0.0, 0.5))
        else:
            members.wait(name)
            time.sleep(draw.uniform(0.0, 0.3))
        members.kill(name)
        kills[name] += 1
        members.start(name)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("stack", ["tcb", "tcb-dynamic"])
def test_kills_at_any_moment(tmp_path: Path, stack: str) -> None:
    """Six; `CAUSALCAST_KILLS=200` for a long run."""
    number = int(os.environ.get("CAUSALCAST_KILLS", "6"))
    kill_often(tmp_path, number, 15 * number, stack)
