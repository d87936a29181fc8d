"""What logs say of their links: sends, receptions, and how long a received message waits for its delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from causalcast.audit.events import DELIVER, NO_VALUE, RECEIVE, SEND
from causalcast.audit.ranges import keys_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from causalcast.audit.logs import LogColumns
    from causalcast.audit.received import Received

    Ints = NDArray[np.int64]

_OUTLYING: Final = 10
"""A log's times are cut to their middle 98 % when all of them reach this many times as far."""
_ENOUGH: Final = 100
"""Times from which on a log has a middle."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Sends, receptions, and those receptions that brought what was there already."""

    sends: int = 0
    receives: int = 0
    redundant: int = 0


@dataclass(frozen=True, slots=True)
class Links:
    """Times on the links of many logs, in nanoseconds, `NO_VALUE` where a row has none; `*_log` is whose they are.

    `received` and `released` are of the messages received first: of the reception, and of the delivery after it.
    """

    received_log: Ints
    received: Ints
    released: Ints
    redundant_log: Ints
    redundant: Ints
    sent_log: Ints
    sent: Ints

    def among(self, chosen: Ints, logs: int) -> Links:
        """Return what is of the `chosen` of the `logs`."""
        wanted = np.zeros(logs, dtype=bool)
        wanted[chosen] = True
        received, again, sent = (wanted[log] for log in (self.received_log, self.redundant_log, self.sent_log))
        return Links(
            self.received_log[received],
            self.received[received],
            self.released[received],
            self.redundant_log[again],
            self.redundant[again],
            self.sent_log[sent],
            self.sent[sent],
        )


def count_links(own: Ints, rows: LogColumns, log: Ints, keep: Ints, before: Received) -> tuple[Ints, Links | None]:
    """Count the sends and receptions among the rows `keep`, which are by log and in each log's order.

    Args:
        own: the name of each log's process, as an index.
        rows: the rows of all logs.
        log: whose row each is.
        keep: the rows that count.
        before: what the logs received by rows that are left out.

    Returns:
        The traffic of each log as a row of the numbers in `Traffic`, and the times.
    """
    event = rows.event[keep]
    sent, received = keep[event == SEND], keep[event == RECEIVE]
    traffic = np.zeros((own.size, 3), dtype=np.int64)
    if sent.size + received.size == 0:
        return traffic, None
    delivered = keep[event == DELIVER]
    both = np.concatenate((received, delivered))
    codes = keys_of(log[both], rows.topic[both], rows.origin[both], rows.counter[both])
    message, release = codes[: received.size], codes[received.size :]
    first = np.zeros(received.size, dtype=bool)
    first[np.unique(message, return_index=True)[1]] = True
    first &= rows.origin[received] != own[log[received]]
    first[first] = ~before.has(rows, log, received[first])
    fresh, again = received[first], received[~first]
    released = np.full(fresh.size, NO_VALUE, dtype=np.int64)
    if release.size:
        ordered = np.argsort(release, kind="stable")
        at = np.minimum(np.searchsorted(release[ordered], message[first]), release.size - 1)
        row = delivered[ordered[at]]
        hit = (release[ordered[at]] == message[first]) & (rows.seq[row] > rows.seq[fresh])
        released[hit] = rows.time[row[hit]]
    for column, part in enumerate((sent, received, again)):
        traffic[:, column] = np.bincount(log[part], minlength=own.size)
    time = rows.time
    return traffic, Links(log[fresh], time[fresh], released, log[again], time[again], log[sent], time[sent])


def spans_of(log: Ints, times: Ints, logs: int) -> Ints:
    """Return the first and the last time of each log, leaving out a few that lie far from all others.

    `log` must not fall. A log without times has `NO_VALUE`.
    """
    spans = np.full((logs, 2), NO_VALUE, dtype=np.int64)
    known = times != NO_VALUE
    log, times = log[known], times[known]
    if times.size == 0:
        return spans
    heads = np.flatnonzero(np.append(True, log[1:] != log[:-1]))
    ends = np.append(heads[1:], times.size)
    spans[log[heads], 0] = np.minimum.reduceat(times, heads)
    spans[log[heads], 1] = np.maximum.reduceat(times, heads)
    falls = np.add.reduceat(np.append(False, (times[1:] < times[:-1]) & (log[1:] == log[:-1])), heads)
    for i in np.flatnonzero(ends - heads >= _ENOUGH).tolist():
        mine = times[heads[i] : ends[i]]
        at = [round(share * (mine.size - 1)) for share in (0.01, 0.99)]
        low, high = (int(time) for time in (np.partition(mine, at) if falls[i] else mine)[at])
        first, last = (int(time) for time in spans[log[heads[i]]])
        if last - first > _OUTLYING * max(high - low, 1):
            spans[log[heads[i]]] = low, high
    return spans
