"""Traces for the audit's benchmark: causally ordered runs of several shapes, all of which pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray


BLOCK: Final = 500_000
"""Messages that are drawn at once: the memory of `write_trace` is bounded by it and not by the trace."""


def write_trace(folder: Path, processes: int, events: int, seed: int = 1) -> int:
    """Write a causally ordered execution, one Parquet file per process; return the number of rows.

    Processes are points in a square and a message takes as long as the distance: by the triangle inequality no
    message overtakes one that it depends on.
    """
    rng = np.random.default_rng(seed)
    messages = events // processes
    place = rng.random((processes, 2)) * 30.0 * processes
    names = [f"p{process:03d}" for process in range(processes)]
    before = np.zeros(processes, dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    waiting = [(nothing, nothing, nothing)] * processes
    done = np.zeros(processes, dtype=np.int64)
    writers: dict[int, pq.ParquetWriter] = {}
    for first in range(0, messages, BLOCK):
        end = min(messages, first + BLOCK)
        sender = rng.integers(0, processes, end - first)
        block = (np.arange(first, end), sender, _numbers(sender, before))
        for process in range(processes):
            sent, sender, counter = (np.concatenate(both) for both in zip(waiting[process], block, strict=True))
            arrival = sent + np.sqrt(((place[sender] - place[process]) ** 2).sum(axis=1))
            here = arrival < end if end < messages else np.ones(sent.size, dtype=bool)
            waiting[process] = (sent[~here], sender[~here], counter[~here])
            order = np.flatnonzero(here)[np.argsort(arrival[here], kind="stable")]
            own = sender[order] == process
            table = pa.table(
                {
                    "process": _words(np.zeros(order.size, dtype=np.int64), names[process : process + 1]),
                    "seq": done[process] + np.arange(1, order.size + 1),
                    "event": _words(own.astype(np.int64), ["deliver", "broadcast"]),
                    "origin": _words(sender[order], names),
                    "counter": counter[order],
                    "time_ns": (arrival[order] * 1e6).astype(np.int64),
                    "payload_bytes": pa.array(np.where(own, 64, 0), mask=~own),
                }
            )
            done[process] += order.size
            if process not in writers:
                writers[process] = pq.ParquetWriter(
                    folder / f"{names[process]}.parquet", table.schema, compression="zstd"
                )
            writers[process].write_table(table)
            if end == messages:
                writers.pop(process).close()
    return messages * processes


def _numbers(sender: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return each message's number, and count what each sender has sent `before`."""
    order = np.argsort(sender, kind="stable")
    sizes = np.bincount(sender, minlength=before.size)
    numbers = np.empty(sender.size, dtype=np.int64)
    numbers[order] = np.arange(1, sender.size + 1) - np.repeat(np.cumsum(sizes) - sizes - before, sizes)
    before += sizes
    return numbers


