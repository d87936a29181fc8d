"""The demonstrations with many processes, made small: real processes, and the audit of what they wrote."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from causalcast.audit import pipeline
from causalcast.trace import ParquetWriter, read_jsonl
from demo import crowd, newsroom
from demo.processes import DemoError
from tests.audit import unsparked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from causalcast.audit.result import AuditResult


def audited(traces: Path, crashed: Sequence[str] = ()) -> AuditResult:
    """The audit's own stages, run in this process."""
    everything = traces.parent / "everything.parquet"
    with ParquetWriter(everything) as out:
        for path in sorted(traces.glob("*.jsonl")):
            for event in read_jsonl(path):
                out.write(event)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "spark_session", unsparked.session)
        return pipeline.run_audit([everything], crashed=crashed)


def test_eight_processes_of_which_some_join_leave_and_are_killed_agree(tmp_path: Path) -> None:
    plan = crowd.Plan(members=6, joins=2, leaves=1, kills=1, seconds=2.0, interval_seconds=0.2)
    news: list[str] = []
    outcome = asyncio.run(crowd.perform(plan, tmp_path, news.append))
    assert (outcome.killed, outcome.joined, len(outcome.left)) == (["m00"], ["m06", "m07"], 1)
    assert "m00 is killed" in news
    result = audited(outcome.traces, outcome.killed)
    assert (result.verdict, result.counts) == ("pass", {})
    assert len(result.processes) == 8
    # Not what the killed one had said to nobody yet.
    assert result.messages >= outcome.messages - 1
    assert result.deliveries > 2 * result.messages


def test_a_member_that_cannot_begin_ends_the_run_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(crowd, "free_ports", lambda number: [taken.getsockname()[1]] * number)
        plan = crowd.Plan(members=1, joins=0, leaves=0, kills=0)
        with pytest.raises(DemoError, match=r"m00 ended with 1: .*in use"):
            asyncio.run(crowd.perform(plan, tmp_path, str))


def test_topics_whose_subscribers_come_and_go_pass_the_audit(tmp_path: Path) -> None:
    plan = newsroom.Plan(members=4, topics=3, subscribers=2, seconds=2.0, publications=80, changes=10)
    outcome = asyncio.run(newsroom.perform(plan, tmp_path, str))
    result = audited(outcome.traces)
    assert (result.verdict, result.counts) == ("pass", {})
    assert (result.messages, result.deliveries) == (80, outcome.delivered)
    assert outcome.delivered >= 80


def test_the_steps_of_a_newsroom_keep_the_number_of_subscribers_and_the_law() -> None:
    plan = newsroom.Plan()
    steps = newsroom.steps(plan)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    inside: dict[str, set[str]] = {}
    published = dict.fromkeys((f"t{number}" for number in range(plan.topics)), 0)
    for step in steps:
        members = inside.setdefault(step.topic, set())
        if step.word == "sub":
            assert step.member not in members
            members.add(step.member)
            if step.instead_of:
                members.remove(step.instead_of)
        else:
            assert step.member in members
            published[step.topic] += 1
    assert {len(members) for members in inside.values()} == {plan.subscribers}
    assert sum(published.values()) == plan.publications
    assert published["t0"] > 2 * published["t5"]


def test_the_events_of_a_crowd_are_those_of_its_plan() -> None:
    plan = crowd.Plan()
    events = plan.events()
    assert sorted(set(events)) == ["join", "kill", "leave"]
    assert (events.count("join"), events.count("leave"), events.count("kill")) == (plan.joins, plan.leaves, plan.kills)
    assert len(plan.names) == 40
