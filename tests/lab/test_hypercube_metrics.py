"""What is measured of trees of the hypercube, of packets, and of how long messages wait."""

from __future__ import annotations

import pytest

from causalcast.lab.compare import compare
from causalcast.lab.experiment import load
from causalcast.lab.grid import runs
from causalcast.lab.metrics import hypercube
from causalcast.lab.summary import summarize
from causalcast.lab.task import measure


@pytest.mark.parametrize(("name", "rows"), [("002-examples", 18), ("002-trees", 1)])
def test_the_examples_of_the_document_hold(name: str, rows: int) -> None:
    experiment = load(name)
    records = [measure(run) for run in runs(experiment, name)]
    summary = summarize(experiment, records, [1], name=name, command="", version="")
    assert compare({name: experiment}, {name: summary}, everything=False).summary == {
        "met": rows,
        "missed": 0,
        "explained": 0,
        "unanswered": 0,
    }


def test_rounds_are_counted_from_the_first_that_begins_after_the_crash() -> None:
    assert hypercube.detection_rounds_mean(2) == hypercube.detection_rounds_most(2) == 1
    assert 1 < hypercube.detection_rounds_mean(16) < hypercube.detection_rounds_most(16) <= 16


def test_trees_with_failed_members_skip_them() -> None:
    assert hypercube.tree(4, "1", 0) == "0:{2} 2:{3} 3:{}"
    assert hypercube.first_children(8, "1 3 4 5") == "- 2 7 - -"
