"""The journal: what it keeps, what it refuses, and what happens when it cannot be written."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import causalcast
from causalcast import Delivered, JournalError, UnsupportedByStackError
from causalcast.runtime.inputs import Broadcast, Taken
from causalcast.runtime.journal import Journal, Owner
from causalcast.runtime.limits import TAIL_BYTES
from causalcast.trace.reader import read_jsonl
from tests.runtime.cluster import DIALS_US, Application, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from causalcast import Group

OWNER = Owner("default", "ann", ("ann", "bob"), "tcb", 1 << 24)


def begin(path: Path, inputs: int = 0) -> None:
    journal = Journal(path, OWNER, "interval")
    journal.replace(b"state")
    for number in range(inputs):
        journal.append(Broadcast(bytes([number % 256]) * 40, "", number))
        assert journal.commit()
    journal.close()


@pytest.mark.parametrize("durability", ["every-message", "interval"])
def test_what_was_committed_is_there_again(tmp_path: Path, durability: str) -> None:
    path = tmp_path / "j"
    journal = Journal(path, OWNER, durability)  # type: ignore[arg-type]
    assert (journal.state, journal.log, journal.life) == (b"", [], 1)
    incarnation = journal.incarnation
    journal.append(Taken(1))
    assert journal.secure()
    assert journal.replace(b"after one")
    journal.append(Taken(2))
    journal.append(Taken(3))
    assert journal.commit()
    journal.append(Taken(4))
    journal.close()
    again = Journal(path, OWNER, "interval")
    assert (again.state, again.log, again.life) == (b"after one", [Taken(2), Taken(3)], 2)
    assert again.incarnation == incarnation
    again.close()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": "bob"}, "name ann, not bob"),
        ({"group": "other"}, "group default, not other"),
        ({"stack": "cbcast"}, "stack tcb, not cbcast"),
        ({"members": ("ann", "bob", "cat")}, "members"),
        ({"frame_limit": 5}, "frame_limit"),
    ],
)
def test_the_journal_of_another_is_refused(tmp_path: Path, changed: dict[str, object], words: str) -> None:
    path = tmp_path / "j"
    begin(path)
    before = path.read_bytes()
    fields = {name: getattr(OWNER, name) for name in Owner.__struct_fields__} | changed
    with pytest.raises(JournalError, match=f"belongs to another member: {words}"):
        Journal(path, Owner(**fields), "interval")
    assert path.read_bytes() == before


def test_foreign_files_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("nothing of ours")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE journal (header)")
    connection.close()
    for path in (text, empty, other):
        before = path.read_bytes()
        with pytest.raises(JournalError, match="is no journal of causalcast"):
            Journal(path, OWNER, "interval")
        assert path.read_bytes() == before
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path / "nowhere" / "j", OWNER, "interval")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal(tmp_path, OWNER, "interval")


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    begin(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(JournalError, match="version 7, and this is version 2"):
        Journal(path, OWNER, "interval")


def test_the_rest_of_a_lost_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j-wal").write_bytes(b"x")
    with pytest.raises(JournalError, match="lost in part"):
        Journal(tmp_path / "j", OWNER, "interval")


def test_what_is_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = Journal(path, OWNER, "interval")
    with pytest.raises(JournalError, match="a process that runs has it open"):
        Journal(path, OWNER, "interval")
    code = (
        "import sys; from pathlib import Path; from causalcast.runtime.journal import *\n"
        "from causalcast.runtime.inputs import *\n"
        "try: Journal(Path(sys.argv[1]), Owner('default', 'ann', ('ann', 'bob'), 'tcb', 1 << 24), 'interval')\n"
        "except JournalError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert "a process that runs has it open" in done.stdout
    journal.close()
    Journal(path, OWNER, "interval").close()


def test_damage_is_refused_or_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    begin(path, 200)
    good = path.read_bytes()
    journal = Journal(path, OWNER, "interval")
    expected = (journal.state, journal.log)
    journal.close()
    draw = random.Random(1)
    refused = 0
    for _ in range(150):
        bad = bytearray(good)
        if draw.random() < 0.2:
            del bad[draw.randrange(len(bad)) :]
        else:
            start = draw.randrange(len(bad))
            for place in range(start, min(len(bad), start + draw.choice((1, 8, 300)))):
                bad[place] = draw.randrange(256)
        path.write_bytes(bad)
        try:
            journal = Journal(path, OWNER, "interval")
        except JournalError:
            refused += 1
            assert path.read_bytes() == bad
        else:
            assert (journal.state, journal.log) == expected
            journal.close()
    assert refused > 60


@asynccontextmanager
async def opened(tmp_path: Path, name: str, peer: str, listen: str, **options: object) -> AsyncIterator[Group]:
    group = causalcast.open(
        name,
        listen=listen,
        peers={"bob" if name == "ann" else "ann": peer},
        journal=tmp_path / f"{name}.journal",
        **options,  # type: ignore[arg-type]
    )
    async with group:
        yield group


def test_a_member_that_closes_comes_back_and_untaken_events_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, "bob", DIALS_US, "127.0.0.1:0") as bob:
            address = bob.address
            async with opened(tmp_path, "ann", address, "127.0.0.1:0", trace=tmp_path) as ann:
                app = Application(bob)
                first = await ann.broadcast(b"1")
                await app.until_delivered(1)
                for number in range(5):
                    await bob.broadcast(b"%d" % number)
                while sum(isinstance(event, Delivered) for event in ann._running.queue) < 5:
                    await asyncio.sleep(0.01)
                assert isinstance(await anext(ann), Delivered)
            with pytest.raises(StopAsyncIteration):
                await anext(ann)
            await bob.broadcast(b"while ann was away")
            async with opened(tmp_path, "ann", address, "127.0.0.1:0", trace=tmp_path) as ann:
                second = await ann.broadcast(b"2")
                assert first < second
                back = Application(ann)
                await back.until_delivered(5)
                payloads = [event.message.payload for event in back.delivered]
                assert payloads == [b"1", b"2", b"3", b"4", b"while ann was away"]
                assert second.concurrent_with(back.delivered[-1].message.tag)
                await app.until_delivered(2)
            await bob.close()
            await asyncio.wait([app._task, back._task])
        rows = list(read_jsonl(tmp_path / "ann.jsonl"))
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        assert [row.event for row in rows[:4]] == ["broadcast", "deliver", "recover", "broadcast"]

    run(main())


def test_who_lost_its_journal_is_refused_by_one_that_came_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, "bob", DIALS_US, "127.0.0.1:0") as bob:
            address = bob.address
            async with opened(tmp_path, "ann", address, "127.0.0.1:0") as ann:
                await ann.broadcast(b"1")
                assert isinstance(await anext(bob), Delivered)
        (tmp_path / "ann.journal").unlink()
        async with opened(tmp_path, "bob", DIALS_US, address), opened(tmp_path, "ann", address, "127.0.0.1:0") as ann:
            while "has lost its state" not in (ann.links()[0].reason or ""):
                await asyncio.sleep(0.02)

    run(main())


def test_a_full_disk_stops_broadcasts_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            opened(tmp_path, "bob", DIALS_US, "127.0.0.1:0") as bob,
            opened(tmp_path, "ann", bob.address, "127.0.0.1:0") as ann,
        ):
            app = Application(bob)
            await bob.broadcast(b"before")
            while not any(isinstance(event, Delivered) for event in ann._running.queue):
                await asyncio.sleep(0.01)
            journal = ann._running._journal
            assert journal is not None
            journal._connection.execute("PRAGMA max_page_count = 1")
            for _ in range(3):
                with pytest.raises(JournalError, match="nothing was done; make room"):
                    await ann.broadcast(bytes(TAIL_BYTES))
            event = await anext(ann)
            assert isinstance(event, Delivered)
            assert event.message.payload == b"before"
            journal._connection.execute("PRAGMA max_page_count = 1000000")
            tag = await ann.broadcast(b"after")
            assert tag.counter == 1
            await app.until_delivered(1)
            await bob.close()
            await asyncio.wait([app._task])

    run(main())
    assert sum("cannot be written" in record.message for record in caplog.records) == 1


def test_what_cannot_have_a_journal(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedByStackError, match="cannot recover"):
        causalcast.open("ann", listen="127.0.0.1:0", peers={}, stack="tcb-plumtree", journal=tmp_path / "j")
    with pytest.raises(ValueError, match="durability is one of"):
        causalcast.open("ann", listen="127.0.0.1:0", peers={}, journal=tmp_path / "j", durability="often")  # type: ignore[arg-type]
    causalcast.open("ann", listen="127.0.0.1:0", peers={}, journal=tmp_path / "j", durability="none")
    assert not (tmp_path / "j").exists()
