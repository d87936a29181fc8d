"""Clocks against sets, in each of the ways they are made."""

from __future__ import annotations

import random

import numpy as np
import pytest

from causalcast.audit import closure, matrices
from causalcast.audit.flat import Messages
from causalcast.audit.reduction import close_by_predecessors


def draw(rng: random.Random, *, cyclic: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return random direct dependencies, as `close` takes them."""
    sizes = [rng.randint(0, 6) for _ in range(rng.randint(1, 5))]
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    order = [a for a, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(order)
    sent = [0] * len(sizes)
    rows = np.zeros((int(starts[-1]), len(sizes)), dtype=np.int32)
    for a in order:
        row = starts[a] + sent[a]
        if sent[a]:
            rows[row] = rows[row - 1]
        for b in range(len(sizes)):
            if b != a and rng.random() < 0.4:
                reach = sizes[b] if cyclic else sent[b]
                rows[row, b] = max(rows[row, b], rng.randint(0, reach))
        rows[row, a] = sent[a]
        sent[a] += 1
    return rows, starts


def by_sets(rows: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Close by following every dependency of every message."""
    closed = np.zeros_like(rows)
    for message in range(rows.shape[0]):
        todo, seen = [message], set()
        while todo:
            at = todo.pop()
            for b in range(rows.shape[1]):
                closed[message, b] = max(closed[message, b], rows[at, b])
                causes = range(int(starts[b]), int(starts[b] + rows[at, b]))
                todo.extend(cause for cause in causes if cause not in seen)
                seen.update(causes)
    return closed


@pytest.mark.parametrize("sweeps", [0, 1, 12])
def test_closing_equals_following_every_path(sweeps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closure, "_MAX_SWEEPS", sweeps)
    rng = random.Random(sweeps)
    for _ in range(300):
        rows, starts = draw(rng)
        expected = by_sets(rows, starts)
        assert closure.close(rows, starts) == []
        assert (rows == expected).all()


def test_closing_by_predecessors_equals_following_every_path() -> None:
    rng = random.Random(5)
    for _ in range(500):
        rows, starts = draw(rng)
        direct, expected = rows.copy(), by_sets(rows, starts)
        edges = close_by_predecessors(rows, starts)
        assert edges is not None
        assert (rows == expected).all()
        reached = np.zeros_like(rows)
        for message in np.argsort(expected.sum(axis=1), kind="stable").tolist():
            for cause in edges.cause[edges.effect == message].tolist():
                owner = int(np.searchsorted(starts, cause, side="right")) - 1
                reached[message] = np.maximum(reached[message], reached[cause])
                reached[message, owner] = max(reached[message, owner], cause - starts[owner] + 1)
        assert (reached == expected).all()
        assert (direct <= rows).all()


def test_closing_by_predecessors_leaves_contradictions_alone() -> None:
    rng = random.Random(6)
    for _ in range(300):
        rows, starts = draw(rng, cyclic=True)
        direct, closed = rows.copy(), by_sets(rows, starts)
        own = [(m, a) for a in range(rows.shape[1]) for m in range(starts[a], starts[a + 1])]
        if close_by_predecessors(rows, starts) is None:
            assert any(closed[m, a] > m - starts[a] for m, a in own)
            assert (rows == direct).all()
        else:
            assert (rows == closed).all()


def side_by_side(topics: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Messages, np.ndarray, np.ndarray, np.ndarray]:
    """Return direct dependencies of many topics as `close_side_by_side` takes them: all, not only what is new."""
    groups, starts, target, group, rank = [0], [0], [], [], []
    for rows, first in topics:
        for message, column in zip(*np.nonzero(rows), strict=True):
            if not first[column] <= message < first[column + 1]:
                target.append(starts[-1] + message)
                group.append(groups[-1] + column)
                rank.append(rows[message, column])
        starts += (starts[-1] + first[1:]).tolist()
        groups.append(groups[-1] + first.size - 1)
    sizes = np.diff(starts)
    messages = Messages(
        origins=tuple(f"o{i}" for i in range(8)),
        groups=np.array(groups, dtype=np.int64),
        origin=np.concatenate([np.arange(first.size - 1) for _, first in topics]),
        starts=np.array(starts, dtype=np.int64),
        counters=np.arange(starts[-1]) - np.repeat(np.array(starts[:-1]), sizes) + 1,
    )
    return messages, *(np.array(column, dtype=np.int64) for column in (target, group, rank))


@pytest.mark.parametrize("sweeps", [1, 12])
def test_closing_many_topics_side_by_side_equals_following_every_path(
    sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrices, "MAX_SWEEPS", sweeps)
    rng = random.Random(sweeps)
    left = several = 0
    for _ in range(40):
        monkeypatch.setattr(matrices, "_CELLS", rng.choice([64, 4_000_000]))
        topics = [draw(rng, cyclic=rng.random() < 0.2) for _ in range(20)]
        topics = [topic for topic in topics if (np.diff(topic[1]) > 0).all()]
        pasts = matrices.close_side_by_side(*side_by_side(topics))
        for t, (rows, starts) in enumerate(topics):
            expected = by_sets(rows, starts)
            own = [(m, a) for a in range(rows.shape[1]) for m in range(starts[a], starts[a + 1])]
            looped = any(expected[m, a] > m - starts[a] for m, a in own)
            if not pasts.closed[t]:
                assert looped or sweeps == 1
                left += 1
                continue
            assert not looped
            several += bool((expected > rows).any())
            found = pasts.past[pasts.pasts[t] : pasts.pasts[t + 1]].reshape(rows.shape[1], rows.shape[0])
            assert np.array_equal(found.T, expected)
            edges = slice(pasts.edges[t], pasts.edges[t + 1])
            before = list(zip(pasts.cause[edges].tolist(), pasts.effect[edges].tolist(), strict=True))
            assert reached(before, starts) == {
                (int(starts[b] + i), m)
                for m in range(rows.shape[0])
                for b in range(rows.shape[1])
                for i in range(expected[m, b])
            }
    assert left > 20
    assert (several > 100) == (sweeps == 12)


def reached(edges: list[tuple[int, int]], starts: np.ndarray) -> set[tuple[int, int]]:
    """Follow immediate predecessors as far as they lead."""
    direct: dict[int, set[int]] = {}
    for cause, effect in edges:
        direct.setdefault(effect, set()).add(cause)
    found = set()
    for message in range(int(starts[-1])):
        todo, seen = [message], set()
        while todo:
            fresh = direct.get(todo.pop(), set()) - seen
            seen |= fresh
            todo += fresh
        found |= {(cause, message) for cause in seen}
    return found


def test_contradicting_logs_end_and_are_named() -> None:
    rng = random.Random(4)
    named = 0
    for _ in range(300):
        rows, starts = draw(rng, cyclic=True)
        closed = by_sets(rows, starts)
        own = [(m, a) for a in range(rows.shape[1]) for m in range(starts[a], starts[a + 1])]
        looped = any(closed[m, a] > m - starts[a] for m, a in own)
        assert bool(closure.close(rows, starts)) == looped
        named += looped
    assert named > 50


def test_a_long_chain_of_single_steps_is_closed_without_recursion() -> None:
    messages, origins = 20_000, 4
    starts = np.arange(0, messages + 1, messages // origins)
    rows = np.zeros((messages, origins), dtype=np.int32)
    for a in range(origins):
        rank = np.arange(messages // origins)
        rows[starts[a] : starts[a + 1], a] = rank
        before = (a - 1) % origins
        rows[starts[a] : starts[a + 1], before] = rank if a == 0 else rank + 1

    assert closure.close(rows, starts) == []
    assert rows[-1].tolist() == [5000, 5000, 5000, 4999]
