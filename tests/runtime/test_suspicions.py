"""Fixed members that crash, or seem to, on stacks that go on without them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from causalcast.protocols.pubsub.srpt import root_of
from causalcast.protocols.pubsub.topic import Stage
from causalcast.runtime import endpoint, mesh, suspicion
from tests.audit.local import judge
from tests.cli.command import Node, free_ports
from tests.runtime.cluster import Proxy, applications, members, proxies, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.cluster import Application


class QuickNode(Node):
    """Looks for crashes more often."""

    command = (sys.executable, "-m", "tests.runtime.quick_node")


@pytest.mark.parametrize("stack", ["vcube-ps", "vcube-tree", "causal-aggregation"])
def test_four_go_on_when_one_is_killed_and_one_is_stopped_for_a_while(stack: str, tmp_path: Path) -> None:
    ports = dict(zip("abcde", free_ports(5), strict=True))
    topic = b"pub t " if stack == "vcube-ps" else b""
    with contextlib.ExitStack() as ending:
        nodes = {name: QuickNode(name, ports, "--stack", stack, "--trace", str(tmp_path)) for name in ports}
        for node in nodes.values():
            ending.callback(node.kill)

        def until_delivered(name: str, number: int) -> None:
            nodes[name].wait_for(lambda events: [each["event"] for each in events].count("delivered") >= number, 60)

        if topic:
            for node in nodes.values():
                node.say(b"sub t")
            for node in nodes.values():
                node.wait_for(lambda events: {"event": "subscribed", "topic": "t"} in events, 60)
        for name, node in nodes.items():
            node.say(topic + b"hello from " + name.encode())
        for name in nodes:
            until_delivered(name, 4)
        time.sleep(0.5)  # so that the trace of the one that is killed is written

        nodes["c"].kill()
        nodes["e"].process.send_signal(signal.SIGSTOP)
        for number in range(3):
            for name in "abd":
                nodes[name].say(topic + b"%d of %s" % (number, name.encode()))
        for name in "abd":
            until_delivered(name, 4 + 2 * 3)
        nodes["e"].process.send_signal(signal.SIGCONT)
        nodes["e"].say(topic + b"back")
        for name in "abd":
            until_delivered(name, 4 + 2 * 3 + 1)
        until_delivered("e", 4 + 3 * 3)
        for name in "abde":
            said = nodes[name].end(signal.SIGTERM)
            assert "Traceback" not in said
    rows: list[dict[str, Any]] = [
        json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert len([row for row in rows if row["event"] == "deliver"]) == 5 * 4 + 3 * (2 * 3 + 1) + 3 * 3
    assert judge(rows, crashed=["c"]) == []


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspicion, "SUSPECT_S", 0.8)
    monkeypatch.setattr(endpoint, "HEARTBEAT_S", 0.1)
    monkeypatch.setattr(mesh, "REDIAL_FIRST_S", 0.02)
    monkeypatch.setattr(mesh, "REDIAL_MOST_S", 0.05)


def around(made: dict[tuple[str, str], Proxy], name: str) -> list[Proxy]:
    return [proxy for link, proxy in made.items() if name in link]


async def until_silent(apps: list[Application], number: int) -> None:
    while [len(app.group._host._detector.silent) for app in apps] != [number] * len(apps):  # type: ignore[union-attr]
        await asyncio.sleep(0.02)


async def subscribed(app: Application) -> None:
    """Have it subscribe, completely."""
    await app.group.topic("t").subscribe()
    topics = app.group._host.process.dissemination._topics  # type: ignore[attr-defined]
    while topics["t"].stage is not Stage.IN:
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("_quick")
def test_a_member_that_is_cut_off_misses_nothing_and_nobody_waits_for_it() -> None:
    async def main() -> None:
        async with (
            proxies() as (made, through),
            members("abcd", through, stack="vcube-ps") as groups,
            applications(groups) as (a, b, c, d),
        ):
            for app in (a, b, d):
                await subscribed(app)
            for proxy in around(made, "d"):
                proxy.open.clear()
            await until_silent([a, b, c], 1)
            await d.group.topic("t").publish(b"said apart")
            # A subscription is completed past d, which does not know of it.
            await subscribed(c)
            for number in range(3):
                await a.group.topic("t").publish(b"%d" % number)
            await b.until_delivered(3)
            await c.until_delivered(3)
            for proxy in around(made, "d"):
                proxy.open.set()
            await d.until_delivered(3)
            for app in (a, b):
                await app.until(lambda app: app.payloads("d") == [b"said apart"])
            await until_silent([a, b, c, d], 0)
            await d.group.topic("t").publish(b"said together")
            await c.until(lambda app: app.payloads("d")[-1:] == [b"said together"])

    run(main())


@pytest.mark.usefixtures("_quick")
def test_a_silent_member_for_which_too_much_waits_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("causalcast.runtime.link.RESEND_FRAMES", 100)

    async def main() -> None:
        async with (
            proxies() as (made, through),
            members("abc", through, stack="vcube-tree") as groups,
            applications(groups) as (a, b, c),
        ):
            await a.group.broadcast(b"first")
            await c.until_delivered(1)
            for proxy in around(made, "c"):
                proxy.open.clear()
            for number in range(300):
                await a.group.broadcast(b"%d" % number)
            await b.until_delivered(301)
            link = next(link for link in a.group.links() if link.peer == "c")
            assert link.unacknowledged == 0
            assert (link.reason or "").startswith("it is given up: it was silent, and ")

    run(main())


@pytest.mark.usefixtures("_quick")
def test_a_subscriber_of_a_single_tree_that_is_gone_stops_nobody_and_its_root_is_missed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the tree of topic `t` among four, a is the root, and d a leaf."""
    monkeypatch.setattr("causalcast.runtime.link.RESEND_FRAMES", 100)
    assert root_of("t", 4) == 0

    async def main() -> None:
        async with (
            proxies() as (made, through),
            members("abcd", through, stack="srpt-s") as groups,
            applications(groups) as (a, b, c, d),
        ):
            topic = b.group.topic("t")
            for app in (a, b, c, d):
                await app.group.topic("t").subscribe()
                trees = app.group._host.process.dissemination._topics  # type: ignore[attr-defined]
                while not trees["t"].own:
                    await asyncio.sleep(0.01)
            await topic.publish(b"first")
            for app in (a, c, d):
                await app.until_delivered(1)
            for proxy in around(made, "d"):
                proxy.open.clear()
            for number in range(300):
                await topic.publish(b"%d" % number)
            for app in (a, c):
                await app.until_delivered(301)
            for proxy in around(made, "a"):
                proxy.open.clear()
            await topic.publish(b"into nothing")
            await until_silent([b, c], 2)
            assert len(c.payloads("b")) == 301

    with caplog.at_level("WARNING", "causalcast"):
        run(main())
    for name in "bc":
        assert any(record.getMessage().startswith(f"{name}: nothing was heard of a") for record in caplog.records)
