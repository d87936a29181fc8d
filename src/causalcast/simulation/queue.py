"""The time queue: events in order of time, and in order of insertion within the same nanosecond.

Buckets by time over a heap of bare integers: a tuple heap compares tuples at every sift, this one integers, and
events of the same time cost no sift at all.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")


class TimeQueue(Generic[T]):
    """Push at any time not before the present; pop in order."""

    __slots__ = ("_buckets", "_current", "_times", "now", "size")

    def __init__(self) -> None:
        self.now = 0
        self.size = 0
        self._times: list[int] = []
        self._buckets: dict[int, deque[T]] = {}
        self._current: deque[T] = deque()

    def push(self, time_ns: int, item: T) -> None:
        """Add `item` at `time_ns`; a time before `now` raises `ValueError`."""
        self.size += 1
        if time_ns == self.now:
            self._current.append(item)
            return
        bucket = self._buckets.get(time_ns)
        if bucket is None:
            if time_ns < self.now:
                raise ValueError(f"{time_ns} ns is before the present, {self.now} ns")
            self._buckets[time_ns] = deque((item,))
            heappush(self._times, time_ns)
        else:
            bucket.append(item)

    def pop(self) -> T:
        """The next item; moves `now` to its time. An empty queue raises `IndexError`."""
        if not self._current:
            self.now = heappop(self._times)
            self._current = self._buckets.pop(self.now)
        self.size -= 1
        return self._current.popleft()

    def __len__(self) -> int:
        return self.size
