"""NDJSON traces with vector clocks, as users of TLA+ write them to check an implementation against its specification.

Each line is an object with the process, its vector clock and what happened: `>` a send, `<` a reception, anything
else an event of the process alone. Lines stand in any order. A line without a clock sets parameters (`{"N": 5}`)
and is no event. This is the form of EWD998ChanTrace in tlaplus/Examples; `TlaFields` names other fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from causalcast.trace.importers.items import (
    MAX_TEXT,
    ClockedEvent,
    Item,
    Rejected,
    lines_of,
    rejected,
    whole_clock,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class TlaFields:
    """Where a line has what: names of fields, with dots into nested objects."""

    event: str = "event"
    process: str = "node"
    clock: str = "pkt.vc"
    sender: str = "pkt.snd"
    receiver: str = "pkt.rcv"
    message: str = "pkt.msg"
    send: str = ">"
    """The value of `event` that is a send."""
    receive: str = "<"


def tla(*paths: str | os.PathLike[str], fields: TlaFields | None = None) -> Iterator[Item]:
    """Yield a `ClockedEvent` for each line that carries a clock.

    A message is named by sender, receiver and content. Several may have one name: the audit pairs the k-th send of
    a name with its k-th reception. Clocks may grow only by what is received. Line by line, in constant memory.

    Raises:
        OSError: the file cannot be read.
    """
    names = fields or TlaFields()
    for source in map(Path, paths):
        with source.open("rb") as file:
            for line in lines_of(source, file):
                item = line if isinstance(line, Rejected) else _item(*line, names, source)
                if item is not None:
                    yield item


def _item(number: int, text: bytes, names: TlaFields, path: Path) -> Item | None:
    try:
        row = msgspec.json.decode(text)
        if not isinstance(row, dict):
            raise ValueError("not a JSON object")
        clock = _at(row, names.clock)
        if clock is None and _at(row, names.process) is None:
            return None
        return _event(row, clock, names, path, number)
    except (ValueError, RecursionError) as error:
        return rejected(path, number, _told(error), text)


def _event(row: dict[str, Any], clock: object, names: TlaFields, path: Path, number: int) -> ClockedEvent:
    process = _name(row, names.process)
    kind = _at(row, names.event)
    message = None
    if kind in (names.send, names.receive):
        content = msgspec.json.encode(_at(row, names.message), order="sorted").decode()
        message = f"{_name(row, names.sender)}>{_name(row, names.receiver)} {content}"
        end = names.sender if kind == names.send else names.receiver
        if _name(row, end) != process:
            raise ValueError(f"{names.process} is {process!r}, and {end} is {_name(row, end)!r}")
    return ClockedEvent(
        process,
        str(path),
        number,
        whole_clock(clock),
        sends=message if kind == names.send else None,
        receives=(message,) if message is not None and kind == names.receive else (),
        exact=True,
        text=f"{kind} {message or ''}".strip()[:MAX_TEXT],
    )


def _at(row: dict[str, Any], place: str) -> Any:
    value: Any = row
    for name in place.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _name(row: dict[str, Any], place: str) -> str:
    value = _at(row, place)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{place} names no process")
    return str(value)


def _told(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return f"not JSON: {error}" if isinstance(error, msgspec.DecodeError) else str(error)
