"""The time queue: calls in order of time, and in order of insertion within the same tick.

One list per tick, and a heap of bare ticks. A call is three places in its tick's list, the function and its two
arguments: no tuple, no comparison, and no sift for calls that share a tick.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Call: TypeAlias = "Callable[[Any, Any], None]"

CALL_PLACES: Final = 3
"""How many places of a list a call takes."""


class TimeQueue:
    """Calls to make at times not before the present, in whole nanoseconds; `now` is the present."""

    __slots__ = ("_buckets", "_times", "now")

    def __init__(self) -> None:
        self.now = 0
        self._times: list[int] = []
        self._buckets: dict[int, list[Any]] = {}

    def push(self, time_ns: int, call: Call, first: Any = None, second: Any = None) -> None:
        """Make `call(first, second)` at `time_ns`; a time before `now` raises `ValueError`."""
        bucket = self._buckets.get(time_ns)
        if bucket is None:
            self._open(time_ns, [call, first, second])
        else:
            bucket += call, first, second

    def push_each(self, times_ns: Iterable[int], calls: Iterable[Call], first: Any, second: Any) -> None:
        """Make each of `calls` with the same arguments at the time in its place of `times_ns`."""
        buckets = self._buckets
        find = buckets.get
        for time, call in zip(times_ns, calls, strict=True):
            bucket = find(time)
            if bucket is None:
                self._open(time, [call, first, second])
            else:
                bucket += call, first, second

    def push_evenly(self, time_ns: int, step_ns: int, calls: Iterable[Call], first: Any, second: Any) -> None:
        """Make the first of `calls` at `time_ns`, and each other one `step_ns` after the one before it."""
        find = self._buckets.get
        for call in calls:
            bucket = find(time_ns)
            if bucket is None:
                self._open(time_ns, [call, first, second])
            else:
                bucket += call, first, second
            time_ns += step_ns

    def _open(self, time_ns: int, bucket: list[Any]) -> None:
        """The first call at a time."""
        if time_ns < self.now:
            raise ValueError(f"{time_ns} ns is before the present, {self.now} ns")
        self._buckets[time_ns] = bucket
        heappush(self._times, time_ns)

    def buckets(self, until_ns: int | None = None) -> Iterator[list[Any]]:
        """For each time in order, its list of call, first, second, call, first, ... to run; sets `now` first.

        What is pushed for the present while a list is run is appended to that list. Ends after `until_ns`.
        """
        times, buckets = self._times, self._buckets
        while times and (until_ns is None or times[0] <= until_ns):
            self.now = time = heappop(times)
            yield buckets[time]
            del buckets[time]

    def __len__(self) -> int:
        """Calls pushed for times after the present and, while a list is run, those in it."""
        return sum(map(len, self._buckets.values())) // CALL_PLACES
