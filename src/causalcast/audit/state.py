"""What one audit leaves for the next: the state folder, and which of it still holds.

A *piece* (a range of a JSON lines file, or row groups of a Parquet file) that was read is known by where it stands and
by its bytes. A later run reads only what is new. It takes over

- a piece, if its file has the same size, times and inode as when it was read; or, of plain JSON lines, if its bytes
  have the same fingerprint, so that a file that grew is read from where it ended and a changed one from the first
  piece that changed;
- the digest of a log, if the log consists of the same pieces;
- the replay of a process, if its digest, its membership and the clocks of its topics are the same;
- what is settled, if all that it was made of is still there and the new rows let it be (`settled`, `continued`).

All of it is taken over or done anew, never patched, so the result is that of a full run. The manifest names all that
counts. It is written to a name of its own and renamed, and only files that no manifest names are removed: a run that
is killed leaves the state of the one before. Another version of the code begins anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa

from causalcast.audit import direct, lines
from causalcast.audit.depot import SUFFIX, place_of
from causalcast.audit.errors import InputUnusable
from causalcast.audit.stages import JSON, PARQUET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from causalcast.audit.ingest import Inputs

MANIFEST: Final = "manifest.json"
_LOCK: Final = "lock"
_SETTLED: Final = 2 * 10**9
"""Nanoseconds after which a file's times tell that it changed: on some file systems they go in steps of two seconds."""


class Piece(msgspec.Struct):
    """A piece that was read; `token` is empty where it has to be read by Spark again."""

    first: int
    last: int
    fingerprint: str = ""
    token: str = ""
    place: int = 0
    rows: int = 0
    bundled: int = 0
    """Rows of the whole bundle."""
    bad: int = 0
    odd: list[str] = []
    """Lines that Spark has to judge each time."""
    joins: list[str] = []
    """The keys of the pieces of the run before that it begins with, and how many rows they have."""
    again: int = 0

    def key(self, path: str) -> str:
        """Return what stands for the piece of a file as it was read."""
        return f"{path}:{self.first}:{self.last}:{self.fingerprint or self.token}"


class Source(msgspec.Struct):
    """A file: what it looked like when it was read at `read_ns`, and its pieces from its start on."""

    look: tuple[int, int, int, int]
    read_ns: int
    pieces: list[Piece]


class Digested(msgspec.Struct):
    """The digest of a process's log; `key` stands for the parts that it was made of.

    `index` and `body` are of many logs: of this one at `place`, which has `share` of all their rows.
    """

    key: str
    index: str
    body: str
    place: int
    share: float


class Replayed(msgspec.Struct):
    """The replay of a process; `key` stands for all that it rests on, `place` and `share` are as in `Digested`."""

    key: str
    result: str = ""
    place: int = 0
    share: float = 0.0


class Manifest(msgspec.Struct):
    """All that counts of a state folder."""

    code: str = ""
    files: dict[str, Source] = {}
    digests: dict[str, Digested] = {}
    replays: dict[str, Replayed] = {}
    settled: str = ""
    """The token of what is settled, see `settled`; empty where nothing is."""


class Planned(msgspec.Struct):
    """A piece that this run needs, and whether it still has to be read."""

    path: str
    kind: int
    piece: Piece

    @property
    def wanted(self) -> bool:
        """Whether it has to be read."""
        return not self.piece.token

    @property
    def key(self) -> str:
        """What stands for it once it was read."""
        return self.piece.key(self.path)

    @property
    def plain(self) -> bool:
        """Whether the piece is a range of bytes."""
        return self.kind == JSON and self.piece.last >= 0


