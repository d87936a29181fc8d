"""What a crash costs on the stacks of document 002 with a single root: P2, and never P1 or P3."""

from __future__ import annotations

import pytest

from causalcast.protocols import stack
from tests.protocols.vcube.worlds import Run


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("srpt-s", ("t", "u")),
        ("srpt-b", ("t", "u")),
        ("causal-aggregation-off", ("",)),
        ("causal-aggregation-single-tree", ("",)),
    ],
)
def test_a_crash_costs_messages_and_no_order(name: str, topics: tuple[str, ...]) -> None:
    broken = set()
    for seed in range(50):
        run = Run(
            stack(name),
            seed,
            members=2 + seed % 7,
            actions=20,
            topics=topics,
            crashes=1 + seed % 2,
            wrong=seed % 3,
            corrected=seed % 4 == 0,
            cut=seed % 2 == 1,
        )
        broken |= {violation.property for violation in run.run()}
    assert "P2" in broken
    assert broken <= {"P2", "P7", "P8"}
