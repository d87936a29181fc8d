"""The tail of a journal: killed at any instruction, stopped with its machine, damaged, lost, and without room."""

from __future__ import annotations

import os
import random
import resource
import sys
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from causalcast import JournalError
from causalcast.runtime import journal as journal_module
from causalcast.runtime import tail as tail_module
from causalcast.runtime.inputs import Broadcast, Taken
from causalcast.runtime.journal import Durability, Journal, Owner
from causalcast.runtime.limits import TAIL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import FrameType

    from _typeshed import TraceFunction

    from causalcast.runtime.inputs import AnyInput

OWNER = Owner("default", "ann", ("ann", "bob"), "tcb", 1 << 24)
SMALL = 512
"""Bytes of a tail that is soon full."""


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "TAIL_BYTES", SMALL)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process leaves behind does not depend on what is on the disk."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def tail_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-tail")


def open_at(path: Path, durability: Durability = "interval") -> Journal:
    return Journal(path, OWNER, durability)


def files(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def put(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder / "j"


class Kept(NamedTuple):
    """What a journal gives back."""

    state: bytes
    log: tuple[AnyInput, ...]

    def and_then(self, *entries: AnyInput) -> Kept:
        return Kept(self.state, (*self.log, *entries))


def kept(journal: Journal) -> Kept:
    return Kept(journal.state, tuple(journal.log))


class Model:
    """A journal that is used at random, and what must be in it."""

    def __init__(self, path: Path, seed: int, durability: Durability = "interval") -> None:
        self.path = path
        self.draw = random.Random(seed)
        self.durability = durability
        self.journal = open_at(path, durability)
        self.before = self.after = kept(self.journal)
        """If it is killed now, one of these is there."""
        self.number = 0

    def input(self) -> Broadcast:
        self.number += 1
        return Broadcast(self.draw.randbytes(self.draw.choice((0, 3, 8, 40, 41, 130, 700))), "", self.number)

    def step(self) -> None:
        steps: list[Callable[[], None]] = [self.commit, self.write_ahead, self.take, self.take, self.take, self.secure]
        self.draw.choice([*steps, *steps, *steps, self.replace, self.reopen])()

    def do(self, after: Kept, act: Callable[[], object]) -> None:
        self.after = after
        act()
        self.before = after

    def commit(self) -> None:
        entries = [self.input() for _ in range(self.draw.randrange(1, 4))]
        for entry in entries:
            self.journal.append(entry)
        self.do(self.before.and_then(*entries), self.journal.commit)

    def write_ahead(self) -> None:
        entry = self.input()
        self.do(self.before.and_then(entry), lambda: self.journal.write_ahead(entry))

    def take(self) -> None:
        self.number += 1
        self.do(self.before.and_then(Taken(self.number)), lambda: self.journal.take(self.number))

    def secure(self) -> None:
        self.do(self.before, self.journal.secure)

    def replace(self) -> None:
        state = self.draw.randbytes(30)
        self.do(Kept(state, ()), lambda: self.journal.replace(state))

    def reopen(self) -> None:
        self.do(self.before, self.journal.close)
        assert not tail_of(self.path).exists()
        self.do(self.before, self._open)
        assert kept(self.journal) == self.before

    def _open(self) -> None:
        self.journal = open_at(self.path, self.durability)


@pytest.mark.usefixtures("_small", "_quick")
@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_is_read_again(tmp_path: Path, seed: int) -> None:
    model = Model(tmp_path / "j", seed, "every-message" if seed % 2 else "interval")
    for _ in range(60):
        model.step()
    left = files(tmp_path)
    model.reopen()
    model.journal.close()
    assert files(tmp_path).keys() == {"j"}
    # A kill, instead of the end.
    again = open_at(put(tmp_path / "killed", left))
    assert kept(again) == model.before
    again.close()


@pytest.mark.usefixtures("_small", "_quick")
def test_a_kill_at_any_instruction_leaves_all_that_was_written(tmp_path: Path) -> None:
    """Before every instruction of the interpreter in the writer: what is on the disk then."""
    folder = tmp_path / "lives"
    folder.mkdir()
    found: dict[tuple[tuple[str, bytes], ...], set[Kept]] = {}
    writers = {tail_module.__file__, journal_module.__file__}
    model: Model | None = None

    def trace(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename not in writers:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            state = tuple(sorted(files(folder).items()))
            nothing = Kept(b"", ())
            found.setdefault(state, set()).update((model.before, model.after) if model else (nothing,))
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        model = Model(folder / "j", 5)
        for _ in range(25):
            model.step()
        for act in (model.replace, model.commit, model.take, model.reopen, model.take, model.reopen):
            act()
        model.journal.close()
    finally:
        sys.settrace(None)
    assert len(found) > 80
    for number, (state, expected) in enumerate(found.items()):
        path = put(tmp_path / str(number), dict(state))
        first = open_at(path)
        # One moment may be before one step and after another.
        assert kept(first) in expected
        second = open_at(put(tmp_path / f"{number} again", files(path.parent)))
        assert kept(second) == kept(first)
        assert second.life == first.life + 1
        second.close()
        first.close()


class Interruption:
    """Out of memory before one instruction of what is done inside `with`, of a tail's `take` and `put`."""

    def __init__(self, instruction: int, look: Callable[[], object] = lambda: None) -> None:
        """`look` is called before each of their instructions."""
        self.left = instruction
        self._look = look

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        sys.settrace(None)
        return kind is MemoryError

    def _trace(self, frame: FrameType, event: str, _: Any) -> TraceFunction | None:
        if frame.f_code not in {tail_module.Tail.take.__code__, tail_module.Tail.put.__code__}:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            self._look()
            if not self.left:
                raise MemoryError
        return self._trace


@pytest.mark.usefixtures("_small", "_quick")
def test_an_exception_at_any_instruction_of_a_body_leaves_the_tail_usable(tmp_path: Path) -> None:
    """Takes come behind it, and they are one word each: what the body left there must not be read as records."""
    left = set()
    for instruction in count(1):
        path = tmp_path / str(instruction)
        tail = tail_module.Tail(path, 5, 1)
        assert tail.put(b"first")
        interruption = Interruption(instruction)
        with interruption:
            tail.put(b"\xff" * 100)
        interrupted = interruption.left <= 0
        for time in range(1, 4):
            assert tail.take(time)
        assert tail.put(b"x")
        for time in range(4, 9):
            assert tail.take(time)
        found = tail_module.read(path, 5).entries
        has_body = found[1] == b"\xff" * 100
        assert has_body or interrupted
        assert found == [b"first", *([b"\xff" * 100] if has_body else []), 1, 2, 3, b"x", 4, 5, 6, 7, 8]
        tail.next_volume()
        for time in range(20):
            assert tail.take(time)
        assert tail_module.read(path, 5).entries == list(range(20))
        tail.close()
        left.add((has_body, interrupted))
        if not interrupted:
            break
    assert left == {(False, True), (True, True), (True, False)}
    assert instruction > 50


@pytest.mark.usefixtures("_small", "_quick")
def test_a_kill_after_an_exception_at_any_instruction_leaves_all_that_was_written(tmp_path: Path) -> None:
    seen: set[bytes] = set()
    for instruction in count(1):
        path = tmp_path / str(instruction)
        tail = tail_module.Tail(path, 5, 1)
        assert tail.put(b"first")
        interruption = Interruption(instruction, lambda path=path: seen.add(path.read_bytes()))
        with interruption:
            tail.take(1)
        with interruption:
            tail.put(b"second")
        seen.add(path.read_bytes())
        tail.close()
        if interruption.left > 0:
            break
        again = tmp_path / f"{instruction} again"
        tail = tail_module.Tail(again, 5, 1)
        assert tail.put(b"first")
        with Interruption(instruction):
            tail.take(1)
        tail.next_volume()
        for time in range(2, 8):
            assert tail.take(time)
            assert tail_module.read(again, 5).entries == list(range(2, time + 1))
        tail.close()
    found = set()
    for number, data in enumerate(seen):
        path = tmp_path / f"seen {number}"
        path.write_bytes(data)
        found.add(tuple(tail_module.read(path, 5).entries))
    assert found == {(b"first", *rest) for rest in ((), (1,), (b"second",), (1, b"second"))}


@pytest.mark.usefixtures("_quick")
def test_a_machine_that_stops_loses_nothing_that_was_secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was stored later any part may be on the disk."""
    monkeypatch.setattr(tail_module, "TAIL_BYTES", 2**15)
    path = tmp_path / "lives" / "j"
    path.parent.mkdir()
    draw = random.Random(2)
    journal = open_at(path, "every-message")
    entries: list[AnyInput] = [Broadcast(draw.randbytes(draw.randrange(60)), "", number) for number in range(300)]
    for number, entry in enumerate(entries):
        if draw.random() < 0.5:
            journal.append(entry)
        else:
            entries[number] = Taken(number + 1)
            journal.take(number + 1)
        if number == 150:
            assert journal.secure()
            secured = files(path.parent)
    assert journal.commit()
    later = files(path.parent)
    words = [(one, other) for one, other in zip(_words(secured["j-tail"]), _words(later["j-tail"]), strict=True)]
    monkeypatch.setattr(tail_module, "machine_start", lambda: 1)
    lengths = set()
    for number in range(100):
        share = draw.choice((0.0, 0.1, 0.5, 0.9, 0.99, 1.0))
        mixed = b"".join(other if draw.random() < share else one for one, other in words)
        again = open_at(put(tmp_path / str(number), later | {"j-tail": mixed}))
        assert len(again.log) >= 151
        assert again.log == entries[: len(again.log)]
        lengths.add(len(again.log))
        again.close()
    assert len(lengths) > 3
    journal.close()


def _words(data: bytes) -> list[bytes]:
    return [data[place : place + 8] for place in range(0, len(data), 8)]


@pytest.mark.usefixtures("_small", "_quick")
def test_damage_in_the_tail_is_refused_or_an_earlier_end(tmp_path: Path) -> None:
    path = tmp_path / "lives" / "j"
    path.parent.mkdir()
    journal = open_at(path)
    draw = random.Random(3)
    for number in range(9):
        journal.write_ahead(Broadcast(draw.randbytes(20), "", number))
    journal.take(100)
    expected, left = kept(journal_again(tmp_path, "good", files(path.parent))), files(path.parent)
    assert len(expected.log) == 10
    words: list[str] = []
    for number in range(150):
        bad = bytearray(left["j-tail"])
        place = draw.randrange(len(bad))
        bad[place : place + draw.choice((1, 8))] = draw.randbytes(8)
        folder = tmp_path / str(number)
        damaged = put(folder, left | {"j-tail": bytes(bad[:SMALL])})
        before = files(folder)
        try:
            again = open_at(damaged)
        except JournalError as error:
            words.append(str(error))
            assert files(folder)["j-tail"] == before["j-tail"]
        else:
            # The time of a take at the end is all that nothing covers.
            assert [entry for entry in again.log if not isinstance(entry, Taken)] == list(
                expected.log[: min(9, len(again.log))]
            )
            again.close()
    assert len(words) > 70
    assert all("left as it is" in each for each in words)
    journal.close()


def journal_again(folder: Path, name: str, left: dict[str, bytes]) -> Journal:
    journal = open_at(put(folder / name, left))
    journal.close()
    return journal


def test_what_is_no_tail_of_this_journal_is_refused(tmp_path: Path) -> None:
    """Another's, half of one, other bytes, none where there was one, one that is ahead; and one without its journal."""
    for name in ("mine", "other"):
        (tmp_path / name).mkdir()
    journals = [open_at(tmp_path / name / "j") for name in ("mine", "other")]
    for journal in journals:
        journal.write_ahead(Broadcast(b"1", "", 1))
    begun, other = (files(tmp_path / name) for name in ("mine", "other"))
    journals[0].replace(b"state")
    journals[0].write_ahead(Broadcast(b"2", "", 1))
    mine = files(tmp_path / "mine")
    for journal in journals:
        journal.close()
    without = {name: data for name, data in mine.items() if name != "j-tail"}
    cases = {
        "belongs to another journal": mine | {"j-tail": other["j-tail"]},
        "is no tail of a journal": mine | {"j-tail": b"something else"},
        "is no tail of a journal$": mine | {"j-tail": b""},
        "is damaged: a record is wrong": mine | {"j-tail": mine["j-tail"][:56]},
        "is missing, and with it the end": without,
        "is damaged: 1 is missing": begun | {"j-tail": mine["j-tail"]},
        "j-tail is there without .*: the journal is lost in part": {"j-tail": mine["j-tail"]},
    }
    for number, (words, left) in enumerate(cases.items()):
        path = put(tmp_path / str(number), left)
        with pytest.raises(JournalError, match=words.rstrip("$")):
            open_at(path)
        assert {name: data for name, data in files(path.parent).items() if name.endswith("tail")} == {
            name: data for name, data in left.items() if name.endswith("tail")
        }


def test_a_tail_that_was_moved_already_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "lives").mkdir()
    path = tmp_path / "lives" / "j"
    journal = open_at(path)
    journal.write_ahead(Broadcast(b"1", "", 1))
    old = tail_of(path).read_bytes()
    journal.close()
    tail_of(path).write_bytes(old)
    for _ in range(2):
        again = open_at(path)
        assert kept(again) == Kept(b"", (Broadcast(b"1", "", 1),))
        again.close()


def test_a_disk_without_room_for_a_tail_is_found_at_once(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = open_at(path)
    journal.write_ahead(Broadcast(b"1", "", 1))
    journal.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (TAIL_BYTES // 2, hard))
    try:
        with pytest.raises(JournalError, match="cannot be read: File too large"):
            open_at(path)
        assert not tail_of(path).exists()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each.name for each in tmp_path.iterdir()] == ["j"]
    again = open_at(path)
    assert kept(again) == Kept(b"", (Broadcast(b"1", "", 1),))
    # No sparse file: every block is there.
    assert tail_of(path).stat().st_blocks * 512 >= TAIL_BYTES
    again.close()


@pytest.mark.usefixtures("_small")
def test_a_full_disk_is_noticed_when_the_tail_is_full(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = open_at(path)
    journal._connection.execute("PRAGMA max_page_count = 1")
    error: JournalError | None = None
    written: list[AnyInput] = []
    entry = Broadcast(bytes(130), "", 0)
    while error is None:
        try:
            journal.write_ahead(entry)
            written.append(entry)
        except JournalError as refused:
            error = refused
    assert "make room on its disk" in str(error)
    taken = [journal.take(time_ns) for time_ns in range(1, 100)]
    assert taken[0]
    assert not taken[-1]
    assert all(one >= other for one, other in pairwise(taken))
    assert not journal.commit()
    assert not journal.replace(bytes(10**6))
    journal._connection.execute("PRAGMA max_page_count = 1000000")
    assert journal.secure()
    journal.close()
    again = open_at(path)
    assert again.log == [*written, *(Taken(time_ns) for time_ns in range(1, 100))]
    again.close()


def test_a_wipe_that_is_cut_off_half_way_leaves_no_record(tmp_path: Path) -> None:
    path = tmp_path / "tail"
    tail = tail_module.Tail(path, 7, 1)
    for number in range(20):
        tail.put(b"%d" % number * 40)
    used = tail.used
    tail.close()
    data = bytearray(path.read_bytes())
    first = len(data) - TAIL_BYTES + 5 * 8
    data[first : first + 8] = bytes(8)
    data[first + used // 2 : first + used] = bytes(used - used // 2)
    path.write_bytes(data)
    assert tail_module.read(path, 7).entries == []
