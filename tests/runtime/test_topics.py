"""Topics on real sockets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from causalcast import (
    Delivered,
    GroupClosedError,
    Message,
    Stable,
    Subscribed,
    Tag,
    TopicError,
    UnsupportedByStackError,
)
from causalcast.cli.node import event_line
from causalcast.model import Roster
from causalcast.trace import read_jsonl
from tests.runtime.cluster import members, run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_topic_has_its_own_order_and_goes_into_the_trace(tmp_path: Path) -> None:
    async def main() -> None:
        async with members("ab", trace=tmp_path) as (a, b):
            news, sport = b.topic("news"), b.topic("sport")
            await news.subscribe()
            first = await a.topic("news").publish(b"1")
            other = await a.topic("sport").publish(b"2")
            plain = await a.broadcast(b"3")
            assert [first.counter, other.counter, plain.counter] == [1, 1, 1]
            assert await anext(b) == Subscribed("news")
            messages = []
            while len(messages) < 3:
                event = await anext(b)
                if isinstance(event, Delivered):
                    messages.append(event.message)
            assert [(message.topic, message.payload) for message in messages] == [
                ("news", b"1"),
                ("sport", b"2"),
                ("", b"3"),
            ]
            answer = await sport.publish(b"4")
            assert other < answer
            assert answer.context == (("a", 1),)
            with pytest.raises(TopicError, match="cannot name a topic"):
                await a.broadcast(b"", "x" * 300)
        with pytest.raises(GroupClosedError):
            await news.subscribe()

    run(main())
    rows = list(read_jsonl(tmp_path / "b.jsonl"))
    assert [(row.event, row.topic) for row in rows if row.event != "stable"] == [
        ("subscribe", "news"),
        ("deliver", "news"),
        ("deliver", "sport"),
        ("deliver", None),
        ("broadcast", "sport"),
    ]


def test_nobody_leaves_a_topic_that_is_everyones() -> None:
    async def main() -> None:
        async with members("ab") as (a, _):
            with pytest.raises(UnsupportedByStackError, match="everyone is subscribed"):
                await a.topic("news").unsubscribe()

    run(main())


def test_a_node_says_which_topic() -> None:
    tag = Tag("a", 1, (), (1, 0), Roster("ab", "news"))
    for event in (Delivered(Message(b"x", tag, "news")), Stable(tag, "news")):
        assert json.loads(event_line(event))["topic"] == "news"
    assert "topic" not in json.loads(event_line(Stable(tag)))
