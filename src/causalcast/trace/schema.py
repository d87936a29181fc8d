"""The trace, schema version 1: one event a row, as each process saw it.

| field | type | on | meaning |
|---|---|---|---|
| process | string | all | who logged it; a process that lost its state returns under a new identity |
| seq | int64 | all | 1, 2, 3, ... without gaps in the process, in the order in which its application saw things |
| event | string | all | one of `EVENTS` |
| origin, counter | string, int64 | `MESSAGE_EVENTS` | the message: its broadcaster and its number there, from 1 |
| topic | string | where topics are used | default: one topic, the group |
| peer | string | send, receive, evict | the other process |
| time_ns | int64 | any | local clock, for latency only, never for order |
| payload_bytes, overhead_bytes | int64 | broadcast, send | bytes of the application; everything else on the wire |
| context | list of [origin, counter] | broadcast | the tag as sent, if there is one |
| schema | int64 | any | the version of this table, 1; what does not say it is of version 1 |

Our writers say the version once: JSON lines in their first row, Parquet in the file's metadata (`SCHEMA_KEY`).
"""

from __future__ import annotations

from typing import Final

import msgspec

SCHEMA_VERSION: Final = 1
SCHEMA_FIELD: Final = "schema"
"""The field of a row, or the column, that says the version."""
SCHEMA_KEY: Final = b"causalcast.schema"
"""The key in a Parquet file's metadata that does."""
OTHER_SCHEMA: Final = "trace schema "
"""What every refusal of another version begins with; the version follows."""
WHAT_IS_READ: Final = f", and what is read here is schema {SCHEMA_VERSION}"
MAX_VERSION: Final = 50
"""Characters of a version that are shown."""

MESSAGE_EVENTS: Final = frozenset({"broadcast", "deliver", "stable", "send", "receive"})
MEMBERSHIP_EVENTS: Final = frozenset({"join", "leave", "evict", "crash", "recover", "subscribe", "unsubscribe"})
EVENTS: Final = MESSAGE_EVENTS | MEMBERSHIP_EVENTS


class TraceEvent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One row of a trace. Fields that do not apply are `None` and are left out of the JSON."""

    process: str
    seq: int
    event: str
    origin: str | None = None
    counter: int | None = None
    topic: str | None = None
    peer: str | None = None
    time_ns: int | None = None
    payload_bytes: int | None = None
    overhead_bytes: int | None = None
    context: tuple[tuple[str, int], ...] | None = None


def other_schema(version: object) -> str | None:
    """Return why a trace that says `version` is not read; `None` for version 1 and for one that says nothing."""
    text = version.decode("utf-8", "replace") if isinstance(version, bytes) else str(version)
    if version is None or text == str(SCHEMA_VERSION):
        return None
    return f"{OTHER_SCHEMA}{text[:MAX_VERSION]}{WHAT_IS_READ}"
