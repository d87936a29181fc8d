"""Watching the traces of running members: `causalcast watch`.

Structured Streaming reads and checks new lines (`tail`, `ingest`), and hands each step to the window on the driver.
The window is written to the state folder before a step counts as done, with the step's number, and the step's findings
before that: a step that is repeated after a crash finds its own number and changes nothing.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from causalcast.audit.carried import find_carried
from causalcast.audit.errors import InputUnusable
from causalcast.audit.files import WATCH_STATE, said
from causalcast.audit.session import spark_session
from causalcast.audit.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from causalcast.audit.result import Finding

TRIGGER: Final = "1 second"
_PATIENCE: Final = 10.0
"""Seconds to wait for Spark's report of a step. Without it the batch audit has the last word."""
_NO_STATE: Final = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError)
"""What `pickle` raises where a file is cut or was written by other code."""


@dataclass(slots=True)
class Progress:
    """What a watcher shows after each step."""

    step: int = -1
    events: int = 0
    bad: int = 0
    window: Window = field(default_factory=Window)
    fresh: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    """How long the step took: findings are about this late."""
    unread: list[str] = field(default_factory=list)
    """What the batch audit will find in the folder, when `run` has ended, and no step has read."""

    @property
    def needs_batch(self) -> list[str]:
        """Why the window's verdict is not the last word; empty in ordinary runs."""
        bad = [f"{self.bad} rows could not be used"] if self.bad else []
        return [*bad, *self.unread, *self.window.open_questions]


class Watcher:
    """Follows one folder; `run` ends when `stop` says so."""

    def __init__(self, folder: Path, state: Path | None = None, crashed: Sequence[str] = ()) -> None:
        if not folder.is_dir():
            raise InputUnusable(f"{folder}: no such folder; watch needs the folder that the members write to")
        self.folder = folder
        self.state = state or folder / WATCH_STATE
        if _is_followed(self.state.resolve(), folder.resolve()):
            raise InputUnusable(f"{self.state}: lies among the traces and would be followed: name another --state")
        self.progress = Progress(window=Window(crashed=frozenset(crashed)))
        self._refused: InputUnusable | None = None
        """Why a step could not be done; Spark would hand on its text only, inside of its own."""
        self._load()

    def run(self, show: Callable[[Progress], None], stop: Callable[[float], bool]) -> Progress:
        """Follow the traces and call `show` after each step.

        `stop` is asked several times a second, with the seconds for which no line came; once it says so, what was
        found is returned.
        """
        from causalcast.audit.tail import TraceTail  # noqa: PLC0415 - needs PySpark

        with spark_session(None) as session:
            session.conf.set("spark.sql.shuffle.partitions", "1")
            session.dataSource.register(TraceTail)
            lines = session.readStream.format(TraceTail.name()).option("path", str(self.folder.resolve())).load()

            def step(frame: DataFrame, number: int) -> None:
                self._step(frame, number)
                show(self.progress)

            checkpoint = self.state.resolve() / "checkpoint"
            checkpoint.mkdir(parents=True, exist_ok=True)
            stream = lines.writeStream.foreachBatch(step).option("checkpointLocation", str(checkpoint))
            query = stream.trigger(processingTime=TRIGGER).start()
            try:
                busy = time.monotonic()
                while query.isActive and not stop(time.monotonic() - busy):
                    if query.lastProgress is None or query.status["isDataAvailable"]:
                        busy = time.monotonic()
                    time.sleep(0.2)
                error = query.exception()
                if self._refused is not None:
                    raise self._refused
                if error is not None:
                    raise InputUnusable(f"{self.folder}: cannot be followed: {said(str(error))}")
                self.progress.unread = self._unread(self._reported(query))
            finally:
                query.stop()
        return self.progress

    def _reported(self, query: StreamingQuery) -> Mapping[str, Any] | None:
        """Return what Spark reports of the last step; it does so a moment after the step."""
        patience = time.monotonic() + _PATIENCE
        reported: Mapping[str, Any] | None = query.lastProgress
        while self.progress.step > (-1 if reported is None else reported["batchId"]):
            if not query.isActive or time.monotonic() > patience:
                break
            time.sleep(0.1)
            reported = query.lastProgress
        return reported

    def _unread(self, reported: Mapping[str, Any] | None) -> list[str]:
        """Compare what is in the folder with how far the last step that Spark reports came in each file."""
        from causalcast.audit import ingest  # noqa: PLC0415 - see run

        offsets = json.loads(reported["sources"][0]["endOffset"] or "{}") if reported is not None else {}
        reached = {os.path.realpath(path): offset for path, offset in offsets.items()}
        carried = find_carried([self.folder])
        try:
            inputs = ingest.find_inputs([self.folder])
        except InputUnusable as error:
            return [str(error)]
        other = [*inputs.unfinished, *map(str, carried.clocks), *map(str, carried.rejected)]
        behind = [path for path, size in inputs.sizes.items() if size != reached.get(path, 0)]
        gone = [path for path in reached if path not in inputs.sizes]
        return [
            *(f"{path}: it has what was not read while watching" for path in [*other, *behind]),
            *(f"{path}: it is gone" for path in gone),
        ]

    def findings(self) -> list[dict[str, Any]]:
        """Return all findings that were written, in their order."""
        files = sorted(self.state.glob("findings-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]

    def _step(self, frame: DataFrame, number: int) -> None:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - see run

        from causalcast.audit import bundles, ingest  # noqa: PLC0415

        if number <= self.progress.step:
            return
        began = time.monotonic()
        rows = ingest.parse_lines(frame).persist()
        try:
            bad_rows = rows.where(F.col("reason").isNotNull())
            bad = bad_rows.count()
            if bad:
                self._refuse_other_schema(bad_rows)
            table = ingest.usable(rows).toArrow()
        finally:
            rows.unpersist()
        window = self.progress.window
        fresh = window.advance(bundles.split(table) if table.num_rows else ())
        self.progress = Progress(
            step=number,
            events=self.progress.events + table.num_rows,
            bad=self.progress.bad + bad,
            window=window,
            fresh=fresh,
            seconds=time.monotonic() - began,
        )
        self._save()

    def _refuse_other_schema(self, bad: DataFrame) -> None:
        from causalcast.audit import ingest  # noqa: PLC0415

        try:
            for row in bad.select("file", "reason").distinct().orderBy("file", "reason").collect():
                ingest.refuse_other_schema(row["file"], row["reason"])
        except InputUnusable as error:
            self._refused = error
            raise

    def _load(self) -> None:
        file = self.state / "window.pickle"
        if file.is_file():
            crashed = self.progress.window.crashed
            try:
                self.progress = pickle.loads(file.read_bytes())
                self.progress.window.crashed |= crashed
            except _NO_STATE as error:
                raise InputUnusable(f"{file}: no state of this version: remove {self.state} to start afresh") from error

    def _save(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        found = [
            {name: getattr(finding, name) for name in ("property", "kind", "process", "message", "cause", "detail")}
            for finding in self.progress.fresh
        ]
        if found:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in found)
            _write(self.state / f"findings-{self.progress.step:09d}.jsonl", text.encode())
        _write(self.state / "window.pickle", pickle.dumps(self.progress, protocol=5))


def _is_followed(state: Path, folder: Path) -> bool:
    below = state.relative_to(folder).parts if state.is_relative_to(folder) else (".",)
    return not any(part.startswith((".", "_")) for part in below)


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.tmp")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
