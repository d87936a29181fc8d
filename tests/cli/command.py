"""The real command, in real processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = str(Path(sys.executable).with_name("causalcast"))
ENVIRONMENT = os.environ | {"NO_COLOR": "1", "COLUMNS": "120"}


def run(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """The command, run to its end."""
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=ENVIRONMENT,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """It ended with this status, nothing on stdout, and one line on stderr that holds the words."""
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("causalcast: ")
    for word in words:
        assert word in done.stderr


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Node:
    """A `causalcast node`; its events are collected by a thread."""

    command: ClassVar[tuple[str, ...]] = (COMMAND,)

    def __init__(self, name: str, ports: dict[str, int], *options: str) -> None:
        peers = ",".join(f"{peer}=127.0.0.1:{port}" for peer, port in ports.items() if peer != name)
        self.events: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [*self.command, "node", name, "--listen", f"127.0.0.1:{ports[name]}", "--peers", peers, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def say(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def wait_for(self, condition: Callable[[list[dict[str, Any]]], bool], seconds: float = 20) -> None:
        """Until the events so far satisfy the condition."""
        deadline = time.monotonic() + seconds
        while not condition(self.events):
            assert self.process.poll() is None, f"the node ended with {self.process.returncode}"
            assert time.monotonic() < deadline, f"not within {seconds} s; events: {self.events}"
            time.sleep(0.02)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def end(self, number: int) -> str:
        """Send a signal, wait; what it said on stderr."""
        self.process.send_signal(number)
        assert self.process.wait(15) == 0
        self._reader.join(5)
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
