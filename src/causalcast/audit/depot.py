"""Where values wait between stages: in Spark's rows, or in files that all workers see.

Spark copies a large binary value a dozen times on its way from one Python worker to the next. Where workers share a
disk, which in local mode they do and on a cluster they may, values are therefore written to a folder and only their
names travel. The arrays in a value are mapped into memory, not read: who needs a part of it touches that part only, and
workers share it.
"""

from __future__ import annotations

import mmap
import pickle
import socket
import struct
import uuid
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from causalcast.audit.errors import BoxDamaged, FolderNotShared

if TYPE_CHECKING:
    from io import FileIO
    from types import TracebackType

SUFFIX: Final = ".box"
_INLINE: Final = b"\0"
_FILE: Final = b"\1"
_ALIGNMENT: Final = 64
_SMALL: Final = 2**20
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Depot:
    """Turns values into tokens and back. `folder` is `None` where workers share no disk."""

    folder: str | None

    def box(self) -> Box:
        """Return a new place for values: a file of its own, where there is a folder."""
        return Box(self.folder)

    def put(self, value: Any) -> bytes:
        """Return a token for one value."""
        with self.box() as box:
            return box.put(value)

    def get(self, token: bytes) -> Any:
        """Return the value of a token. Its arrays must not be written to.

        Raises:
            FolderNotShared: who wrote it has another folder of this name.
            BoxDamaged: the file is not as it was written.
        """
        if token[:1] == _INLINE:
            return pickle.loads(token[1:])
        assert self.folder is not None
        name, start, length = token[1:].decode().split(":")
        path = Path(self.folder) / name
        try:
            return _read(_mapped(str(path))[int(start) : int(start) + int(length)])
        except (pickle.UnpicklingError, EOFError, LookupError, ValueError, struct.error) as error:
            raise BoxDamaged(f"{path}: is not as it was written: remove {path.parent} and run again") from error


class Box:
    """A file of values that is written once, from its start to its end, by one task."""

    def __init__(self, folder: str | None) -> None:
        self._path = None if folder is None else Path(folder) / f"{uuid.uuid4().hex}{SUFFIX}"
        self._file: FileIO | None = None
        self._size = 0

    def __enter__(self) -> Box:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def put(self, value: Any) -> bytes:
        """Write a value; return its token.

        Raises:
            FolderNotShared: the folder is not here, or not to be written to.
        """
        if self._path is None:
            return _INLINE + pickle.dumps(value, protocol=5)
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        pieces: list[bytes | memoryview] = []
        length = 0
        for part in (memoryview(head), *(buffer.raw() for buffer in buffers)):
            start, end = _aligned(_LENGTH.size), _aligned(part.nbytes)
            pieces += [_LENGTH.pack(part.nbytes).ljust(start, b"\0"), part, bytes(end - part.nbytes)]
            length += start + end
        if self._file is None:
            try:
                self._file = self._path.open("xb", buffering=0)
            except OSError as error:
                raise _not_shared(self._path, error) from error
        # One write where the value is small: ten thousand processes have as many values, of a dozen arrays each.
        for piece in [b"".join(pieces)] if length < _SMALL else pieces:
            view = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
            while view:
                view = view[self._file.write(view) :]
        start, self._size = self._size, self._size + length
        return _FILE + f"{self._path.name}:{start}:{length}".encode()


def place_of(token: bytes) -> tuple[str, int]:
    """Return the file of a token, by its name, and how many bytes of it the value takes."""
    name, _, length = token[1:].decode().split(":")
    return name, int(length)


def _read(whole: memoryview) -> Any:
    parts, at = [], 0
    while at < len(whole):
        (size,) = _LENGTH.unpack_from(whole, at)
        at = _aligned(at + _LENGTH.size)
        parts.append(whole[at : at + size])
        at = _aligned(at + size)
    return pickle.loads(parts[0], buffers=parts[1:])


@lru_cache(maxsize=256)
def _mapped(path: str) -> memoryview:
    try:
        with Path(path).open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise _not_shared(Path(path), error) from error


def _not_shared(path: Path, error: OSError) -> FolderNotShared:
    return FolderNotShared(f"{path.parent} on {socket.gethostname()}: {error.strerror or error}")


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
