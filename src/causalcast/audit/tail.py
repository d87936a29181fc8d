"""New lines of JSON lines files that others are writing, as a source for Structured Streaming.

Spark's own file source never looks again at a file that it has read. This one remembers a byte offset per file, in
Spark's checkpoint, and reads whole lines from there: a line without its end waits. Files must only grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from causalcast.audit.files import all_below

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINES: Final = (".jsonl", ".ndjson")
_NO_TEXT: Final = "\ufffd"
"""Put before a line that is no UTF-8, so that it is no row."""
BYTES_PER_STEP: Final = 8 * 2**20
"""Of one file, in one step: what a step holds is bounded by this and the number of files."""


class TraceTail(DataSource):
    """The format `causalcast-tail`; its one option is `path`, a folder."""

    @classmethod
    def name(cls) -> str:
        """Return the name under which Spark knows it."""
        return "causalcast-tail"

    def schema(self) -> str:
        """Return the columns: one row per line, with the file that it stands in."""
        return "value string, file string"

    def streamReader(self, schema: Any) -> _Reader:  # noqa: N802 - Spark's name
        """Return the reader that Spark drives."""
        return _Reader(self.options["path"])


@dataclass
class _Piece(InputPartition):
    path: str
    start: int
    end: int


class _Reader(DataSourceStreamReader):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.at: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        reached = dict(start)
        for path in followed(self.folder):
            reached[str(path)] = whole_lines(path, reached.get(str(path), 0))
        return reached

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        pieces = [_Piece(path, start.get(path, 0), reached) for path, reached in sorted(end.items())]
        return [piece for piece in pieces if piece.end > piece.start]

    def read(self, partition: InputPartition) -> Iterator[tuple[str, str]]:
        assert isinstance(partition, _Piece)
        with open(partition.path, "rb") as file:
            file.seek(partition.start)
            data = file.read(partition.end - partition.start)
        for line in data.split(b"\n"):
            if line.strip():
                yield _text(line), partition.path


def followed(folder: Path) -> list[Path]:
    """Return the files in a folder that are followed.

    Raises:
        OSError: a folder cannot be listed.
    """
    return [
        path
        for path in all_below(folder)
        if path.name.endswith(LINES)
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        and path.is_file()
    ]


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return f"{_NO_TEXT}{line.decode(errors='replace')}"  # two names must not become one


def whole_lines(path: Path, start: int) -> int:
    """Return the offset after the last whole line, at most `BYTES_PER_STEP` after `start` if a line ends there."""
    with path.open("rb") as file:
        file.seek(start)
        data = file.read(BYTES_PER_STEP)
        while b"\n" not in data:
            more = file.read(BYTES_PER_STEP)
            if not more:
                return start
            data += more
    return start + data.rindex(b"\n") + 1
