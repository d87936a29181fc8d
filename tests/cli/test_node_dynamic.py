"""`causalcast node --stack tcb-dynamic` in real processes: joins, a leave, `kill -9`, `causalcast evict`, SIGSTOP."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from causalcast.cli.control import ask_status
from causalcast.cli.errors import CommandError
from tests.audit.local import judge
from tests.cli.command import Node, assert_one_line, free_ports, run

if TYPE_CHECKING:
    from collections.abc import Iterator


class Group:
    """Nodes that join one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = dict(zip("abcde", free_ports(5), strict=True))
        self.nodes: dict[str, Node] = {}

    def control(self, name: str) -> str:
        return str(self.folder / f"{name}.sock")

    def start(self, name: str, *options: str) -> Node:
        join = [f"127.0.0.1:{self.ports[other]}" for other in self.nodes][:1]
        options = ("--stack", "tcb-dynamic", "--trace", str(self.folder / "trace"), *options)
        options = (*options, "--control", self.control(name), *(("--join", join[0]) if join else ()))
        comes_back = (self.folder / f"{name}.journal").exists()
        node = self.nodes[name] = Node(name, {name: self.ports[name]}, *options)
        if join and not comes_back:
            node.wait_for(bool)
        while comes_back and node.process.poll() is None:
            with suppress(CommandError):
                self.ask(name)
                break
            time.sleep(0.05)
        return node

    def start_with_journal(self, name: str) -> Node:
        return self.start(name, "--journal", str(self.folder / f"{name}.journal"))

    def say(self, count: int) -> None:
        for number in range(count):
            for node in self.nodes.values():
                node.say(b"%d" % number)

    def ask(self, name: str) -> dict[str, Any]:
        return ask_status(Path(self.control(name)))

    def at_rest(self) -> None:
        """All know who is there, all is stable, and nobody keeps anything."""
        deadline = time.monotonic() + 20
        while True:
            found = [self.ask(name) for name in self.nodes]
            left = [each["unstable"] + each["untaken"] + sum(each["tables"].values()) for each in found]
            if not any(left) and all(each["members"] == sorted(self.nodes) for each in found):
                return
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def end(self) -> None:
        """Who is still there ends with all of its trace written."""
        for name in list(self.nodes):
            self.nodes.pop(name).end(signal.SIGTERM)

    def audit(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each process; the audit finds nothing in them."""
        logs = {path.stem: list(map(json.loads, path.open())) for path in (self.folder / "trace").glob("*.jsonl")}
        assert [case.finding() for case in judge([row for rows in logs.values() for row in rows])] == []
        return logs


@contextmanager
def group(folder: Path, names: str) -> Iterator[Group]:
    made = Group(folder)
    try:
        for name in names:
            made.start(name)
        yield made
    finally:
        for node in made.nodes.values():
            node.kill()


def test_one_of_four_is_killed_and_evicted_one_leaves_and_another_joins(tmp_path: Path) -> None:
    with group(tmp_path, "abcd") as nodes:
        nodes.say(50)
        nodes.nodes["d"].wait_for(lambda events: len(events) > 60)
        nodes.nodes.pop("d").kill()
        nodes.say(20)
        assert nodes.ask("a")["unstable"] > 0
        done = run("evict", "d", "--control", nodes.control("a"))
        assert (done.returncode, done.stdout, done.stderr) == (0, "d is evicted\n", "")
        for node in nodes.nodes.values():
            node.wait_for(lambda events: any(event.get("evicted") == ["d"] for event in events))
        nodes.at_rest()
        nodes.start("e")
        nodes.say(20)
        assert "leave" not in nodes.nodes["a"].end(signal.SIGTERM)
        del nodes.nodes["a"]
        nodes.say(20)
        nodes.at_rest()
        assert run("members", nodes.control("b")).stdout.splitlines() == ["b  this node", "c  up", "e  up"]
        nodes.end()
    logs = nodes.audit()
    assert logs["a"][-1]["event"] == "leave"
    assert sum(row["event"] == "broadcast" for row in logs["e"]) == 40


def test_one_that_is_evicted_while_it_is_stopped_says_so_and_ends_with_status_4(tmp_path: Path) -> None:
    with group(tmp_path, "abc") as nodes:
        nodes.say(5)
        nodes.at_rest()
        stopped = nodes.nodes.pop("c")
        stopped.process.send_signal(signal.SIGSTOP)
        nodes.say(5)
        assert run("evict", "c", "--control", nodes.control("b")).stdout == "c is evicted\n"
        nodes.at_rest()
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.process.wait(15) == 4
        assert stopped.process.stderr is not None
        assert stopped.process.stderr.read().decode().splitlines()[-1] == (
            "causalcast: c was evicted: the other members took it for crashed; it can join again under a new name"
        )
        stopped._reader.join(5)
        assert stopped.of("membership")[-1]["evicted"] == ["c"]
        nodes.end()
    nodes.audit()


def test_nodes_with_journals_come_back_leave_and_learn_that_they_were_evicted(tmp_path: Path) -> None:
    with group(tmp_path, "") as nodes:
        for name in "abc":
            nodes.start_with_journal(name)
        nodes.say(20)
        for name in "ca":
            nodes.nodes.pop(name).kill()
            nodes.say(5)
            nodes.start_with_journal(name)
        nodes.say(5)
        nodes.at_rest()
        assert not nodes.nodes["a"].of("membership")
        left = run("leave", "--control", nodes.control("a"))
        assert (left.returncode, left.stdout, left.stderr) == (0, "it has left\n", "")
        assert nodes.nodes.pop("a").process.wait(5) == 0
        nodes.nodes.pop("c").end(signal.SIGTERM)  # which is no leave
        assert nodes.ask("b")["members"] == ["b", "c"]
        assert run("evict", "c", "--control", nodes.control("b")).stdout == "c is evicted\n"
        evicted = nodes.start_with_journal("c")
        assert evicted.process.wait(15) == 4
        nodes.nodes.pop("c")
        for name, how in (("a", "has left its group"), ("c", "was evicted from its group")):
            options = ("--stack", "tcb-dynamic", "--journal", str(tmp_path / f"{name}.journal"))
            again = run("node", name, "--listen", f":{nodes.ports[name]}", *options)
            assert_one_line(again, 2, f"of no use any more: {name} {how}")
        nodes.at_rest()
        nodes.end()
    logs = nodes.audit()
    assert [logs[name][-1]["event"] for name in "ac"] == ["leave", "evict"]
    assert [sum(row["event"] == "recover" for row in logs[name]) for name in "abc"] == [1, 0, 2]


def test_a_node_evicts_who_is_silent_if_it_is_told_to(tmp_path: Path) -> None:
    with group(tmp_path, "") as nodes:
        for name in "ab":
            nodes.start(name, "--evict-after", "4")
        nodes.nodes.pop("b").kill()
        nodes.say(1)
        nodes.nodes["a"].wait_for(lambda events: any(event["event"] == "stable" for event in events))


def test_what_cannot_be(tmp_path: Path) -> None:
    with group(tmp_path, "a") as nodes:
        nodes.nodes["a"].say(b"x")
        nodes.nodes["a"].wait_for(lambda events: len(events) > 1)
        control = nodes.control("a")
        assert_one_line(run("evict", "x", "--control", control), 2, "'x' is no member; a knows a")
        assert_one_line(run("leave", "--control", str(tmp_path / "none")), 2, "no node answers")
        used = run("node", "a", "--listen", "127.0.0.1:0", "--stack", "tcb-dynamic", "--join", f":{nodes.ports['a']}")
        assert_one_line(used, 2, "the name 'a' is another member's: take one that is new to the group")
    assert_one_line(run("node", "a", "--listen", ":0", "--stack", "tcb-dynamic", "--evict-after", "1"), 2, "4 seconds")
