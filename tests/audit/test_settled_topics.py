"""What is settled in topics whose subscribers come and go, and of processes that number across topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from causalcast.audit.pipeline import run_audit
from tests.audit.test_settled import NAMES, Logs

if TYPE_CHECKING:
    from pathlib import Path


def test_topics_go_on_by_themselves(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Logs(tmp_path / "trace", ("s", "t")), tmp_path / "out"
    for name in NAMES:
        for topic in logs.topics:
            logs.add(name, "subscribe", topic=topic)
    logs.rounds(20)
    run_audit([logs.trace], out=out)
    for topic in ("s", "t", "u"):
        logs.add("d", "subscribe", topic="u") if topic == "u" else logs.send("b", topic)
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True, True, True]


class Topics(Logs):
    """Logs of two topics: `d` subscribed to `s` when `e` had unsubscribed, `f` joined and subscribed since.

    `g` and `h` subscribed to others; `h` has nothing else in its log.
    """

    def __init__(self, trace: Path, *, told: bool) -> None:
        super().__init__(trace, ("s", "t"))
        self.tell = told
        self.tops: dict[str, list[list[Any]]] = {}
        others = {"d": ("t",), "g": ("u",), "h": ("v",)}
        for name in ("a", "b", "c", "d", "e", "g", "h"):
            for topic in others.get(name, ("s", "t")):
                self.add(name, "subscribe", topic=topic)
        self.send("g", "u")
        self.talk("s", 4, "a", "b", "c", "e")
        self.talk("t", 4, "a", "b", "c", "d", "e")
        self.add("e", "unsubscribe", topic="s")
        self.add("d", "subscribe", topic="s")
        self.add("f", "join")
        self.add("f", "subscribe", topic="s")
        self.go_on(15)

    def talk(self, topic: str | None, number: int, *names: str) -> None:
        assert topic is not None
        self.topics, self.heads = (topic,), self.tops.get(topic, [])
        self.rounds(number, names, told=self.tell)
        self.tops[topic] = self.heads

    def go_on(self, number: int) -> None:
        self.talk("s", number, "a", "b", "c", "d", "f")
        self.talk("t", number, "a", "b", "c", "d", "e")

    def new(self, name: str, topic: str) -> tuple[str, int]:
        dot = self.send(name, topic, **({"context": self.tops[topic]} if self.tell else {}))
        self.tops[topic] = [list(dot)]
        return dot


def elsewhere_of_one_that_unsubscribed(logs: Topics) -> None:
    logs.add("a", "deliver", logs.new("e", "t"), topic="t")


def here_of_one_that_unsubscribed(logs: Topics) -> None:
    logs.add("e", "deliver", logs.new("a", "s"), topic="s")


def subscribed_again(logs: Topics) -> None:
    logs.add("e", "subscribe", topic="s")
    logs.add("e", "deliver", logs.new("a", "s"), topic="s")


def unsubscribed(logs: Topics) -> None:
    logs.add("b", "deliver", logs.new("a", "s"), topic="s")
    logs.add("b", "unsubscribe", topic="s")
    logs.add("c", "deliver", logs.new("a", "s"), topic="s")


def late_one_unsubscribed(logs: Topics) -> None:
    logs.add("d", "unsubscribe", topic="s")
    logs.new("a", "s")


def unsubscribed_and_delivered(logs: Topics) -> None:
    logs.add("b", "unsubscribe", topic="s")
    logs.add("b", "deliver", logs.new("a", "s"), topic="s")


def subscribed(logs: Topics) -> None:
    logs.new("b", "s")
    logs.add("g", "subscribe", topic="s")
    logs.add("g", "deliver", logs.new("a", "s"), topic="s")


def delivered_and_subscribed(logs: Topics) -> None:
    logs.add("g", "deliver", logs.new("a", "s"), topic="s")
    logs.add("g", "subscribe", topic="s")


def delivered_what_was_before_it_subscribed(logs: Topics) -> None:
    logs.add("g", "subscribe", topic="s")
    logs.add("g", "deliver", ("a", 3), topic="s")


def subscribed_and_sent(logs: Topics) -> None:
    logs.add("g", "subscribe", topic="s")
    logs.new("g", "s")


def subscribed_and_unsubscribed(logs: Topics) -> None:
    logs.add("g", "subscribe", topic="s")
    logs.add("g", "unsubscribe", topic="s")


def subscribed_at_first(logs: Topics) -> None:
    logs.add("h", "subscribe", topic="s")
    logs.add("h", "deliver", logs.new("a", "s"), topic="s")


def lags_in_one(logs: Topics) -> None:
    dot = logs.new("a", "s")
    for name in ("b", "c", "f"):
        logs.add(name, "deliver", dot, topic="s")
    logs.talk("t", 3, "a", "b", "c", "d", "e")


def duplicate_at_late_one(logs: Topics) -> None:
    logs.add("d", "deliver", ("a", 8), topic="s")


def before_late_one(logs: Topics) -> None:
    logs.add("d", "deliver", ("a", 2), topic="s")


def before_joiner(logs: Topics) -> None:
    logs.add("f", "deliver", ("a", 2), topic="s")


def crash_of_late_one(logs: Topics) -> None:
    logs.add("b", "deliver", logs.new("d", "s"), topic="s")
    logs.add("d", "crash")


def joiner_unsubscribed(logs: Topics) -> None:
    logs.add("f", "unsubscribe", topic="s")
    logs.add("a", "deliver", logs.new("b", "s"), topic="s")


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        *((change, True) for change in (elsewhere_of_one_that_unsubscribed, lags_in_one, crash_of_late_one)),
        *((change, True) for change in (unsubscribed, late_one_unsubscribed, joiner_unsubscribed)),
        *((change, True) for change in (subscribed, subscribed_again, subscribed_and_unsubscribed)),
        *((change, None) for change in (here_of_one_that_unsubscribed, unsubscribed_and_delivered)),
        *((change, None) for change in (delivered_and_subscribed, subscribed_at_first)),
        *((change, False) for change in (duplicate_at_late_one, before_late_one, before_joiner)),
        *((change, False) for change in (delivered_what_was_before_it_subscribed, subscribed_and_sent)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_subscribers_come_and_go(
    runs: list[bool], tmp_path: Path, change: Any, goes_on: bool | None, told: bool
) -> None:
    logs, out = Topics(tmp_path / "trace", told=told), tmp_path / "out"
    run_audit([logs.trace], out=out)
    for step in (lambda: logs.go_on(1), lambda: change(logs), lambda: logs.go_on(2), lambda: logs.go_on(2)):
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[0]
    # Where tags are reported, a row of one who is not subscribed has the whole looked at.
    assert runs[1] == (not told if goes_on is None else goes_on)


def outside(logs: Logs) -> None:
    dot = logs.send("x", "s")
    for name in ("a", "b", "c", "d"):
        logs.add(name, "deliver", dot, topic="s")


def outside_to_late_one(logs: Logs) -> None:
    outside(logs)
    logs.add("e", "deliver", ("x", logs.sent["x", "s"]), topic="s")
    dot = logs.send("x", "s")
    for name in ("a", "b", "c", "d"):
        logs.add(name, "deliver", dot, topic="s")


def newcomer_without_anything(logs: Logs) -> None:
    logs.add("g", "subscribe", topic="s")
    logs.rounds(5, ("a", "b", "c", "d", "e"))


def from_before_others_knew(logs: Logs) -> None:
    logs.add("d", "deliver", ("b", 2), topic="s")


@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        *((change, True) for change in (outside, outside_to_late_one, newcomer_without_anything)),
        (from_before_others_knew, False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_not_all_who_have_to_do_with_a_topic_must_have_all(
    runs: list[bool], tmp_path: Path, change: Any, goes_on: bool
) -> None:
    logs, out = Logs(tmp_path / "trace", ("s",)), tmp_path / "out"
    for name in ("a", "b", "c", "d"):
        logs.add(name, "subscribe", topic="s")
    for name in ("e", "g", "h", "x"):
        logs.add(name, "subscribe", topic=f"of-{name}")
        logs.send(name, f"of-{name}")
    logs.rounds(4)  # before others know that d subscribed
    for _ in range(2):
        dot = logs.send("x", "s")
        for name in NAMES:
            logs.add(name, "deliver", dot, topic="s")
    logs.add("e", "subscribe", topic="s")
    logs.add("h", "subscribe", topic="s")  # nothing else
    logs.rounds(15, (*NAMES, "d", "e"))
    run_audit([logs.trace], out=out)
    last = [lambda: logs.rounds(1, (*NAMES, "d", "e"))] * 2
    for step in (lambda: logs.rounds(1, (*NAMES, "d", "e")), lambda: change(logs), *last):
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[:3] == [True, goes_on, goes_on]


def third_topic(logs: Logs) -> None:
    logs.add("b", "deliver", logs.send("a", "u"), topic="u")
    logs.send("a", "s")


def number_left_out_of_all(logs: Logs) -> None:
    logs.sent["a", None] += 1
    logs.send("a", "t")


def number_in_two_topics(logs: Logs) -> None:
    logs.send("a", "s")
    logs.sent["a", None] -= 1
    logs.send("a", "t")


def number_of_another_topic(logs: Logs) -> None:
    logs.add("a", "broadcast", ("a", 41), topic="s" if logs.topics[-1] == "t" else "t")


def number_of_another_topic_delivered(logs: Logs) -> None:
    number = logs.send("a", "s")[1]
    logs.send("a", "t")
    logs.add("b", "deliver", ("a", number), topic="t")
    logs.send("a", "t")


def one_topic_lags(logs: Logs) -> None:
    for topic in ("s", "t", "s", "t", "s"):
        dot = logs.send("a", topic)
        for name in ("b", "c") if topic == "t" else ():
            logs.add(name, "deliver", dot, topic=topic)


def one_topic_lags_and_has_what_nobody_sent(logs: Logs) -> None:
    one_topic_lags(logs)
    logs.add("b", "deliver", ("a", 999), topic="s")


@pytest.mark.parametrize("told", [False, True], ids=["plain", "told"])
@pytest.mark.parametrize(
    ("change", "goes_on"),
    [
        *((change, True) for change in (third_topic, number_of_another_topic_delivered)),
        *((change, True) for change in (one_topic_lags, one_topic_lags_and_has_what_nobody_sent)),
        *((change, False) for change in (number_left_out_of_all, number_in_two_topics, number_of_another_topic)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_numbers_run_across_topics(runs: list[bool], tmp_path: Path, change: Any, goes_on: bool, told: bool) -> None:
    logs, out = Logs(tmp_path / "trace", ("s",)), tmp_path / "out"
    logs.together = True
    heads: dict[str, list[list[Any]]] = {}

    def talk(number: int) -> None:
        for topic in ("s", "t", "t", "s") * number:
            logs.topics, logs.heads = (topic,), heads.get(topic, [])
            logs.rounds(1, told=told)
            heads[topic] = logs.heads

    talk(12)
    run_audit([logs.trace], out=out)
    for step in (lambda: talk(1), lambda: change(logs), lambda: logs.send("b", "t"), lambda: talk(2)):
        step()
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs[:3] == [True, goes_on, goes_on]
