"""`causalcast status`, `members` and the metrics of a running node."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import Node, assert_one_line, free_ports, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Pair:
    """Two nodes, of which paris has a control socket and metrics."""

    def __init__(self, folder: Path) -> None:
        self.control = folder / "paris.sock"
        *ports, self.metrics = free_ports(3)
        ports_of = dict(zip(("london", "paris"), ports, strict=True))
        self.paris = Node("paris", ports_of, "--control", str(self.control), "--metrics", f"127.0.0.1:{self.metrics}")
        self.london = Node("london", ports_of)
        self.london.say(b"hello")
        for node in (self.london, self.paris):
            node.wait_for(lambda events: any(event["event"] == "stable" for event in events), 60)

    def scrape(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    started = Pair(tmp_path)
    yield started
    started.paris.kill()
    started.london.kill()


def test_a_node_tells_how_it_is_doing(pair: Pair) -> None:
    done = run("status", str(pair.control), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    status = json.loads(done.stdout)
    assert (status["name"], status["stack"], status["members"]) == ("paris", "tcb", ["london", "paris"])
    assert (status["deliveries"], status["broadcasts"], status["stable"], status["pending"]) == (1, 0, 1, 0)
    assert status["tables"]["graph"] == 0
    assert [(link["peer"], link["connected"]) for link in status["links"]] == [("london", True)]
    assert pair.control.stat().st_mode & 0o077 == 0

    shown = run("status", str(pair.control))
    assert re.search(r"deliveries +1\n", shown.stdout)
    assert "london" in shown.stdout
    assert run("members", str(pair.control)).stdout == "london  up\nparis  this node\n"


def test_prometheus_gets_counters_tables_and_links(pair: Pair) -> None:
    text = pair.scrape()
    assert 'causalcast_deliveries_total{group="default",member="paris"} 1.0' in text
    assert 'causalcast_table_entries{group="default",member="paris",table="graph"} 0.0' in text
    assert 'causalcast_link_up{group="default",member="paris",peer="london"} 1.0' in text
    pair.london.kill()
    pair.paris.say(b"who is there?")
    pair.paris.wait_for(lambda _: 'causalcast_unstable{group="default",member="paris"} 1.0' in pair.scrape())
    pair.paris.wait_for(lambda _: 'member="paris",peer="london"} 0.0' in pair.scrape())
    assert run("members", str(pair.control)).stdout == "london  down\nparis  this node\n"
    assert pair.paris.end(signal.SIGTERM).count("Traceback") == 0


def test_nonsense_at_the_control_socket_harms_nothing(pair: Pair) -> None:
    for question, answer in ((b"x" * 100_000, b""), (b"\xff\n", b'{"error"'), (b"", b"")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(pair.control))
            try:
                connection.sendall(question)
                connection.shutdown(socket.SHUT_WR)
                got = connection.recv(1 << 16)
            except OSError:
                got = b""
            assert got.startswith(answer)
    assert run("status", str(pair.control)).returncode == 0


def test_what_a_killed_node_left_makes_way_and_what_is_in_use_does_not(pair: Pair, tmp_path: Path) -> None:
    taken = run("node", "rome", "--listen", "127.0.0.1:0", "--control", str(pair.control))
    assert_one_line(taken, 2, "another node answers", str(pair.control))
    pair.paris.kill()
    assert pair.control.exists()
    assert_one_line(run("status", str(pair.control)), 2, "no node answers", str(pair.control))
    (port,) = free_ports(1)
    rome = Node("rome", {"rome": port}, "--control", str(pair.control))
    try:
        rome.say(b"alone")
        rome.wait_for(lambda events: len(events) == 2)
        assert json.loads(run("status", str(pair.control), "--json").stdout)["name"] == "rome"
        rome.process.send_signal(signal.SIGSTOP)
        assert_one_line(run("members", str(pair.control)), 2, "does not answer")
        rome.process.send_signal(signal.SIGCONT)
        rome.end(signal.SIGTERM)
        assert not pair.control.exists()
    finally:
        rome.kill()


def test_what_cannot_work_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("keep me")
    assert_one_line(run("status", str(tmp_path / "nowhere")), 2, "no node answers")
    node = ("node", "rome", "--listen", "127.0.0.1:0")
    assert_one_line(run(*node, "--control", str(file)), 2, "no control socket", str(file))
    assert file.read_text() == "keep me"
    assert_one_line(run(*node, "--control", f"/tmp/{'x' * 200}"), 2, "cannot listen")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert_one_line(run(*node, "--metrics", address), 2, "cannot serve metrics", os.strerror(98))
