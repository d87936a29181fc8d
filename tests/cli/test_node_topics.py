"""`causalcast node` where members publish to topics, and where they come and go."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from causalcast.cli.lines import LineError, Publish, Subscribe, Unsubscribe, parse_line
from causalcast.cli.pipes import LongLine
from causalcast.model import PayloadTooLargeError
from tests.cli.command import COMMAND, ENVIRONMENT, Node, assert_one_line, free_ports, run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (b"sub news", Subscribe("news")),
        ("unsub météo".encode(), Unsubscribe("météo")),
        (b"pub news hello  there ", Publish(b"hello  there ", "news")),
        (b"pub news ", Publish(b"", "news")),
        (b"pub news \xff\x00", Publish(b"\xff\x00", "news")),
    ],
)
def test_lines_about_topics(line: bytes, asked: object) -> None:
    assert parse_line(line, 100, topics=True) == asked
    assert parse_line(line, 100, topics=False) == Publish(line)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"", "'' is none of sub TOPIC, unsub TOPIC, pub TOPIC TEXT"),
        (b"hello", "'hello' is none of"),
        (b"sub", "'sub' names no topic"),
        (b"sub two words", "names no topic"),
        (b"unsub ", "names no topic"),
        (b"pub", "names no topic and text: write pub TOPIC TEXT"),
        (b"pub news", "names no topic and text"),
        (b"pub  text", "names no topic: one is 1 to 255 bytes"),
        (b"sub \xff", "is no UTF-8"),
        (b"sub " + b"x" * 256, "names no topic: one is 1 to 255"),
        ("sub a\N{NO-BREAK SPACE}b".encode(), "names no topic"),
        (b"\x1b[31mred", "'\\x1b"),
    ],
)
def test_a_bad_line_is_answered_by_what_is_wrong(line: bytes, complaint: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(line, 100, topics=True)
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 150


def test_a_long_line_is_too_large() -> None:
    with pytest.raises(PayloadTooLargeError, match="a payload of 1,000 bytes"):
        parse_line(LongLine(1000), 100, topics=True)


def test_topics_are_asked_of_a_stack_that_has_them() -> None:
    done = run("node", "a", "--listen", "127.0.0.1:0", "--stack", "pc", "--topics")
    assert_one_line(done, 2, "--topics: 'pc' has no topics")


@pytest.mark.parametrize("options", [("--stack", "vcube-ps"), ("--topics",)], ids=["vcube-ps", "tcb"])
def test_nodes_subscribe_and_publish(options: tuple[str, ...]) -> None:
    ports = dict(zip(("london", "paris"), free_ports(2), strict=True))
    with contextlib.ExitStack() as nodes:
        london, paris = (Node(name, ports, *options) for name in ports)
        for node in (london, paris):
            nodes.callback(node.kill)
            node.say(b"sub news")
        for node in (london, paris):
            node.wait_for(lambda events: {"event": "subscribed", "topic": "news"} in events)
        london.say(b"pub news it rains")
        london.say(b"nonsense")
        paris.wait_for(lambda events: any(event["event"] == "delivered" for event in events))
        (heard,) = paris.of("delivered")
        assert (heard["topic"], heard["payload"], heard["origin"]) == ("news", "it rains", "london")
        (said,) = london.of("broadcast")
        assert said["topic"] == "news"
        london.say(b"unsub news")
        if "vcube-ps" in options:
            london.wait_for(lambda events: {"event": "unsubscribed", "topic": "news"} in events)
        paris.say(b"pub news alone")
        paris.wait_for(lambda events: sum(event["event"] == "broadcast" for event in events) == 1)
        if "vcube-ps" not in options:
            london.wait_for(lambda events: any(event["event"] == "delivered" for event in events))
        london.process.send_signal(signal.SIGTERM)
        assert london.process.wait(20) == 0
        assert london.process.stderr is not None
        lines = london.process.stderr.read().decode().splitlines()
        # Who starts first may say besides that it cannot reach the other yet.
        complaints = [line for line in lines if line.startswith("causalcast: line ")]
        assert complaints[0].startswith("causalcast: line 3: 'nonsense' is none of sub TOPIC")
        if "vcube-ps" not in options:
            assert complaints[1].startswith("causalcast: line 4: everyone is subscribed to every topic")
        assert len([event for event in london.of("delivered") if event["topic"] == "news"]) == (
            0 if "vcube-ps" in options else 1
        )


def test_nodes_join_through_a_contact_and_write_that_they_came_and_went(tmp_path: Path) -> None:
    first, second = free_ports(2)
    stack = ("--stack", "cptcast", "--trace", str(tmp_path))
    with contextlib.ExitStack() as nodes:

        def node(name: str, port: int, *join: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [COMMAND, "node", name, "--listen", f"127.0.0.1:{port}", *join, *stack],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=ENVIRONMENT,
            )
            nodes.callback(process.wait)
            nodes.callback(process.kill)
            return process

        paris = node("paris", first)
        london = node("london", second, "--join", f"127.0.0.1:{first}")
        assert london.stdin is not None
        assert paris.stdout is not None
        london.stdin.write(b"hello\n")
        london.stdin.flush()
        heard = json.loads(paris.stdout.readline())
        assert (heard["origin"], heard["payload"]) == ("london", "hello")
        for process in (london, paris):
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    rows = [json.loads(line)["event"] for line in (tmp_path / "london.jsonl").read_text().splitlines()]
    assert rows == ["join", "broadcast", "leave"]


def test_a_node_that_waits_for_its_contact_can_be_ended() -> None:
    (port,) = free_ports(1)
    arguments = ["node", "a", "--listen", f"127.0.0.1:{port}", "--join", "127.0.0.1:1", "--stack", "pc"]
    with subprocess.Popen([COMMAND, *arguments], stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                break
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, b"")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--join", "127.0.0.1:1"), ["the members of 'tcb' are fixed"]),
        (("--join", "nowhere", "--stack", "pc"), ["'nowhere' is no address"]),
        (("--peers", "b=127.0.0.1:1", "--stack", "pc"), ["members of 'pc' come and go"]),
    ],
)
def test_joining_where_it_cannot_be_is_one_line(options: tuple[str, ...], words: list[str]) -> None:
    assert_one_line(run("node", "a", "--listen", "127.0.0.1:0", *options), 2, *words)
