"""What is measured: histograms and their statistics, and that a seed repeats all but CPU times."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from causalcast.lab import records
from causalcast.lab.experiment import load, parse
from causalcast.lab.grid import runs
from causalcast.lab.histogram import Histogram, InvalidStatisticError
from causalcast.lab.metrics import metrics_of
from causalcast.lab.task import execute, measure
from causalcast.protocols import stack
from causalcast.simulation import Simulator, process_names
from tests.lab.tiny import write_tiny

if TYPE_CHECKING:
    from pathlib import Path

ALL = b"""
title = "All probes"
source = "-"
shows = "-"
grid = { stack = ["tcb", "cbcast"] }

[run]
stack = "$stack"
nodes = 5
workload = { workload = "broadcasts", messages = 10, interval = "exponential:10" }
network = { delay = "uniform:1:60" }

[probes]
cpu = { at = [0] }
entries = {}
latency = {}
memory = { every = 1 }
operations = {}
traffic = {}
"""


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ("mean", 3.25),
        ("median", 2),
        ("min", 1),
        ("max", 8),
        ("sum", 13),
        ("count", 4),
        ("p75", 2),
        ("p76", 8),
        ("percent <=2", 75),
        ("count >2", 1),
        ("count (2, 8]", 1),
        ("count [2, 8)", 2),
        ("percent = 1", 25),
        ("percent <1", 0),
    ],
)
def test_statistics_of_a_histogram(statistic: str, value: float) -> None:
    assert Histogram(Counter([1, 2, 2, 8])).statistic(statistic) == value


def test_nothing_seen_has_no_mean_but_a_count() -> None:
    nothing = Histogram({})
    assert [nothing.statistic(name) for name in ("mean", "median", "max", "percent <3")] == [None] * 4
    assert (nothing.statistic("count"), nothing.statistic("count <3")) == (0, 0)


@pytest.mark.parametrize("name", ["", "average", "p100", "percent", "percent about 3", "count (1; 2)"])
def test_an_unknown_statistic_is_named(name: str) -> None:
    with pytest.raises(InvalidStatisticError, match="statistic"):
        Histogram({1: 1}).statistic(name)


def test_many_different_values_are_rounded_and_their_sum_is_not() -> None:
    values = range(100_040, 1_100_040, 100)
    histogram = Histogram(Counter(values))
    assert len(histogram.counts) <= 2_000
    assert (histogram.count, histogram.sum) == (10_000, sum(values))
    assert (histogram.min, histogram.max) == (100_040, 1_099_940)
    assert (min(histogram.counts), max(histogram.counts)) == (100_040, 1_099_940), "what a record keeps of them"
    assert histogram.statistic("median") == pytest.approx(600_000, rel=0.005)


def test_a_seed_repeats_everything_but_cpu_times() -> None:
    experiment = parse(ALL, "all")
    known = metrics_of(experiment.probes, ())
    for run in runs(experiment, "all"):
        first, second = measure(run).measured, measure(run).measured
        assert first.keys() == second.keys()
        for name, value in first.items():
            metric = known.find(name)
            assert metric is not None
            if not metric.repeats:
                continue
            other = second[name]
            if isinstance(value, Histogram):
                assert isinstance(other, Histogram)
                assert (value.counts, value.sum) == (other.counts, other.sum)
            else:
                assert value == other


def test_probes_see_what_the_simulator_counts_and_change_nothing() -> None:
    run = runs(parse(ALL, "all"), "all")[0]
    assert run.spec is not None
    alone = Simulator(
        stack("tcb"),
        process_names(5),
        run.spec.workload,
        network=run.spec.network,
        seed=run.seed,
    )
    counters = alone.run()
    measured = measure(run).measured
    latency, stability = measured["latency_ns"], measured["stability_delay_ns"]
    assert isinstance(latency, Histogram)
    assert isinstance(stability, Histogram)
    assert latency.count == counters.deliveries == measured["deliveries"] == 5 * 10 * 4
    assert stability.count == counters.stables
    assert measured["sends"] == counters.sends
    assert measured["broadcasts"] == counters.broadcasts
    entries, words = measured["entries"], measured["words"]
    assert isinstance(entries, Histogram)
    assert isinstance(words, Histogram)
    assert entries.count == words.count == counters.broadcasts
    work, released = measured["delivery_operations"], measured["released_operations"]
    assert isinstance(work, Histogram)
    assert isinstance(released, Histogram)
    assert work.count == counters.deliveries
    assert 0 < released.count < work.count


def test_the_vectors_of_cbcast_have_an_entry_for_each_member() -> None:
    entries = measure(runs(parse(ALL, "all"), "all")[1]).measured["entries"]
    assert isinstance(entries, Histogram)
    assert entries.counts == {5: 50}


def test_a_probe_looks_only_where_it_is_told() -> None:
    run = runs(parse(ALL, "all"), "all")[0]
    work = measure(run).measured["delivery_cpu_ns"]
    assert isinstance(work, Histogram)
    assert work.count == 10 * 4


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    measured = {"a": Histogram(Counter({1: 3, 5: 2})), "b": 2.5, "c": "{A2,C1}", "d": None, "e": Histogram({})}
    record = records.Record("key", {"nodes": 3, "stack": "tcb", "slow": False}, 7, measured, 1.5)
    records.write(record, tmp_path)
    back = records.read(tmp_path, "key")
    assert (back.parameters, back.seed, back.seconds) == (record.parameters, 7, 1.5)
    assert [back.measured[name] for name in "bcd"] == [2.5, "{A2,C1}", None]
    for name in "ae":
        histogram = back.measured[name]
        assert isinstance(histogram, Histogram)
        assert histogram.counts == measured[name].counts  # type: ignore[union-attr]


def test_a_run_that_fails_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    path = write_tiny(tmp_path, ("latency = {}", "memory = {}"), ('stack = ["tcb", "cbcast"]', 'stack = ["tcb"]'))
    run = runs(load(path), path)[0]
    broken = run._replace(calculate=("weibull_mean",))
    (tmp_path / "runs").mkdir()
    failure = execute(broken, tmp_path / "runs", None)
    assert failure is not None
    assert "weibull_mean" in failure.reason
    assert not [*(tmp_path / "runs").iterdir()]
