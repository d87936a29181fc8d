"""What one log says of its links: sends, receptions, and how long a received message waits for its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import DELIVER, NO_VALUE, RECEIVE, SEND

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns

    Ints = NDArray[np.int64]

_OUTLYING: Final = 10
"""A log's times are cut to their middle 98 % when all of them reach this many times as far."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sends, receptions, and those receptions that brought what was there already."""

    sends: int = 0
    receives: int = 0
    redundant: int = 0


NO_TRAFFIC: Final = Traffic()


@dataclass(frozen=True, slots=True)
class Links:
    """Times of one log, in nanoseconds, `NO_VALUE` where a row has none.

    `received` and `released` are of the messages received first: of the reception, and of the delivery after it.
    """

    received: Ints
    released: Ints
    redundant: Ints
    sent: Ints


def count_links(own: int, rows: LogColumns, keep: Ints) -> tuple[Traffic, Links | None]:
    """Count the sends and receptions among the rows `keep`, which are in the log's order; `own` is its process."""
    event = rows.event[keep]
    sent, received = keep[event == SEND], keep[event == RECEIVE]
    if sent.size + received.size == 0:
        return NO_TRAFFIC, None
    delivered = keep[event == DELIVER]
    both = np.concatenate((received, delivered))
    codes = _codes(rows, both)
    message, release = codes[: received.size], codes[received.size :]
    first = np.zeros(received.size, dtype=bool)
    first[np.unique(message, return_index=True)[1]] = True
    first &= rows.origin[received] != own
    fresh = received[first]
    released = np.full(fresh.size, NO_VALUE, dtype=np.int64)
    if release.size:
        ordered = np.argsort(release, kind="stable")
        at = np.minimum(np.searchsorted(release[ordered], message[first]), release.size - 1)
        row = delivered[ordered[at]]
        hit = (release[ordered[at]] == message[first]) & (rows.seq[row] > rows.seq[fresh])
        released[hit] = rows.time[row[hit]]
    links = Links(rows.time[fresh], released, rows.time[received[~first]], rows.time[sent])
    return Traffic(int(sent.size), int(received.size), int((~first).sum())), links


def _codes(rows: LogColumns, part: Ints) -> Ints:
    """Number the messages of rows: equal numbers are equal messages."""
    columns = np.stack((rows.topic[part], rows.origin[part], rows.counter[part]))
    codes: Ints = np.unique(columns, axis=1, return_inverse=True)[1].reshape(-1)
    return codes


def span_of(times: Ints) -> tuple[int, int] | None:
    """Return the first and the last time, leaving out a few that lie far from all others."""
    known = times[times != NO_VALUE]
    if known.size == 0:
        return None
    first, last = int(known.min()), int(known.max())
    if known.size >= 100:
        low, high = (int(q) for q in np.quantile(known, (0.01, 0.99), method="nearest"))
        if last - first > _OUTLYING * max(high - low, 1):
            return low, high
    return first, last
