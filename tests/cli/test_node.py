"""`causalcast node`: lines in, events out."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from causalcast.trace import read_jsonl
from tests.cli.command import COMMAND, Node, assert_one_line, free_ports, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMES = ("london", "paris", "tokyo")


@pytest.fixture
def start() -> Iterator[Callable[..., list[Node]]]:
    with contextlib.ExitStack() as nodes:

        def start(number: int, *options: str) -> list[Node]:
            ports = dict(zip(NAMES[:number], free_ports(number), strict=True))
            started = [Node(name, ports, *options) for name in ports]
            for node in started:
                nodes.callback(node.kill)
            return started

        yield start


def test_three_nodes_exchange_lines_become_stable_and_write_traces(
    start: Callable[..., list[Node]], tmp_path: Path
) -> None:
    london, paris, tokyo = nodes = start(3, "--trace", str(tmp_path))
    london.say(b"question")
    paris.wait_for(lambda events: any(event.get("payload") == "question" for event in events))
    paris.say("réponse".encode())
    for node in nodes:
        node.wait_for(lambda events: sum(event["event"] == "stable" for event in events) == 2)

    assert [(event["origin"], event["payload"]) for event in tokyo.of("delivered")] == [
        ("london", "question"),
        ("paris", "réponse"),
    ]
    (answer,) = paris.of("broadcast")
    assert answer["context"] == [["london", 1]]
    assert {(event["origin"], event["counter"]) for event in london.of("stable")} == {("london", 1), ("paris", 1)}
    for node, number in zip(nodes, (signal.SIGINT, signal.SIGTERM, signal.SIGTERM), strict=True):
        node.end(number)
    events = {name: [event.event for event in read_jsonl(tmp_path / f"{name}.jsonl")] for name in NAMES}
    assert all(sorted(kinds)[-2:] == ["stable", "stable"] for kinds in events.values())
    assert events["london"].count("broadcast") == events["london"].count("deliver") == 1


def test_bytes_that_are_not_text_travel_as_base64_and_empty_lines_are_messages(
    start: Callable[..., list[Node]],
) -> None:
    london, paris = start(2)
    london.say(b"\xff\x00\xfe")
    london.say(b"")
    paris.wait_for(lambda events: sum(event["event"] == "delivered" for event in events) == 2)
    first, second = paris.of("delivered")
    assert base64.b64decode(first["payload_base64"]) == b"\xff\x00\xfe"
    assert "payload" not in first
    assert second["payload"] == ""


def test_the_end_of_input_does_not_end_the_node(start: Callable[..., list[Node]]) -> None:
    london, paris = start(2)
    assert london.process.stdin is not None
    london.process.stdin.write(b"last words without a line end")
    london.process.stdin.close()
    paris.wait_for(lambda events: bool(events) and events[0]["payload"] == "last words without a line end")
    paris.say(b"are you there?")
    london.wait_for(lambda events: any(event.get("payload") == "are you there?" for event in events))
    london.end(signal.SIGTERM)


def test_a_line_that_is_too_large_is_named_and_the_node_goes_on(start: Callable[..., list[Node]]) -> None:
    (london,) = start(1)
    london.say(b"x" * (17 * 2**20))
    london.say(b"small")
    london.wait_for(lambda events: any(event.get("payload") == "small" for event in events))
    assert london.of("broadcast")[0]["counter"] == 1
    said = london.end(signal.SIGINT)
    assert said.startswith("causalcast: not sent: a payload of 17,825,792 bytes exceeds the limit")
    assert said.count("\n") == 1


def test_a_reader_that_goes_away_ends_the_node_quietly() -> None:
    with subprocess.Popen(
        [COMMAND, "node", "a", "--listen", "127.0.0.1:0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert b'"one"' in process.stdout.readline()
        process.stdout.close()
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


def test_a_reader_that_stops_does_not_keep_the_node_from_ending() -> None:
    reading, writing = os.pipe()
    with subprocess.Popen(
        [COMMAND, "node", "a", "--listen", "127.0.0.1:0"], stdin=subprocess.PIPE, stdout=writing
    ) as process:
        os.close(writing)
        assert process.stdin is not None
        process.stdin.write(b"line\n" * 5_000)
        process.stdin.flush()
        os.read(reading, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    os.close(reading)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["Missing argument 'NAME'", "causalcast node --help"]),
        (["a"], ["Missing option '--listen'"]),
        (["a", "--listen", "localhost"], ["'localhost' is no address", "host:port"]),
        (["a", "--listen", ":0", "--peers", "b"], ["--peers: 'b' is not NAME=HOST:PORT"]),
        (["a", "--listen", ":0", "--peers", "b=x:1,b=y:1"], ["'b' is given twice"]),
        (["a", "--listen", ":0", "--peers", "a=x:1"], ["a is given twice"]),
        (["a", "--listen", "two..dots:1"], ["'two..dots:1' is no address"]),
        (["\udcff", "--listen", ":0"], ["cannot name a process"]),
        (["a b", "--listen", ":0"], ["'a b' cannot name a process"]),
        (["a", "--listen", ":0", "--stack", "tbc"], ["no stack is called 'tbc'", "tcb, cbcast, unordered"]),
        (["a", "--listen", "host.invalid:1"], ["cannot open a on host.invalid:1"]),
        (["a", "--listen", ":0", "--trace", "/proc/nowhere"], ["/proc/nowhere"]),
    ],
)
def test_what_cannot_work_is_one_line_and_status_2(arguments: list[str], words: list[str]) -> None:
    assert_one_line(run("node", *arguments), 2, *words)


def test_a_port_in_use_is_one_line_and_status_2(start: Callable[..., list[Node]]) -> None:
    (london,) = start(1)
    london.say(b"up")
    london.wait_for(bool)
    address = london.process.args[4]  # type: ignore[index]
    assert_one_line(run("node", "other", "--listen", str(address)), 2, str(address), "Address already in use")


def test_a_line_without_end_costs_no_memory_and_is_named_at_its_end(start: Callable[..., list[Node]]) -> None:
    """USERS 8: 100 MB, and then a line that fits."""
    (london,) = start(1)
    assert london.process.stdin is not None
    for _ in range(100):
        london.process.stdin.write(bytes(2**20))
    london.say(b"")
    london.say(b"small\r")
    london.wait_for(lambda events: any(event.get("payload") == "small" for event in events))
    peak = Path(f"/proc/{london.process.pid}/status")
    if peak.exists():
        (kilobytes,) = (line.split()[1] for line in peak.read_text().splitlines() if line.startswith("VmHWM"))
        assert int(kilobytes) < 100_000
    said = london.end(signal.SIGINT)
    assert said.startswith("causalcast: not sent: a payload of 104,857,600 bytes exceeds the limit")
    assert said.count("\n") == 1


def test_pipes_that_somebody_made_non_blocking_are_read_and_written_all_the_same() -> None:
    lines_read, lines_written = os.pipe()
    events_read, events_written = os.pipe()
    os.set_blocking(lines_read, False)
    os.set_blocking(events_written, False)
    with subprocess.Popen(
        [COMMAND, "node", "a", "--listen", "127.0.0.1:0"], stdin=lines_read, stdout=events_written
    ) as process:
        os.close(events_written)
        os.close(lines_read)
        with open(events_read, "rb") as events, open(lines_written, "wb", buffering=0) as lines:
            for _ in range(2):
                lines.write(b"line\n")
                assert b'"line"' in events.readline()
                assert b"stable" in events.readline()
            lines.write(b"line\n" * 2_000)  # more than the pipe holds, before anything is read
            for _ in range(4_000):
                assert events.readline().endswith(b"}\n")
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0


def test_output_on_a_full_disk_ends_the_node_with_a_reason() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [COMMAND, "node", "a", "--listen", "127.0.0.1:0"],
            input=b"x\n",
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=20,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        b"causalcast: cannot write to standard output: No space left on device\n",
    )


def test_closed_standard_streams_are_no_defect() -> None:
    for arguments in ("node a --listen localhost", "stacks", "--help"):
        done = subprocess.run(
            ["sh", "-c", f'"$0" {arguments} <&- >&-', COMMAND], capture_output=True, timeout=20, check=False
        )
        assert done.returncode == (2 if arguments.startswith("node") else 0)
        assert b"Traceback" not in done.stderr
        assert b"internal error" not in done.stderr
