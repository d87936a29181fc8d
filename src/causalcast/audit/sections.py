"""The sections of many logs from many sources as flat columns with one list of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.ranges import places, starts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from causalcast.audit.digests import Indices, LogIndex

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Source:
    """Columns of logs; of them count the `sections`, each of the log `log`. `codes` are new indices of its names."""

    columns: Indices
    sections: Ints
    log: Ints
    codes: Ints


@dataclass(frozen=True, slots=True)
class Overview:
    """What the logs have in each section. `topic` is an index into `names`, which are sorted and begin with \"\"."""

    names: list[str]
    code: dict[str, int]
    sources: list[Source]
    log: Ints
    topic: Ints
    sent: Ints
    """How many broadcasts."""


def overview(logs: Sequence[LogIndex]) -> Overview:
    """List the sections of `logs`; `log` is an index into them."""
    by_source: dict[int, list[int]] = {}
    for number, log in enumerate(logs):
        by_source.setdefault(id(log.source), []).append(number)
    columns = [logs[numbers[0]].source for numbers in by_source.values()]
    names = sorted({""}.union(*(source.names for source in columns)))
    code = {name: i for i, name in enumerate(names)}
    sources = []
    for source, numbers in zip(columns, by_source.values(), strict=True):
        mine = np.array([logs[number].place for number in numbers], dtype=np.int64)
        sizes = source.sections[mine + 1] - source.sections[mine]
        codes = np.array([*(code[name] for name in source.names), 0], dtype=np.int64)
        sections = places(source.sections[mine], sizes)
        sources.append(Source(source, sections, np.repeat(np.array(numbers, dtype=np.int64), sizes), codes))
    return Overview(
        names=names,
        code=code,
        sources=sources,
        log=_joined([source.log for source in sources]),
        topic=_joined([source.codes[source.columns.topic[source.sections]] for source in sources]),
        sent=_joined([np.diff(source.columns.starts)[source.sections] for source in sources]),
    )


@dataclass(frozen=True, slots=True)
class Sections:
    """Some sections, with their broadcasts, dependencies and what was seen; columns as in `Indices`.

    `at` is the section of each broadcast, `run_at` of each range of numbers seen.
    """

    log: Ints
    topic: Ints
    starts: Ints
    counter: Ints
    seq: Ints
    time: Ints
    payload: Ints
    overhead: Ints
    delta_starts: Ints
    delta_origin: Ints
    delta_last: Ints
    run_at: Ints
    run_origin: Ints
    run_first: Ints
    run_last: Ints
    foreign: Ints
    stables: Ints


def gathered(seen: Overview, topics: Bools) -> Sections:
    """Return all sections of some of the topics."""
    parts: dict[str, list[Ints]] = {name: [] for name in _GATHERED}
    done = 0
    for source in seen.sources:
        chosen = topics[seen.topic[done : done + source.sections.size]]
        done += source.sections.size
        for name, values in _part(source, source.sections[chosen], source.log[chosen]).items():
            parts[name].append(values)
    columns = {name: _joined(values) for name, values in parts.items()}
    return Sections(
        starts=starts_of(columns.pop("sent")),
        delta_starts=starts_of(columns.pop("deltas")),
        run_at=np.repeat(np.arange(columns["log"].size), columns.pop("runs")),
        **columns,
    )


_GATHERED = (
    *("log", "topic", "sent", "counter", "seq", "time", "payload", "overhead", "deltas", "delta_origin"),
    *("delta_last", "runs", "run_origin", "run_first", "run_last", "foreign", "stables"),
)


def _part(source: Source, sections: Ints, log: Ints) -> dict[str, Ints]:
    of, codes = source.columns, source.codes
    sizes = np.diff(of.starts)[sections]
    sent = places(of.starts[sections], sizes)
    deltas = of.delta_starts[sent + 1] - of.delta_starts[sent]
    delta = places(of.delta_starts[sent], deltas)
    runs = np.diff(of.run_starts)[sections]
    run = places(of.run_starts[sections], runs)
    return {
        "log": log,
        "topic": codes[of.topic[sections]],
        "sent": sizes,
        "counter": of.counter[sent],
        "seq": of.seq[sent],
        "time": of.time[sent],
        "payload": of.payload[sent],
        "overhead": of.overhead[sent],
        "deltas": deltas,
        "delta_origin": codes[of.delta_origin[delta]],
        "delta_last": of.delta_last[delta].astype(np.int64),
        "runs": runs,
        "run_origin": codes[of.run_origin[run]],
        "run_first": of.run_first[run],
        "run_last": of.run_last[run],
        "foreign": np.diff(of.foreign_starts)[sections],
        "stables": of.stables[sections],
    }


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate((np.zeros(0, dtype=np.int64), *parts))
