"""The sections of many logs from many sources as flat columns with one list of names."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from causalcast.audit.digests import Columns
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
class Sections(Columns):
    """Some sections, each of the log `log`; `run_at` is the section of each range of numbers seen."""

    log: Ints
    run_at: Ints


def gathered(seen: Overview, topics: Bools) -> Sections:
    """Return all sections of some of the topics."""
    parts: list[Columns] = []
    logs: list[Ints] = []
    done = 0
    for source in seen.sources:
        chosen = topics[seen.topic[done : done + source.sections.size]]
        done += source.sections.size
        parts.append(_part(source, source.sections[chosen]))
        logs.append(source.log[chosen])
    columns: dict[str, Ints] = {}
    for name in (field.name for field in fields(Columns)):
        values = [getattr(part, name) for part in parts]
        of_parts = name.endswith("starts")
        columns[name] = starts_of(_joined([np.diff(each) for each in values])) if of_parts else _joined(values)
    run_at = np.repeat(np.arange(columns["topic"].size), np.diff(columns["run_starts"]))
    return Sections(**columns, log=_joined(logs), run_at=run_at)


def _part(source: Source, sections: Ints) -> Columns:
    of, codes = source.columns, source.codes
    sizes = np.diff(of.starts)[sections]
    sent = places(of.starts[sections], sizes)
    deltas = of.delta_starts[sent + 1] - of.delta_starts[sent]
    delta = places(of.delta_starts[sent], deltas)
    runs = np.diff(of.run_starts)[sections]
    run = places(of.run_starts[sections], runs)
    return Columns(
        topic=codes[of.topic[sections]],
        starts=starts_of(sizes),
        counter=of.counter[sent],
        seq=of.seq[sent],
        time=of.time[sent],
        payload=of.payload[sent],
        overhead=of.overhead[sent],
        delta_starts=starts_of(deltas),
        delta_origin=codes[of.delta_origin[delta]],
        delta_last=of.delta_last[delta].astype(np.int64),
        run_starts=starts_of(runs),
        run_origin=codes[of.run_origin[run]],
        run_first=of.run_first[run],
        run_last=of.run_last[run],
        foreign_starts=starts_of(np.diff(of.foreign_starts)[sections]),
        stables=of.stables[sections],
        before=of.before[sections],
    )


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate((np.zeros(0, dtype=np.int64), *parts))
