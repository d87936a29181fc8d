"""The demonstration's workload without its network, and its proxy without members."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from causalcast.model import Roster, Tag
from demo.proxy import SLOW, SLOW_FACTOR, Direction, Network, Proxy
from demo.workload import MEMBERS, SCRIPT, Participant, Plan

PLAN = Plan(ticks=12, rounds=5)
ROSTER = Roster(MEMBERS)


class Relay:
    """Carries what participants say, in total order, with exact tags: counts of what each has delivered."""

    def __init__(self) -> None:
        self.participants = {name: Participant(name, PLAN) for name in MEMBERS}
        self.counts = {name: dict.fromkeys(MEMBERS, 0) for name in MEMBERS}
        self.waiting: deque[tuple[str, bytes, Tag]] = deque()
        self.messages = 0

    def say(self, name: str, payload: bytes) -> None:
        counts = self.counts[name]
        counts[name] += 1
        tag = Tag(name, counts[name], (), tuple(counts[member] for member in ROSTER), ROSTER)
        self.participants[name].sent(payload, tag)
        self.waiting.append((name, payload, tag))
        self.messages += 1

    def carry_all(self) -> None:
        while self.waiting:
            speaker, payload, tag = self.waiting.popleft()
            for name in MEMBERS:
                if name != speaker:
                    self.counts[name][speaker] = tag.counter
                    answer = self.participants[name].receive(payload, tag)
                    if answer is not None:
                        self.say(name, answer)


@pytest.mark.parametrize("ticks_at_once", [1, 3])
def test_the_plan_knows_every_message_and_tags_judge_every_price(ticks_at_once: int) -> None:
    relay = Relay()
    for number in range(PLAN.rounds):
        relay.say("ross", relay.participants["ross"].begin_round(number))
        relay.carry_all()
    for _ in range(PLAN.ticks // ticks_at_once):
        for name in MEMBERS:
            for _ in range(ticks_at_once):
                relay.say(name, relay.participants[name].tick())
        relay.carry_all()
    assert relay.messages == PLAN.messages
    ignored = 0
    for name, participant in relay.participants.items():
        score = participant.score
        assert score.delivered == PLAN.messages - PLAN.broadcasts_of(name)
        assert (score.prices_early, score.prices_misjudged, score.replies_early, score.confused) == (0, 0, 0, [])
        assert score.prices_shown + score.prices_ignored == PLAN.ticks * len(MEMBERS)
        ignored += score.prices_ignored
    assert (ignored > 0) == (ticks_at_once > 1)


def test_a_reply_before_its_question_is_noticed() -> None:
    tag = Tag("ross", 1, (), (0, 0, 0, 0, 1), ROSTER)
    joey = Participant("joey", PLAN)
    lines = [Participant("ross", PLAN).begin_round(0)]
    for speaker, _ in SCRIPT[1:]:
        lines.append(Participant(speaker, PLAN).receive(lines[-1], tag) or b"")
    for number in (0, 3, 2, 1):
        assert joey.receive(lines[number], tag) is None
    assert joey.score.replies_early == 2
    assert joey.score.confused == [0, 3, 2, 1]


def test_the_delay_of_a_direction_depends_on_seed_and_time_alone() -> None:
    network = Network({}, seed=1)
    times = [slot / 100 for slot in range(300)]

    def delays(source: str, target: str, seed: int = 1) -> list[float]:
        direction = Direction(Network({}, seed), source, target, started=0.0)
        return [direction.delay(now) for now in times]

    assert network.seed == 1
    assert delays("joey", "ross") == delays("joey", "ross")
    assert delays("joey", "ross") != delays("ross", "monica")
    assert delays("joey", "ross") != delays("joey", "ross", seed=2)
    slow, ordinary = delays(*SLOW), delays(*reversed(SLOW))
    assert sum(slow) / sum(ordinary) == pytest.approx(SLOW_FACTOR, rel=0.3)


def test_the_proxy_keeps_order_and_can_reset() -> None:
    async def scenario() -> tuple[bytes, int, bool]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while chunk := await reader.read(1000):
                writer.write(chunk)

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy(Network({"a": port, "b": port}, seed=1))
        reader, writer = await asyncio.open_connection("127.0.0.1", (await proxy.start())["a"]["b"])
        for number in range(200):
            writer.write(b"%4d" % number)
            if number % 20 == 0:
                await asyncio.sleep(0.005)
        echoed = await reader.readexactly(800)
        ended = proxy.reset("b", "a")
        try:
            broken = await reader.read() == b""
        except ConnectionResetError:
            broken = True
        server.close()
        return echoed, ended, broken

    echoed, ended, broken = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert echoed == b"".join(b"%4d" % number for number in range(200))
    assert (ended, broken) == (2, True)
