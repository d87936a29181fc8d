"""The tail of a journal: what was written last, in a mapped file that a killed process leaves as it was. No asyncio.

A store into the mapped file costs no system call and is the kernel's at once, whatever becomes of the process. The file
is made of zeros that are on the disk before it is used: a full disk is found then, and never by a store.

The file is a header, then records in order, then a zero. All is in words of 8 bytes, in the order of the machine's
bytes. The header: a magic word, the incarnation of the member, the start of the machine, their checksum, and the
volume, which carries its own. A record is either of these:

* a take: one word, the time with the top bit set;
* a body: its length, its checksum, its bytes up to a whole word. The checksum goes on from the one before, over the
  takes in between and the bytes. The length is stored last, so a body is there as a whole or not at all.

A tail is filled, kept elsewhere by its owner, and begun anew as the next volume: it is wiped, and then its volume
rises. What is kept elsewhere already is known by its volume. Within one start of the machine the kernel has every
store, so a record that is wrong is damage. If the machine was started since, pages may have been lost in any order:
then the records end where the checksums do.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import zlib
from sys import byteorder
from typing import TYPE_CHECKING, Final, NamedTuple

from causalcast.model import CausalcastError
from causalcast.runtime.limits import TAIL_BYTES

if TYPE_CHECKING:
    from pathlib import Path

_WORD: Final = 8
_HEADER: Final = struct.Struct("=8sQQQQ")
_MAGIC: Final = b"cctail 1"
_VOLUME: Final = 4
"""Word of the header."""
_FIRST: Final = 5
"""Word of the first record."""
_PRELUDE: Final = 2
"""Words of a body before its bytes."""
_TAKE: Final = 1 << 63
_CHECKED: Final = 32
"""The checksum of the volume is in the upper bits of its word."""


class TailError(CausalcastError):
    """A tail that cannot be used; it is left as it is."""


class Records(NamedTuple):
    """What can be read of some records."""

    entries: list[bytes | int]
    """Bodies, and the times of takes."""
    end: int
    """Byte at which they end."""
    whole: bool
    """Nothing is wrong, and a zero or nothing follows."""


class Contents(NamedTuple):
    """A tail that was left."""

    volume: int
    data: bytes
    """The records as they are kept elsewhere."""
    entries: list[bytes | int]


class Tail:
    """A tail that is written."""

    def __init__(self, path: Path, incarnation: int, volume: int) -> None:
        """Put a new one at `path`, whatever is there; complete or not at all. Raises `OSError`."""
        self.volume = volume
        self._incarnation = incarnation
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        self._file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            # Written and not only reserved: to sync a store later then needs nothing of the file system's own.
            _write(self._file, _header(incarnation, volume).ljust(TAIL_BYTES, b"\0"))
            os.fsync(self._file)
            self._map = mmap.mmap(self._file, TAIL_BYTES)
            draft.replace(path)
            _sync_folder(path)
        except BaseException:
            os.close(self._file)
            draft.unlink(missing_ok=True)
            raise
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self._room = len(self._words)
        self._torn = False
        """An exception came while a body was written: what is behind the last record is unknown."""
        self._begin()

    def _begin(self) -> None:
        self._place = _FIRST
        self._last = self._room - 1
        self._checked = _FIRST, _seed(self._incarnation, self.volume)
        """Up to where the last checksum covers all, and that. In one object, so that both change at once."""

    @property
    def used(self) -> int:
        """Bytes of the records."""
        return (self._place - _FIRST) * _WORD

    def take(self, time_ns: int) -> bool:
        """One more take; returns whether there was room."""
        if self._torn:
            self._mend()
        place = self._place
        if place >= self._last:
            return False
        # Behind it there is a zero.
        self._words[place] = _TAKE | time_ns
        self._place = place + 1
        return True

    def put(self, body: bytes) -> bool:
        """One more body, which is not empty; returns whether there was room."""
        if self._torn:
            self._mend()
        place = self._place
        length = len(body)
        start = (place + _PRELUDE) * _WORD
        end = place + _PRELUDE + (length + _WORD - 1) // _WORD
        if end > self._last:
            return False
        words = self._words
        checked = end, zlib.crc32(body, self._until(place))
        self._torn = True
        # An exception may have left a take there.
        words[place] = 0
        self._bytes[start : start + length] = body
        words[place + 1] = checked[1]
        words[end] = 0
        words[place] = length
        self._checked = checked
        self._place = end
        self._torn = False
        return True

    def _mend(self) -> None:
        """Wipe what is behind the last record. A body counts if its checksum does."""
        place = self._place = max(self._place, self._checked[0])
        self._words[place] = 0
        self._bytes[place * _WORD :] = bytes((self._room - place) * _WORD)
        self._torn = False

    @property
    def is_checked(self) -> bool:
        """Whether a checksum covers all records: takes at the end have none."""
        return self._checked[0] == self._place

    def _until(self, place: int) -> int:
        """The checksum up to `place`."""
        checked, checksum = self._checked
        if checked == place:
            return checksum
        return zlib.crc32(self._bytes[checked * _WORD : place * _WORD], checksum)

    def records(self) -> bytes:
        """All of them, to be kept elsewhere under the number `volume`."""
        return bytes(self._bytes[_FIRST * _WORD : self._place * _WORD])

    def alone(self, body: bytes) -> bytes:
        """What `records` would give if `body` were the only one, however large."""
        words = struct.pack("=QQ", len(body), zlib.crc32(body, _seed(self._incarnation, self.volume)))
        return words + body + bytes(-len(body) % _WORD)

    def seal(self) -> None:
        """What is in it is kept elsewhere: there is no room before the next volume."""
        self._last = 0

    def next_volume(self) -> None:
        """Begin anew; what was in it must be kept elsewhere."""
        # An exception may have left a take behind the last record.
        start, end = _FIRST * _WORD, (self._place + 1) * _WORD
        # First, since nobody says in which order the rest is wiped: with this word at zero there are no records.
        self._words[_FIRST] = 0
        self._bytes[start:end] = bytes(end - start)
        self._words[_VOLUME] = _volume_word(self._incarnation, self.volume + 1)
        self.volume += 1
        self._begin()

    def sync(self) -> None:
        """Bring it to the disk; raises `OSError`."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Let go of the file."""
        self._words.release()
        self._bytes.release()
        self._map.close()
        os.close(self._file)


