"""The vectors of a process of `tcb-dynamic`: what each other member was heard to have, and what all have.

A vector has two columns per known member, see `View`. It is packed (see `lanes`). When members come or are forgotten,
all vectors get another shape, which costs one pass over them.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING

from causalcast.protocols.ordering.lanes import Lanes, Minima
from causalcast.protocols.ordering.tcb_dynamic_tag import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from causalcast.model import ProcessId, RawDot
    from causalcast.protocols.ordering.meter import Meter
    from causalcast.protocols.ordering.tcb_dynamic_messages import DotNode


class Vectors:
    """Shape, contents and minimum of the vectors."""

    def __init__(self, names: Iterable[ProcessId], topic: str, meter: Meter) -> None:
        self._meter = meter
        self._topic = topic
        self.view = View(names, topic, 0)
        self.lanes = Lanes(2 * len(self.view))
        self.heard: dict[ProcessId, int] = {}
        """By member that is counted, the past of its latest dot or phantom that counts here."""
        self._stable = 0
        self.all_have: Minima | None = None
        """`None`: nobody else is counted, so that all that is delivered is stable."""

    @property
    def stable(self) -> tuple[int, ...]:
        """What all have, by column."""
        return self.lanes.unpack(self._stable)

    @stable.setter
    def stable(self, counts: tuple[int, ...]) -> None:
        self._stable = self.lanes.pack(counts)

    def one_more_stable(self, slot: int) -> None:
        """What all have has grown by one in the column `slot`."""
        self._stable += self.lanes.units[slot]
        self._meter.count += 1

    def messages(self, past: int) -> tuple[int, ...]:
        """The counts of messages in a vector, by slot."""
        return self.lanes.head(past)

    def count(self, past: int, column: str) -> int:
        """One count of a vector."""
        lanes = self.lanes
        return past >> lanes.shifts[self.view.columns[column]] & lanes.mask

    def past(self, origin: ProcessId, dots: Iterable[RawDot], nodes: Iterable[DotNode]) -> int:
        """The join of what `origin` was heard to have, of `dots`, and of the pasts of `nodes`."""
        lanes = self.lanes
        counts = list(lanes.unpack(self.heard[origin]))
        columns = self.view.columns
        for column, counter in dots:
            slot = columns[column]
            counts[slot] = max(counts[slot], counter)
        pasts = [node.past for node in nodes]
        self._meter.count += lanes.words * len(pasts)
        return lanes.join(lanes.pack(counts), pasts)

    def one_more(self, origin: ProcessId) -> int:
        """As `past`, of a message that follows the one before of `origin` and nothing else."""
        self._meter.count += 1
        return self.heard[origin] + self.lanes.units[self.view.slots[origin]]

    def hear_one_more(self, dot: RawDot, past: int) -> Iterable[RawDot]:
        """As `hear`, of a `past` that `one_more` gave for `dot`."""
        origin, counter = dot
        slot = self.view.slots[origin]
        self.heard[origin] = past
        assert self.all_have is not None
        if not self.all_have.rise(slot, past, slot, counter):
            return ()
        self.one_more_stable(slot)
        return (dot,)

    def hear(self, member: ProcessId, past: int, delivered: Mapping[str, int]) -> list[RawDot]:
        """`member` has all of `past`; returns what is stable now and was not before."""
        if member in self.heard:
            self.heard[member] = past
            assert self.all_have is not None
            if not self.all_have.put(self.view.slots[member], past):
                return []
        elif self.all_have is not None:
            return []
        return self.settle(delivered)

    def settle(self, delivered: Mapping[str, int]) -> list[RawDot]:
        """What is stable now and was not before."""
        columns, lanes = self.view.columns, self.lanes
        before = lanes.unpack(self._stable)
        if self.all_have is None:
            self._stable = lanes.pack(delivered[column] for column in columns)
        else:
            self._stable = self.all_have.lowest
        now = lanes.unpack(self._stable)
        self._meter.count += len(before)
        risen: list[RawDot] = []
        for column, old, new in zip(columns, before, now, strict=True):
            if old < new:
                risen.extend(zip(repeat(column), range(old + 1, new + 1)))
        return risen

    def recount(self) -> None:
        """Who is counted has changed: `heard` has."""
        vectors = {self.view.slots[member]: past for member, past in self.heard.items()}
        self.all_have = Minima(self.lanes, vectors, self._meter) if vectors else None

    def widen(self, nodes: Iterable[DotNode]) -> None:
        """Lanes for larger counts."""
        self._reshape(self.view, self.lanes.wider(), nodes)

    def fit(self, largest: int) -> None:
        """Lanes for counts up to `largest`."""
        while largest >= self.lanes.limit:
            self.widen(())

    def rename(self, names: Iterable[ProcessId], nodes: Iterable[DotNode]) -> None:
        """Other members are known now; `nodes` are all that hold a vector."""
        view = View(names, self._topic, self.view.version + 1)
        self._reshape(view, Lanes(2 * len(view), self.lanes.width), nodes)

    def _reshape(self, view: View, lanes: Lanes, nodes: Iterable[DotNode]) -> None:
        old_columns, old_lanes = self.view.columns, self.lanes
        places = [old_columns.get(column) for column in view.columns]

        def reshaped(counts: tuple[int, ...]) -> Iterator[int]:
            return (0 if place is None else counts[place] for place in places)

        def repacked(past: int) -> int:
            return lanes.pack(reshaped(old_lanes.unpack(past)))

        for node in nodes:
            if node.past:
                node.past = repacked(node.past)
        self.heard = {name: repacked(past) for name, past in self.heard.items() if name in view}
        self._stable = repacked(self._stable)
        self.view, self.lanes = view, lanes
        self.recount()
