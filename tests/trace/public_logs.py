"""Public logs with a known verdict: the whole file where the shared folder is there, else the excerpt beside this."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from causalcast.trace.importers import ShivizPatterns, shiviz, tla

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from causalcast.trace.importers import Item

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
EXCERPTS = Path(__file__).with_name("data")

AKKA = ShivizPatterns(
    r"\[\w+\] \[(?<date>([^ ]+ [^ ]+))\] [^ ]+ \[akka://Broadcast/user/(?<host>\w+)\] (?<clock>.*\}) (?<event>.*)",
    broadcast=r"Initiating RBBroadcast\(DataMessage\((?<message>\d+)",
    deliver=r"RBDeliver of message DataMessage\((?<message>\d+)",
    crash="^Crashing$",
)
EVENT_FIRST = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"

LOGS: dict[str, Callable[[Path], Iterator[Item]]] = {
    "shiviz_reliable-broadcast.log": lambda path: shiviz(path, patterns=AKKA),
    "shiviz_simple-reliable-broadcast.log": lambda path: shiviz(path, patterns=AKKA),
    "shiviz_chord.log": shiviz,
    "shiviz_voldemort.log": lambda path: shiviz(path, patterns=ShivizPatterns(EVENT_FIRST)),
    "shiviz_facebook-multiple.log": lambda path: shiviz(
        path, patterns=ShivizPatterns(EVENT_FIRST, delimiter=r"^=== (?<trace>.*) ===$")
    ),
    "ewd998_EWD998ChanTrace.ndjson": tla,
}

EVENTS = {
    "shiviz_reliable-broadcast.log": (116, 116),
    "shiviz_simple-reliable-broadcast.log": (39, 39),
    "shiviz_chord.log": (1235, 120),
    "shiviz_voldemort.log": (864, 9),
    "shiviz_facebook-multiple.log": (88, 88),
    "ewd998_EWD998ChanTrace.ndjson": (654, 90),
}
"""Events in the whole file and in the excerpt."""


def items(name: str, *, excerpt: bool = False) -> list[Item]:
    """Import a public log."""
    folder = EXCERPTS if excerpt or not SHARED.is_dir() else SHARED
    return list(LOGS[name](folder / name))


def folders() -> list[bool]:
    """Whether to use the excerpts: these always, the whole files where they are."""
    return [True, False] if SHARED.is_dir() else [True]