def read(path: Path, incarnation: int) -> Contents:
    """A tail that was left, of the journal of `incarnation`. Raises `TailError` and `OSError`."""
    data = path.read_bytes()
    if len(data) < _FIRST * _WORD or len(data) % _WORD or not data.startswith(_MAGIC):
        raise TailError(f"{path} is no tail of a journal")
    _, theirs, start, checksum, volume_word = _HEADER.unpack_from(data)
    if checksum != zlib.crc32(data[: (_VOLUME - 1) * _WORD]):
        raise TailError(f"{path} is damaged: a checksum is wrong")
    if theirs != incarnation:
        raise TailError(f"{path} belongs to another journal")
    volume = volume_word & (1 << _CHECKED) - 1
    if volume_word != _volume_word(incarnation, volume):
        raise TailError(f"{path} is damaged: a checksum is wrong")
    restarted = start != machine_start()
    body = data[_FIRST * _WORD :]
    records = parse(body, incarnation, volume, only_checked=restarted)
    if not records.whole and not restarted:
        raise TailError(f"{path} is damaged: a record is wrong")
    return Contents(volume, body[: records.end], records.entries)


def parse(data: bytes, incarnation: int, volume: int, *, only_checked: bool = False) -> Records:
    """The records in `data`; with `only_checked` up to the last body that is right."""
    entries: list[bytes | int] = []
    checksum = _seed(incarnation, volume)
    words = memoryview(data).cast("Q")
    room = len(words)
    place = checked = checked_entries = 0
    whole = True
    while place < room and (word := words[place]):
        if word & _TAKE:
            entries.append(word ^ _TAKE)
            place += 1
            continue
        end = place + _PRELUDE + (word + _WORD - 1) // _WORD
        if end > room:
            whole = False
            break
        start = (place + _PRELUDE) * _WORD
        body = data[start : start + word]
        follows = zlib.crc32(body, zlib.crc32(data[checked * _WORD : place * _WORD], checksum))
        if follows != words[place + 1]:
            whole = False
            break
        entries.append(body)
        checksum = follows
        place = checked = end
        checked_entries = len(entries)
    if only_checked:
        del entries[checked_entries:]
        place = checked
    return Records(entries, place * _WORD, whole)


def machine_start() -> int:
    """Another number for each start of the machine; 0 where it does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return zlib.crc32(file.read().encode())
    except OSError:
        return 0


def _header(incarnation: int, volume: int) -> bytes:
    fields = _MAGIC + incarnation.to_bytes(_WORD, byteorder) + machine_start().to_bytes(_WORD, byteorder)
    return fields + struct.pack("=QQ", zlib.crc32(fields), _volume_word(incarnation, volume))


def _seed(incarnation: int, volume: int) -> int:
    return zlib.crc32(struct.pack("=QQ", incarnation, volume))


def _volume_word(incarnation: int, volume: int) -> int:
    return volume | _seed(incarnation, volume) << _CHECKED


def _write(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(path: Path) -> None:
    """Bring to the disk that `path` is there."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