def _words(codes: NDArray[np.int64], words: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(codes, words).cast(pa.string())


def write_lines(folder: Path, processes: int, events: int, *, faults: int = 0) -> int:
    """Write the same run as JSON lines, one file per process; return the number of rows.

    With `faults`, each process delivers its next two messages in the wrong order after each so many rows.
    """
    rows = write_trace(folder, processes, events)
    for path in sorted(folder.glob("*.parquet")):
        encode = msgspec.json.Encoder().encode_lines
        with path.with_suffix(".jsonl").open("wb") as file:
            for batch in pq.ParquetFile(path).iter_batches():
                lines = [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]
                for at in range(faults, len(lines), faults) if faults else ():
                    _exchange(lines, at)
                file.write(encode(lines))
        path.unlink()
    return rows


def _exchange(rows: list[dict[str, object]], at: int) -> None:
    """Let two deliveries behind a row change places in their log."""
    one, other = [row for row in rows[at : at + 50] if row["event"] == "deliver"][:2]
    for name in ("origin", "counter"):
        one[name], other[name] = other[name], one[name]


def write_turnover(folder: Path, processes: int, events: int, *, to_the_end: bool = False) -> int:
    """Write a run in which a fifth of the processes join, two leave, and one crashes and is evicted by the others.

    With `to_the_end` one of them joins, and one more leaves, in the last 0.3 %. JSON lines, one file per process;
    return the number of rows. A process delivers all messages in the order in which they were sent, each as late as
    the others.
    """
    messages = events // processes
    come = {process: messages * (process % 7 + 1) // 12 for process in range(processes - processes // 5, processes)}
    go = {0: messages // 2, 1: messages * 3 // 5, 2: messages * 11 // 20}
    evicted, crashed_at = 2, go[2] + 2 * _MOST_LATE
    if to_the_end:
        come[processes - 1], go[3] = messages * 998 // 1000, messages * 997 // 1000
    sent = dict.fromkeys(range(processes), 0)
    dots: list[tuple[int, int]] = []
    for at in range(messages):
        process = at % processes
        while not come.get(process, 0) < at < go.get(process, messages) and process != processes // 2:
            process = (process + 1) % processes
        sent[process] += 1
        dots.append((process, sent[process]))
    encode = msgspec.json.Encoder().encode_lines
    total = 0
    for process in range(processes):
        late, first, end = 1 + 7 * process % _MOST_LATE, come.get(process, 0), go.get(process, 2 * messages)
        rows: list[tuple[int, dict[str, object]]] = [(first, {"event": "join"})] if first else []
        for at, (sender, number) in enumerate(dots):
            what = {"origin": f"p{sender:03d}", "counter": number}
            if sender == process:
                rows.append((at, {"event": "broadcast", **what, "payload_bytes": 64}))
            elif first <= at < end - late:
                rows.append((at + late, {"event": "deliver", **what}))
        if end == 2 * messages and first < crashed_at:
            rows.append((crashed_at, {"event": "evict", "peer": f"p{evicted:03d}"}))
        elif process in go:
            rows.append((end, {"event": "crash" if process == evicted else "leave"}))
        rows.sort(key=lambda row: row[0])
        log = (
            {"process": f"p{process:03d}", "seq": i + 1, "time_ns": 10**6 * at, **row}
            for i, (at, row) in enumerate(rows)
        )
        (folder / f"p{process:03d}.jsonl").write_bytes(encode(log))
        total += len(rows)
    return total


_MOST_LATE: Final = 40


def write_joined(folder: Path, processes: int, events: int) -> int:
    """Write the same run as one Parquet file; return the number of rows."""
    rows = write_trace(folder, processes, events)
    paths = sorted(folder.glob("*.parquet"))
    table = pa.concat_tables([pq.ParquetFile(path).read() for path in paths])
    pq.write_table(table, folder / "all.parquet", compression="zstd", row_group_size=200_000)
    for path in paths:
        path.unlink()
    return rows


def write_crash(folder: Path, processes: int, events: int) -> int:
    """Write the same run, but one process delivers nothing in the second half of its log and then crashes."""
    rows = write_trace(folder, processes, events)
    path = min(folder.glob("*.parquet"))
    whole = pq.ParquetFile(path).read()
    given = np.asarray(pc.equal(whole["event"], "deliver"))
    given[: given.size // 2] = False
    crash = pa.table({"process": whole["process"][:1], "event": ["crash"]})
    kept = pa.concat_tables([whole.filter(pa.array(~given)), crash], promote_options="default")
    seq = pa.array(np.arange(1, kept.num_rows + 1))
    pq.write_table(kept.set_column(kept.schema.get_field_index("seq"), "seq", seq), path, compression="zstd")
    return rows - int(given.sum()) + 1


def without_one_each(write: Callable[[Path, int, int], int], column: str) -> Callable[[Path, int, int], int]:
    """Return a function that writes a trace in one file, but without one delivery of each value of a column."""

    def written(folder: Path, number: int, events: int) -> int:
        write(folder, number, events)
        path = folder / "all.parquet"
        whole = pq.read_table(path).combine_chunks()
        given = np.flatnonzero(np.asarray(pc.equal(whole["event"], "deliver")))
        given = np.random.default_rng(1).permutation(given)
        value = np.asarray(pc.dictionary_encode(whole[column]).combine_chunks().indices)
        kept = np.ones(whole.num_rows, dtype=bool)
        kept[given[np.unique(value[given], return_index=True)[1]]] = False
        left = whole.filter(pa.array(kept))
        process = np.asarray(pc.dictionary_encode(left["process"]).combine_chunks().indices)
        order = np.lexsort((np.asarray(left["seq"]), process))
        sizes = np.bincount(process)
        seq = np.empty(order.size, dtype=np.int64)
        seq[order] = np.arange(1, order.size + 1) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        left = left.set_column(left.schema.get_field_index("seq"), "seq", pa.array(seq))
        pq.write_table(left, path, compression="zstd", row_group_size=200_000)
        return int(kept.sum())

    return written


def write_topics(folder: Path, topics: int, events: int, members: int = 4) -> int:
    """Write topics of a few processes each, two for each process, all in one file; return the number of rows.

    In each topic the members broadcast in turn, and all deliver all messages in that order.
    """
    messages = events // (topics * members)
    process_of = (np.arange(topics)[:, None] + np.arange(members)[None, :] * (topics // 8 + 1)) % (topics // 2)
    seq = np.zeros(topics // 2, dtype=np.int64)
    sent = np.zeros(topics // 2, dtype=np.int64)
    columns: dict[str, list[object]] = {name: [] for name in ("process", "seq", "event", "origin", "counter", "topic")}

    def log(process: int, event: str, origin: int | None, counter: int | None, topic: int) -> None:
        seq[process] += 1
        name = None if origin is None else f"p{origin:05d}"
        values = (f"p{process:05d}", int(seq[process]), event, name, counter, f"t{topic:05d}")
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)

    for topic in range(topics):
        for process in process_of[topic].tolist():
            log(process, "subscribe", None, None, topic)
    for turn in range(messages):
        for topic in range(topics):
            group = process_of[topic].tolist()
            origin = group[turn % members]
            sent[origin] += 1
            log(origin, "broadcast", origin, int(sent[origin]), topic)
            for process in group:
                if process != origin:
                    log(process, "deliver", origin, int(sent[origin]), topic)
    pq.write_table(pa.table(columns), folder / "all.parquet", compression="zstd", row_group_size=200_000)
    return len(columns["seq"])


def write_hub(folder: Path, processes: int, events: int) -> int:
    """Write a run in which one process hears of each message of a topic that it shares with its sender alone.

    It has half of all rows.
    """
    each = events // (2 * processes)
    names = [f"p{process:03d}" for process in range(processes)]
    sender = np.tile(np.arange(processes), each)
    counter = np.repeat(np.arange(1, each + 1), processes)
    hub = pa.table(
        {
            "process": pa.array(["hub"] * (processes * (each + 1)), pa.string()),
            "seq": np.arange(1, processes * (each + 1) + 1),
            "event": pa.array(["subscribe"] * processes + ["deliver"] * (processes * each), pa.string()),
            "origin": pa.array([None] * processes + [names[i] for i in sender.tolist()], pa.string()),
            "counter": pa.array([None] * processes + counter.tolist(), pa.int64()),
            "topic": pa.array(names + [names[i] for i in sender.tolist()], pa.string()),
        }
    )
    pq.write_table(hub, folder / "hub.parquet", compression="zstd")
    for name in names:
        table = pa.table(
            {
                "process": pa.array([name] * (each + 1), pa.string()),
                "seq": np.arange(1, each + 2),
                "event": pa.array(["subscribe"] + ["broadcast"] * each, pa.string()),
                "origin": pa.array([None] + [name] * each, pa.string()),
                "counter": pa.array([None, *range(1, each + 1)], pa.int64()),
                "topic": pa.array([name] * (each + 1), pa.string()),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    return 2 * processes * (each + 1)
