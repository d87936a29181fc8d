"""Prometheus metrics of a member. Needs the extra `metrics`: `pip install 'causalcast[metrics]'`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from causalcast.runtime.group import Group
    from causalcast.runtime.status import Status

ANSWER_SECONDS: Final = 5.0
"""How long a scrape waits for the event loop of the group."""

_COUNTERS: Final = {
    "broadcasts": "Messages that this member has broadcast.",
    "deliveries": "Messages of others that the application has taken.",
    "stable": "Messages that the application knows to be stable.",
}
_GAUGES: Final = {
    "untaken": "Events that wait for the application.",
    "pending": "Messages received that wait for a cause.",
    "unstable": "Own messages that are not known to be stable: the lag of stability.",
    "resend_bytes": "Bytes kept for peers until they acknowledge them, or can be written.",
}


class GroupCollector(Collector):
    """The metrics of one group, made inside its event loop: `REGISTRY.register(GroupCollector(group))`.

    A scrape runs in a thread of its own and asks the loop; it raises `TimeoutError` if the loop is busy for
    `ANSWER_SECONDS`.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._loop = asyncio.get_running_loop()

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not ask the loop that it runs in."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """One family for each metric, with the labels `group` and `member`, links with `peer` besides."""
        status = asyncio.run_coroutine_threadsafe(self._status(), self._loop).result(ANSWER_SECONDS)
        names, labels = ("group", "member"), (status.group, status.name)
        for field, text in _COUNTERS.items():
            counter = CounterMetricFamily(f"causalcast_{field}", text, labels=names)
            counter.add_metric(labels, getattr(status, field))
            yield counter
        for field, text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"causalcast_{field}", text, labels=names)
            gauge.add_metric(labels, getattr(status, field))
            yield gauge
        tables = GaugeMetricFamily(
            "causalcast_table_entries", "Entries of a table of the stack.", labels=(*names, "table")
        )
        for table, size in status.tables.items():
            tables.add_metric((*labels, table), size)
        yield tables
        up = GaugeMetricFamily("causalcast_link_up", "Whether a link has a connection.", labels=(*names, "peer"))
        for link in status.links:
            up.add_metric((*labels, link.peer), link.connected)
        yield up

    async def _status(self) -> Status:
        return self._group.status()
