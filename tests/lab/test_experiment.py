"""Experiment files: mistakes are one line that names file and field, and what comes with causalcast has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from causalcast.lab.errors import ExperimentInvalidError, UnknownExperimentError
from causalcast.lab.experiment import load, names, parse
from causalcast.lab.grid import cells, runs
from causalcast.lab.references import references
from tests.lab.tiny import write_tiny

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Tiny"', "title = 5", "$.title"),
        ('title = "Tiny"', 'title = "Tiny"\ncolour = "red"', "colour"),
        ('title = "Tiny"', 'title = "Tiny', "is not TOML"),
        ("repetitions = 2", "repetitions = 0", "repetitions: 0"),
        ("nodes = [3, 4]", "nodes = []", "'nodes' has no value"),
        ("nodes = [3, 4]", "nodes = [3, 4]\nmessages = [1]", "'messages' is given twice"),
        ("grid = { nodes = [3] }", "grid = { nodes = [5] }", "5 is no value of the full grid"),
        ("[probes]", "[probes]\nentropy = {}", "no probe is called 'entropy'"),
        ("[parameters]", 'calculate = ["pi"]\n[parameters]', "nothing is called 'pi'"),
        ('id = "TCB-16"', 'id = "TCB-1600"', "answers (TCB-1600): no reference value"),
        ('id = "TCB-16"', 'id = "TCB-17"', "TCB-17 is answered twice"),
        ("<0.5", "a bit less", "'a bit less' is no tolerance"),
        ("expected = 4", 'tolerance = "abs 2", where2 = 1', "where2"),
        ('metric = "entries", statistic = "max", where = { stack = "tcb" }', 'metric = "words"', "'words' is measured"),
        ('x = "nodes"', 'x = "peers"', "plots[0] (figure 30a): no parameter is called 'peers'"),
        ('statistic = "median"', 'statistic = "medium"', "'medium' is no statistic"),
        ('explained = "says what the document ran on"', "", "neither checks nor an explanation"),
        ('{ stack = "tcb" }', '{ stakc = "tcb" }', "no parameter is called 'stakc'"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_field(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = write_tiny(tmp_path, (old, new))
    with pytest.raises(ExperimentInvalidError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert words in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"$stack"', '"tbc"', "no stack is called 'tbc'"),
        ('"$nodes"', '"$peers"', "$peers: no parameter"),
        ('"$nodes"', "0", "run.nodes: 0"),
        ('delay = "weibull:10"', 'delay = "weibull"', "weibull:BASELINE"),
        ('delay = "weibull:10"', "los = 0.5", "los"),
        (
            'delay = "weibull:10"',
            'links = [{ sender = "@0", receiver = "@9", delay = "constant:1" }]',
            "@9: there are 3 processes",
        ),
        ("entries = {}", "entries = { at = [0] }", "probes.entries: it has no option 'at'"),
        ("latency = {}", "memory = { every = 0 }\nlatency = {}", "probes.memory: every: 0"),
    ],
)
def test_a_run_that_cannot_be_is_found_before_any_is_run(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = write_tiny(tmp_path, (old, new))
    with pytest.raises(ExperimentInvalidError) as caught:
        runs(load(path), path)
    assert str(caught.value).startswith(f"{path}: ")
    assert words in str(caught.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UnknownExperimentError, match=r"'004'.*004-formulas"):
        load("004")
    with pytest.raises(ExperimentInvalidError, match=r"nowhere\.toml: No such file"):
        load("nowhere.toml")


def test_parameters_that_move_together_make_no_product() -> None:
    text = b"""
title = "t"
source = "s"
shows = "w"
parameters = { a = 1 }
grid = { b = [1, 2] }
together = [{ c = [1, 2], d = ["x", "y"] }]
"""
    made = cells(parse(text, "f"))
    assert [(cell["b"], cell["c"], cell["d"]) for cell in made] == [(1, 1, "x"), (1, 2, "y"), (2, 1, "x"), (2, 2, "y")]
    with pytest.raises(ExperimentInvalidError, match="different lengths"):
        parse(text.replace(b'["x", "y"]', b'["x"]'), "f")


def test_a_key_follows_what_decides_a_run_and_nothing_else(tmp_path: Path) -> None:
    before = {run.key for run in runs(load(write_tiny(tmp_path)), "f")}
    assert len(before) == 8
    for change in (("<0.5", "<0.6"), ('title = "Tiny"', 'title = "Small"'), ("nodes = [3, 4]", "nodes = [3, 4, 5]")):
        assert before <= {run.key for run in runs(load(write_tiny(tmp_path, change)), "f")}
    for change in (("weibull:10", "weibull:11"), ("latency = {}", "traffic = {}"), ("messages = 3", "messages = 4")):
        assert not before & {run.key for run in runs(load(write_tiny(tmp_path, change)), "f")}


@pytest.mark.parametrize("name", names())
def test_an_experiment_of_causalcast_can_be_run(name: str) -> None:
    experiment = load(name)
    assert len(runs(experiment, name, quick=True)) == len(cells(experiment, quick=True)) * experiment.quick.repetitions
    assert {answer.id for answer in experiment.answers} <= references().keys()


def test_no_reference_value_is_answered_by_two_experiments() -> None:
    answered = [answer.id for name in names() for answer in load(name).answers]
    assert len(set(answered)) == len(answered)
