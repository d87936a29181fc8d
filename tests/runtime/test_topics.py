"""Topics on real sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causalcast import Delivered, GroupClosedError, Subscribed, TopicError
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
