"""What a group writes to its trace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import causalcast
from causalcast import Delivered
from causalcast.runtime.frames import HEADER
from causalcast.trace import TraceEvent, read_jsonl
from tests.runtime.cluster import applications, members, run

if TYPE_CHECKING:
    from pathlib import Path


class ListSink:
    def __init__(self) -> None:
        self.rows: list[TraceEvent] = []
        self.closed = False

    def write(self, event: TraceEvent) -> None:
        self.rows.append(event)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class FullDisk(ListSink):
    def write(self, event: TraceEvent) -> None:
        raise OSError("no space left")


def test_the_trace_has_every_event_in_the_order_in_which_the_application_saw_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with members("abc", trace=tmp_path) as groups, applications(groups) as apps:
            for number in range(20):
                for group in groups:
                    await group.broadcast(bytes(number))
            for app in apps:
                await app.until_stable(60)

    run(main())
    for name in "abc":
        rows = list(read_jsonl(tmp_path / f"{name}.jsonl"))
        assert {row.process for row in rows} == {name}
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        kinds = [row.event for row in rows]
        assert (kinds.count("broadcast"), kinds.count("deliver"), kinds.count("stable")) == (20, 40, 60)
        assert [row.payload_bytes for row in rows if row.event == "broadcast"] == list(range(20))
        assert all(row.context is not None for row in rows if row.event == "broadcast")
        assert all(row.time_ns for row in rows)


def test_an_event_is_traced_when_it_is_taken_not_when_it_is_queued() -> None:
    sink = ListSink()

    async def main() -> None:
        async with members("ab", trace=sink) as (a, b):
            await a.broadcast(b"x")
            while not b.untaken:
                await asyncio.sleep(0.01)
            await b.broadcast(b"y")
            async for event in b:
                assert isinstance(event, Delivered)
                break

    run(main())
    assert [(row.process, row.event, row.origin) for row in sink.rows] == [
        ("a", "broadcast", "a"),
        ("b", "broadcast", "b"),
        ("b", "deliver", "a"),
    ]
    assert sink.closed


def test_overhead_is_what_one_copy_takes_on_the_wire_beyond_the_payload() -> None:
    sink = ListSink()

    async def main() -> None:
        async with members("ab", trace=sink) as (a, _):
            await a.broadcast(bytes(1000))
            (link,) = a._running.mesh.links.values()
            (frame,) = [*link._sent, *link._unsent]
            assert sink.rows[0].overhead_bytes == len(frame) - 1000
            assert sink.rows[0].overhead_bytes > HEADER.size

    run(main())


def test_a_stack_without_exact_tags_traces_no_context() -> None:
    sink = ListSink()

    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}, stack="unordered", trace=sink) as a:
            await a.broadcast(b"x")

    run(main())
    assert sink.rows[0].context is None


def test_a_trace_that_cannot_be_written_ends_and_the_group_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}, trace=FullDisk()) as a:
            await a.broadcast(b"x")
            tag = await a.broadcast(b"y")
            assert tag.counter == 2

    with pytest.raises(OSError, match="no space left"):
        run(main())
    assert caplog.text.count("a: the trace ends here: no space left") == 1


def test_the_trace_is_readable_while_the_group_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}, trace=tmp_path) as a:
            await a.broadcast(b"x")
            while not (tmp_path / "a.jsonl").read_text():
                await asyncio.sleep(0.05)

    run(main(), 5)


def test_a_member_that_cannot_have_its_address_leaves_the_trace_of_the_one_that_has_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}, trace=tmp_path) as a:
            await a.broadcast(b"x")
            with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
                await causalcast.open("a", listen=a.address, peers={}, trace=tmp_path).__aenter__()
            await a.broadcast(b"y")

    run(main(), 5)
    assert [row.counter for row in read_jsonl(tmp_path / "a.jsonl") if row.event == "broadcast"] == [1, 2]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_member_that_starts_again_keeps_the_trace_of_its_earlier_life(tmp_path: Path) -> None:
    """USERS 3: numbers start again with a new life; what the one before did must not vanish."""

    async def main() -> None:
        for payload in (b"1", b"22", b"333"):
            async with causalcast.open("a", listen="127.0.0.1:0", peers={}, trace=tmp_path) as a:
                await a.broadcast(payload)

    run(main(), 5)
    lives = [next(read_jsonl(tmp_path / f"a.jsonl{suffix}")).payload_bytes for suffix in (".1", ".2", "")]
    assert lives == [1, 2, 3]


def test_a_trace_that_cannot_be_opened_frees_the_address(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def main() -> None:
        async with causalcast.open("a", listen="127.0.0.1:0", peers={}) as a:
            address = a.address
        with pytest.raises(FileExistsError):
            await causalcast.open("a", listen=address, peers={"b": "127.0.0.1:1"}, trace=tmp_path / "file").__aenter__()
        async with causalcast.open("a", listen=address, peers={}):
            pass

    run(main(), 5)
