"""The journal: what a member must not forget when its process is killed: an SQLite file and its tail. No asyncio.

The file holds a snapshot of the host and, after it, the inputs that have come since, in order: a host that takes up the
snapshot and goes through the inputs again is where it was. Inputs are written to the tail first, see `tail`. A volume
of the tail moves into the file as one row when it is full, when the journal is opened and when it is closed; a snapshot
takes its place. Rows are numbered as the volumes, without gaps, and carry a checksum, since SQLite checks its
write-ahead log but not its pages.

SQLite runs with `synchronous=NORMAL`: a transaction survives the process at once and the machine from the next
checkpoint. The write-ahead log is brought to the disk before a new volume of the tail begins, so that the file is never
behind its tail. A journal that was closed has no tail; one that was not says that it has.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from causalcast.model import CausalcastError
from causalcast.runtime.inputs import AnyInput, Taken
from causalcast.runtime.limits import JOURNAL_BYTES, JOURNAL_INPUTS
from causalcast.runtime.tail import Contents, Tail, TailError, parse, read

FORMAT: Final = 2
WAL_PAGES: Final = 4_096
"""Pages of SQLite's write-ahead log after which they are brought into the file: 16 MiB, about as much as is written
until a snapshot takes its place, so that most is written once.
"""
APPLICATION: Final = int.from_bytes(b"caus", "big")
Durability: TypeAlias = Literal["every-message", "interval", "none"]
DURABILITIES: Final[tuple[str, ...]] = get_args(Durability)


class JournalError(CausalcastError):
    """A journal that cannot be used, or not be written now; it is left as it is."""


class Owner(msgspec.Struct, frozen=True, array_like=True):
    """Whose journal it is."""

    group: str
    name: str
    members: tuple[str, ...]
    stack: str
    frame_limit: int


class Header(msgspec.Struct, frozen=True, array_like=True):
    """What never changes in a journal."""

    owner: Owner
    incarnation: int


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_header: Final = msgspec.msgpack.Decoder(Header).decode
_decode_inputs: Final = msgspec.msgpack.Decoder(list[AnyInput]).decode
_NOTHING: Final = _encode([])
"""Gives takes before it a checksum."""


class Journal:
    """An open journal. Nobody else can open it until it is closed or this process ends."""

    def __init__(self, path: Path, owner: Owner, durability: Durability) -> None:
        """Open the journal at `path`, or begin one there. Raises `JournalError`."""
        self.path = path
        self._durable = durability == "every-message"
        self._batch: list[AnyInput] = []
        self._bytes = 0
        """In rows since the last snapshot."""
        self._inputs = 0
        """Since the last snapshot; takes, which are gone through at once, count by their bytes only."""
        self._unsynced = False
        self._tail_path = path.with_name(f"{path.name}-tail")
        self._tail: Tail | None = None
        self._wal = -1
        try:
            _begin(path, self._tail_path, owner)
            self._connection = _connect(path)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            raise JournalError(f"the journal {path} cannot be opened: {_words(error)}") from None
        try:
            self._load(owner)
        except (OSError, sqlite3.Error, ValueError, TypeError, TailError) as error:
            self._release()
            raise JournalError(f"the journal {path} cannot be read: {_words(error)}; it is left as it is") from None
        except JournalError:
            self._release()
            raise

    def _load(self, owner: Owner) -> None:
        query = self._connection.execute
        if query("PRAGMA application_id").fetchone() != (APPLICATION,):
            raise JournalError(f"{self.path} is no journal of causalcast; it is left as it is")
        version = query("PRAGMA user_version").fetchone()[0]
        if version != FORMAT:
            raise JournalError(f"{self.path} is a journal of version {version}, and this is version {FORMAT}")
        damage = query("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise JournalError(f"the journal {self.path} is damaged: {damage.splitlines()[-1]}; it is left as it is")
        header = _decode_header(self._checked(0, query("SELECT header, checksum FROM journal").fetchone()))
        for what, mine, theirs in zip(Owner.__struct_fields__, _fields(owner), _fields(header.owner), strict=True):
            if mine != theirs:
                raise JournalError(f"the journal {self.path} belongs to another member: {what} {theirs}, not {mine}")
        self.incarnation = header.incarnation
        """Of the member: the same in all its lives."""
        number, data, checksum = query("SELECT number, data, checksum FROM snapshot").fetchone()
        self.state: bytes = self._checked(number, (data, checksum))
        """The snapshot; empty in a journal that has just begun."""
        self.log: list[AnyInput] = []
        """The inputs since the snapshot; whoever has gone through them may clear this."""
        for row, data, checksum in query("SELECT number, data, checksum FROM log ORDER BY number"):
            number += 1
            if row != number:
                raise self._gap(number)
            records = parse(self._checked(number, (data, checksum)), self.incarnation, number)
            if not records.whole or records.end != len(data):
                raise JournalError(f"the journal {self.path} is damaged: {number} is wrong; it is left as it is")
            self._read(records.entries)
            self._bytes += len(data)
        self._number = number
        """Of the last row."""
        left = self._left()
        if left is None:
            self._tail = Tail(self._tail_path, self.incarnation, number + 1)
        else:
            self._read(left.entries)
        self._inputs = sum(not isinstance(entry, Taken) for entry in self.log)
        self._begin_life(left)

    def _left(self) -> Contents | None:
        """The tail that the last life left: empty if it is in the log already, `None` if it left none."""
        has_tail = self._connection.execute("SELECT tail FROM journal").fetchone()[0]
        try:
            left = read(self._tail_path, self.incarnation)
        except FileNotFoundError:
            if has_tail:
                raise JournalError(
                    f"{self._tail_path} is missing, and with it the end of the journal {self.path}: bring it back, "
                    f"or move {self.path} away to begin anew; it is left as it is"
                ) from None
            return None
        if left.volume > self._number + 1:
            raise self._gap(self._number + 1)
        return left if left.volume > self._number else left._replace(data=b"", entries=[])

    def _begin_life(self, left: Contents | None) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        if left is not None and left.data:
            self._insert(left.data)
        execute("UPDATE journal SET life = life + 1, tail = 1")
        execute("COMMIT")
        self.life = int(execute("SELECT life FROM journal").fetchone()[0])
        """1, 2, 3, ... for each time that it was opened."""
        self._wal = os.open(f"{self.path}-wal", os.O_RDONLY)
        os.fdatasync(self._wal)
        if self._tail is None:
            self._tail = Tail(self._tail_path, self.incarnation, self._number + 1)

    def _gap(self, number: int) -> JournalError:
        return JournalError(f"the journal {self.path} is damaged: {number} is missing; it is left as it is")

    def _read(self, entries: list[bytes | int]) -> None:
        for entry in entries:
            if isinstance(entry, int):
                self.log.append(Taken(entry))
            else:
                self.log += _decode_inputs(entry)

    def _checked(self, number: int, row: tuple[bytes, int] | None) -> bytes:
        if row is None or not isinstance(row[0], bytes) or row[1] != zlib.crc32(row[0], number):
            raise JournalError(f"the journal {self.path} is damaged: a checksum is wrong; it is left as it is")
        return row[0]

    # ------------------------------------------------------------------ writing

    @property
    def long(self) -> bool:
        """So much was written since the last snapshot that a new one pays."""
        if self._inputs < JOURNAL_INPUTS and self._bytes < JOURNAL_BYTES:
            return False
        return self._bytes + self._open_tail.used >= len(self.state)

    def append(self, entry: AnyInput) -> None:
        """One more input; written by the next `commit`."""
        self._batch.append(entry)

    def write_ahead(self, entry: AnyInput) -> None:
        """Write down an input that has not happened yet; raises `JournalError` if that fails: it must not happen."""
        self._batch.append(entry)
        if not self.commit():
            self._batch.pop()
            raise JournalError(f"the journal {self.path} cannot be written, so nothing was done; make room on its disk")

    def take(self, time_ns: int) -> bool:
        """Append that the application takes an event, and `commit`."""
        tail = self._tail
        if not self._batch and tail is not None and tail.take(time_ns):
            self._unsynced = True
            return True
        self._batch.append(Taken(time_ns))
        return self.commit()

    def commit(self) -> bool:
        """Write what was appended, so that it survives this process; returns whether nothing is left to write."""
        batch = self._batch
        if not batch:
            return True
        if not self._put(_encode(batch)):
            return False
        self._inputs += len(batch)
        batch.clear()
        return True

    def secure(self) -> bool:
        """As `commit`, and where every message counts it survives the machine too."""
        if not self.commit():
            return False
        if self._durable and self._unsynced:
            tail = self._open_tail
            if self._number == tail.volume:
                return self._next_volume()
            if not tail.is_checked and not self._put(_NOTHING):
                return False
            try:
                tail.sync()
            except OSError:
                return False
            self._unsynced = False
        return True

    def replace(self, state: bytes) -> bool:
        """A snapshot after everything so far takes the place of the log; returns whether that could be written."""
        tail = self._open_tail
        number = tail.volume
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            execute(
                "UPDATE snapshot SET number = ?, data = ?, checksum = ?", (number, state, zlib.crc32(state, number))
            )
            execute("DELETE FROM log")
            execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            return False
        self._number = number
        tail.seal()
        self._batch.clear()
        self.state = state
        self._bytes = self._inputs = 0
        return self._next_volume()

    def _put(self, body: bytes) -> bool:
        """Write one record; returns whether that could be done."""
        tail = self._tail
        assert tail is not None
        if not tail.put(body):
            if not self._move():
                return False
            if not tail.put(body):
                # It is larger than a tail.
                try:
                    self._insert(tail.alone(body))
                except sqlite3.Error:
                    return False
                tail.seal()
                self._next_volume()
        self._unsynced = True
        return True

    def _move(self) -> bool:
        """Make room in the tail; returns whether that could be done."""
        tail = self._open_tail
        if tail.used and self._number < tail.volume:
            try:
                self._insert(tail.records())
            except sqlite3.Error:
                return False
            tail.seal()
        return self._number < tail.volume or self._next_volume()

    def _insert(self, data: bytes) -> None:
        """One more row; raises `sqlite3.Error`."""
        number = self._number + 1
        self._connection.execute("INSERT INTO log VALUES (?, ?, ?)", (number, data, zlib.crc32(data, number)))
        self._number = number
        self._bytes += len(data)

    def _next_volume(self) -> bool:
        """Begin a tail whose predecessor is in the file; returns whether that could be done."""
        try:
            os.fdatasync(self._wal)
        except OSError:
            return False
        self._open_tail.next_volume()
        self._unsynced = False
        return True

    @property
    def _open_tail(self) -> Tail:
        assert self._tail is not None
        return self._tail

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._wal < 0

    def close(self) -> None:
        """Let go of the file; what was not committed is not written."""
        if self._wal < 0:
            return
        has_tail = not self._move()
        if not has_tail:
            try:
                self._connection.execute("UPDATE journal SET tail = 0")
            except sqlite3.Error:
                has_tail = True
        self._release()
        if not has_tail:
            # Only now is it on the disk that there is none.
            self._tail_path.unlink(missing_ok=True)

    def _release(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        self._connection.close()


def _begin(path: Path, tail: Path, owner: Owner) -> None:
    """Make a journal at `path` if nothing is there; complete or not at all. Raises `JournalError`, `OSError`."""
    # The file is not opened to look at it: closing it would let go of the locks that this process has on it.
    if path.exists():
        if path.is_file() and not path.stat().st_size:
            raise JournalError(f"{path} is no journal of causalcast: it is empty; it is left as it is")
        return
    for rest in (Path(f"{path}-wal"), tail):
        if rest.exists():
            raise JournalError(
                f"{rest} is there without {path}: the journal is lost in part; move {rest} away to begin anew"
            )
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    connection = sqlite3.connect(draft, isolation_level=None)
    try:
        header = _encode(Header(owner, secrets.randbits(63) | 1))
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
        connection.execute("CREATE TABLE journal (header BLOB, checksum INTEGER, life INTEGER, tail INTEGER)")
        connection.execute("INSERT INTO journal VALUES (?, ?, 0, 0)", (header, zlib.crc32(header, 0)))
        connection.execute("CREATE TABLE snapshot (number INTEGER, data BLOB, checksum INTEGER)")
        connection.execute("INSERT INTO snapshot VALUES (0, ?, ?)", (b"", zlib.crc32(b"", 0)))
        connection.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, data BLOB, checksum INTEGER)")
        connection.close()
        os.link(draft, path)
    finally:
        connection.close()
        draft.unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=0)
    try:
        # The lock is taken before anything else and kept, so that no other process can read what is half written.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        if connection.execute("PRAGMA application_id").fetchone() == (APPLICATION,):
            connection.execute("PRAGMA journal_mode = WAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _fields(owner: Owner) -> tuple[object, ...]:
    return msgspec.structs.astuple(owner)


def _words(error: Exception) -> str:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return "a process that runs has it open"
    if isinstance(error, UnicodeDecodeError):
        return "it is damaged in the names of its tables"
    if "not a database" in str(error):
        return "it is no journal of causalcast, and is left as it is"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
