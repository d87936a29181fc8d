"""Sends and receptions are left out with the messages that are settled, and change nothing of what is measured."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from causalcast.audit import receptions
from causalcast.audit.bundles import bundle
from causalcast.audit.pipeline import run_audit
from causalcast.audit.received import NOTHING_RECEIVED
from causalcast.audit.receptions import Receptions
from tests.audit.local import table
from tests.audit.test_settled import NAMES, Logs, same_outputs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns


class Linked(Logs):
    """Logs that say what their processes sent and received."""

    def pass_on(self, number: int, topic: str | None = None, names: tuple[str, ...] = NAMES) -> None:
        """Let each of `names` broadcast, send and send again; one of the others receives twice, all deliver."""
        for turn in range(number):
            for name in names:
                dot = self.send(name, topic)
                for other in names:
                    if other == name:
                        continue
                    self.add(name, "send", dot, topic=topic, peer=other)
                    self.add(other, "receive", dot, topic=topic, peer=name)
                    self.add(other, "deliver", dot, topic=topic)
                    if turn % 2:
                        self.add(name, "send", dot, topic=topic, peer=other)
                        self.add(other, "receive", dot, topic=topic, peer=name)


def received_again(logs: Linked) -> None:
    logs.add("b", "receive", ("a", 2), peer="c")


def received_after_all(logs: Linked) -> None:
    logs.add("b", "receive", ("a", 21))
    logs.add("b", "receive", ("a", 23))
    logs.add("b", "receive", ("a", 21))
    logs.add("b", "receive", ("a", 22))


def received_after_all_once_more(logs: Linked) -> None:
    logs.add("b", "receive", ("a", 23))
    logs.add("b", "receive", ("a", 24))
    logs.add("b", "receive", ("a", 20))
    logs.add("c", "receive", ("a", 20))


def own_received(logs: Linked) -> None:
    logs.add("a", "receive", ("a", 2))


def sent_again(logs: Linked) -> None:
    logs.add("a", "send", ("a", 2), peer="b")
    logs.add("c", "send", ("a", 2), peer="b")


def only_received(logs: Linked) -> None:
    dot = logs.send("a")
    logs.add("c", "receive", dot)
    logs.add("c", "receive", dot)


def delivered_since(logs: Linked) -> None:
    logs.add("c", "deliver", ("a", logs.sent["a", None]))
    logs.add("b", "deliver", ("a", logs.sent["a", None]))
    logs.add("b", "receive", ("a", logs.sent["a", None]))


def received_of_nobody(logs: Linked) -> None:
    logs.add("b", "receive", ("z", 1))
    logs.add("b", "receive", ("a", 2), topic="elsewhere")


def test_a_message_that_is_settled_is_received_again_or_at_last(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Linked(tmp_path / "trace"), tmp_path / "out"
    logs.pass_on(20)
    logs.rounds(5)  # nobody is said to have received these
    logs.pass_on(20)
    steps = (received_again, received_after_all, received_after_all_once_more, own_received, sent_again)
    told: list[tuple[int, int, int]] = []
    for step in (None, *steps, only_received, delivered_since, received_of_nobody, received_after_all):
        if step is not None:
            step(logs)
        found = run_audit([logs.trace], out=out)
        assert found == run_audit([logs.trace]), step
        assert found.transport is not None
        told.append((found.transport.sends, found.transport.receives, found.transport.redundant))
    run_audit([logs.trace], out=tmp_path / "whole")

    assert same_outputs(out, tmp_path / "whole")
    assert runs == [True] * 9
    grown = [tuple(int(n) for n in np.subtract(after, before)) for before, after in itertools.pairwise(told)]
    received = [(0, 1, 1), (0, 4, 1), (0, 4, 3), (0, 1, 1)]
    assert grown == [*received, (2, 0, 0), (0, 2, 1), (0, 1, 0), (0, 2, 0), (0, 4, 4)]


def test_who_never_delivers_may_receive(runs: list[bool], tmp_path: Path) -> None:
    logs, out = Linked(tmp_path / "trace", ("s",)), tmp_path / "out"
    for name in NAMES:
        logs.add(name, "subscribe", topic="s")
    logs.add("relay", "subscribe", topic="t")
    logs.pass_on(10, "s")
    for number in (1, 2, 2, 5):
        logs.add("relay", "receive", ("a", number), topic="s")
        logs.add("relay", "send", ("a", number), topic="s")
    logs.pass_on(10, "s")
    for number in (None, 2, 3, 3, 4):
        if number is not None:
            logs.add("relay", "receive", ("a", number), topic="s")
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True] * 4


def test_what_is_kept_of_receptions_is_bounded(
    runs: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, out = Linked(tmp_path / "trace"), tmp_path / "out"
    logs.pass_on(20)
    # The others' messages, at each of three: one range of each.
    for most in (6, 6, 5, 5):
        monkeypatch.setattr(receptions, "MOST_RANGES", most)
        logs.pass_on(1)
        assert run_audit([logs.trace], out=out) == run_audit([logs.trace])

    assert runs == [True, True, False]


def noted(rows: Sequence[dict[str, Any]]) -> tuple[LogColumns, NDArray[np.int64]]:
    """Return rows as columns, and whose each is."""
    whole = bundle(table(rows))
    owners = np.array([NAMES.index(whole.owner(group)) for group in range(whole.process.size)], dtype=np.int64)
    return whole.parts(np.arange(whole.process.size)), np.repeat(owners, np.diff(whole.starts))


def reception(rng: random.Random, far: int) -> dict[str, Any]:
    return {
        "process": rng.choice(NAMES),
        "seq": rng.randint(1, 10**6),
        "event": "receive",
        "origin": rng.choice(("a", "b", "d")),
        "counter": rng.choice((0, far)) + rng.randint(1, 12),
        "topic": rng.choice((None, "s", "d")),
    }


@pytest.mark.parametrize("far", [0, 2**62], ids=["near", "far"])
@pytest.mark.parametrize("most", [1, 1_000_000])
def test_ranges_say_what_sets_say(monkeypatch: pytest.MonkeyPatch, far: int, most: int) -> None:
    for seed in range(30):
        rng = random.Random(seed)
        known: set[tuple[Any, ...]] = set()
        received = NOTHING_RECEIVED
        for _ in range(rng.randint(1, 3)):
            gathered = Receptions(received)
            for _ in range(rng.randint(0, 3)):
                rows = [reception(rng, far) for _ in range(rng.randint(1, 30))]
                columns, log = noted(rows)
                limit = rng.choice((6, far + 12))
                rest, _ = gathered.without(columns, log, np.full(log.size, limit))
                known |= {message(row) for row in rows if row["counter"] <= limit}
                assert rest.seq.size == sum(row["counter"] > limit for row in rows)
                with monkeypatch.context() as patch:
                    patch.setattr(receptions, "MOST_RANGES", most)
                    assert gathered.many == (ranges(known) > most), seed
            found = gathered.done()
            assert found is not None
            received = found
            assert received.first.size == ranges(known)
        rows = [reception(rng, far) for _ in range(50)]
        columns, log = noted(rows)
        had = np.flatnonzero(received.has(columns, log, np.arange(log.size)))
        names = [*columns.names, None]
        places = (log[had], columns.topic[had], columns.origin[had], columns.counter[had])
        told = {(NAMES[i], names[topic], names[origin], int(n)) for i, topic, origin, n in zip(*places, strict=True)}
        assert told == {message(row) for row in rows} & known, seed


def message(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["process"], row["topic"], row["origin"], row["counter"]


def ranges(known: set[tuple[Any, ...]]) -> int:
    """Return how many ranges of numbers there are."""
    return sum((*about, number - 1) not in known for *about, number in known)