class State:
    """The state folder of one run. As a context it holds the folder's lock, so that two runs never share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = Manifest(code=_code())
        self._lock: IO[str] | None = None
        self._planned: tuple[list[Planned], list[str]] | None = None
        self._lasting: set[str] = set()
        """Boxes that outlast a loss of power."""

    def __enter__(self) -> State:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / _LOCK).open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            busy = f"{self.folder.parent}: another audit is writing there; wait for it, or name another --out"
            raise InputUnusable(busy) from error
        self._load()
        self._remove_unnamed()
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def _load(self) -> None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            found = msgspec.json.decode((self.folder / MANIFEST).read_bytes(), type=Manifest)
            if found.code == self.manifest.code and all((self.folder / name).is_file() for name in _boxes(found)):
                self.manifest = found
                self._lasting = _boxes(found)

    def _remove_unnamed(self) -> None:
        named = _boxes(self.manifest)
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.name not in named:
                path.unlink(missing_ok=True)

    def plan(self, inputs: Inputs) -> tuple[list[Planned], list[str]]:
        """Return the pieces of all files that workers can read themselves, and the files that they cannot.

        Raises:
            InputUnusable: a file cannot be read.
        """
        if self._planned is None:
            self._planned = self._plan(inputs)
        return self._planned

    def _plan(self, inputs: Inputs) -> tuple[list[Planned], list[str]]:
        now = time.time_ns()
        found: list[Planned] = []
        others: list[str] = []
        files: dict[str, Source] = {}
        for path, kind in [*((path, JSON) for path in inputs.json), *((path, PARQUET) for path in inputs.parquet)]:
            if "://" in path:
                others.append(path)
                continue
            look, known = _look(path), self.manifest.files.get(path)
            if known is not None and known.look == look and known.read_ns - max(look[1:3]) > _SETTLED:
                pieces, now_read = known.pieces, known.read_ns
            else:
                now_read = now
                pieces = _parquet(path, look[0]) if kind == PARQUET else _json(path, look[0], known)
            files[path] = Source(look, now_read, pieces)
            found += [Planned(path, kind, piece) for piece in pieces]
        self.manifest.files = files
        return found, others

    def keys(self) -> dict[str, str]:
        """Return the keys of the digests of earlier runs, by process."""
        return {process: known.key for process, known in self.manifest.digests.items()}

    def commit(self, *, last: bool = False) -> None:
        """Make what was done so far count; with `last`, remove what is not needed any more."""
        if last:
            self._leave_out_sparse()
            for source in self.manifest.files.values():
                for piece in source.pieces:
                    piece.joins, piece.again = [], 0
        for name in _boxes(self.manifest) - self._lasting:
            _make_last(self.folder / name)
            self._lasting.add(name)
        part = self.folder / f"{MANIFEST}.tmp"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(self.manifest))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.folder / MANIFEST)
        if last:
            self._remove_unnamed()

    def _leave_out_sparse(self) -> None:
        """Leave out what stands in files most of which is of no use any more: it is done anew when it is needed.

        The work that this repeats is no more than what went out of use before, and so is the room that it saves.
        """
        live: dict[str, float] = {}
        for token, share in _tokens(self.manifest):
            name, length = place_of(token.encode())
            live[name] = live.get(name, 0) + length * share
        sparse = {name for name, size in live.items() if size < (self.folder / name).stat().st_size / 2}
        if not sparse:
            return
        manifest = self.manifest
        for source in manifest.files.values():
            for piece in source.pieces:
                if piece.token and place_of(piece.token.encode())[0] in sparse:
                    piece.token = ""
        manifest.digests = {
            process: known
            for process, known in manifest.digests.items()
            if not sparse & {place_of(known.index.encode())[0], place_of(known.body.encode())[0]}
        }
        manifest.replays = {
            process: known
            for process, known in manifest.replays.items()
            if place_of(known.result.encode())[0] not in sparse
        }


def _tokens(manifest: Manifest) -> Iterator[tuple[str, float]]:
    """Return all tokens, and the share of each value that is in use."""
    for source in manifest.files.values():
        for piece in source.pieces:
            if piece.token:
                yield piece.token, piece.rows / piece.bundled if piece.bundled else 1.0
    for digested in manifest.digests.values():
        yield digested.index, digested.share
        yield digested.body, digested.share
    for replayed in manifest.replays.values():
        yield replayed.result, replayed.share
    if manifest.settled:
        yield manifest.settled, 1.0


def _boxes(manifest: Manifest) -> set[str]:
    return {place_of(token.encode())[0] for token, _ in _tokens(manifest)}


def _make_last(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _code() -> str:
    """Return what stands for the code that makes and reads the state."""
    digest = blake2b(f"{np.__version__} {pa.__version__}".encode(), digest_size=16)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _look(path: str) -> tuple[int, int, int, int]:
    try:
        stat = Path(path).stat()
    except OSError as error:
        raise InputUnusable(f"{path}: cannot be read: {error.strerror or error}") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _parquet(path: str, size: int) -> list[Piece]:
    return [Piece(groups.first, groups.last) for groups in direct.row_groups(path, size)]


def _json(path: str, size: int, known: Source | None) -> list[Piece]:
    if path.endswith(".gz"):
        return [Piece(0, -1)]
    try:
        kept = _unchanged(path, size, known.pieces) if known is not None else []
        joined = _join_small(kept, size)
        start = joined[0].first if joined else kept[-1].last if kept else 0
        new = [Piece(piece.first, piece.last) for piece in lines.cut(path, start, size)]
        if joined:
            new[0].joins, new[0].again = [piece.key(path) for piece in joined], sum(piece.rows for piece in joined)
        return [*kept, *new]
    except OSError as error:
        raise InputUnusable(f"{path}: cannot be read: {error.strerror or error}") from error


def _unchanged(path: str, size: int, pieces: Iterable[Piece]) -> list[Piece]:
    """Return the pieces from the first on that the file still has, each with its last line whole."""
    kept: list[Piece] = []
    for piece in pieces:
        if piece.last > size or not piece.fingerprint:
            break
        data = lines.fetch(lines.Lines(path, piece.first, piece.last))
        if lines.fingerprint(data) != piece.fingerprint or not data.endswith(b"\n"):
            break
        kept.append(piece)
    return kept


def _join_small(kept: list[Piece], size: int) -> list[Piece]:
    """Drop last pieces that are no larger than what follows them, so that no file falls into many; return them.

    Sizes then halve from piece to piece: a byte is read again as often as what follows it doubles.
    """
    start = kept[-1].last if kept else 0
    joined: list[Piece] = []
    while kept and kept[-1].last - kept[-1].first <= size - start and size - kept[-1].first <= lines.PIECE:
        joined.insert(0, kept.pop())
        start = joined[0].first
    return joined


def record(planned: Planned, fact: Mapping[str, object]) -> None:
    """Note what a worker says of a piece that it read."""
    piece = planned.piece
    piece.fingerprint = str(fact["fingerprint"] or "")
    if not fact["odd"]:
        token = fact["bundle"]
        assert isinstance(token, bytes)
        piece.token = token.decode()
        for name in ("place", "rows", "bundled", "bad"):
            value = fact[name]
            assert isinstance(value, int)
            setattr(piece, name, value)
        left = fact["left"]
        assert isinstance(left, list)
        piece.odd = left
