"""A stand-in for a Spark session that runs the audit's own stages in this process, one partition at a time.

It knows what the pipeline asks of Spark where workers read all files themselves, and nothing else.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa


class Row(dict[str, Any]):
    def asDict(self) -> dict[str, Any]:
        return dict(self)


class Frame:
    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches = batches

    def mapInArrow(self, stage: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str) -> Frame:
        return Frame(list(stage(iter(self.batches))))

    def repartition(self, *_: object) -> Frame:
        return self

    def persist(self, _: object) -> Frame:
        return self

    def unpersist(self) -> None:
        pass

    def select(self, *names: str) -> Frame:
        return Frame([batch.select(list(names)) for batch in self.batches])

    def unionByName(self, other: Frame) -> Frame:
        return Frame([*self.batches, *other.batches])

    def collect(self) -> list[Row]:
        return [Row(row) for batch in self.batches for row in batch.to_pylist()]


class Session:
    sparkContext = SimpleNamespace(master="local[1]", defaultParallelism=1)  # noqa: N815
    conf = SimpleNamespace(get=lambda _: "1")

    def createDataFrame(self, table: pa.Table) -> Frame:
        return Frame(table.to_batches())


@contextlib.contextmanager
def session(_: str | None) -> Iterator[Session]:
    yield Session()
